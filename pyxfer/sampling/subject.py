"""What can be sampled: something that runs one trial at a time, and the trials it gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyxfer import stats
from pyxfer.model import Side, Summary, Trial

# Threads of a framework, or of a ring, fall asleep while other routes run, and waking them takes up to a tenth of a
# millisecond each: that much is no part of a call in a loop, so one more goes before. A call this long hides it.
WAKE_BELOW_S = 0.02


class Subject(Protocol):
    """One route at one size. A route that moves bytes both ways at once gives a trial a side."""

    @property
    def key(self) -> str:
        """Tells it apart within its group."""

    @property
    def anchor(self) -> str | None:
        """Key of the subject it is compared with, which then runs in every round that this one runs in."""

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """Execute it once, timed."""


@dataclass
class Series:
    """The trials of one subject so far, by side."""

    subject: Subject
    trials: dict[Side, list[Trial]] = field(default_factory=dict)
    failure: str | None = None
    spent_s: float = 0.0
    runs: int = 0

    @property
    def mean_cost_s(self) -> float:
        """Seconds that one trial takes, with everything around it."""
        return self.spent_s / self.runs if self.runs else 0.0

    def add(self, found: Mapping[Side, Trial]) -> None:
        """Take in what one round gave."""
        for side, trial in found.items():
            self.trials.setdefault(side, []).append(trial)

    def valid_times(self, side: Side) -> list[float]:
        """The seconds of the trials that count."""
        return [trial.elapsed_s for trial in self.trials.get(side, ()) if trial.invalid is None]

    def summaries(self) -> list[Summary]:
        """One a side that has a valid trial."""
        times = (self.valid_times(side) for side in self.trials)
        return [stats.summarise(each) for each in times if each]

    def within(self, precision: float) -> bool:
        """Whether every side's interval is as narrow as asked."""
        summaries = self.summaries()
        widths = [summary.relative_half_width for summary in summaries]
        return bool(widths) and all(width is not None and width <= precision for width in widths)

    def rounds_wanting(self, precision: float) -> int:
        """An estimate of the further rounds that the widest side needs."""
        wanted = [stats.trials_needed(each, precision) - each.n for each in self.summaries() if each.low_s is not None]
        return max(wanted, default=0)
