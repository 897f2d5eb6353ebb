"""The host and device memory of raw copies, the cost of page-locking it, and the waking of the link."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyxfer._document.machines import STAGED, Fact, LinkState, unknown
from pyxfer._document.runs import LockingCost, Measurement, Memory, Summary
from pyxfer._machine.host import available_host_bytes
from pyxfer._measure import stats
from pyxfer.errors import UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from pyxfer._document.runs import Direction
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, DeviceBuffer, HostBuffer, Lane

TRIALS = 6
# Large enough that the pages cost more than the call, and small enough for a default run.
MAX_LOCKED_BYTES = 64 << 20
LOCKING_S = 0.5
LOCKING_SHARE = 0.1
"""The share of a run's budget for each kind of memory, if that is less."""


def measure_locking(
    engine: Engine, device: int, memory: Memory, largest: int, cancelled: Callable[[], bool], most_s: float = LOCKING_S
) -> list[float]:
    until = time.perf_counter() + most_s
    seconds: list[float] = []
    while len(seconds) < TRIALS and not cancelled() and (not seconds or time.perf_counter() < until):
        buffer = engine.HostBuffer(min(largest, MAX_LOCKED_BYTES), memory, device)
        seconds.append(buffer.locking_s)
        buffer.close()
    return seconds


def locking_cost(
    memory: Memory, largest: int, seconds: Sequence[float], measurements: Sequence[Measurement]
) -> LockingCost:
    nbytes = min(largest, MAX_LOCKED_BYTES)
    if not seconds:
        why = "no page-locking was timed before the run ended"
        return LockingCost(memory, nbytes, None, unknown(why), unknown(why))
    return cost_of(memory, nbytes, stats.summarise(seconds), measurements)


def cost_of(memory: Memory, nbytes: int, summary: Summary, measurements: Sequence[Measurement]) -> LockingCost:
    per_byte = summary.median_s / nbytes
    slow = _seconds_by_size("pageable", measurements)
    quick = _seconds_by_size(memory, measurements) or _seconds_by_size("pinned", measurements)
    pays_after: Fact[int] = unknown("copies from pageable memory are as fast")
    if not (shared := slow.keys() & quick.keys()):
        without = ", not counting staged copies" if any(row.mode == STAGED for row in measurements) else ""
        both = "from pageable and from page-locked memory at one size"
        pays_after = unknown(f"h2d was not measured {both}{without}")
    elif (saved_s := slow[max(shared)] - quick[max(shared)]) > 0:
        pays_after = Fact(max(1, math.ceil(per_byte * max(shared) / saved_s)))
    return LockingCost(memory, nbytes, summary, Fact(per_byte * (1 << 30)), pays_after)


def _seconds_by_size(memory: str, measurements: Sequence[Measurement]) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in measurements:
        if row.direction == "h2d" and row.memory == memory and row.elapsed_s is not None and row.may_be_ceiling:
            found[row.nbytes] = min(row.elapsed_s, found.get(row.nbytes, math.inf))
    return found


LOCKED_KINDS: tuple[Memory, ...] = ("pinned", "registered")
MIN_WAKING_S = 0.05
MAX_WAKING_S = 2.0
STEADY_READINGS = 3
QUEUED = 8
WAKE_BYTES = 16 << 20


def wake_link(
    copier: Copier, lane: Lane, read_state: Callable[[], Fact[LinkState]], cancelled: Callable[[], bool], *, gated: bool
) -> Fact[LinkState]:
    """Copy until several readings of the link's state under load agree; returns that state."""
    begun = time.perf_counter()
    steady = 0
    last = read_state()
    while not cancelled():
        if gated:
            copier.gated("async", lane, QUEUED, 0, 0)
        else:
            copier.on_stream("async", lane, 0)
        now = read_state()
        steady = steady + 1 if now == last else 0
        last = now
        spent = time.perf_counter() - begun
        if (spent >= MIN_WAKING_S and steady >= STEADY_READINGS) or spent >= MAX_WAKING_S:
            break
    return last


PLACE_BYTES = 4096
# A copy below this size is so short that a miss in a page table would be part of its time, so few places take turns.
# More are not needed, because the engine reads from memory and from the cache at the link's speed.
SMALL_BYTES = 1 << 20
SMALL_SLOTS = 32
# More would take longer to page-lock than to copy through. The engine checks with up to eight threads.
SCRATCH_BYTES = 16 << 20
SCRATCH_PIECES = 8
# The rest stays free for other programs and for the driver, which page-locks.
HEADROOM = 0.9


