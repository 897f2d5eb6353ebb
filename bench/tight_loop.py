"""PyTorch's usual call in a bare loop, without pyxfer: what a machine's cache gives the published benchmark.

    python bench/tight_loop.py [--batches 8:512:x4] [--export-json F]

`torch.from_numpy(x).to("cuda")` is repeated, once with one array and once with arrays that are together larger than the
last-level cache, and only a host clock is read, before the first call and after the last one has ended. The published
benchmark sends one array again and again; where that fits into the share of the cache that this machine leaves to one
process, pageable memory is read at the cache's speed, else at the memory's. Set the figures beside `torch.to` of
`pyxfer frameworks torch --workload image-batch`, which does the same with a cast and a row read back.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import shared

from pyxfer import native
from pyxfer._ceiling.ways import checked_sizes
from pyxfer._document.files import check_writable
from pyxfer._document.runs import Device, Environment, Fact
from pyxfer._frameworks.place import IMAGE_BYTES
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import last_level_bytes

LOOP_S = 0.3
ROUNDS = 5


class Row(msgspec.Struct, frozen=True):
    """One size: GB/s of each loop, in the order they ran."""

    batch: int
    one_array_gbps: tuple[float, ...]
    many_arrays_gbps: tuple[float, ...]


class TightLoop(msgspec.Struct, frozen=True):
    """The document."""

    device: Device
    environment: Environment
    torch: str
    last_level_bytes: Fact[int]
    rows: tuple[Row, ...]
    kind: Literal["tight-loop"] = "tight-loop"
    schema_version: int = 1


def loop_gbps(torch: Any, arrays: Sequence[Any]) -> float:
    """Repeat the call for a while, taking the arrays in turn."""
    nbytes = arrays[0].nbytes
    torch.from_numpy(arrays[0]).to("cuda")
    calls = max(4, int(LOOP_S * 10e9 / nbytes))
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(calls):
        torch.from_numpy(arrays[number % len(arrays)]).to("cuda")
    torch.cuda.synchronize()
    return float(nbytes * calls / (time.perf_counter() - begun) / 1e9)


def measure(torch: Any, batch: int, cache_bytes: int) -> Row:
    """Both loops in turns."""
    nbytes = batch * IMAGE_BYTES
    count = max(2, -(-2 * cache_bytes // nbytes))
    random = np.random.default_rng(1)
    arrays = [random.integers(0, 5, nbytes, dtype=np.uint8) for _ in range(count)]
    pairs = [(loop_gbps(torch, arrays[:1]), loop_gbps(torch, arrays)) for _ in range(ROUNDS)]
    return Row(batch, tuple(one for one, _ in pairs), tuple(many for _, many in pairs))


def table(document: TightLoop) -> str:
    """Medians, and from where to where the rounds went."""
    lines = [[str(row.batch), *_figures(row.one_array_gbps), *_figures(row.many_arrays_gbps)] for row in document.rows]
    return shared.aligned(["batch", "one array, GB/s", "from to", "many arrays, GB/s", "from to"], lines)


def _figures(gbps: Sequence[float]) -> tuple[str, str]:
    return f"{np.median(gbps):.1f}", f"{min(gbps):.1f} to {max(gbps):.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Time, print, write."""
    parser = argparse.ArgumentParser(description="PyTorch's usual call in a bare loop.")
    parser.add_argument("--batches", default="8:512:x4", help="images a call (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write every figure to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    engine = native.choose(0, require_gpu=True).engine
    device = find_device(engine, 0)
    torch = import_module("torch")
    cache = last_level_bytes()
    rows = tuple(measure(torch, batch, cache.value or 0) for batch in checked_sizes(options.batches))
    document = TightLoop(device, read_environment(engine, device), str(torch.__version__), cache, rows)
    print(shared.machine_line(document.device, document.environment))
    print(table(document))
    shared.write_document(options.export_json, document)
    return 0


if __name__ == "__main__":
    shared.run_script(main)
