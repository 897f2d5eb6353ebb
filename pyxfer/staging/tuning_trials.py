"""Rings and plain copies, timed on the same memory, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np

from pyxfer.errors import CancelledError
from pyxfer.model_tuning import CopyDirection, CopyRate
from pyxfer.staging.settings import make_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyxfer.native import Engine
    from pyxfer.native._cuda import Ring
    from pyxfer.staging.settings import RingSettings

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
