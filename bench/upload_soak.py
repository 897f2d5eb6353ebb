"""Uploads for a long time and checks that contents are correct and memory does not grow.

    python bench/upload_soak.py [--to own|torch|jax|cupy] [--small 1000000] [--large 10000] [--export-json F]

Small arrays have 1 B to 16 KiB, large ones 4 to 96 MiB; contents, sizes and addresses are random. Some are downloaded
again and compared. The memory of the process, memory in use on the device and page-locked memory are read after a tenth
of the uploads and at the end.

The exit status is 1 if a byte is wrong or if one of these has grown by more than the largest array.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import shared

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._machine.engine import is_host
from pyxfer._machine.environment import read_environment
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native import Engine
from pyxfer.units import format_seconds, format_size

KIB, MIB = 1 << 10, 1 << 20
SMALL, LARGE = (1, 16 * KIB), (4 * MIB, 96 * MIB)
COMPARED = {"small": 100, "large": 10}
HELD = ("process", "device", "page-locked")


class Soaked(msgspec.Struct, frozen=True):
    """The uploads of one kind of array, and the memory in use after a tenth of them and at the end."""

    kind: str
    uploads: int
    nbytes: int
    compared: int
    wrong: int
    seconds: float
    early_bytes: dict[str, int]
    late_bytes: dict[str, int]

    def grown_bytes(self, what: str) -> int:
        """Growth between a tenth of the uploads and the end."""
        return self.late_bytes[what] - self.early_bytes[what]


class Soak(msgspec.Struct, frozen=True):
    """The document."""

    to: str
    device: Device
    environment: Environment
    soaked: tuple[Soaked, ...]


def main() -> int:
    """Upload and print the table; 1 if a check fails."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    to = Target(DevicePool(engine, device.index, 0)) if asked.to == "own" else asked.to
    pool = np.random.default_rng(0).integers(0, 256, 4 * LARGE[1], np.uint8)
    with pyxfer.Uploader(asked.device) as up:
        soaked = (
            soak(engine, device.index, up, to, pool, "small", asked.small, SMALL),
            soak(engine, device.index, up, to, pool, "large", asked.large, LARGE),
        )
    result = Soak(asked.to, device, read_environment(engine, device), soaked)
    shared.write_document(asked.export_json, result)
    print(page(result))
    wrong = judge(result)
    print("\n".join(wrong))
    return 1 if wrong else 0


def soak(
    engine: Engine,
    device: int,
    up: pyxfer.Uploader,
    to: Any,
    pool: Any,
    kind: str,
    count: int,
    sizes: tuple[int, int],
) -> Soaked:
    """Upload `count` arrays with sizes in the range `sizes`."""
    draw = random.Random(kind)  # noqa: S311 - sizes and addresses, not secrets
    nbytes = compared = wrong = 0
    early: dict[str, int] = {}
    begun = time.perf_counter()
    for number in range(count):
        size = draw.randint(*sizes)
        at = draw.randrange(pool.nbytes - size + 1)
        array = pool[at : at + size]
        sent = up.upload(array, to)
        nbytes += size
        if number % COMPARED[kind] == 0:
            compared += 1
            wrong += not np.array_equal(up.download(sent), array)
        del sent
        if number == count // 10:
            early = held(engine, device, up)
    seconds = time.perf_counter() - begun
    return Soaked(kind, count, nbytes, compared, wrong, seconds, early, held(engine, device, up))


def held(engine: Engine, device: int, up: pyxfer.Uploader) -> dict[str, int]:
    """Resident bytes of the process, bytes in use on the device, and bytes page-locked by the uploader.

    The device counts as 0 on the host runtime, whose memory is shared with all other programs.
    """
    free, total = (0, 0) if is_host(engine) else engine.memory_info(device)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {"process": pages * 4 * KIB, "device": total - free, "page-locked": up.pinned_bytes}


def page(result: Soak) -> str:
    """The table for a terminal."""
    machine = shared.machine_line(result.device, result.environment)
    return f"to {result.to}, {machine}\n\n{shared.aligned(*table(result))}"


def markdown(result: Soak) -> str:
    """The table for docs/results.md."""
    machine = escape_markdown(shared.machine_line(result.device, result.environment))
    return f"To {result.to}; {machine}.\n\n{markdown_table(*table(result))}"


def table(result: Soak) -> tuple[list[str], list[list[str]]]:
    """Header and rows, one per kind of array."""
    rows = [
        [
            row.kind,
            f"{row.uploads:,}",
            format_size(row.nbytes),
            format_seconds(row.seconds / max(row.uploads, 1)),
            f"{row.wrong} of {row.compared}",
            *(format_size(max(0, row.grown_bytes(what))) for what in HELD),
        ]
        for row in result.soaked
    ]
    return ["arrays", "uploads", "in all", "each", "wrong", *(f"{what} +" for what in HELD)], rows


def judge(result: Soak) -> list[str]:
    """The failed checks, one sentence each."""
    wrong = [
        f"WRONG: {row.wrong} {row.kind} arrays were downloaded with wrong bytes" for row in result.soaked if row.wrong
    ]
    for row in result.soaked:
        wrong += [
            f"WRONG: {row.kind}: {what} memory has grown by {format_size(row.grown_bytes(what))}"
            for what in HELD
            if row.grown_bytes(what) > LARGE[1]
        ]
    return wrong


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", choices=["own", "torch", "jax", "cupy"], default="own")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--small", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=10_000)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
