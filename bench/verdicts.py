"""Counts how often `pyxfer baseline check` and `pyxfer compare` are right over models of noise between processes.

    python bench/verdicts.py [--repeats 300] [--seed 1] [--export-json F]

The times of whole processes are drawn from a model of noise, put into runs, and given to the code of the two commands.
A repeat is a baseline of some processes, and a check of a host that has lost a known share of its bandwidth. A row
`compare` is one run against one run, with --fail-on slower:5%.

The exit status is 1 if a row misses a limit: more than 1 % of the equal hosts are confirmed SLOW, fewer than 80 % of
them are SAME or fewer than 95 % of the losses of 5 % are confirmed where processes differ by at most 1 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

import pyxfer
from pyxfer._baseline.check import DEFAULT_RETRIES, Checked, check, make_baseline
from pyxfer._baseline.compare import DEFAULT_TOLERANCE, certainly_slower, compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Comparison
from pyxfer._document.exports import Cell, markdown_table
from pyxfer._document.files import check_writable
from pyxfer._document.runs import Device, Environment, Fact, Measurement, Rate, Run, Summary
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.units import format_percent

SIZES = (1 << 14, 1 << 16, 1 << 18)
CELLS = 2 * len(SIZES)
USUAL_S = 1e-3
WITHIN = 0.0005
TRIALS = 100
FAIL_ON = 0.05
BAD = 0.2
MOST_FALSE, LEAST_FOUND, LEAST_SAME = 0.01, 0.95, 0.80
LOSSES = (0.0, 0.05, 0.1)
FIVE, TEN, SITTINGS = (5,), (10,), (3,) * 5

Rng = np.random.Generator
Logs = NDArray[np.float64]
Outcome = Literal["SAME", "FAST", "AMBIGUOUS", "SLOW", "confirmed"]
OUTCOMES: tuple[Outcome, ...] = ("SAME", "FAST", "AMBIGUOUS", "SLOW", "confirmed")
HEADINGS = ("SAME", "FAST", "AMBIGUOUS", "SLOW, not confirmed", "SLOW, confirmed")


class Noise(msgspec.Struct, frozen=True):
    """A model: the logarithms of the times of the cells of one process, and the spread of the level of a sitting.

    `goal`: the limits for equal hosts and losses of 5 % hold for it.
    """

    name: str
    process: Callable[[Rng], Logs]
    level: float = 0.0
    goal: bool = False


def normal(spread: float) -> Callable[[Rng], Logs]:
    """Each cell of each process for itself."""
    return lambda rng: spread * rng.standard_normal(CELLS)


def together(spread: float) -> Callable[[Rng], Logs]:
    """All cells of a process alike, and a tenth of it in each cell."""
    return lambda rng: spread * rng.standard_normal() + spread / 10 * rng.standard_normal(CELLS)


def student(spread: float) -> Callable[[Rng], Logs]:
    """With far more outliers than normal values."""
    return lambda rng: spread * rng.standard_t(2, CELLS)


def two_modes(rng: Rng) -> Logs:
    """Each process is in one of two modes."""
    return 0.08 * rng.integers(0, 2) + normal(0.003)(rng)


def one_bad(rng: Rng) -> Logs:
    """One process in five is 10 to 30 % slow."""
    bad = -math.log1p(-rng.uniform(0.1, 0.3)) if rng.random() < BAD else 0.0
    return bad + normal(0.003)(rng)


NOISES = (
    Noise("0.1 % normal", normal(0.001), goal=True),
    Noise("0.5 % normal", normal(0.005), goal=True),
    Noise("1 % normal", normal(0.01), goal=True),
    Noise("2 % normal", normal(0.02)),
    Noise("0.5 %, all cells of a process", together(0.005), goal=True),
    Noise("1 %, all cells of a process", together(0.01), goal=True),
    Noise("Student t2, 0.5 %", student(0.005)),
    Noise("two modes 8 % apart", two_modes),
    Noise("one process in five 10 to 30 % slow", one_bad),
    Noise("level of the day 1 %", normal(0.002), 0.01),
    Noise("level of the day 2 %", normal(0.002), 0.02),
)


class Row(msgspec.Struct, frozen=True):
    """All repeats of one model, baseline and loss; `runs` is the number of runs that the checks made."""

    what: Literal["check", "compare"]
    noise: str
    sittings: tuple[int, ...]
    lost: float
    repeats: int
    outcomes: dict[Outcome, int]
    runs: int

    def share(self, outcome: Outcome) -> float:
        """The share of the repeats with this outcome."""
        return self.outcomes.get(outcome, 0) / self.repeats

    @property
    def processes(self) -> str:
        """The number of processes of the baseline."""
        count = len(self.sittings)
        return f"{self.sittings[0]}" if count == 1 else f"{count} x {self.sittings[0]}"


class Verdicts(msgspec.Struct, frozen=True):
    """The document: machine, parameters, and counts."""

    device: Device
    environment: Environment
    seed: int
    cells: int
    retries: int
    tolerance: float
    rows: tuple[Row, ...]
    kind: Literal["verdicts"] = "verdicts"
    schema_version: int = 2


class Host:
    """Runs of processes with the times of a model, on the day of a sitting."""

    def __init__(self, like: Run, noise: Noise, rng: Rng) -> None:
        self._like = like
        self._noise = noise
        self._rng = rng
        self._made = 0

    def sitting(self, day: int, lost: float = 0.0) -> Callable[[], Run]:
        """A function for the runs of one sitting, in which all processes have its level."""
        level = self._noise.level * self._rng.standard_normal() - math.log1p(-lost)
        taken = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=day)
        environment = msgspec.structs.replace(self._like.environment, taken_at=taken.isoformat())

        def measure() -> Run:
            times = USUAL_S * np.exp(level + self._noise.process(self._rng))
            rows = tuple(map(timed, self._like.measurements, times.tolist()))
            self._made += 1
            return msgspec.structs.replace(
                self._like, measurements=rows, environment=environment, duration_s=float(self._made)
            )

        return measure


def timed(row: Measurement, median_s: float) -> Measurement:
    """The measurement with this median."""
    low_s, high_s = median_s * (1 - WITHIN), median_s * (1 + WITHIN)
    summary = Summary(TRIALS, median_s, low_s, high_s, low_s, high_s, WITHIN * median_s, low_s, high_s)
    return msgspec.structs.replace(row, summary=summary, rate=Fact(Rate(row.moved_bytes / median_s / 1e9, None, None)))


def template() -> Run:
    """A run of this machine, whose times are replaced."""
    run = pyxfer.ceiling(
        "host",
        directions=("h2d", "d2h"),
        memories=("pinned",),
        modes=("async",),
        sizes=SIZES,
        budget_s=1.0,
        trace=False,
    )
    if any(row.gbps is None for row in run.measurements):
        raise MeasurementError("the run has a cell without a time; this machine is too busy for it")
    return run


def check_once(host: Host, sittings: Sequence[int], lost: float) -> Checked:
    """A baseline of these sittings, and a check of a host that has lost a share of its bandwidth."""
    runs = [measure() for day, count in enumerate(sittings) for measure in [host.sitting(day)] * count]
    baseline = make_baseline("verdicts", {}, runs, runs[0].environment.taken_at)
    return check(baseline, host.sitting(len(sittings), lost), tolerance=DEFAULT_TOLERANCE, retries=DEFAULT_RETRIES)


def compare_once(host: Host, lost: float) -> Comparison:
    """One run against one run of another sitting."""
    a, b = (Sample(name, (host.sitting(day, share)(),)) for name, day, share in (("A", 0, 0.0), ("B", 1, lost)))
    return compare_samples(a, b)


def outcome_of(checked: Checked) -> Outcome:
    """The outcome as the command would report it."""
    return "confirmed" if checked.confirmed else checked.comparison.verdict


def count_checks(host: Host, noise: Noise, sittings: tuple[int, ...], lost: float, repeats: int) -> Row:
    """One row of checks."""
    found = [check_once(host, sittings, lost) for _ in range(repeats)]
    runs = sum(len(checked.runs) for checked in found)
    return Row("check", noise.name, sittings, lost, repeats, dict(Counter(map(outcome_of, found))), runs)


def count_comparisons(host: Host, noise: Noise, repeats: int) -> Row:
    """One row of comparisons of equal hosts; those that --fail-on would fail count as confirmed."""
    found = [compare_once(host, 0.0) for _ in range(repeats)]
    outcomes: Counter[Outcome] = Counter(
        "confirmed" if certainly_slower(each, FAIL_ON) else each.verdict for each in found
    )
    return Row("compare", noise.name, (1,), 0.0, repeats, dict(outcomes), repeats)


def collect(repeats: int, seed: int, noises: Sequence[Noise] = NOISES) -> Verdicts:
    """Every row."""
    if repeats < 1:
        raise UsageError(f"--repeats must be 1 or more, not {repeats}.")
    like, rng = template(), np.random.default_rng(seed)
    rows: list[Row] = []
    for noise in noises:
        host = Host(like, noise, rng)
        kinds = (FIVE, SITTINGS) if noise.level else (FIVE, TEN)
        losses = LOSSES[:2] if noise.goal else LOSSES
        rows += [count_checks(host, noise, kind, lost, repeats) for kind in kinds for lost in losses]
        rows.append(count_comparisons(host, noise, repeats))
        print(f"{noise.name}: {sum(row.repeats for row in rows)} so far", file=sys.stderr)
    return Verdicts(like.device, like.environment, seed, CELLS, DEFAULT_RETRIES, DEFAULT_TOLERANCE, tuple(rows))


def misses(document: Verdicts) -> list[str]:
    """The limits that the counts miss, one sentence each."""
    goals = {noise.name for noise in NOISES if noise.goal}
    found = []
    for row in document.rows:
        name = f"of {row.repeats} with {row.noise}, {row.processes} processes, {format_percent(row.lost)} lost,"
        slow = row.share("confirmed")
        if row.lost == 0 and slow > MOST_FALSE:
            found.append(f"{format_percent(slow)} {name} are SLOW")
        if row.what == "compare" or row.noise not in goals:
            continue
        if row.lost == 0 and row.share("SAME") < LEAST_SAME:
            found.append(f"only {format_percent(row.share('SAME'))} {name} are SAME")
        if row.lost == FAIL_ON and slow < LEAST_FOUND:
            found.append(f"only {format_percent(slow)} {name} are SLOW")
    return found


def table(document: Verdicts) -> str:
    """The table for docs/baselines.md."""
    header = ["noise between processes", "", "processes", "lost", "repeats", *HEADINGS, "runs"]
    body: list[list[Cell]] = [
        [
            row.noise,
            row.what,
            row.processes,
            format_percent(row.lost) if row.lost else "nothing",
            row.repeats,
            *(row.outcomes.get(outcome, 0) for outcome in OUTCOMES),
            f"{row.runs / row.repeats:.1f}",
        ]
        for row in document.rows
    ]
    return f"{caption(document)}\n\n{markdown_table(header, body)}"


def caption(document: Verdicts) -> str:
    """The parameters, for the documentation."""
    return (
        f"Simulated times of {document.cells} cells, seed {document.seed}; checks with up to {document.retries} "
        f"retries, tolerance {format_percent(document.tolerance)}; a comparison is of one run with one run, with "
        f"--fail-on slower:{format_percent(FAIL_ON).replace(' ', '')}, and SLOW where it fails; "
        f"{document.environment.taken_at[:10]}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print the table, write the document; 0 if every limit is met."""
    parser = argparse.ArgumentParser(description="Count how often pyxfer baseline check is right over models of noise.")
    parser.add_argument("--repeats", type=int, default=300, help="repeats of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the noise (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the counts to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    document = collect(options.repeats, options.seed)
    print(table(document))
    return shared.conclude(document, options.export_json, misses(document))


if __name__ == "__main__":
    shared.run_script(main)