class Arena:
    """One host buffer for each kind of memory, and one device buffer of the same layout.

    The first part of a buffer holds the data sent to the device. It has twice the largest size, so that sources
    rotate. The second part receives data from the device.
    """

    def __init__(
        self,
        engine: Engine,
        device: int,
        memories: Sequence[Memory],
        largest: int,
        cache_bytes: int,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_late`: asked before each kind of memory but the first; if it says so, the others are left out."""
        self._engine = engine
        self._sent_bytes = sent_bytes(largest, cache_bytes)
        self._total_bytes = self._sent_bytes + _placed(largest)
        self._host: dict[Memory, HostBuffer] = {}
        try:
            self._remote = engine.DeviceBuffer(self._total_bytes, device)
            for memory in sorted(set(memories), key=lambda each: (each == "pageable", memories.index(each))):
                if self._host and is_late():
                    break
                self._host[memory] = engine.HostBuffer(self._total_bytes, memory, device)
            # Without page-locked copies a run page-locks nothing, which a limit may forbid.
            kind: Memory = "pinned" if "pinned" in memories else "pageable"
            self._scratch = engine.HostBuffer(scratch_bytes(largest), kind, device)
        except BaseException:
            self.__dict__.clear()  # dropped, not closed: an error of `close` must not replace this one
            raise

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The kinds of memory that it has, page-locked ones first."""
        return tuple(self._host)

    @property
    def scratch(self) -> tuple[int, int]:
        return self._scratch.address, self._scratch.nbytes

    def forget_received(self, memory: Memory, lane: Lane, turn: int) -> None:
        """Free the destination pages of a coming copy from the device, so that the copy touches them first."""
        place = self._sent_bytes + turn % lane.slots * stride_bytes(lane.nbytes)
        self._host[memory].forget(place, lane.nbytes)

    def pages(self, memory: Memory) -> tuple[int, int]:
        return self._host[memory].address, self._total_bytes

    def lane(self, direction: Direction, memory: Memory, nbytes: int) -> Lane:
        slots = max(1, self._part(direction)[1] // stride_bytes(nbytes))
        if nbytes < SMALL_BYTES:
            slots = min(slots, SMALL_SLOTS)
        place = self.place(direction, memory, nbytes, 0)
        return self._engine.Lane(direction, *place, nbytes, stride_bytes(nbytes), slots)

    def place(self, direction: Direction, memory: Memory, nbytes: int, slot: int) -> tuple[int, int]:
        offset = self._part(direction)[0] + slot * stride_bytes(nbytes)
        return self._host[memory].address + offset, self._remote.address + offset

    def _part(self, direction: Direction) -> tuple[int, int]:
        sent = self._sent_bytes
        return (0, sent) if direction == "h2d" else (sent, self._total_bytes - sent)

    def close(self) -> None:
        with ExitStack() as each:  # all are freed, and the first error is raised
            for buffer in self._buffers():
                each.callback(buffer.close)

    def abandon(self) -> None:
        for buffer in self._buffers():
            buffer.abandon()

    def _buffers(self) -> list[HostBuffer | DeviceBuffer]:
        return [*self._host.values(), self._scratch, self._remote]


def check_memory(engine: Engine, device: int, memories: Sequence[Memory], largest: int, cache_bytes: int) -> None:
    total = sent_bytes(largest, cache_bytes) + _placed(largest)
    host = total * len(set(memories)) + scratch_bytes(largest)
    needs: list[tuple[int, int | None, str]] = []
    if engine.RUNTIME == "host":  # its device memory is host memory
        host += total
    else:
        needs.append((total, engine.memory_info(device)[0], "device memory"))
    for wanted, free, what in (*needs, (host, available_host_bytes().value, "host memory")):
        if free is not None and wanted > free * HEADROOM:
            raise UsageError(
                f"Copies of {format_size(largest)} need {format_size(wanted)} of {what} for several buffers of that "
                f"size, and {format_size(free)} is free. Choose smaller sizes or fewer kinds of memory."
            )


def scratch_bytes(largest: int) -> int:
    """Size of the memory through which the device's side is checked: a piece for each of its threads."""
    return min(SCRATCH_BYTES, SCRATCH_PIECES * _placed(largest))


def sent_bytes(largest: int, cache_bytes: int) -> int:
    """Size of the part that is sent: twice the largest size, and at large sizes more than the last-level cache."""
    twice = 2 * stride_bytes(largest)
    if largest < SMALL_BYTES:
        return max(twice, SMALL_SLOTS * 2 * PLACE_BYTES)
    return _placed(max(twice, cache_bytes * 3 // 2))


def stride_bytes(nbytes: int) -> int:
    """Distance of two places. The gap between small ones keeps the driver from merging a batch into one large copy."""
    return _placed(nbytes) + (PLACE_BYTES if nbytes < SMALL_BYTES else 0)


def _placed(nbytes: int) -> int:
    return -(-nbytes // PLACE_BYTES) * PLACE_BYTES
