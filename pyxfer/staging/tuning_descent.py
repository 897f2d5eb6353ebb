"""The search for a ring's settings: one of them is changed at a time, and kept where the ring gets faster by it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING, Any

from pyxfer.errors import CudaMemoryError, UsageError
from pyxfer.model_machine import Fact
from pyxfer.model_tuning import CopyRate, TuningTrial, Verdict
from pyxfer.staging.settings import LEAST_SLOTS, setup_of
from pyxfer.staging.tuning_trials import rates_of, rounds_of, take_turns, times_as_fast
from pyxfer.units import format_seconds, format_size

if TYPE_CHECKING:
    from pyxfer.staging.settings import RingSettings
    from pyxfer.staging.tuning_trials import Bench, Copy, Deadline, Times

_THREADS = (2, 4, 6, 8, 12, 16)
_CHUNKS = tuple(1 << power for power in range(15, 19))  # 32 to 256 KiB
_SLOTS = (128, 256, 512, 1024)

# Less than this is what two tunings of one host differ by.
_CLEARLY = 1.03
_MOST_REPEATS, _LEAST_REPEATS = 5, 3
# With more repeats than the least, a candidate may take this share of the limit.
_SHARE_OF_A_CANDIDATE = 0.05
# A direction in which so many in succession were not faster is left.
_PATIENCE = 2
_PAYS_SIZES = tuple(1 << power for power in range(16, 23))  # 64 KiB to 4 MiB
_PAYS_REPEATS = 5
_WARY = 1.25


@dataclass(frozen=True)
class Found:
    """The best, and how it was found."""

    settings: RingSettings
    trials: tuple[TuningTrial, ...]
    plain: tuple[CopyRate, ...]
    pays_from_bytes: Fact[int]


class Descent:
    """Coordinate descent from `start`; the best so far keeps its ring, and every candidate is timed beside it."""

    def __init__(
        self, bench: Bench, start: RingSettings, cpus: int, budget_bytes: int, sizes: Sequence[int], deadline: Deadline
    ) -> None:
        self._bench = bench
        self._best = start
        self._copy: Copy
        self._cpus = cpus
        self._budget_bytes = budget_bytes
        self._sizes = sizes
        self._deadline = deadline
        self._trials: list[TuningTrial] = []
        self._seen = {start}
        self._stack = ExitStack()  # holds the ring of the best
        self._given_up = 1.0  # how many times as fast as the best the fastest was, which ties may have cost
        self._lock_s_per_byte = 0.0
        self._timing_s = 0.0
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
        """The start beside plain copies; one round of them says how many the others may have."""
        began_s = self._deadline.spent_s
        copies = [self._copy, self._bench.plain]
        times, plain = take_turns(copies, self._sizes, 1, self._deadline)
        once_s = self._deadline.spent_s - began_s
        if once_s * _MOST_REPEATS > self._deadline.limit_s * _SHARE_OF_A_CANDIDATE:
            self._repeats = _LEAST_REPEATS
        if self._deadline.left_s > 0:
            times, plain = take_turns(copies, self._sizes, self._repeats, self._deadline)
        self._timing_s = once_s * self._repeats  # a plain copy takes no less than one by a ring that is worth having
        self._note(self._best, "first", times, began_s)
        return rates_of(plain)

    def _pass(self) -> bool:
        """Every setting once; whether there is a new best."""
        before = self._best
        for name, values in self._coordinates().items():
            start = getattr(self._best, name)
            at = values.index(start) if start in values else 0
            if not self._walk(name, values[at + 1 :]):
                self._walk(name, values[:at][::-1])
        return self._best != before

    def _coordinates(self) -> dict[str, list[Any]]:
        """What each setting may be, in order; threads first, because they matter most."""
        most = max(1, self._cpus - 1)
        own = {name: {getattr(self._best, name)} for name in ("threads", "chunk_bytes", "slots")}
        return {
            "threads": sorted({min(threads, most) for threads in _THREADS} | own["threads"]),
            "fill": ["streaming", "plain"],
            "chunk_bytes": sorted(set(_CHUNKS) | own["chunk_bytes"]),
            "slots": sorted(set(_SLOTS) | own["slots"]),
        }

    def _walk(self, name: str, values: Sequence[Any]) -> bool:
        """In one direction, until it does not get better; whether anything was."""
        won = False
        patience = _PATIENCE
        for value in values:
            candidate = _changed(self._best, name, value)
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
            timing_from_s = self._deadline.spent_s
            best, own = take_turns([self._copy, copy], self._sizes, self._repeats, self._deadline)
            self._timing_s = max(self._deadline.spent_s - timing_from_s, self._timing_s / 2)
            against = times_as_fast(own, best)
            verdict = self._judge(candidate, against, rounds_of(own))
            self._note(candidate, verdict, own, began_s, against)
            if verdict in ("faster", "smaller"):
                self._given_up = max(1.0, self._given_up / against)
                self._best, self._copy = candidate, copy
                self._stack, before = stack.pop_all(), self._stack
                before.close()
        return verdict in ("faster", "smaller")

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

    def _judge(self, candidate: RingSettings, against: float, rounds: int) -> Verdict:
        if rounds < _LEAST_REPEATS:
            return "cut short"
        if against > _CLEARLY:
            return "faster"
        is_smaller = _cost(candidate) < _cost(self._best)
        return "smaller" if is_smaller and against >= self._given_up / _CLEARLY else "not faster"

    def _note(
        self, ring: RingSettings, verdict: Verdict, times: Times, began_s: float, against: float | None = None
    ) -> None:
        seconds = self._deadline.spent_s - began_s
        rounds = rounds_of(times)
        self._trials.append(TuningTrial(setup_of(ring), verdict, rates_of(times), against, rounds, seconds))

    @property
    def _paying_s(self) -> float:
        """How long it takes to find where the ring pays: as the smallest size took, which is about as much."""
        return 2 * _PAYS_REPEATS * self._timing_s * sum(_PAYS_SIZES) / (2 * self._repeats * sum(self._sizes))

    def _pays_from(self, plain: Sequence[CopyRate]) -> Fact[int]:
        """The least size from which on the ring is no slower than plain copies, as far as was looked."""
        own = next(trial.rates for trial in self._trials if trial.ring == setup_of(self._best))
        is_faster = {one.nbytes: one.gbps >= other.gbps for one, other in zip(own, plain, strict=True)}
        if self._deadline.left_s > 0:
            near = [nbytes for nbytes in _PAYS_SIZES if nbytes <= max(self._sizes)]
            ring, copies = take_turns([self._copy, self._bench.plain], near, _PAYS_REPEATS, self._deadline)
            is_faster |= {nbytes: median(ring[nbytes]) <= median(copies[nbytes]) for nbytes in near}
        sizes = sorted(is_faster, reverse=True)
        paying = list(takewhile(is_faster.__getitem__, sizes))
        return Fact(paying[-1]) if paying else Fact(reason=f"at {format_size(sizes[0])} a plain copy is still faster")


def _changed(settings: RingSettings, name: str, value: Any) -> RingSettings:
    """With other chunks the ring keeps its bytes, or it would be two settings that are changed."""
    if name == "chunk_bytes":
        return replace(settings, chunk_bytes=value, slots=max(LEAST_SLOTS, settings.pinned_bytes // value))
    return replace(settings, **{name: value})


def _cost(settings: RingSettings) -> tuple[int, int]:
    return settings.pinned_bytes, settings.threads
