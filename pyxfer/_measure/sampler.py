"""The sampler: rounds in shuffled order, until the medians are precise or the budget is spent.

Machines drift, so subjects that are compared run in the same rounds, and groups take turns until the budget is spent.
A group's share of the budget is a time and not a number of rounds: small sizes get hundreds of trials in the time of
one trial of a large one. Results that are not precise then get a remark with the time that they need.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyxfer._document.machines import Side
from pyxfer._document.runs import Run, Summary, Trial
from pyxfer._measure import stats
from pyxfer._measure.run import own_failure
from pyxfer.errors import CancelledError

# The threads of a framework or a ring go to sleep while other routes run, and waking one takes up to 0.1 ms. Calls in a
# loop do not pay that, so an untimed call comes before a timed one that is shorter than this.
WAKE_BELOW_S = 0.02


class Subject(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def anchor(self) -> str | None:
        """Key of the subject that this one is compared with, and that runs in all its rounds."""

    @property
    def ceiling_of(self) -> str | None:
        """The comparison in which the fastest is the ceiling; None if this is never the ceiling."""

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """Time it once. A route in both directions at once gives a trial for each side."""


@dataclass
class Series:
    subject: Subject
    trials: dict[Side, list[Trial]] = field(default_factory=dict)
    failure: str | None = None
    spent_s: float = 0.0
    runs: int = 0
    _summarised: tuple[int, list[Summary]] = field(default=(0, []), repr=False)
    _error: float = field(default=0.0, repr=False)

    @property
    def mean_cost_s(self) -> float:
        return self.spent_s / self.runs if self.runs else 0.0

    def add(self, trials: Mapping[Side, Trial]) -> None:
        for side, trial in trials.items():
            self.trials.setdefault(side, []).append(trial)

    def fail(self, error: Exception) -> None:
        self.failure = str(error)

    def valid_times(self, side: Side) -> list[float]:
        return [trial.elapsed_s for trial in self.trials.get(side, ()) if trial.invalid is None]

    def lacks(self, trials: int) -> bool:
        return self.failure is None and any(len(self.valid_times(side)) < trials for side in self.trials)

    def summaries(self) -> list[Summary]:
        """The summary of every side that has a valid trial, at most `GROWTH` times as many trials ago."""
        count = sum(map(len, self.trials.values()))
        if count > GROWTH * self._summarised[0]:
            times = [seconds for side in self.trials if (seconds := self.valid_times(side))]
            self._summarised = (count, [stats.summarise(seconds) for seconds in times])
            self._error = max(map(stats.standard_error, times), default=math.inf)
        return self._summarised[1]

    def seconds_to(self, precision: float) -> float:
        """About how much longer its trials would take to become precise: errors shrink with the root of their number.

        Not from the interval, which one outlier among few trials widens for a while. But while the interval is wider
        than expected, as it is with few trials, a few more are needed.
        """
        is_precise = self.is_precise(precision)
        expected_s = ((HALF_WIDTH_ERRORS * self._error / precision) ** 2 - 1) * self.spent_s
        return expected_s if is_precise else max(expected_s, (GROWTH - 1) * self.spent_s)

    def is_precise(self, precision: float) -> bool:
        widths = [summary.relative_half_width for summary in self.summaries()]
        return bool(widths) and all(width is not None and width <= precision for width in widths)


@dataclass(frozen=True)
class Progress:
    """The progress of a run. `done` is from 0 to 1, `left_s` about how long this phase goes on, if that is known."""

    phase: str
    done: float
    text: str
    left_s: float | None = None


OnProgress = Callable[[Progress], None]
SaveTo = Callable[[Run], None]


def unsaved(_: object) -> None: ...


def silent(_: Progress) -> None: ...


# A median has a 95 % interval from six values on.
FEWEST_ROUNDS = 6
# On a busy machine many trials are invalid. A row that lacks valid ones gets up to this many times the fewest rounds,
# and if some of them are valid further ones for this time, because short trials cost little.
RETRIES = 3
RETRY_S = 0.25
# A host may stay at one level for tens of trials, and a narrow interval of these says nothing of the next level. So
# nothing is settled with fewer trials, unless they are as long as this together.
MIN_ROUNDS = 100
MIN_ROUNDS_S = 0.1
# A series is summarised again for the next decision when it has this many times as many trials. After each trial it
# would take a quarter of the processor's time.
GROWTH = 1.2
# Half of an interval in standard errors.
HALF_WIDTH_ERRORS = 2.2
# Trials shorter than this are no reason to give a series few of them.
COSTLY_S = 0.1
# A later round takes at least this share of the first one, which touches memory and fills pools.
LATER_ROUNDS = 0.6
# Why a group has a turn. Half of the time is for series that the remaining time can settle.
TURNS = ("settled", "soonest", "least")
# What cannot be settled is made precise to the target times a power of two, below this one.
MAX_DOUBLINGS = 8
# More trials make a document large and a result hardly more precise.
MAX_ROUNDS = 1000
# An anchor runs in the rounds of all that are compared with it, so a group may have this many times as many.
GROUP_ROUNDS = 4
# The ceiling is the fastest at the end. Until then it may be any that is at most this much slower than the fastest.
NEARLY_FASTEST = 1.25
# One turn of a group: long enough to amortise the bookkeeping, short enough that groups alternate.
TURN_S = 0.02
TURN_ROUNDS = 32
# The cost of a traced trial, in mean costs of a timed one.
TRACED_COST = 2.0


@dataclass
class Group:
    name: str
    series: list[Series]
    rounds: int = 0
    most_rounds: int = MAX_ROUNDS
    dropped: bool = False

    @classmethod
    def of(cls, name: str, subjects: Sequence[Subject], most_rounds: int = MAX_ROUNDS) -> Group:
        return cls(name, [Series(subject) for subject in subjects], most_rounds=most_rounds)

    @property
    def spent_s(self) -> float:
        return sum(series.spent_s for series in self.series)

    @property
    def round_s(self) -> float:
        return sum(series.mean_cost_s for series in self.series if series.failure is None)

    def active(self) -> list[Series]:
        return [] if self.dropped else [series for series in self.series if series.failure is None]

    def unsettled(self, precision: float) -> list[Series]:
        return [series for series in self.active() if self._needs_more(series, precision)]

    def with_anchors(self, chosen: Sequence[Series]) -> list[Series]:
        """The chosen series and those that they are compared with: anchors, and all that may become the ceiling."""
        keys = {series.subject.key for series in chosen} | {series.subject.anchor for series in chosen}
        found = {series.subject.ceiling_of for series in self.series if series.subject.key in keys}
        for name in found - {None}:
            rivals = [each for each in self.active() if each.subject.ceiling_of == name and each.summaries()]
            medians = {each.subject.key: each.summaries()[-1].median_s for each in rivals}
            keys.update(key for key, median_s in medians.items() if median_s <= NEARLY_FASTEST * min(medians.values()))
        return [series for series in self.active() if series.subject.key in keys]

    def _needs_more(self, series: Series, precision: float) -> bool:
        if series.runs >= self.most_rounds or self.rounds >= GROUP_ROUNDS * self.most_rounds:
            return False
        is_short = series.runs < MIN_ROUNDS and series.spent_s < MIN_ROUNDS_S
        return is_short or not series.is_precise(precision)


@dataclass(frozen=True)
class Reserve:
    """The part of the budget for the traced trials after the sampling: `rounds` of them, in `most_s` at most.

    `once_s`: time to start tracing; `each_s`: time per trial in addition to the trial itself.
    """

    rounds: int = 0
    once_s: float = 0.0
    each_s: float = 0.0
    most_s: float = 0.0


@dataclass
class Sampler:
    """Runs groups of subjects, once.

    Every series gets `fewest_rounds` valid trials, even after the deadline, but not after `latest_s`: the groups whose
    rounds take longest are dropped after their first one if the rest would take longer than that. If the rest would
    end after the deadline, those whose trials take longest get `few_rounds`, except anchors and the keys in `spared`.
    """

    groups: list[Group]
    precision: float
    deadline_s: float
    seed: int
    cancelled: Callable[[], bool] = lambda: False
    on_progress: OnProgress = silent
    on_turn: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.perf_counter
    reserve: Reserve = Reserve()
    fewest_rounds: int = FEWEST_ROUNDS
    few_rounds: int = FEWEST_ROUNDS
    spared: Collection[str] = ()
    latest_s: float = math.inf
    random: random.Random = field(init=False)
    started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - an order of trials, not a secret
        self.started_s = self.clock()
        self._turns_s = dict.fromkeys(TURNS, 0.0)
        self._fewest_s: dict[int, float] = {}
        self._costly: set[int] = set()
        self._left_s = 0.0
        self._reserved_s = 0.0  # until the first rounds have shown what a trial costs

    def run(self) -> None:
        self._fewest_rounds()
        self._replace_invalid()
        # What the traced trials will need, by the cost of the timed ones so far.
        costs = [series.mean_cost_s for group in self.groups for series in group.series if series.runs]
        needed_s = self.reserve.rounds * sum(TRACED_COST * cost + self.reserve.each_s for cost in costs)
        self._reserved_s = min(self.reserve.most_s, self.reserve.once_s + needed_s)
        self._fewest_s = {id(group): group.spent_s for group in self.groups}
        while not self._is_spent():
            unsettled = [(group, chosen) for group in self.groups if (chosen := group.unsettled(self.precision))]
            if not unsettled:
                return
            kind, group, chosen = self._next(unsettled)
            begun = self.clock()
            self._turn(group, chosen)
            self._turns_s[kind] += self.clock() - begun

    def _fewest_rounds(self) -> None:
        """Over all groups, so that an early end leaves some trials of each."""
        each = [series for group in self.groups for series in group.series]
        for done in range(1, self.fewest_rounds + 1):
            spent_s = {id(series): series.spent_s for series in each}
            for group in self.groups:
                self._round(group, [series for series in group.active() if self._fewest_of(series) >= done])
            cost_s = {id(series): series.spent_s - spent_s[id(series)] for series in each}
            factor = LATER_ROUNDS if done == 1 else 1.0
            self._give_few_rounds(cost_s, done, factor)
            kept = [group for group in self.groups if not group.dropped]
            while len(kept) > 1 and self.clock() + factor * self._needed_s(kept, cost_s, done) > self.latest_s:
                costly = max(kept, key=lambda group: self._needed_s([group], cost_s, done))
                costly.dropped = True
                kept.remove(costly)
            self._left_s = self._needed_s(kept, cost_s, done)
            self._report()
        self._left_s = 0.0

    def _fewest_of(self, series: Series) -> int:
        return self.few_rounds if id(series) in self._costly else self.fewest_rounds

    def _needed_s(self, groups: Sequence[Group], cost_s: Mapping[int, float], done: int) -> float:
        """The time for the rest of the fewest rounds, with the cost of a trial of each series."""
        active = [series for group in groups for series in group.active()]
        return sum(cost_s[id(series)] * max(0, self._fewest_of(series) - done) for series in active)

    def _give_few_rounds(self, cost_s: Mapping[int, float], done: int, factor: float) -> None:
        """Let the costliest series have few rounds, until the rest fits before the deadline."""
        if self.few_rounds >= self.fewest_rounds:
            return
        kept = {*self.spared, *(series.subject.anchor for group in self.groups for series in group.series)}
        others = [series for group in self.groups for series in group.active() if series.subject.key not in kept]
        for series in sorted(others, key=lambda each: -cost_s[id(each)]):
            late_s = self.clock() + factor * self._needed_s(self.groups, cost_s, done) - self.deadline_s
            if late_s <= 0 or cost_s[id(series)] < COSTLY_S:
                return
            self._costly.add(id(series))

    def _next(self, unsettled: Sequence[tuple[Group, list[Series]]]) -> tuple[str, Group, list[Series]]:
        """The group whose turn it is, with the series that can still be settled or with those that cannot.

        Of those that can be settled, the group with the least time is next. The fewest rounds do not count: they take a
        large size longer than all turns of a small one. The others share their time between the series that soonest
        become as precise as they can, usually pinned copies, and the group with the least time in all, so that the
        trials of all span the run.
        """
        left_s = self.deadline_s - self._reserved_s - self.clock()
        hopeful, hopeless = [], []
        for group, chosen in unsettled:
            near = [series for series in chosen if series.seconds_to(self.precision) <= left_s]
            far = [series for series in chosen if series not in near]
            hopeful += [(group, near)] if near else []
            hopeless += [(group, far)] if far else []
        settled_s, soonest_s, least_s = self._turns_s.values()
        if hopeful and (not hopeless or settled_s <= soonest_s + least_s):
            return "settled", *min(hopeful, key=lambda each: each[0].spent_s - self._fewest_s[id(each[0])])
        if least_s < soonest_s:
            return "least", *min(hopeless, key=lambda each: each[0].spent_s)
        return "soonest", *self._soonest(hopeless, left_s)

    def _soonest(self, hopeless: Sequence[tuple[Group, list[Series]]], left_s: float) -> tuple[Group, list[Series]]:
        """The series that soonest reaches twice the precision, or the next multiple that any can reach in this time."""
        each = [(group, series) for group, far in hopeless for series in far]
        for doublings in range(1, MAX_DOUBLINGS):
            longer = [(series.seconds_to(2**doublings * self.precision), group, series) for group, series in each]
            within = [found for found in longer if 0 < found[0] <= left_s]
            if within:
                _, group, series = min(within, key=lambda found: found[0])
                return group, [series]
        return min(hopeless, key=lambda found: found[0].spent_s)

    def _replace_invalid(self) -> None:
        until_s = {id(series): series.spent_s + RETRY_S for group in self.groups for series in group.series}

        def is_worth_more(series: Series) -> bool:
            fewest = self._fewest_of(series)
            is_hopeful = not series.lacks(1) and series.runs < MAX_ROUNDS and series.spent_s < until_s[id(series)]
            return series.lacks(fewest) and (series.runs < RETRIES * fewest or is_hopeful)

        while self.clock() < self.latest_s:
            lacking = [(group, list(filter(is_worth_more, group.active()))) for group in self.groups]
            if not any(chosen for _, chosen in lacking):
                return
            for group, chosen in lacking:
                if chosen:
                    self._round(group, group.with_anchors(chosen))

    def _turn(self, group: Group, chosen: list[Series]) -> None:
        until = self.clock() + TURN_S
        members = group.with_anchors(chosen)
        for _ in range(TURN_ROUNDS):
            self._round(group, [series for series in members if series.failure is None])
            if self.clock() >= until or self._is_spent():
                break
        self._report()

    def _round(self, group: Group, members: list[Series]) -> None:
        order = list(members)
        self.random.shuffle(order)
        for series in order:
            if self.cancelled():
                raise CancelledError("the measurement was asked to end")
            if self.clock() < self.latest_s or (group is self.groups[0] and not group.rounds):
                self._trial(series, group.rounds)
        group.rounds += not group.dropped

    def _trial(self, series: Series, round_index: int) -> None:
        begun = self.clock()
        with own_failure(series.fail):
            series.add(series.subject.trial(round_index))
        series.spent_s += self.clock() - begun
        series.runs += 1

    def _is_spent(self) -> bool:
        return self.clock() >= self.deadline_s - self._reserved_s

    def _report(self) -> None:
        self.on_turn()
        total = sum(len(group.series) for group in self.groups)
        settled = total - sum(len(group.unsettled(self.precision)) for group in self.groups)
        text = f"{settled} of {total} results precise"
        budget_s, left_s = (self.deadline_s - self._reserved_s - since_s for since_s in (self.started_s, self.clock()))
        if budget_s > 0:
            spent = 1 - left_s / budget_s
        else:  # only the fewest rounds
            spent = min((group.rounds for group in self.groups), default=0) / self.fewest_rounds
        done = min(1.0, max(spent, settled / max(total, 1)))
        self.on_progress(Progress("measuring", done, text, max(self._left_s, left_s, 0.0)))
