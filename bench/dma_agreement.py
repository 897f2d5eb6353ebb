"""Compares the durations in the device's activity records with those between CUDA events, for each size of a saved run.

    python bench/dma_agreement.py RUN.json [--route pinned-async]

Each line is a traced raw copy from or to page-locked memory: the median time between two events, the time in the
records of the traced trial nearest to it, and the difference. That may be up to 0.5 % of the events' time, plus 2 us or
10 % of the events' time, whichever is less: 2 us alone would accept any times of a copy of 1.6 us.
The exit status is 1 if a difference is larger or if no row was traced.
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

APART_S, APART, APART_OF_SHORT = 2e-6, 0.005, 0.10


def main() -> int:
    """Print one line per size; 0 if all times agree."""
    asked = _arguments()
    run = pyxfer.Run.load(asked.run)
    rows = traced_rows(run, asked.route)
    print(shared.machine_line(run.device, run.environment))
    print(shared.aligned(["copy", "size", "events", "records", "apart", "bound", ""], [cells(row) for row in rows]))
    if not rows:
        print("No row was traced.")
    return 0 if rows and all(agrees(row) for row in rows) else 1


def traced_rows(run: pyxfer.Run, route: str) -> list[Measurement]:
    """The measurements of a route in one direction that have both times."""
    found = [row for row in run.measurements if row.route.endswith(route) and row.side == row.direction]
    return [row for row in found if row.dma_s is not None and row.elapsed_s is not None]


def apart_s(row: Measurement) -> float:
    """Difference between the two times."""
    return abs((row.elapsed_s or 0.0) - (row.dma_s or 0.0))


def bound_s(row: Measurement) -> float:
    """The largest difference that counts as agreement."""
    elapsed_s = row.elapsed_s or 0.0
    return min(APART_S, APART_OF_SHORT * elapsed_s) + APART * elapsed_s


def agrees(row: Measurement) -> bool:
    """Whether the difference is within the bound."""
    return apart_s(row) <= bound_s(row)


def cells(row: Measurement) -> list[str]:
    """One table row."""
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
