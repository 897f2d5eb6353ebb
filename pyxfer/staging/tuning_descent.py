"""The search for a ring's settings: one of them is changed at a time, and kept where the ring gets faster by it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING

from pyxfer.errors import CudaMemoryError, UsageError
from pyxfer.model_machine import Fact
from pyxfer.model_tuning import CopyDirection, CopyRate, TuningTrial, Verdict
from pyxfer.staging.settings import setup_of
from pyxfer.staging.tuning_candidates import SETTINGS
from pyxfer.staging.tuning_trials import least_times_as_fast, rates_of, rounds_of, take_turns, times_as_fast, works_of
from pyxfer.units import format_seconds, format_size

if TYPE_CHECKING:
    from pyxfer.staging.settings import RingSettings
    from pyxfer.staging.tuning_candidates import Candidates
    from pyxfer.staging.tuning_trials import Bench, Copy, Deadline, Times

# Less than this is what two tunings of one host differ by.
_CLEARLY = 1.03
# What is so much slower in its first round is not timed again: no second round would make it the best.
_FAR_SLOWER = 1 / 1.15
_MOST_REPEATS, _LEAST_REPEATS = 5, 3
# With more repeats than the least, a candidate may take this share of the limit.
_SHARE_OF_A_CANDIDATE = 0.05
# A direction in which so many in succession were not faster is left.
_PATIENCE = 2
_PAYS_SIZES = tuple(1 << power for power in range(16, 23))  # 64 KiB to 4 MiB
_PAYS_REPEATS = 5
_WARY = 1.25
_UPLOAD: CopyDirection = "h2d"


@dataclass(frozen=True)
class Found:
    """The best, and how it was found."""

    settings: RingSettings
    trials: tuple[TuningTrial, ...]
    plain: tuple[CopyRate, ...]
    pays_from_bytes: Fact[int]


class Descent:
    """Coordinate descent; the best so far keeps its ring, and every candidate is timed beside it."""

    def __init__(
        self, bench: Bench, candidates: Candidates, budget_bytes: int, sizes: Sequence[int], deadline: Deadline
    ) -> None:
        self._bench = bench
        self._candidates = candidates
        self._best = candidates.start(budget_bytes)
        self._copy: Copy
        self._budget_bytes = budget_bytes
        self._works = works_of(sizes)
        self._pays_sizes = [nbytes for nbytes in _PAYS_SIZES if nbytes <= max(sizes)]
        self._deadline = deadline
        self._trials: list[TuningTrial] = []
        self._seen = {self._best}
        self._stack = ExitStack()  # holds the ring of the best
        self._given_up = 1.0  # how many times as fast as the best the fastest was, which ties may have cost
        self._lock_s_per_byte = 0.0
        self._timing_s = self._paying_s = 0.0
        self._repeats = _MOST_REPEATS

    def run(self) -> Found:
        """Go on until nothing is better, or the time is over.

        Raises:
            CudaMemoryError: there is no page-locked memory for the least of rings.

        """
        try:
            self._make_first()
            plain = self._time_first()
            while self._pass():
                pass
            return Found(self._best, tuple(self._trials), plain, self._pays_from(plain))
        finally:
            self._stack.close()

    def _make_first(self) -> None:
        """As it is to be, or as large as page-locked memory allows."""
        while True:
            began_s = self._deadline.spent_s
            try:
                self._copy = self._stack.enter_context(self._bench.ring(self._best))
            except CudaMemoryError:
                try:
                    self._best = self._best.within(self._best.pinned_bytes // 2)
                except UsageError:
                    pass
                else:
                    continue
                raise
            self._lock_s_per_byte = (self._deadline.spent_s - began_s) / self._best.pinned_bytes
            return

    def _time_first(self) -> tuple[CopyRate, ...]:
        """The start, and plain copies once, which may take ten times as long."""
        began_s = self._deadline.spent_s
        (times,) = take_turns([self._copy], self._works, 1, self._deadline)
        once_s = 2 * (self._deadline.spent_s - began_s)  # of a candidate beside the best
        if once_s * _MOST_REPEATS > self._deadline.limit_s * _SHARE_OF_A_CANDIDATE:
            self._repeats = _LEAST_REPEATS
        if self._deadline.left_s > 0:
            (times,) = take_turns([self._copy], self._works, self._repeats, self._deadline)
        self._timing_s = once_s * self._repeats
        self._note(self._best, "first", times, began_s)
        for work in self._works[:2]:
            self._bench.plain(*work)  # the driver's own first use
        (plain,) = take_turns([self._bench.plain], self._works, 1, self._deadline)
        least = self._works[0]
        once_s = (plain[least][0] + median(times[least])) / least.nbytes * sum(self._pays_sizes)
        self._paying_s = once_s * _PAYS_REPEATS
        return rates_of(plain)

    def _pass(self) -> bool:
        """Every setting once; whether there is a new best."""
        before = self._best
        for name in SETTINGS:
            more, less = self._candidates.neighbours(self._best, name)
            if not self._walk(more):
                self._walk(less)
        return self._best != before

    def _walk(self, candidates: Sequence[RingSettings]) -> bool:
        """In one direction, until it does not get better; whether anything was."""
        won = False
        patience = _PATIENCE
        for candidate in candidates:
            if candidate in self._seen:
                continue
            self._seen.add(candidate)
            if self._try(candidate):
                won, patience = True, _PATIENCE
            else:
                patience -= 1
            if not patience:
                break
        return won

    def _try(self, candidate: RingSettings) -> bool:
        """Whether it is the new best."""
        reason = self._why_not(candidate)
        if reason:
            self._trials.append(TuningTrial(setup_of(candidate), "not tried", reason=reason))
            return False
        began_s = self._deadline.spent_s
        with ExitStack() as stack:
            try:
                copy = stack.enter_context(self._bench.ring(candidate))
            except (MemoryError, OSError) as error:  # page-locked memory, or threads
                reason = f"such a ring cannot be made: {error}"
                self._trials.append(TuningTrial(setup_of(candidate), "not tried", reason=reason))
                return False
            self._learn_locking(candidate, self._deadline.spent_s - began_s)
            best, own = self._beside_best(copy)
            against = times_as_fast(own, best)
            verdict = self._judge(candidate, against, least_times_as_fast(own, best), rounds_of(own))
            self._note(candidate, verdict, own, began_s, against)
            if verdict in ("faster", "smaller"):
                self._given_up = max(1.0, self._given_up / against)
                self._best, self._copy = candidate, copy
                self._stack, before = stack.pop_all(), self._stack
                before.close()
        return verdict in ("faster", "smaller")

    def _beside_best(self, copy: Copy) -> list[Times]:
        began_s = self._deadline.spent_s
        times = take_turns([self._copy, copy], self._works, self._repeats, self._deadline, _may_win)
        each_s = (self._deadline.spent_s - began_s) / rounds_of(times[0])
        self._timing_s = max(each_s * self._repeats, self._timing_s / 2)
        return times

    def _why_not(self, candidate: RingSettings) -> str:
        """Not enough page-locked memory for it and the best together, or not enough time; else nothing."""
        both_bytes = candidate.pinned_bytes + self._best.pinned_bytes
        if both_bytes > self._budget_bytes:
            return (
                f"{format_size(both_bytes)} of page-locked memory for it and the best so far are above the budget of "
                f"{format_size(self._budget_bytes)}"
            )
        takes_s = 2 * self._lock_s_per_byte * candidate.pinned_bytes + self._timing_s  # unlocking takes as long
        if takes_s * _WARY + self._paying_s > self._deadline.left_s:
            return f"the limit of {format_seconds(self._deadline.limit_s)} left no time for it"
        return ""

    def _learn_locking(self, candidate: RingSettings, seconds: float) -> None:
        self._lock_s_per_byte = max(self._lock_s_per_byte / 2, seconds / candidate.pinned_bytes)

    def _judge(self, candidate: RingSettings, against: float, least: float, rounds: int) -> Verdict:
        if rounds < _LEAST_REPEATS:
            return "cut short" if against > _FAR_SLOWER else "given up"
        if against > _CLEARLY:
            return "faster"
        is_tie = against >= self._given_up / _CLEARLY and least >= 1 / _CLEARLY
        return "smaller" if is_tie and _cost(candidate) < _cost(self._best) else "not faster"

    def _note(
        self, ring: RingSettings, verdict: Verdict, times: Times, began_s: float, against: float | None = None
    ) -> None:
        seconds = self._deadline.spent_s - began_s
        rounds = rounds_of(times)
        self._trials.append(TuningTrial(setup_of(ring), verdict, rates_of(times), against, rounds, seconds))

    def _pays_from(self, plain: Sequence[CopyRate]) -> Fact[int]:
        """The least size from which on an upload by the ring is no slower than a plain one, as far as was looked."""
        own = next(trial.rates for trial in self._trials if trial.ring == setup_of(self._best))
        pairs = [pair for pair in zip(own, plain, strict=True) if pair[0].direction == _UPLOAD]
        is_faster = {one.nbytes: one.gbps >= other.gbps for one, other in pairs}
        if self._deadline.left_s > 0:
            near = works_of(self._pays_sizes, [_UPLOAD])
            ring, copies = take_turns([self._copy, self._bench.plain], near, _PAYS_REPEATS, self._deadline)
            is_faster |= {work.nbytes: median(ring[work]) <= median(copies[work]) for work in near}
        sizes = sorted(is_faster, reverse=True)
        paying = list(takewhile(is_faster.__getitem__, sizes))
        return Fact(paying[-1]) if paying else Fact(reason=f"at {format_size(sizes[0])} a plain copy is still faster")


def _may_win(times: Sequence[Times]) -> bool:
    """Whether a candidate, timed behind the best, is worth another round."""
    best, own = times
    return times_as_fast(own, best) > _FAR_SLOWER


def _cost(settings: RingSettings) -> tuple[int, int]:
    return settings.pinned_bytes, settings.threads
