"""The memory that raw copies go between: allocated once, touched, and divided into places that are used in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pyxfer._document.runs import STAGED, Fact, LinkState, LockingCost, Measurement, Memory, unknown
from pyxfer._machine.host import available_host_bytes
from pyxfer._measure import stats
from pyxfer.errors import UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from pyxfer._document.runs import Direction, Memory
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, DeviceBuffer, HostBuffer, Lane


GIB = 1 << 30
TRIALS = 6
# Large enough that the cost a page counts and not the call; small enough for a default run.
MOST_BYTES = 64 << 20
LOCKING_S = 0.5


def measure_locking(
    engine: Engine, device: int, memory: Memory, largest: int, cancelled: Callable[[], bool]
) -> list[float]:
    """Seconds of each of a few page-lockings of `locking_bytes(largest)`."""
    nbytes = locking_bytes(largest)
    until = time.perf_counter() + LOCKING_S
    seconds: list[float] = []
    while len(seconds) < TRIALS and not cancelled() and (not seconds or time.perf_counter() < until):
        buffer = engine.HostBuffer(nbytes, memory, device)
        seconds.append(buffer.locking_s)
        buffer.close()
    return seconds


def locking_bytes(largest: int) -> int:
    """How much is page-locked at a time."""
    return min(largest, MOST_BYTES)


def locking_cost(
    memory: Memory, largest: int, seconds: Sequence[float], measurements: Sequence[Measurement]
) -> LockingCost:
    """The cost a GiB, set against what each later transfer saves."""
    nbytes = locking_bytes(largest)
    if not seconds:
        why = "no page-locking was timed before the run ended"
        return LockingCost(memory, nbytes, None, unknown(why), unknown(why))
    summary = stats.summarise(seconds)
    per_byte = summary.median_s / nbytes
    return LockingCost(memory, nbytes, summary, Fact(per_byte * GIB), _pays_after(per_byte, memory, measurements))


def _pays_after(cost_s_per_byte: float, memory: Memory, measurements: Sequence[Measurement]) -> Fact[int]:
    """At the largest size that was measured from both kinds of memory; staged copies use page-locked memory too."""
    slow = _seconds_by_size("pageable", measurements)
    quick = _seconds_by_size(memory, measurements) or _seconds_by_size("pinned", measurements)
    shared = sorted(slow.keys() & quick.keys())
    if not shared:
        aside = ", staged copies aside" if any(each.mode == STAGED for each in measurements) else ""
        both = "from pageable and from page-locked memory at one size"
        return unknown(f"unknown, for h2d was not measured {both}{aside}")
    nbytes = shared[-1]
    saved_s = slow[nbytes] - quick[nbytes]
    if saved_s <= 0:
        return unknown("no number of transfers, for those from pageable memory are as fast here")
    return Fact(max(1, math.ceil(cost_s_per_byte * nbytes / saved_s)))


def _seconds_by_size(memory: str, measurements: Sequence[Measurement]) -> dict[int, float]:
    found: dict[int, float] = {}
    for each in measurements:
        if each.direction == "h2d" and each.memory == memory and each.elapsed_s is not None and each.may_be_ceiling:
            found[each.nbytes] = min(each.elapsed_s, found.get(each.nbytes, math.inf))
    return found


LOCKED_KINDS = cast("tuple[Memory, ...]", ("pinned", "registered"))


LEAST_S = 0.05
WAKING_S = 2.0
STEADY_READINGS = 3
QUEUED = 8
WAKE_BYTES = 16 << 20


def wake_link(
    copier: Copier,
    lane: Lane,
    read_state: Callable[[], Fact[LinkState]],
    cancelled: Callable[[], bool],
    *,
    gated: bool,
) -> Fact[LinkState]:
    """Copy until the link's state has been the same for several readings under load; returns that state."""
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
        if (spent >= LEAST_S and steady >= STEADY_READINGS) or spent >= WAKING_S:
            break
    return last


PLACE_BYTES = 4096
# Copies below this are so short that reading a far-away page table would be part of them; few places are enough,
# because all of a copy engine's reads come from memory or cache at the link's speed.
SMALL_BYTES = 1 << 20
SMALL_SLOTS = 32
# What stays free for everybody else, the page-locking driver included.
HEADROOM = 0.9


