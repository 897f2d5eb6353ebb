"""Compare this session with saved ones: which tests are certainly slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pyxfer._baseline.compare import certainly_slower, compare_samples
from pyxfer._baseline.figures import figures_of
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.judge import DEFAULT_TOLERANCE
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import AnyRun, CellComparison, Comparison
from pyxfer._document.cells import Cell
from pyxfer._document.runs import Measurement, Rate, Run, Summary
from pyxfer._document.sessions import XferSession, runs_of
from pyxfer._pytest.settings import Limit
from pyxfer.errors import UsageError
from pyxfer.units import format_change, format_seconds

HERE = "this session"
_OTHER_BYTES = "other bytes"


@dataclass
class Compared:
    """The result: a word for each test, the exceeded limits, and notes."""

    words: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Against:
    """Saved sessions. Several count as several processes of one side, which shows how much processes differ."""

    def __init__(self, paths: Sequence[Path], limits: Sequence[Limit]) -> None:
        self.name = ", ".join(path.stem for path in paths)
        self._saved = [run for path in paths for run in runs_of(XferSession.load(path))]
        self._limits = tuple(limits)

    def compare(self, session: XferSession) -> Compared:
        found = Compared()
        for run in runs_of(session):
            try:
                self._compare_place(run, found)
            except (UsageError, ArithmeticError) as error:
                why = error if isinstance(error, UsageError) else "it has a figure that cannot be computed with"
                found.notes.append(f"not compared with {self.name}: {why}")
                found.failures += [f"not compared, so {limit.text} was not checked" for limit in self._limits[:1]]
        return found

    def _compare_place(self, run: Run, found: Compared) -> None:
        key = identity(fingerprint_of(run))
        saved = [old for old in self._saved if identity(fingerprint_of(old)) == key] or self._saved
        a, b = Sample(self.name, tuple(saved)), Sample(HERE, (run,))
        a.check()
        known = _tests(saved)
        if not _cells(saved) & _cells([run]):
            found.words |= dict.fromkeys(_tests([run]) & known, _OTHER_BYTES)
            found.notes.append(f"no test of this session is in {self.name} with the same bytes")
            return
        shares = [limit.share for limit in self._limits if limit.statistic == "median" and limit.share is not None]
        tolerance = min(shares, default=DEFAULT_TOLERANCE)
        comparison = compare_samples(a, b, tolerance)
        found.notes += _notes(comparison)
        for row in comparison.cells:
            if row.b_processes:
                found.words[row.cell.case] = _word(row, known)
        unsure = [f"{row.cell.case}: {row.why}" for row in comparison.cells if _may_be_beyond(row, tolerance)]
        found.notes += unsure if self._limits else ()
        for limit in self._limits:
            found.failures += _failures(limit, a, b, comparison)


def _tests(runs: Sequence[Run]) -> set[str]:
    return {row.route for run in runs for row in run.measurements}


def _cells(runs: Sequence[AnyRun]) -> set[Cell]:
    return {figure.cell for run in runs for figure in figures_of(run)}


def _word(row: CellComparison, known: set[str]) -> str:
    if row.ratio.value is None:
        return _OTHER_BYTES if row.cell.case in known else "new"
    if row.verdict in ("SLOW", "FAST"):
        return format_change(math.log(row.ratio.value))
    return "same" if row.verdict == "SAME" else "unsure"


def _may_be_beyond(row: CellComparison, share: float) -> bool:
    """Whether its estimate is beyond the share, but not its whole interval."""
    return row.verdict == "AMBIGUOUS" and row.ratio.value is not None and 1 - 1 / row.ratio.value > share


def _failures(limit: Limit, a: Sample, b: Sample, comparison: Comparison) -> list[str]:
    """The tests whose whole interval is beyond the limit."""
    unit = ""
    if limit.statistic == "of_ceiling":
        a, b, unit = _in_ceilings(a), _in_ceilings(b), " by its share of the ceiling"
        if not _cells(a.runs) & _cells(b.runs):
            return [f"{limit.text}: no test has a share of the ceiling on both sides"]
        comparison = compare_samples(a, b)
    if limit.seconds is not None:
        return [text for row in comparison.cells if (text := _beyond_seconds(limit, limit.seconds, row))]
    slower = certainly_slower(comparison, limit.share or DEFAULT_TOLERANCE)
    least = ((row.cell.case, format_change(math.log(row.low.value or 1.0))) for row in slower)
    return [f"{case}: {limit.text}: at least {change}{unit}" for case, change in least]


def _beyond_seconds(limit: Limit, seconds: float, row: CellComparison) -> str | None:
    if row.assumed or row.low.value is None or row.a_gbps.value is None:
        return None
    before_s = row.cell.nbytes * (2 if row.cell.side == "sum" else 1) / row.a_gbps.value / 1e9
    more_s = (row.low.value - 1) * before_s
    return f"{row.cell.case}: {limit.text}: at least {format_seconds(more_s)} longer" if more_s > seconds else None


def _in_ceilings(sample: Sample) -> Sample:
    runs = [run for run in sample.runs if isinstance(run, Run)]
    rows = [tuple(row for old in run.measurements if (row := _relative(old)) is not None) for run in runs]
    relative = (msgspec.structs.replace(run, measurements=each) for run, each in zip(runs, rows, strict=True))
    return Sample(sample.name, tuple(relative))


def _relative(row: Measurement) -> Measurement | None:
    share = row.ceiling_share.value
    if share is None or row.summary is None or not share.value > 0:
        return None
    low = None if share.high is None or not share.high > 0 else 1 / share.high
    high = None if share.low is None or not share.low > 0 else 1 / share.low
    time = 1 / share.value
    summary = Summary(row.summary.n, time, low, high, time, time, 0.0, time, time)
    rate = msgspec.structs.replace(row.rate, value=Rate(row.moved_bytes / time / 1e9, None, None))
    return msgspec.structs.replace(row, summary=summary, rate=rate, trials=())


def _notes(comparison: Comparison) -> list[str]:
    differences = [f"{found.what}: {found.a} then, {found.b} now" for found in comparison.differences if found.matters]
    return [*differences, *(remark.text for remark in comparison.remarks if remark.code != "host-memory")]
