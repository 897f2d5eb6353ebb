"""The sampler: rounds in shuffled order, until the medians are precise or the budget is spent.

Machines drift, so what is to be compared runs in the same rounds, and groups take turns instead of finishing one after
the other. When not everything can become precise within the budget, the cheapest goes first: that makes most results
precise, and what is left out is marked with what it would have taken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyxfer._document.runs import Run, Side, Summary, Trial
from pyxfer._measure import stats
from pyxfer.errors import CancelledError, CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

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
    _summarised: tuple[int, list[Summary]] = field(default=(0, []), repr=False)

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
        """One for each side that has a valid trial."""
        if self._summarised[0] != self.runs:
            times = (self.valid_times(side) for side in self.trials)
            self._summarised = (self.runs, [stats.summarise(each) for each in times if each])
        return self._summarised[1]

    def within(self, precision: float) -> bool:
        """Whether every side's interval is as narrow as asked."""
        summaries = self.summaries()
        widths = [summary.relative_half_width for summary in summaries]
        return bool(widths) and all(width is not None and width <= precision for width in widths)

    def rounds_wanting(self, precision: float) -> int:
        """An estimate of the further rounds that the widest side needs."""
        wanted = [stats.trials_needed(each, precision) - each.n for each in self.summaries() if each.low_s is not None]
        return max(wanted, default=0)


@dataclass(frozen=True)
class Progress:
    """How far it is: `done` from 0 to 1."""

    phase: str
    done: float
    text: str


OnProgress = Callable[[Progress], None]


SaveTo = Callable[[Run], None]


def unsaved(_: Run) -> None:
    """Nobody wants it saved."""


def silent(_: Progress) -> None:
    """Nobody listens."""


# A median has a 95 % interval from six values on.
FEWEST_ROUNDS = 6
# A host may stay at one level for tens of trials, and a narrow interval of these says nothing of the next level. So
# nothing is settled with fewer.
MIN_ROUNDS = 100
# A document of more trials than this grows large without telling more.
MAX_ROUNDS = 1000
# What others are compared with runs in all their rounds, so a group has more; this many times as many at most.
GROUP_ROUNDS = 4
# One turn of a group: long enough to amortise the bookkeeping, short enough that groups really alternate.
TURN_S = 0.02
TURN_ROUNDS = 32
# Trials that come after cost more than those that the estimate is made of.
AFTER_COST = 2.0


@dataclass
class Group:
    """What runs in the same rounds, one size of every route, say."""

    name: str
    series: list[Series]
    rounds: int = 0
    most_rounds: int = MAX_ROUNDS

    @classmethod
    def of(cls, name: str, subjects: Sequence[Subject], most_rounds: int = MAX_ROUNDS) -> Group:
        """A group that has not run yet."""
        return cls(name, [Series(subject) for subject in subjects], most_rounds=most_rounds)

    def wanting(self, precision: float) -> list[Series]:
        """The series that are not settled."""
        return [each for each in self.series if self._wants_more(each, precision)]

    def with_anchors(self, series: Sequence[Series]) -> list[Series]:
        """These, and those that they are compared with."""
        keys = {each.subject.key for each in series} | {each.subject.anchor for each in series}
        return [each for each in self.series if each.subject.key in keys and each.failure is None]

    def _wants_more(self, series: Series, precision: float) -> bool:
        most = self.most_rounds
        if series.failure is not None or series.runs >= most or self.rounds >= GROUP_ROUNDS * most:
            return False
        return series.runs < MIN_ROUNDS or not series.within(precision)


@dataclass(frozen=True)
class After:
    """What is to come after the sampling: so many rounds of everything, in so many seconds of the budget at most.

    `once_s` goes into its beginning, and `each_s` into every trial beside the trial's own time.
    """

    rounds: int = 0
    once_s: float = 0.0
    each_s: float = 0.0
    most_s: float = 0.0


