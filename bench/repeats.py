"""Repeats the pinned ceiling and compares the medians.

    python bench/repeats.py [--processes] [--repeats 5] [--export-json F]

The repeats run in this process; with --processes each also runs in a new process, with new memory, context and stream.
The spread is (largest - smallest) / median over the medians of the repeats. The exit status is 1 if a spread exceeds
0.3 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import shared

import pyxfer
from pyxfer._document.files import check_writable
from pyxfer._document.machines import Device, Environment, Side
from pyxfer._document.runs import Run
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.units import format_percent, format_size

SIZES = (16 << 20, 64 << 20, 256 << 20)
SIDES: tuple[Literal["h2d", "d2h"], ...] = ("h2d", "d2h")
BUDGET_S = 5.0
LARGEST_SPREAD = 0.003

Where = Literal["one process", "fresh processes"]


class Row(msgspec.Struct, frozen=True):
    """The median of each repeat of one direction and size."""

    where: Where
    side: Side
    nbytes: int
    gbps: tuple[float, ...]

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.gbps) - min(self.gbps)) / median(self.gbps)


class Repeats(msgspec.Struct, frozen=True):
    """The document: machine, and the median of each repeat."""

    device: Device
    environment: Environment
    rows: tuple[Row, ...]
    kind: Literal["repeats"] = "repeats"
    schema_version: int = 1


def measure(seed: int) -> Run:
    """One repeat: asynchronous copies of pinned memory, one direction at a time."""
    run = pyxfer.ceiling(
        device=0,
        direction=SIDES,
        memory=("pinned",),
        mode=("async",),
        size=SIZES,
        budget=BUDGET_S,
        seed=seed,
        require_gpu=True,
    )
    if run.ended == "interrupted":
        raise KeyboardInterrupt
    if run.ended == "failed":
        raise MeasurementError(f"Repeat {seed + 1} failed: {run.failure}")
    return run


def measure_afresh(seed: int) -> Run:
    """One repeat in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, seed).result()


def rows(where: Where, runs: Sequence[Run]) -> tuple[Row, ...]:
    """One row per direction and size; `MeasurementError` if a repeat has no figure."""
    return tuple(Row(where, side, nbytes, _figures(runs, side, nbytes)) for side in SIDES for nbytes in SIZES)


def _figures(runs: Sequence[Run], side: Side, nbytes: int) -> tuple[float, ...]:
    wanted = (side, side, nbytes, "warm")
    found = [m for run in runs for m in run.measurements if (m.direction, m.side, m.nbytes, m.variant) == wanted]
    figures = tuple(m.gbps for m in found if m.gbps is not None)
    if len(figures) != len(runs):
        raise MeasurementError(f"{side} at {format_size(nbytes)} has {len(figures)} figures of {len(runs)} repeats.")
    return figures


def table(found: Iterable[Row]) -> str:
    """The table: medians in the order of the repeats, spread, and verdict."""
    within = f"within {format_percent(LARGEST_SPREAD)}"
    header = ["where", "direction", "size", "median of each repeat, GB/s", "spread", within]
    lines = [
        [
            row.where,
            row.side,
            format_size(row.nbytes),
            " ".join(f"{gbps:.2f}" for gbps in row.gbps),
            f"{row.spread * 100:.3f} %",
            "yes" if row.spread <= LARGEST_SPREAD else "no",
        ]
        for row in found
    ]
    return shared.aligned(header, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the document; 0 if every spread is small enough."""
    parser = argparse.ArgumentParser(description="Repeat pyxfer's pinned ceiling and compare the medians.")
    parser.add_argument("--repeats", type=int, default=5, help="number of repeats (default: %(default)s)")
    parser.add_argument("--processes", action="store_true", help="also repeat in new processes")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write every median to this file")
    options = parser.parse_args(arguments)
    if options.repeats <= 1:
        raise UsageError(f"--repeats must be at least 2 to have a spread, not {options.repeats}.")
    if options.export_json:
        check_writable(options.export_json)
    ways: list[tuple[Where, Callable[[int], Run]]] = [("one process", measure)]
    if options.processes:
        ways.append(("fresh processes", measure_afresh))
    found: list[Row] = []
    for where, repeat in ways:
        runs = [repeat(seed) for seed in range(options.repeats)]
        found += rows(where, runs)
    document = Repeats(runs[-1].device, runs[-1].environment, tuple(found))
    print(shared.machine_line(document.device, document.environment))
    print(table(document.rows))
    shared.write_document(options.export_json, document)
    return 0 if all(row.spread <= LARGEST_SPREAD for row in document.rows) else 1


if __name__ == "__main__":
    shared.run_script(main)
