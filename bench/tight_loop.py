"""Times PyTorch's usual call in a loop without pyxfer, to show the effect of the CPU cache on the published benchmark.

    python bench/tight_loop.py [--batches 8:512:x4] [--export-json F]

`torch.from_numpy(x).to("cuda")` is repeated, once with a single array and once with arrays that together exceed the
last-level cache. Only a host clock is read, before the first call and after the last one has ended. The published
benchmark sends the same array repeatedly. If the array fits into the part of the cache that one process can use,
pageable memory is read at the speed of the cache. Compare the figures with `torch.to` in
`pyxfer frameworks torch --workload image-batch`, which adds a cast and the read-back of one row.
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
from pyxfer._document.files import check_writable
from pyxfer._document.machines import Device, Environment, Fact
from pyxfer._frameworks.base import IMAGE_BYTES
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import last_level_bytes
from pyxfer.units import sizes_of

LOOP_S = 0.3
ROUNDS = 5


class Row(msgspec.Struct, frozen=True):
    """One batch size: GB/s of both loops in each round."""

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
    """Repeat the call for about `LOOP_S`, cycling through the arrays."""
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
    """Run both loops alternately."""
    nbytes = batch * IMAGE_BYTES
    count = max(2, -(-2 * cache_bytes // nbytes))
    random = np.random.default_rng(1)
    arrays = [random.integers(0, 5, nbytes, dtype=np.uint8) for _ in range(count)]
    pairs = [(loop_gbps(torch, arrays[:1]), loop_gbps(torch, arrays)) for _ in range(ROUNDS)]
    return Row(batch, tuple(one for one, _ in pairs), tuple(many for _, many in pairs))


def table(document: TightLoop) -> str:
    """The table: medians and ranges of the rounds."""
    lines = [[str(row.batch), *_figures(row.one_array_gbps), *_figures(row.many_arrays_gbps)] for row in document.rows]
    return shared.aligned(["batch", "one array, GB/s", "from to", "many arrays, GB/s", "from to"], lines)


def _figures(gbps: Sequence[float]) -> tuple[str, str]:
    return f"{np.median(gbps):.1f}", f"{min(gbps):.1f} to {max(gbps):.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the document."""
    parser = argparse.ArgumentParser(description="Time PyTorch's usual call in a loop.")
    parser.add_argument("--batches", default="8:512:x4", help="images per call (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write every figure to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    engine = native.choose(0, require_gpu=True).engine
    device = find_device(engine, 0)
    torch = import_module("torch")
    cache = last_level_bytes()
    rows = tuple(measure(torch, batch, cache) for batch in sizes_of(options.batches, "--batches"))
    document = TightLoop(device, read_environment(engine, device), str(torch.__version__), Fact(cache), rows)
    print(shared.machine_line(document.device, document.environment))
    print(table(document))
    shared.write_document(options.export_json, document)
    return 0


if __name__ == "__main__":
    shared.run_script(main)
