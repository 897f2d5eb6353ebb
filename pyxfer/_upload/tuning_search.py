"""The search for a ring's settings: one of them is changed at a time, and kept where the ring gets faster by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from pyxfer._document.machines import Fact
from pyxfer._document.tunings import CopyDirection, CopyRate, RingFill, TuningTrial, Verdict
from pyxfer._upload.settings import LEAST_CHUNK_BYTES, LEAST_SLOTS, RingSettings, make_ring, setup_of
from pyxfer.errors import CancelledError, CudaMemoryError, UsageError
from pyxfer.units import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyxfer._upload.settings import RingSettings
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Ring


# A table of them all would take minutes, and neighbours differ by less than two tunings do.
_THREADS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32)
_CHUNKS = tuple(1 << power for power in range(15, 19))  # 32 to 256 KiB
_SLOTS = (128, 256, 512, 1024)
# In the order in which they are changed: fill and threads decide most.
SETTINGS = ("fill", "threads", "chunk_bytes", "slots")
_START_CHUNK_BYTES, _START_SLOTS = 64 << 10, 512


def fills_of(engine: Engine, device: int) -> tuple[RingFill, ...]:
    """The ways of filling that differ on this processor: the one that asks most of it first.

    Raises:
        CudaMemoryError: there is no page-locked memory for the least of rings.

    """
    by_kernel: dict[str, RingFill] = {}
    for fill in get_args(RingFill):
        least = RingSettings(threads=1, chunk_bytes=LEAST_CHUNK_BYTES, slots=LEAST_SLOTS, fill=fill, spin_us=0)
        with closing(make_ring(engine, device, least)) as ring:
            by_kernel.setdefault(ring.fill_kernel, fill)  # what cannot demote streams, and what cannot stream is plain
    return tuple(by_kernel.values())[::-1]


@dataclass(frozen=True)
class Candidates:
    """What rings may be made of here: by that many threads, and filled in one of those ways."""

    most_threads: int
    fills: tuple[RingFill, ...]

    @classmethod
    def here(cls, cpus: int, fills: tuple[RingFill, ...]) -> Candidates:
        """One processor is left to the program, as long as there is another."""
        return cls(max(1, min(cpus - 1, _THREADS[-1])), fills)

    def start(self, budget_bytes: int) -> RingSettings:
        """The most threads, and the fill that needs them: from fewer threads a search does not find that pair.

        Of the budget it has half, because another ring is timed beside it.

        Raises:
            UsageError: no ring fits the budget.

        """
        whole = RingSettings(self.most_threads, _START_CHUNK_BYTES, _START_SLOTS, self.fills[0], spin_us=20)
        return whole.within(max(budget_bytes // 2, min(budget_bytes, whole.least_bytes)))

    def neighbours(self, of: RingSettings, name: str) -> tuple[list[RingSettings], list[RingSettings]]:
        """Those with more of one setting, and those with less, the nearest first."""
        values: dict[str, Sequence[Any]] = {
            "fill": self.fills,
            "threads": sorted({of.threads, *(min(threads, self.most_threads) for threads in _THREADS)}),
            "chunk_bytes": sorted({*_CHUNKS, of.chunk_bytes}),
            "slots": sorted({*_SLOTS, of.slots}),
        }
        at = values[name].index(getattr(of, name))
        rings = [_changed(of, name, value) for value in values[name]]
        return rings[at + 1 :], rings[:at][::-1]


def _changed(settings: RingSettings, name: str, value: Any) -> RingSettings:
    """With other chunks the ring keeps its bytes, or it would be two settings that are changed."""
    if name == "chunk_bytes":
        return replace(settings, chunk_bytes=value, slots=max(LEAST_SLOTS, settings.pinned_bytes // value))
    return replace(settings, **{name: value})


Copy = Callable[[CopyDirection, int], float]
"""Copies so many bytes that way; the seconds that it took."""


class Work(NamedTuple):
    """What is copied at a time."""

    direction: CopyDirection
    nbytes: int


Times = dict[Work, list[float]]
"""Seconds of each copy."""


class Deadline:
    """A time limit, and what is left of it."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s = clock()
        self.limit_s = limit_s

    @property
    def spent_s(self) -> float:
        """Since it was set."""
        return self._clock() - self._began_s

    @property
    def left_s(self) -> float:
        """Negative when it is over."""
        return self.limit_s - self.spent_s


