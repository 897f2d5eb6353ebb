"""Compares staged copies of a saved run with page-locked copies and with the driver's copies of pageable memory.

    pyxfer ceiling --memory pinned,pageable --mode auto,staged --direction h2d,d2h --fresh --export-json RUN.json
    python bench/staged_shares.py RUN.json

Every ratio is the median of the ratios within each round. The exit status is 1 if a share is below its limit
(`PROMISED`, for a host with 16 processors), or if a staged copy is more than 3 % slower than the driver's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import shared

import pyxfer
from pyxfer._document.runs import Measurement, Share
from pyxfer._measure import stats
from pyxfer.units import format_percent, format_size

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PROMISED = {4 * MIB: 0.5, 24 * MIB: 0.75, 96 * MIB: 0.88, GIB: 0.95}
"""Least share of the pinned ceiling for an upload, by size."""
DOWNLOAD_LESS = 0.05
"""A download may be lower by this, as a share of the pinned ceiling and of the driver's copy."""
MAX_SLOWER = 0.03
MIN_ROUNDS = 20
"""Rounds with both copies. Small sizes may have fewer, and those are the first rounds of the run."""
STAGED, DRIVERS, CEILING = "raw.pageable-staged", "raw.pageable-memcpy", "raw.pinned-async"


def main() -> int:
    """Print one line per size and direction; 1 if a row misses a limit."""
    asked = _arguments()
    run = pyxfer.Run.load(asked.run)
    rows = [row for row in run.measurements if row.route == STAGED and row.summary is not None]
    print(shared.machine_line(run.device, run.environment))
    header = ["copy", "size", "GB/s", "of pinned", "promised", "of memcpy", ""]
    print(shared.aligned(header, [cells(run, row) for row in rows]))
    if not rows:
        print(f"No row of {STAGED} was measured.")
    return 1 if not rows or any(faults(run, row) for row in rows) else 0


def share(run: pyxfer.Run, row: Measurement, other: str) -> Share | None:
    """Rate relative to the copy of route `other` in the same rounds; the warm one if it has no fresh copy."""
    for variant in (row.variant, "warm"):
        for candidate in run.measurements:
            same = (candidate.direction, candidate.nbytes, candidate.side) == (row.direction, row.nbytes, row.side)
            if same and candidate.route == other and candidate.variant == variant:
                return _by_rounds(candidate, row)
    return None


def promised(row: Measurement) -> float | None:
    """The least share of the pinned ceiling, or None for other sizes and for first touches."""
    least = PROMISED.get(row.nbytes)
    if least is None or row.variant == "fresh":
        return None
    return least if row.direction == "h2d" else least - DOWNLOAD_LESS


def faults(run: pyxfer.Run, row: Measurement) -> list[str]:
    """The missed limits of a row."""
    found = []
    of_pinned, of_driver, least = share(run, row, CEILING), share(run, row, DRIVERS), promised(row)
    if least is not None and (of_pinned is None or of_pinned.value < least):
        found.append("WRONG: below the least share")
    slower = MAX_SLOWER if row.direction == "h2d" else MAX_SLOWER + DOWNLOAD_LESS
    if of_driver is not None and row.variant == "warm" and of_driver.value < 1 - slower:
        found.append("WRONG: slower than memcpy")
    return found


def cells(run: pyxfer.Run, row: Measurement) -> list[str]:
    """One table row."""
    of_pinned, of_driver, least = share(run, row, CEILING), share(run, row, DRIVERS), promised(row)
    return [
        row.direction if row.variant == "warm" else f"{row.direction} {row.variant}",
        format_size(row.nbytes),
        "-" if row.gbps is None else f"{row.gbps:.2f}",
        "-" if of_pinned is None else format_percent(of_pinned.value),
        "-" if least is None else format_percent(least),
        "-" if of_driver is None else f"{of_driver.value:.2f}",
        ", ".join(faults(run, row)),
    ]


def _by_rounds(reference: Measurement, row: Measurement) -> Share | None:
    """The share over the rounds in which both copies are valid."""
    seconds = {trial.round: trial.elapsed_s for trial in reference.trials if trial.invalid is None}
    own = [trial for trial in row.trials if trial.invalid is None and trial.round in seconds]
    if len(own) < MIN_ROUNDS:
        return None
    return stats.ratio_share([seconds[trial.round] for trial in own], [trial.elapsed_s for trial in own])


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
