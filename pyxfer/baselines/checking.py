"""Is this host still as fast as its baseline: measure, compare, and measure again before anything is called slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec

from pyxfer.baselines.cells import cell_of
from pyxfer.baselines.comparing import DEFAULT_TOLERANCE, compare_samples, slow_limit
from pyxfer.baselines.fingerprint import fingerprint_of, identity
from pyxfer.baselines.samples import Sample
from pyxfer.baselines.spread import Series, collect
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.model import Remark, Run
from pyxfer.model_baselines import Baseline, Cell, CellComparison, Comparison

LEAST_PROCESSES = 3
DEFAULT_RETRIES = 2
NOW = "now"

Measure = Callable[[], Run]
OnRun = Callable[[Run], None]


@dataclass(frozen=True)
class Checked:
    """What a check has found."""

    comparison: Comparison
    runs: tuple[Run, ...]
    interrupted: bool = False

    @property
    def confirmed(self) -> tuple[CellComparison, ...]:
        """The cells that are slower than the baseline beyond any reasonable doubt."""
        return tuple(row for row in self.comparison.cells if row.confirmed)


def check(
    baseline: Baseline,
    measure: Measure,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    retries: int = DEFAULT_RETRIES,
    on_run: OnRun = lambda run: None,
) -> Checked:
    """Measure until nothing is slow or doubtful any more, or as often as `retries` allow.

    `measure` makes the run of one process, and `on_run` is given each as soon as it is there.

    Raises:
        UsageError: the baseline is none to check against, or of another machine.
        KeyboardInterrupt: `measure` was interrupted before there was anything to compare.

    """
    before = baseline_sample(baseline)
    kept = set(collect(before.runs))
    runs: list[Run] = []
    interrupted = False
    while True:
        run = measure()
        on_run(run)
        interrupted = run.ended == "interrupted"
        _check_machine(baseline, run)
        if not interrupted or not runs:
            runs.append(_only(kept, run))
        comparison = _compare(before, Sample(NOW, tuple(runs)), tolerance, 1 + retries, interrupted)
        if interrupted or len(runs) > retries or not _doubtful(comparison):
            break
    found = _confirm(comparison, before.runs, runs, interrupted)
    remarks = (*found.remarks, *_clock_remarks(baseline, runs[0]))
    return Checked(msgspec.structs.replace(found, remarks=remarks), tuple(runs), interrupted)


def baseline_sample(baseline: Baseline) -> Sample:
    """A baseline as one side of a comparison.

    Raises:
        UsageError: it is of fewer processes than say anything of their spread.

    """
    count = len(baseline.runs)
    if count < LEAST_PROCESSES:
        processes = "one process" if count == 1 else f"{count} processes"
        raise UsageError(
            f"the baseline {baseline.name!r} is of {processes}, which say too little of how far processes lie apart; "
            f"save one of {LEAST_PROCESSES} or more (pyxfer baseline save), or compare the files with pyxfer compare"
        )
    sample = Sample(f"baseline {baseline.name!r}", baseline.runs)
    if sample.distinct() < count:
        raise UsageError(
            f"the baseline {baseline.name!r} holds the same run more than once, so it does not know how far processes "
            "lie apart; save one anew: pyxfer baseline save"
        )
    return sample


def _check_machine(baseline: Baseline, run: Run) -> None:
    if identity(fingerprint_of(run)) != identity(baseline.fingerprint):
        raise UsageError(
            f"the baseline {baseline.name!r} is of another machine or device than was measured now "
            f"({run.environment.host}, {run.device.uuid.value or run.device.name}); save one here: pyxfer baseline save"
        )


def _compare(before: Sample, now: Sample, tolerance: float, looks: int, interrupted: bool) -> Comparison:
    try:
        return compare_samples(before, now, tolerance, looks)
    except UsageError:
        if interrupted:  # before it came to anything that the baseline has
            raise KeyboardInterrupt from None
        raise


def _only(kept: Set[Cell], run: Run) -> Run:
    """The run without what the baseline does not have: modes are asked for by name, for each memory all of them."""
    known = tuple(measurement for measurement in run.measurements if cell_of(measurement) in kept)
    return msgspec.structs.replace(run, measurements=known)


def _doubtful(comparison: Comparison) -> bool:
    """Whether something that the baseline has is slow, cannot be told, or was not measured."""
    return any(row.verdict in ("SLOW", "AMBIGUOUS") and row.a_processes for row in comparison.cells)


def _confirm(comparison: Comparison, before: Sequence[Run], runs: Sequence[Run], interrupted: bool) -> Comparison:
    """Confirmed is what all processes of now together say is slow, and each of them by itself."""
    if interrupted and len(runs) == 1:
        text = "It was interrupted before anything could be measured again, so nothing slow is confirmed."
        return msgspec.structs.replace(comparison, remarks=(*comparison.remarks, Remark("unconfirmed", text)))
    of_a, of_b = collect(before), collect(runs)
    limit = slow_limit(comparison.tolerance)
    cells = tuple(
        msgspec.structs.replace(
            row, confirmed=row.verdict == "SLOW" and _each_slower(of_a[row.cell], of_b[row.cell], limit)
        )
        for row in comparison.cells
    )
    return msgspec.structs.replace(comparison, cells=cells)


def _clock_remarks(baseline: Baseline, run: Run) -> list[Remark]:
    """No verdict depends on the clock, but whoever reads of a baseline from the future should know why."""
    try:
        made, taken = (_moment(text) for text in (baseline.made_at, run.environment.taken_at))
    except ValueError:
        return []
    if made <= taken:
        return []
    made_text, taken_text = baseline.made_at[:19], run.environment.taken_at[:19]
    text = f"The baseline was made at {made_text} by its clock, and now it is {taken_text}: the clock has gone back."
    return [Remark("clock", text, "see the host's time service, such as chronyc tracking")]


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _each_slower(a: Series, b: Series, limit: float) -> bool:
    return all(math.isfinite(log) and log - a.mean_log > limit for log in b.logs)


def check_processes(count: int) -> None:
    """Refuse to make a baseline of too few.

    Raises:
        UsageError: how many it takes, and why.

    """
    if count < LEAST_PROCESSES:
        raise UsageError(
            f"--processes {count}: a baseline takes {LEAST_PROCESSES} or more, because it must know how far "
            "processes lie apart"
        )


def make_baseline(name: str, labels: dict[str, str], runs: Sequence[Run], made_at: str) -> Baseline:
    """The runs of one machine as its baseline.

    Raises:
        UsageError: they are of several machines, or too few.
        MeasurementError: something was measured in none of them.

    """
    check_processes(len(runs))
    Sample(f"baseline {name!r}", tuple(runs)).check()
    if not any(series.n == len(runs) for series in collect(runs).values()):
        raise MeasurementError("no cell was measured in every process, so there is nothing to compare with later")
    return Baseline(name, fingerprint_of(runs[0]), made_at, labels, tuple(runs))
