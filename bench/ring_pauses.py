"""Measures how a pause before an upload slows it, because the threads of the ring sleep during the pause.

    python bench/ring_pauses.py [--device 0] [--uploads 100] [--export-json F]

Each timed upload follows another upload and a pause; a page-locked copy of the same size is timed in the same round.
The order of the pauses is random. A second ring has threads that spin for 20 ms before they sleep
(PYXFER_RING="spin=20ms").
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import shared

from pyxfer._document.machines import Device, Environment
from pyxfer._machine.environment import read_environment
from pyxfer._upload.settings import RingSettings, make_ring
from pyxfer._upload.tuning import settings_for
from pyxfer.native import Engine
from pyxfer.units import format_percent, format_seconds, format_size

if TYPE_CHECKING:
    from pyxfer.native._cuda import Lane

MIB = 1 << 20
SIZES = (1 * MIB, 4 * MIB, 24 * MIB)
PAUSES_S = (0.0, 200e-6, 1e-3, 5e-3)
LONG_SPIN_US = 20_000
# Sources are random parts of a pool larger than the caches, so that they are read from memory.
POOL_BYTES = 512 * MIB
PAGE = 4096


class Row(msgspec.Struct, frozen=True):
    """Uploads of one size after one pause with one spin time, and page-locked copies of the same rounds."""

    nbytes: int
    spin_us: int
    pause_s: float
    uploads_s: tuple[float, ...]
    pinned_s: tuple[float, ...]

    @property
    def upload_s(self) -> float:
        """Median duration of an upload."""
        return statistics.median(self.uploads_s)

    @property
    def of_pinned(self) -> float:
        """Median over the rounds of the upload's rate as a share of the page-locked copy's."""
        return statistics.median(pinned / own for own, pinned in zip(self.uploads_s, self.pinned_s, strict=True))


class Pauses(msgspec.Struct, frozen=True):
    """The document."""

    device: Device
    environment: Environment
    rows: tuple[Row, ...]


def main() -> int:
    """Measure and print the table."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    settings = settings_for(engine, device.index).settings
    pool = np.random.default_rng(0).integers(0, 256, POOL_BYTES, np.uint8)
    rows: list[Row] = []
    for spin_us in (settings.spin_us, LONG_SPIN_US):  # one ring at a time: spinning threads would slow the other ring
        rows += with_ring(engine, device.index, replace(settings, spin_us=spin_us), pool, asked.uploads)
    result = Pauses(device, read_environment(engine, device), tuple(rows))
    shared.write_document(asked.export_json, result)
    print(shared.page(result, *table(result)))
    return 0


def with_ring(engine: Engine, device: int, settings: RingSettings, pool: np.ndarray, uploads: int) -> list[Row]:
    """Measure all sizes and pauses with one ring."""
    rows = []
    with (
        closing(make_ring(engine, device, settings)) as ring,
        closing(engine.HostBuffer(max(SIZES), "pinned", device)) as pinned,
        closing(engine.DeviceBuffer(max(SIZES), device)) as there,
        closing(engine.Copier(device)) as copier,
    ):
        for nbytes in SIZES:

            def lane(at: int, nbytes: int = nbytes) -> Lane:
                return engine.Lane("h2d", at, there.address, nbytes, nbytes, 1)

            def upload(nbytes: int = nbytes) -> float:
                at = pool.ctypes.data + random.randrange((POOL_BYTES - nbytes) // PAGE) * PAGE  # noqa: S311
                return copier.drained_through(ring, lane(at), 0).elapsed_s

            taken: dict[float, list[tuple[float, float]]] = {pause_s: [] for pause_s in PAUSES_S}
            for _ in range(uploads):
                for pause_s in random.sample(PAUSES_S, len(PAUSES_S)):
                    direct_s = copier.on_stream("async", lane(pinned.address), 0).elapsed_s
                    upload()
                    if pause_s:
                        time.sleep(pause_s)
                    taken[pause_s].append((upload(), direct_s))
            for pause_s, found in taken.items():
                own, direct = zip(*found, strict=True)
                rows.append(Row(nbytes, settings.spin_us, pause_s, own, direct))
    return rows


def table(result: Pauses) -> tuple[list[str], list[list[str]]]:
    """Header and rows: per size and spin time, the duration after each pause and the share of the page-locked rate."""
    after = [f"after {format_seconds(pause_s)}" if pause_s else "at once" for pause_s in PAUSES_S]
    header = ["size", "threads spin for", "uploads", *after]
    lines: dict[tuple[int, int], list[str]] = {}
    for row in result.rows:
        line = lines.setdefault(
            (row.nbytes, row.spin_us),
            [format_size(row.nbytes), format_seconds(row.spin_us * 1e-6), str(len(row.uploads_s))],
        )
        line.append(f"{format_seconds(row.upload_s)}, {format_percent(row.of_pinned)}")
    return header, [lines[key] for key in sorted(lines)]


def markdown(result: Pauses) -> str:
    """The table for docs/results.md."""
    return shared.markdown(result, *table(result))


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared.add_measuring_arguments(parser)
    parser.add_argument("--uploads", type=int, default=100)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