class Bench:
    """Pageable memory that was touched, memory on the device, and what copies between them.

    Every copy has the bytes behind those of the copy before, so none finds them in the processor's caches.
    """

    def __init__(self, engine: Engine, device: int, largest_bytes: int, cancelled: threading.Event) -> None:
        self._engine = engine
        self._device = device
        self._at = 0
        self._rings: set[Ring] = set()
        self._cancelled = cancelled
        with ExitStack() as made:
            self._on_device = made.enter_context(closing(engine.DeviceBuffer(largest_bytes, device)))
            self._copier = made.enter_context(closing(engine.Copier(device)))
            self._on_host = np.ones(2 * largest_bytes, np.uint8)
            self._made = made.pop_all()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    @contextmanager
    def ring(self, settings: RingSettings) -> Iterator[Copy]:
        """A ring like that while the block lasts; its first use is over."""
        with closing(make_ring(self._engine, self._device, settings)) as ring:
            self._rings.add(ring)
            try:
                for direction in get_args(CopyDirection):
                    self._through(ring, direction, min(self._on_device.nbytes, settings.pinned_bytes))
                yield lambda direction, nbytes: self._through(ring, direction, nbytes)
            finally:
                self._rings.discard(ring)

    def plain(self, direction: CopyDirection, nbytes: int) -> float:
        """One blocking copy, until its bytes are there: a small one returns earlier."""
        at = self._next(nbytes)
        lane = self._engine.Lane(direction, at, self._on_device.address, nbytes, nbytes, 1)
        sample = self._copier.drained(lane, 0)
        return sample.elapsed_s if sample.wall_s is None else sample.wall_s

    def cancel(self) -> None:
        """From another thread, when `cancelled` was set: what is under way ends with CancelledError too."""
        self._copier.cancel()
        for ring in list(self._rings):
            ring.cancel()

    def _through(self, ring: Ring, direction: CopyDirection, nbytes: int) -> float:
        at, there = self._next(nbytes), self._on_device.address
        if direction == "h2d":
            return ring.upload(at, 1, (nbytes,), (1,), there, None, True).wall_s
        return ring.download(at, 1, (nbytes,), (1,), there, None).wall_s

    def _next(self, nbytes: int) -> int:
        if self._cancelled.is_set():
            raise CancelledError("the tuning was cancelled")
        if self._at + nbytes > self._on_host.nbytes:
            self._at = 0
        at = int(self._on_host.ctypes.data) + self._at
        self._at += nbytes
        return at


def works_of(sizes: Sequence[int], directions: Sequence[CopyDirection] = get_args(CopyDirection)) -> list[Work]:
    """Each size each way."""
    return [Work(direction, nbytes) for nbytes in sizes for direction in directions]


def take_turns(
    copies: Sequence[Copy],
    works: Sequence[Work],
    repeats: int,
    deadline: Deadline,
    goes_on: Callable[[Sequence[Times]], bool] = lambda _: True,
) -> list[Times]:
    """Each copy does everything once a round, so that a drift is in all of them; whole rounds, one at least."""
    times: list[Times] = [{work: [] for work in works} for _ in copies]
    for round_index in range(repeats):
        if round_index and (deadline.left_s <= 0 or not goes_on(times)):
            break
        for work in works:
            order = range(len(copies)) if round_index % 2 == 0 else reversed(range(len(copies)))
            for which in order:
                times[which][work].append(copies[which](*work))
    return times


def rounds_of(times: Times) -> int:
    """How often everything was copied."""
    return min(map(len, times.values()))


def rates_of(times: Times) -> tuple[CopyRate, ...]:
    """The medians as bandwidths."""
    return tuple(CopyRate(*work, work.nbytes / _median_s(seconds) / 1e9) for work, seconds in times.items())


def times_as_fast(one: Times, other: Times) -> float:
    """How many times as fast one is as the other: the geometric mean of the ratios at every size, both ways."""
    ratios = [_median_s(other[work]) / _median_s(one[work]) for work in one]
    return float(np.exp(np.mean(np.log(ratios))))


def least_times_as_fast(one: Times, other: Times) -> float:
    """The same at the size, and in the direction, that is the worst for it."""
    return min(_median_s(other[work]) / _median_s(one[work]) for work in one)


def _median_s(seconds: list[float]) -> float:
    return max(median(seconds), 1e-9)  # a clock that did not move is no reason to divide by nothing


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
