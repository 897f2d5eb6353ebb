"""One tuning: the settings of a device's ring, found by timing rings on that device.

The search changes one setting at a time. It times each candidate in turns with the best ring so far, and keeps the
candidate if it is faster, or as fast with less memory.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec
import numpy as np

from pyxfer._document.machines import Fact
from pyxfer._document.tunings import CopyDirection, CopyRate, RingFill, Tuned, TuningTrial, Verdict
from pyxfer._machine import numa
from pyxfer._measure.exclusive import Presence
from pyxfer._measure.interruptible import Ending, run_interruptible
from pyxfer._upload.settings import (
    DEFAULT_BUDGET_BYTES,
    MIN_CHUNK_BYTES,
    MIN_SLOTS,
    RingSettings,
    default_settings,
    make_ring,
    node_of,
    setup_of,
    usable_cpus,
)
from pyxfer.errors import CancelledError, CudaMemoryError
from pyxfer.units import format_seconds, format_size, seconds_of

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, Ring


SIZES = (4 << 20, 24 << 20, 96 << 20)

# One name for all devices, because tunings of different devices compete for processors and memory.
_PRESENCE = "ring tuning"


def tune(
    engine: Engine,
    device: int,
    *,
    limit_s: float,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    sizes: Sequence[int] = SIZES,
) -> Tuned:
    """Search for the fastest ring within a time limit, with at least one trial. The result is not kept.

    Two rings are timed at a time, and share the budget.
    """
    limit_s = seconds_of(limit_s, "limit_s")
    bench = Bench(engine, device, max(sizes))
    results: list[Tuned] = []

    def work() -> None:
        engine.memory_info(device)  # starts CUDA, which the limit does not include
        taken_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        search = Search(bench, budget_bytes, sizes, limit_s)
        with numa.bind(engine, node_of(engine, device)), bench:
            search.run(distinct_fills(engine, device), usable_cpus())  # only the CPUs of this NUMA node
        results.append(
            Tuned(
                taken_at=taken_at,
                ring=setup_of(search.best),
                budget_bytes=budget_bytes,
                trials=tuple(search.trials),
                plain=search.plain,
                pays_from_bytes=search.pays_from_bytes,
                limit_s=limit_s,
                seconds=search.spent_s,
            )
        )

    with Presence(_PRESENCE) as presence:
        if run_interruptible(work, bench.cancel) is not Ending.DONE:
            raise KeyboardInterrupt
    others = sorted(presence.other_processes)
    names = f"process{'es' if len(others) > 1 else ''} {', '.join(map(str, others))}"
    remark = f"{names} tuned at the same time and competed for processors; `pyxfer tune` repeats the tuning"
    return msgspec.structs.replace(results[0], remarks=(remark,) if others else ())


# --- the search ------------------------------------------------------------------------------------------------------

# Two tunings of one host differ by less than this ratio.
_CLEARLY = 1.03
# A candidate whose first round is slower than this is not timed again: it would not become the best.
_FAR_SLOWER = 1 / 1.15
_REPEATS = 3
# The search leaves a direction after this many candidates in succession that were not better.
_PATIENCE = 2
_SMALL_SIZES = tuple(1 << power for power in range(16, 23))  # 64 KiB to 4 MiB
_SMALL_REPEATS = 5
# A candidate is tried if this many times the longest trial so far is left. The rest is for copies of small sizes.
_SAFETY = 1.5


class Search:
    """Coordinate descent from `first_candidate`. The best ring stays open, so that each candidate is timed beside it.

    The time limit begins when the object is made. `run` sets `best`, `trials`, `plain` and `pays_from_bytes`.
    """

    def __init__(
        self,
        bench: Bench,
        budget_bytes: int,
        sizes: Sequence[int],
        limit_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.best = default_settings().within(budget_bytes)
        self.trials: list[TuningTrial] = []
        self.plain: tuple[CopyRate, ...] = ()
        self.pays_from_bytes: Fact[int] = Fact(reason="the limit left no time to look for it")
        self._bench = bench
        self._budget_bytes = budget_bytes
        self._transfers = [Transfer(direction, nbytes) for nbytes in sizes for direction in _DIRECTIONS]
        self._largest_bytes = max(sizes)
        self._limit_s = limit_s
        self._clock = clock
        self._began_s = clock()
        self._best_copy: Copy
        self._best_ring = ExitStack()
        self._longest_trial_s = 0.0
        self._seen: set[RingSettings] = set()
        # How many times as fast the fastest ring was as the best one, which may be smaller and a little slower.
        self._given_up = 1.0

    @property
    def spent_s(self) -> float:
        return self._clock() - self._began_s

    @property
    def left_s(self) -> float:
        """Seconds left; negative after the limit."""
        return self._limit_s - self.spent_s

    def run(self, fills: Sequence[RingFill], cpus: int) -> None:
        """Search until no change makes the ring better, or the time is over. One of the CPUs is left to the program."""
        max_threads = max(1, min(cpus - 1, _THREADS[-1]))
        self.best = first_candidate(fills, max_threads, self._budget_bytes)
        self._seen.add(self.best)
        try:
            self._open_first()
            self._time_first()
            before: RingSettings | None = None
            while self.best != before:
                before = self.best
                for name in _SETTINGS:
                    more, less = neighbours(self.best, name, fills, max_threads)
                    if not self._walk(more):
                        self._walk(less)
            self.pays_from_bytes = self._pays_from()
        finally:
            self._best_ring.close()

    def _open_first(self) -> None:
        """Open the first ring, made smaller until page-locked memory suffices."""
        while True:
            try:
                self._best_copy = self._best_ring.enter_context(self._bench.ring(self.best))
            except CudaMemoryError:
                half = self.best.pinned_bytes // 2
                if half < self.best.min_budget_bytes:
                    raise
                self.best = self.best.within(half)
            else:
                return

    def _time_first(self) -> None:
        """Time the first ring, and plain copies only once, because they may take ten times as long."""
        (times,) = take_turns([self._best_copy], self._transfers, _REPEATS, lambda _: self.left_s > 0)
        self._note(self.best, "first", times, began_s=0.0)
        self._longest_trial_s = 2 * self.spent_s  # a trial of a candidate times the best ring too
        for transfer in self._transfers[:2]:
            self._bench.plain(*transfer)  # warms up the driver
        (plain,) = take_turns([self._bench.plain], self._transfers, 1)
        self.plain = rates_of(plain)

    def _walk(self, candidates: Sequence[RingSettings]) -> bool:
        """Try candidates until they stop getting better; whether one of them is the new best."""
        found = False
        patience = _PATIENCE
        for candidate in candidates:
            if candidate in self._seen:
                continue
            self._seen.add(candidate)
            if self._try(candidate):
                found, patience = True, _PATIENCE
            else:
                patience -= 1
            if not patience:
                break
        return found

    def _try(self, candidate: RingSettings) -> bool:
        """Time a candidate in turns with the best ring; whether it is the new best."""
        began_s = self.spent_s
        reason = self._reason_to_skip(candidate)
        with ExitStack() as stack:
            if not reason:
                try:
                    copy = stack.enter_context(self._bench.ring(candidate))
                except (MemoryError, OSError) as error:  # no page-locked memory, or no threads
                    reason = f"this ring cannot be made: {error}"
            if reason:
                self.trials.append(TuningTrial(setup_of(candidate), "not tried", reason=reason))
                return False
            best, own = take_turns([self._best_copy, copy], self._transfers, _REPEATS, self._may_win)
            ratio = speedup(own, best)
            verdict = self._verdict(candidate, ratio, min(ratios(own, best)), _rounds(own))
            self._note(candidate, verdict, own, began_s, ratio)
            if verdict not in ("faster", "smaller"):
                return False
            self._given_up = max(1.0, self._given_up / ratio)
            self.best, self._best_copy = candidate, copy
            self._best_ring, before = stack.pop_all(), self._best_ring
            before.close()
        return True

    def _reason_to_skip(self, candidate: RingSettings) -> str:
        """Why page-locked memory or time does not suffice for a candidate; empty if it does."""
        both_bytes = candidate.pinned_bytes + self.best.pinned_bytes
        if both_bytes > self._budget_bytes:
            return (
                f"{format_size(both_bytes)} of page-locked memory for it and the best so far are above the budget of "
                f"{format_size(self._budget_bytes)}"
            )
        if self._longest_trial_s * _SAFETY > self.left_s:
            return f"the limit of {format_seconds(self._limit_s)} left no time for it"
        return ""

    def _may_win(self, times: list[Times]) -> bool:
        return self.left_s > 0 and speedup(times[1], times[0]) > _FAR_SLOWER

    def _verdict(self, candidate: RingSettings, ratio: float, worst_ratio: float, rounds: int) -> Verdict:
        if rounds < _REPEATS:
            return "cut short" if ratio > _FAR_SLOWER else "given up"
        if ratio > _CLEARLY:
            return "faster"
        is_tie = ratio >= self._given_up / _CLEARLY and worst_ratio >= 1 / _CLEARLY
        cost, best_cost = ((ring.pinned_bytes, ring.threads) for ring in (candidate, self.best))
        return "smaller" if is_tie and cost < best_cost else "not faster"

    def _note(
        self, ring: RingSettings, verdict: Verdict, times: Times, began_s: float, ratio: float | None = None
    ) -> None:
        seconds = self.spent_s - began_s
        self._longest_trial_s = max(self._longest_trial_s, seconds)
        self.trials.append(TuningTrial(setup_of(ring), verdict, rates_of(times), ratio, _rounds(times), seconds))

    def _pays_from(self) -> Fact[int]:
        """The smallest size from which on uploads through the ring are not slower than plain ones."""
        own = next(trial.rates for trial in self.trials if trial.ring == setup_of(self.best))
        is_faster = {
            ring.nbytes: ring.gbps >= plain.gbps
            for ring, plain in zip(own, self.plain, strict=True)
            if ring.direction == "h2d"
        }
        if self.left_s > 0:
            small = [Transfer("h2d", nbytes) for nbytes in _SMALL_SIZES if nbytes <= self._largest_bytes]
            copies = [self._best_copy, self._bench.plain]
            times, plain_times = take_turns(copies, small, _SMALL_REPEATS, lambda _: self.left_s > 0)
            is_faster |= {
                transfer.nbytes: median(times[transfer]) <= median(plain_times[transfer]) for transfer in small
            }
        sizes = sorted(is_faster, reverse=True)
        paying = list(takewhile(is_faster.__getitem__, sizes))
        return Fact(paying[-1]) if paying else Fact(reason=f"at {format_size(sizes[0])} a plain copy is still faster")


# --- candidates ------------------------------------------------------------------------------------------------------

# A grid of all combinations would take minutes. Neighbouring values differ by less than two tunings of one host do.
_THREADS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32)
_CHUNKS = tuple(1 << power for power in range(15, 19))  # 32 to 256 KiB
_SLOTS = (128, 256, 512, 1024)
# The order in which settings are changed: fill and threads matter most.
_SETTINGS = ("fill", "threads", "chunk_bytes", "slots")


def distinct_fills(engine: Engine, device: int) -> tuple[RingFill, ...]:
    """The fills that this processor really has, demoting first: one that it lacks is done as the next simpler one."""
    by_kernel: dict[str, RingFill] = {}
    for fill in get_args(RingFill):
        smallest = RingSettings(threads=1, chunk_bytes=MIN_CHUNK_BYTES, slots=MIN_SLOTS, fill=fill, spin_us=0)
        with closing(make_ring(engine, device, smallest)) as ring:
            by_kernel.setdefault(ring.fill_kernel, fill)
    return tuple(by_kernel.values())[::-1]


def first_candidate(fills: Sequence[RingFill], max_threads: int, budget_bytes: int) -> RingSettings:
    """All threads with the first fill: a search that begins with fewer threads does not find this combination.

    It gets half of the budget, because another ring is timed beside it.
    """
    first = RingSettings(max_threads, 64 << 10, 512, fills[0], spin_us=20)
    return first.within(max(budget_bytes // 2, min(budget_bytes, first.min_budget_bytes)))


def neighbours(
    ring: RingSettings, name: str, fills: Sequence[RingFill], max_threads: int
) -> tuple[list[RingSettings], list[RingSettings]]:
    """The rings with higher values of one setting, and those with lower values, nearest first."""
    values: dict[str, Sequence[Any]] = {
        "fill": fills,
        "threads": sorted({ring.threads, *(min(threads, max_threads) for threads in _THREADS)}),
        "chunk_bytes": sorted({*_CHUNKS, ring.chunk_bytes}),
        "slots": sorted({*_SLOTS, ring.slots}),
    }
    at = values[name].index(getattr(ring, name))
    changes = [{name: value} for value in values[name]]
    if name == "chunk_bytes":  # the ring keeps its bytes, so that only one setting changes
        changes = [{name: value, "slots": max(MIN_SLOTS, ring.pinned_bytes // value)} for value in values[name]]
    rings = [msgspec.structs.replace(ring, **change) for change in changes]
    return rings[at + 1 :], rings[:at][::-1]


# --- timed copies ----------------------------------------------------------------------------------------------------


class Transfer(NamedTuple):
    direction: CopyDirection
    nbytes: int


Copy = Callable[[CopyDirection, int], float]
"""Copies that many bytes in that direction; returns seconds."""
Times = dict[Transfer, list[float]]
"""Seconds of each repeat."""

_DIRECTIONS: tuple[CopyDirection, ...] = get_args(CopyDirection)


class Bench:
    """Host memory, device memory, and timed copies between them. The memory exists in a `with` block.

    Each copy uses the bytes behind those of the copy before it, so that they are not in the processor's caches.
    """

    def __init__(self, engine: Engine, device: int, largest_bytes: int) -> None:
        self._engine = engine
        self._device = device
        self._largest_bytes = largest_bytes
        self._cancelled = threading.Event()
        self._cancellable: set[Copier | Ring] = set()
        self._offset = 0

    def __enter__(self) -> Bench:
        with ExitStack() as stack:
            self._on_device = stack.enter_context(closing(self._engine.DeviceBuffer(self._largest_bytes, self._device)))
            self._copier = stack.enter_context(closing(self._engine.Copier(self._device)))
            self._cancellable.add(self._copier)
            self._on_host = np.ones(2 * self._largest_bytes, np.uint8)
            self._memory = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()

    @contextmanager
    def ring(self, settings: RingSettings) -> Iterator[Copy]:
        """Make a ring for the `with` block, and warm it up."""
        with closing(make_ring(self._engine, self._device, settings)) as ring:
            self._cancellable.add(ring)
            try:
                for direction in _DIRECTIONS:
                    self._through(ring, direction, min(self._largest_bytes, settings.pinned_bytes))
                yield lambda direction, nbytes: self._through(ring, direction, nbytes)
            finally:
                self._cancellable.discard(ring)

    def plain(self, direction: CopyDirection, nbytes: int) -> float:
        """Time one blocking copy until its bytes have arrived: the call for a small copy returns earlier."""
        at = self._next_bytes(nbytes)
        lane = self._engine.Lane(direction, at, self._on_device.address, nbytes, nbytes, 1)
        sample = self._copier.drained(lane, 0)
        return sample.elapsed_s if sample.wall_s is None else sample.wall_s

    def cancel(self) -> None:
        """End the running copy, and each later one, with CancelledError. Any thread may call it."""
        self._cancelled.set()
        for transfers in list(self._cancellable):
            transfers.cancel()

    def _through(self, ring: Ring, direction: CopyDirection, nbytes: int) -> float:
        at, to = self._next_bytes(nbytes), self._on_device.address
        if direction == "h2d":
            return ring.upload(at, 1, (nbytes,), (1,), to, None, True).wall_s
        return ring.download(at, 1, (nbytes,), (1,), to, None).wall_s

    def _next_bytes(self, nbytes: int) -> int:
        if self._cancelled.is_set():
            raise CancelledError("the tuning was cancelled")
        if self._offset + nbytes > self._on_host.nbytes:
            self._offset = 0
        at = int(self._on_host.ctypes.data) + self._offset
        self._offset += nbytes
        return at


def take_turns(
    copies: Sequence[Copy],
    transfers: Sequence[Transfer],
    repeats: int,
    goes_on: Callable[[list[Times]], bool] = lambda _: True,
) -> list[Times]:
    """Time each copy once for every transfer in each round, so that a drift of the machine affects all copies.

    After each round `goes_on` decides, from the times so far, whether there is another one.
    """
    times: list[Times] = [{transfer: [] for transfer in transfers} for _ in copies]
    for round_index in range(repeats):
        if round_index and not goes_on(times):
            break
        for transfer in transfers:
            order = range(len(copies)) if round_index % 2 == 0 else reversed(range(len(copies)))
            for index in order:
                times[index][transfer].append(copies[index](*transfer))
    return times


def _rounds(times: Times) -> int:
    return min(map(len, times.values()))


def rates_of(times: Times) -> tuple[CopyRate, ...]:
    return tuple(CopyRate(*transfer, transfer.nbytes / _median_s(seconds) / 1e9) for transfer, seconds in times.items())


def ratios(one: Times, other: Times) -> list[float]:
    """How many times as fast `one` is as `other`, for each transfer."""
    return [_median_s(other[transfer]) / _median_s(one[transfer]) for transfer in one]


def speedup(one: Times, other: Times) -> float:
    """The geometric mean of `ratios`."""
    return float(np.exp(np.mean(np.log(ratios(one, other)))))


def _median_s(seconds: list[float]) -> float:
    return max(median(seconds), 1e-9)  # avoids a division by zero if the clock did not advance
