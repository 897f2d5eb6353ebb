"""Shows in a saved run whether the copy engines' own times agree with the events, size by size.

    python bench/dma_agreement.py RUN.json [--route pinned-async]

For every raw row of page-locked memory that was traced: the median between two events of one copy, the time of the
device's records in the traced trial nearest to it, and their difference against the bound of 2 us and 0.5 %. Exit
status 1 where one is beyond it or none was traced.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import shared

import pyxfer
from pyxfer._document.runs import Measurement
from pyxfer.units import format_seconds, format_size

APART_S, APART = 2e-6, 0.005


def main() -> int:
    """Print a line a size, and judge."""
    asked = _arguments()
    run = pyxfer.Run.load(asked.run)
    rows = traced_rows(run, asked.route)
    print(shared.machine_line(run.device, run.environment))
    print(shared.aligned(["copy", "size", "events", "records", "apart", "bound", ""], [cells(row) for row in rows]))
    if not rows:
        print("No row was traced.")
    return 0 if rows and all(agrees(row) for row in rows) else 1


def traced_rows(run: pyxfer.Run, route: str) -> list[Measurement]:
    """One way at a time, with both times."""
    found = [row for row in run.measurements if row.route.endswith(route) and row.side == row.direction]
    return [row for row in found if row.dma_s is not None and row.elapsed_s is not None]


def apart_s(row: Measurement) -> float:
    """How far the two are from each other."""
    return abs((row.elapsed_s or 0.0) - (row.dma_s or 0.0))


def bound_s(row: Measurement) -> float:
    """How far they may be."""
    return APART_S + APART * (row.elapsed_s or 0.0)


def agrees(row: Measurement) -> bool:
    """Whether they are that near."""
    return apart_s(row) <= bound_s(row)


def cells(row: Measurement) -> list[str]:
    """The line of a row."""
    times = (row.elapsed_s or 0.0, row.dma_s or 0.0, apart_s(row), bound_s(row))
    verdict = "" if agrees(row) else "WRONG"
    return [f"{row.direction} {row.route}", format_size(row.nbytes), *map(format_seconds, times), verdict]


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--route", default="pinned-async")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