@dataclass
class Sampler:
    """Runs groups; one use. Every series has `fewest_rounds` trials, also where the deadline has passed before."""

    groups: list[Group]
    precision: float
    deadline_s: float
    seed: int
    cancelled: Callable[[], bool] = lambda: False
    on_progress: OnProgress = silent
    on_turn: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.perf_counter
    after: After = After()
    fewest_rounds: int = FEWEST_ROUNDS
    random: random.Random = field(init=False)
    started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - an order of trials, no secret
        self.started_s = self.clock()
        self._kept_s = 0.0  # known when trials have shown what they cost

    def run(self) -> None:
        """Until every series is settled or the deadline has come."""
        self._first_rounds()
        self._kept_s = self.left_for_after()
        while not self._spent():
            wanting = [(group, each) for group in self.groups for each in group.wanting(self.precision)]
            if not wanting:
                return
            for group, series in self._affordable(wanting) or self._neglected(wanting):
                self._turn(group, series)
                if self._spent():
                    break

    def run_rounds(self, rounds: int) -> None:
        """So many rounds of everything, whatever they cost."""
        for _ in range(rounds):
            for group in self.groups:
                self._round(group, [each for each in group.series if each.failure is None])

    def left_for_after(self) -> float:
        """Seconds of the budget that what comes after will need, by what the trials have cost so far."""
        costs = [each.mean_cost_s for group in self.groups for each in group.series if each.runs]
        wanted_s = self.after.rounds * sum(AFTER_COST * cost + self.after.each_s for cost in costs)
        return min(self.after.most_s, self.after.once_s + wanted_s)

    def _first_rounds(self) -> None:
        """One round of everything at a time: who ends them early has something of every group."""
        for _ in range(self.fewest_rounds):
            for group in self.groups:
                self._round(group, [each for each in group.series if each.failure is None])
            self._report()

    def _affordable(self, wanting: list[tuple[Group, Series]]) -> list[tuple[Group, list[Series]]]:
        """The series whose wants fit into the time left, the cheapest first."""
        costs = {id(each): self._cost_s(group, each) for group, each in wanting}
        # Twice what is left, because the width of an interval of few trials is itself uncertain.
        left = 2 * (self.deadline_s - self._kept_s - self.clock())
        chosen: dict[int, list[Series]] = {}
        for group, each in sorted(wanting, key=lambda pair: costs[id(pair[1])]):
            left -= costs[id(each)]
            if left < 0:
                break
            chosen.setdefault(id(group), []).append(each)
        return [(group, chosen[id(group)]) for group in self.groups if id(group) in chosen]

    @staticmethod
    def _neglected(wanting: list[tuple[Group, Series]]) -> list[tuple[Group, list[Series]]]:
        """Where nothing can become precise any more, what has had the least time becomes a little better."""
        group, series = min(wanting, key=lambda pair: pair[1].spent_s)
        return [(group, [series])]

    def _cost_s(self, group: Group, series: Series) -> float:
        """Seconds until it is settled, its anchor's trials included."""
        each_round = sum(each.mean_cost_s for each in group.with_anchors([series]))
        return each_round * max(series.rounds_wanting(self.precision), MIN_ROUNDS - series.runs, 1)

    def _turn(self, group: Group, series: list[Series]) -> None:
        until = self.clock() + TURN_S
        active = group.with_anchors(series)
        for _ in range(TURN_ROUNDS):
            self._round(group, [each for each in active if each.failure is None])
            if self.clock() >= until or self._spent():
                break
        self._report()

    def _round(self, group: Group, series: list[Series]) -> None:
        order = list(series)
        self.random.shuffle(order)
        for each in order:
            if self.cancelled():
                raise CancelledError("the measurement was asked to end")
            self._trial(each, group.rounds)
        group.rounds += 1

    def _trial(self, series: Series, round_index: int) -> None:
        begun = self.clock()
        try:
            series.add(series.subject.trial(round_index))
        except (CudaUnavailableError, DeviceLostError):
            raise
        except (CudaError, MeasurementError) as error:  # this route's own trouble: its row says so, the others go on
            series.failure = str(error)
        series.spent_s += self.clock() - begun
        series.runs += 1

    def _spent(self) -> bool:
        return self.clock() >= self.deadline_s - self._kept_s

    def _report(self) -> None:
        self.on_turn()
        total = sum(len(group.series) for group in self.groups)
        settled = total - sum(len(group.wanting(self.precision)) for group in self.groups)
        spent = (self.clock() - self.started_s) / max(self.deadline_s - self._kept_s - self.started_s, 1e-9)
        text = f"{settled} of {total} results are precise"
        self.on_progress(Progress("measuring", min(1.0, max(spent, settled / max(total, 1))), text))
