"""Counts how often `pyxfer baseline check` is right about a modelled link that has lost a known share of its rate.

    python bench/verdicts.py [--pairs 200] [--between 50] [--export-json F]

A pair is a baseline of three runs on a link of the host runtime, and a check with retries on a link that has lost 0, 1,
2, 3, 4 or 5 % of its rate. Measuring, comparing and confirming are those of `pyxfer baseline check`, but the runs are
made one after the other in this process: starting thousands of interpreters would take hours. Each turn makes a new
baseline and checks every loss once against it, so that other load on the machine affects all losses alike.

The exit status is 1 if more than 1 % of the equal pairs are confirmed SLOW, if fewer than 99 % of the pairs with a loss
of 5 % are, or if a loss up to the tolerance is confirmed SLOW or a loss from the tolerance on is called SAME.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import shared

import pyxfer
from pyxfer._baseline.check import LEAST_PROCESSES, Checked, check, make_baseline
from pyxfer._baseline.compare import DEFAULT_TOLERANCE
from pyxfer._document.baselines import Baseline
from pyxfer._document.exports import Cell, markdown_table
from pyxfer._document.files import check_writable
from pyxfer._document.runs import Device, Environment, Run
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.units import format_percent, format_size

GBPS = 0.25
LATENCY_S = 2e-6
NBYTES = 1 << 19
BUDGET_S = 0.36
PRECISION = 0.002
RETRIES = 2
MOST_TRIES = 4
LOSSES = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05)
ENDS = (0.0, 0.05)
MOST_FALSE, LEAST_FOUND = 0.01, 0.99

Outcome = Literal["SAME", "FAST", "AMBIGUOUS", "SLOW", "confirmed"]
OUTCOMES: tuple[Outcome, ...] = ("SAME", "FAST", "AMBIGUOUS", "SLOW", "confirmed")
HEADINGS = ("SAME", "FAST", "AMBIGUOUS", "SLOW, not confirmed", "SLOW, confirmed")


class Row(msgspec.Struct, frozen=True):
    """All pairs with the same loss; `runs` is the number of runs that the checks made."""

    lost: float
    pairs: int
    outcomes: dict[Outcome, int]
    runs: int

    def share(self, outcome: Outcome) -> float:
        """The share of the pairs with this outcome."""
        return self.outcomes.get(outcome, 0) / self.pairs


class Verdicts(msgspec.Struct, frozen=True):
    """The document: machine, parameters, and counts."""

    device: Device
    environment: Environment
    gbps: float
    nbytes: int
    processes: int
    retries: int
    tolerance: float
    rows: tuple[Row, ...]
    kind: Literal["verdicts"] = "verdicts"
    schema_version: int = 1


def measure(lost: float) -> Run:
    """One run on a link that has lost a share of its rate; a run without trials is repeated with twice the budget."""
    from pyxfer.native._host import testing

    rate = GBPS * 1e9 * (1 - lost)
    testing.model_link(rate, LATENCY_S, rate, LATENCY_S)
    for tried in range(MOST_TRIES):
        run = pyxfer.ceiling(
            "host",
            directions=("h2d", "d2h"),
            memories=("pinned",),
            modes=("async",),
            sizes=(NBYTES,),
            precision=PRECISION,
            budget_s=BUDGET_S * 2**tried,
            trace=False,
        )
        if run.ended == "interrupted":
            raise KeyboardInterrupt
        if all(row.gbps is not None for row in run.measurements):
            return run
    raise MeasurementError(f"{MOST_TRIES} runs of {BUDGET_S} s and more had no trial; this machine is too busy for it")


def make_pair(baseline: Baseline, lost: float) -> Checked:
    """Check a link that has lost a share of its rate."""
    return check(baseline, lambda: measure(lost), tolerance=DEFAULT_TOLERANCE, retries=RETRIES)


def new_baseline() -> Baseline:
    """A baseline of the link without a loss."""
    runs = [measure(0.0) for _ in range(LEAST_PROCESSES)]
    return make_baseline("verdicts", {}, runs, runs[0].environment.taken_at)


def outcome_of(checked: Checked) -> Outcome:
    """The outcome as the command would report it."""
    return "confirmed" if checked.confirmed else checked.comparison.verdict


def collect(pairs: int, between: int, losses: Sequence[float] = LOSSES) -> Verdicts:
    """Check all pairs. Losses with fewer pairs are spread evenly over the turns."""
    wanted = {lost: pairs if lost in ENDS else between for lost in losses}
    turns = max(wanted.values())
    outcomes: dict[float, Counter[Outcome]] = {lost: Counter() for lost in losses}
    runs: Counter[float] = Counter()
    baseline: Baseline | None = None
    for turn in range(turns):
        baseline = new_baseline()
        for lost, count in wanted.items():
            if turn * count // turns < (turn + 1) * count // turns:
                checked = make_pair(baseline, lost)
                outcomes[lost][outcome_of(checked)] += 1
                runs[lost] += len(checked.runs)
        print(f"{turn + 1} of {turns} turns", file=sys.stderr)
    if baseline is None:
        raise UsageError("There are no pairs to check: --pairs and --between are both 0.")
    rows = tuple(Row(lost, count, dict(outcomes[lost]), runs[lost]) for lost, count in wanted.items() if count)
    where = baseline.runs[0].device, baseline.runs[0].environment, GBPS, NBYTES
    return Verdicts(*where, LEAST_PROCESSES, RETRIES, DEFAULT_TOLERANCE, rows)


def misses(document: Verdicts) -> list[str]:
    """The limits that the counts miss, one sentence each."""
    found = []
    for row in document.rows:
        name = f"of {row.pairs} pairs that have lost {format_percent(row.lost)}"
        slow, same = row.share("confirmed"), row.share("SAME")
        if row.lost == 0 and slow > MOST_FALSE:
            found.append(f"{format_percent(slow)} {name} are confirmed SLOW")
        if row.lost == ENDS[-1] and slow < LEAST_FOUND:
            found.append(f"only {format_percent(slow)} {name} are confirmed SLOW")
        if 0 < row.lost <= document.tolerance and slow:
            found.append(f"{format_percent(slow)} {name} are confirmed SLOW")
        if row.lost >= document.tolerance and same:
            found.append(f"{format_percent(same)} {name} are called SAME")
    return found


def table(document: Verdicts) -> str:
    """The table for docs/baselines.md, one row per loss."""
    header = ["lost", "pairs", *HEADINGS, "runs a check"]
    body: list[list[Cell]] = [
        [
            format_percent(row.lost) if row.lost else "nothing",
            row.pairs,
            *(row.outcomes.get(outcome, 0) for outcome in OUTCOMES),
            f"{row.runs / row.pairs:.1f}",
        ]
        for row in document.rows
    ]
    return f"{caption(document)}\n\n{markdown_table(header, body)}"


def caption(document: Verdicts) -> str:
    """Machine and parameters, for the documentation."""
    cpu = document.environment.cpu_model.value or "CPU unknown"
    return (
        f"Host runtime with a link modelled at {document.gbps:g} GB/s, {format_size(document.nbytes)} each way, on "
        f"{cpu}; baselines of {document.processes} runs, checks with up to {document.retries} retries, tolerance "
        f"{format_percent(document.tolerance)}; pyxfer {document.environment.pyxfer}, "
        f"{document.environment.taken_at[:10]}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all pairs, print the table, write the document; 0 if every limit is met."""
    parser = argparse.ArgumentParser(description="Count how often pyxfer baseline check is right about modelled links.")
    parser.add_argument(
        "--pairs", type=int, default=200, help="pairs for a loss of 0 and of 5 %% (default: %(default)s)"
    )
    parser.add_argument("--between", type=int, default=50, help="pairs of each other loss (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the counts to this file")
    options = parser.parse_args(arguments)
    if options.pairs < 0 or options.between < 0:
        raise UsageError("--pairs and --between must be 0 or more.")
    if options.export_json:
        check_writable(options.export_json)
    document = collect(options.pairs, options.between)
    print(table(document))
    shared.write_document(options.export_json, document)
    wrong = misses(document)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    shared.run_script(main)
