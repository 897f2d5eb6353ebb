"""Compare this session with saved ones: which tests are certainly slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyxfer._baseline.compare import certainly_slower, compare_samples
from pyxfer._baseline.figures import figures_of
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.judge import DEFAULT_TOLERANCE
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import AnyRun, CellComparison
from pyxfer._document.cells import Cell
from pyxfer._document.runs import Run
from pyxfer._document.sessions import XferSession, runs_of
from pyxfer.errors import UsageError
from pyxfer.units import format_change, format_percent

HERE = "this session"
_OTHER_BYTES = "other bytes"


@dataclass
class Compared:
    """The result: a word for each test, the tests beyond the limit, and notes."""

    words: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Against:
    """Saved sessions. Several count as several processes of one side, which shows how much processes differ."""

    def __init__(self, paths: Sequence[Path], limit: float | None) -> None:
        """`limit`: the share by which a test may be slower."""
        self.name = ", ".join(path.stem for path in paths)
        self._saved = [run for path in paths for run in runs_of(XferSession.load(path))]
        self._limit = limit

    def compare(self, session: XferSession) -> Compared:
        found = Compared()
        for run in runs_of(session):
            try:
                self._compare_place(run, found)
            except (UsageError, ArithmeticError) as error:
                why = error if isinstance(error, UsageError) else "it has a figure that cannot be computed with"
                found.notes.append(f"not compared with {self.name}: {why}")
                if self._limit is not None:
                    found.failures.append("not compared, so --xfer-compare-fail was not checked")
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
        tolerance = self._limit or DEFAULT_TOLERANCE
        comparison = compare_samples(a, b, tolerance)
        found.notes += [f"{each.what}: {each.a} then, {each.b} now" for each in comparison.differences if each.matters]
        found.notes += [remark.text for remark in comparison.remarks if remark.code != "host-memory"]
        for row in comparison.cells:
            if row.b_processes:
                found.words[row.cell.case] = _word(row, known)
        if self._limit is not None:
            found.notes += [
                f"{row.cell.case}: {row.why}" for row in comparison.cells if _may_be_beyond(row, self._limit)
            ]
            # The tests whose whole interval is beyond the limit.
            asked = f"--xfer-compare-fail allows {format_percent(self._limit)}"
            slower = certainly_slower(comparison, self._limit)
            least = ((row.cell.case, format_change(math.log(row.low.value or 1.0))) for row in slower)
            found.failures += [f"{case}: at least {change}; {asked}" for case, change in least]


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
