"""The sampler: rounds in shuffled order, until the medians are precise or the budget is spent.

Machines drift, so what is to be compared runs in the same rounds, and groups take turns instead of finishing one after
the other. A subject that could not become precise within the budget is given up early, for the sake of the others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyxfer.errors import CancelledError, CudaError, CudaUnavailableError, DeviceLostError
from pyxfer.sampling.progress import OnProgress, Progress, silent
from pyxfer.sampling.subject import Series, Subject

# The least with which a median has an interval that one outlier does not widen to the outlier.
MIN_ROUNDS = 10
# A document of more trials than this grows large without telling more.
MAX_ROUNDS = 2000
# One turn of a group: long enough to amortise the bookkeeping, short enough that groups really alternate.
TURN_S = 0.02
TURN_ROUNDS = 32


@dataclass
class Group:
    """What runs in the same rounds, one size of every route, say."""

    name: str
    series: list[Series]
    rounds: int = 0

    @classmethod
    def of(cls, name: str, subjects: Sequence[Subject]) -> Group:
        """A group that has not run yet."""
        return cls(name, [Series(subject) for subject in subjects])

    def active(self, precision: float) -> list[Series]:
        """The series that want more rounds, with those that they are compared with."""
        wanting = [each for each in self.series if self._wants_more(each, precision)]
        keys = {each.subject.key for each in wanting} | {each.subject.anchor for each in wanting}
        return [each for each in self.series if each.subject.key in keys and each.failure is None]

    def _wants_more(self, series: Series, precision: float) -> bool:
        if series.failure is not None or series.given_up or self.rounds >= MAX_ROUNDS:
            return False
        return self.rounds < MIN_ROUNDS or not series.within(precision)


@dataclass
class Sampler:
    """Runs groups; one use."""

    groups: list[Group]
    precision: float
    deadline_s: float
    seed: int
    cancelled: Callable[[], bool] = lambda: False
    on_progress: OnProgress = silent
    on_turn: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.perf_counter
    random: random.Random = field(init=False)
    started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - an order of trials, no secret
        self.started_s = self.clock()

    def run(self) -> None:
        """Until every series is settled or the deadline has come."""
        self._minimum()
        while not self._spent():
            waiting = [group for group in self.groups if group.active(self.precision)]
            if not waiting:
                return
            for group in waiting:
                self._turn(group)
                if self._spent():
                    break
            self._give_up()

    def _minimum(self) -> None:
        """One round of everything at a time, so that a short budget leaves every group with something."""
        for _ in range(MIN_ROUNDS):
            for group in self.groups:
                if self._spent():
                    return
                self._round(group, [each for each in group.series if each.failure is None])
            self._report()

    def _turn(self, group: Group) -> None:
        until = self.clock() + TURN_S
        active = group.active(self.precision)
        for _ in range(TURN_ROUNDS):
            self._round(group, [each for each in active if each.failure is None])
            if self.clock() >= until or self._spent():
                break
        self._report()

    def _round(self, group: Group, series: list[Series]) -> None:
        order = list(series)
        self.random.shuffle(order)
        for each in order:
            self._check_cancelled()
            self._trial(each, group.rounds)
        group.rounds += 1

    def _trial(self, series: Series, round_index: int) -> None:
        begun = self.clock()
        try:
            series.add(series.subject.trial(round_index))
        except (CudaUnavailableError, DeviceLostError):
            raise
        except CudaError as error:  # this route's own trouble: its row says so, the others go on
            series.failure = str(error)
        series.cost_s = self.clock() - begun

    def _give_up(self) -> None:
        """Leave out what would need far more rounds than the rest of the budget has."""
        left = self.deadline_s - self.clock()
        for group in self.groups:
            for series in group.active(self.precision):
                wanting = series.rounds_wanting(self.precision)
                # Twice, because the width of an interval of few trials is itself uncertain.
                series.given_up = series.given_up or wanting * series.cost_s > 2 * left

    def _spent(self) -> bool:
        return self.clock() >= self.deadline_s

    def _check_cancelled(self) -> None:
        if self.cancelled():
            raise CancelledError("the measurement was asked to end")

    def _report(self) -> None:
        self.on_turn()
        total = sum(len(group.series) for group in self.groups)
        settled = sum(len(group.series) - len(group.active(self.precision)) for group in self.groups)
        spent = (self.clock() - self.started_s) / max(self.deadline_s - self.started_s, 1e-9)
        text = f"{settled} of {total} results are precise"
        self.on_progress(Progress("measuring", min(1.0, max(spent, settled / max(total, 1))), text))