class Arena:
    """Host buffers, one a kind of memory, and one device buffer of the same layout.

    The first part holds what is sent to the device, twice the largest size so that sources rotate; the second part
    receives what comes back.
    """

    def __init__(self, engine: Engine, device: int, memories: Sequence[Memory], largest: int, cache_bytes: int) -> None:
        self._engine = engine
        self._device = device
        self._sent_bytes = sent_bytes(largest, cache_bytes)
        self._total_bytes = self._sent_bytes + _placed(largest)
        self._host: dict[Memory, HostBuffer] = {}
        self._scratch: HostBuffer | None = None
        self._remote: DeviceBuffer | None = None
        try:
            self._allocate(memories, largest)
        except BaseException:
            # Let go of and not closed: an error of closing must not take the place of the one that is under way.
            self._host.clear()
            self._scratch = self._remote = None
            raise

    def _allocate(self, memories: Sequence[Memory], largest: int) -> None:
        self._remote = self._engine.DeviceBuffer(self._total_bytes, self._device)
        for memory in dict.fromkeys(memories):
            self._host[memory] = self._engine.HostBuffer(self._total_bytes, memory, self._device)
        self._scratch = self._engine.HostBuffer(largest, "pageable", self._device)

    @property
    def scratch_address(self) -> int:
        """Host memory of the largest size that no copy touches."""
        return self._held(self._scratch).address

    def forget_received(self, memory: Memory, lane: Lane, turn: int) -> None:
        """Give back the pages of the place that a copy from the device will go to, so that it touches them first."""
        place = self._sent_bytes + turn % lane.slots * stride_bytes(lane.nbytes)
        self._host[memory].forget(place, lane.nbytes)

    def pages(self, memory: Memory) -> tuple[int, int]:
        """Address and size of the buffer of one kind of memory, to see where its pages lie."""
        return self._host[memory].address, self._total_bytes

    def lane(self, direction: Direction, memory: Memory, nbytes: int) -> Lane:
        """The places for copies of one size in one direction."""
        slots = max(1, self._part(direction)[1] // stride_bytes(nbytes))
        if nbytes < SMALL_BYTES:
            slots = min(slots, SMALL_SLOTS)
        return self._engine.Lane(
            direction, *self.place(direction, memory, nbytes, 0), nbytes, stride_bytes(nbytes), slots
        )

    def place(self, direction: Direction, memory: Memory, nbytes: int, slot: int) -> tuple[int, int]:
        """Where one place of a lane lies on the host, and where on the device."""
        offset = self._part(direction)[0] + slot * stride_bytes(nbytes)
        return self._host[memory].address + offset, self._held(self._remote).address + offset

    def _part(self, direction: Direction) -> tuple[int, int]:
        """Offset and size of what is sent to the device, or of what comes back."""
        sent = self._sent_bytes
        return (0, sent) if direction == "h2d" else (sent, self._total_bytes - sent)

    def close(self) -> None:
        """Give everything back; the first error is raised when all has been tried."""
        faults: list[Exception] = []
        for buffer in self._buffers():
            try:
                buffer.close()
            except Exception as error:  # noqa: BLE001 - the others must still be released
                faults.append(error)
        if faults:
            raise faults[0]

    def abandon(self) -> None:
        """Leave everything to the end of the process: copies may still be under way."""
        for buffer in self._buffers():
            buffer.abandon()

    def _buffers(self) -> list[HostBuffer | DeviceBuffer]:
        every = [*self._host.values(), self._scratch, self._remote]
        return [buffer for buffer in every if buffer is not None]

    @staticmethod
    def _held(buffer: DeviceBuffer | HostBuffer | None) -> DeviceBuffer | HostBuffer:
        if buffer is None:
            raise RuntimeError("the arena has been closed")
        return buffer


def check_room(engine: Engine, device: int, memories: Sequence[Memory], largest: int, cache_bytes: int) -> None:
    """Refuse sizes that the machine has no memory for, before anything is allocated.

    Raises:
        UsageError: says how much is wanted, how much there is, and what to ask for instead.

    """
    total = sent_bytes(largest, cache_bytes) + _placed(largest)
    host = total * len(set(memories)) + largest
    if engine.RUNTIME == "host":  # there the device's memory is the same memory
        host += total
    else:
        free, _ = engine.memory_info(device)
        _refuse(total, free, largest, "device memory")
    available = available_host_bytes().value
    if available is not None:
        _refuse(host, available, largest, "host memory")


def sent_bytes(largest: int, cache_bytes: int) -> int:
    """The first part: twice the largest size, and at large sizes more than the last-level cache."""
    twice = 2 * stride_bytes(largest)
    if largest < SMALL_BYTES:
        return max(twice, SMALL_SLOTS * 2 * PLACE_BYTES)
    return _placed(max(twice, cache_bytes * 3 // 2))


def stride_bytes(nbytes: int) -> int:
    """From one place to the next. A gap between small ones keeps a batch of them from becoming one large copy."""
    return _placed(nbytes) + (PLACE_BYTES if nbytes < SMALL_BYTES else 0)


def _refuse(wanted: int, free: int, largest: int, what: str) -> None:
    if wanted > free * HEADROOM:
        raise UsageError(
            f"Copies of {format_size(largest)} need {format_size(wanted)} of {what}, several buffers of that size, and "
            f"{format_size(free)} is free. Ask for smaller sizes, or for fewer kinds of memory."
        )


def _placed(nbytes: int) -> int:
    return -(-nbytes // PLACE_BYTES) * PLACE_BYTES
