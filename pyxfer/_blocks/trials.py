"""One cell of a run of blocks: its pools and places, its trials, and the check of what arrived.

A check compares every byte of a window of both pools, or, of cells above `WINDOW_BYTES`, some blocks with the blocks
beside them. So what is written outside the named blocks is found too.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from pyxfer._blocks.choice import RUN_BLOCKS
from pyxfer._blocks.mover import BlockMover, Kind, Pool
from pyxfer._blocks.plans import STEP, BlockPlan
from pyxfer._ceiling.resources import RunResources
from pyxfer._document.machines import Side
from pyxfer._document.runs import BlockOrder, Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pyxfer._document.blocks import BlockMemory
    from pyxfer._measure.run import Resource
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Bracket, DeviceBuffer, HostBuffer, Stream

    Indices = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

OneWay = Literal["h2d", "d2h"]
WINDOW_BYTES = 8 << 20
"""What a check of every byte compares, and the page-locked memory that it reads the device through."""
SAMPLED_BLOCKS = 8
SAMPLED_BYTES = 2 << 20
# Trials of a cell take turns with as many places as this, so that small ones do not read the processor's caches.
ROTATED_BYTES = 64 << 20
MAX_PLACES = 8
# After a pause a call of few bytes takes twice as long, and one of many at the same places takes less.
FEW_BYTES, WAKING_CALLS = 1 << 20, 2
# A call of few blocks takes 15 to 40 us, and several of them more or less the next time.
FEW_BLOCKS, TIMED_CALLS = 64, 5
# Ordinary memory is read by the processor, for which pools of this size are large.
MAX_PAGEABLE_BYTES = 1 << 30


class Places(NamedTuple):
    """Which blocks go where: `source[k]` to `destination[k]`."""

    source: Indices
    destination: Indices


def draw_places(order: BlockOrder, blocks: int, count: int, random: np.random.Generator) -> Places:
    """Places of `count` blocks in two pools of `blocks`, without one that is named twice."""
    source, destination = (_drawn(order, blocks, count, random) for _ in range(2))
    return Places(source, destination)


def needed_blocks(order: BlockOrder, count: int) -> int:
    """The least blocks of a pool in which `count` of them have places of that order."""
    return STEP * count if order == "ordered" else -(-count // RUN_BLOCKS) * RUN_BLOCKS if order == "runs" else count


def _drawn(order: BlockOrder, blocks: int, count: int, random: np.random.Generator) -> Indices:
    if order == "ordered":
        return int(random.integers(blocks - STEP * count + 1)) + STEP * np.arange(count, dtype=np.int64)
    if order == "runs":
        firsts = random.choice(blocks // RUN_BLOCKS, -(-count // RUN_BLOCKS), replace=False) * RUN_BLOCKS
        return (firsts[:, None] + np.arange(RUN_BLOCKS)).ravel()[:count].astype(np.int64)
    return random.choice(blocks, count, replace=False).astype(np.int64)


class BlockResources(RunResources):
    """The pools of a run, its mover, and page-locked memory through which contents are checked."""

    def __init__(self, engine: Engine, device: int, patience_s: float) -> None:
        super().__init__(engine, device, patience_s)
        self._mover: BlockMover | None = None
        self._is_borrowed = False
        self._pools: dict[str, HostBuffer | DeviceBuffer] = {}
        self._streams: list[Stream] = []
        self._brackets: list[Bracket] = []
        self.sent, self.guard = np.random.default_rng(0).integers(0, 256, (2, WINDOW_BYTES), np.uint8)
        """What blocks are sent with, and what is where nothing may be written."""

    @property
    def mover(self) -> BlockMover:
        if self._mover is None:
            raise RuntimeError("nothing moves blocks yet")
        return self._mover

    def use(self, mover: BlockMover, *, borrowed: bool = False) -> None:
        """Move blocks with it. A borrowed one is closed by its owner."""
        self._mover, self._is_borrowed = mover, borrowed

    def make_pools(self, memories: Sequence[BlockMemory], pool_bytes: int) -> None:
        self._pools["device"] = self.engine.DeviceBuffer(pool_bytes, self.device)
        for memory in memories:
            nbytes = pool_bytes if memory == "pinned" else min(pool_bytes, MAX_PAGEABLE_BYTES)
            self._pools[memory] = self.engine.HostBuffer(nbytes, memory, self.device)
        self._pools["window"] = self.engine.HostBuffer(WINDOW_BYTES, "pinned", self.device)

    def pool(self, kind: Kind, block_bytes: int, half: int | None = None) -> Pool:
        """The pool as blocks of that size; of two directions at once each has a half."""
        buffer = self._pools[kind]
        blocks = buffer.nbytes // block_bytes
        if half is not None:
            blocks //= 2
        return Pool(buffer.address + (half or 0) * blocks * block_bytes, blocks, block_bytes, kind, buffer)

    def brackets(self) -> list[tuple[int, Bracket]]:
        """A stream for each way at once, with what waits for it."""
        while len(self._brackets) < 2:  # noqa: PLR2004 - two ways
            self._streams.append(self.engine.Stream(self.device))
            self._brackets.append(self.engine.Bracket(self.device, self._streams[-1].handle))
        return [(stream.handle, bracket) for stream, bracket in zip(self._streams, self._brackets, strict=True)]

    def read(self, pool: Pool, first: int, blocks: int) -> Bytes:
        """The bytes of neighbouring blocks."""
        nbytes = blocks * pool.stride
        if pool.kind != "device":
            found: Bytes = _view(pool.address + first * pool.stride, nbytes).copy()
            return found
        parts = []
        for offset in range(0, nbytes, WINDOW_BYTES):
            part = min(WINDOW_BYTES, nbytes - offset)
            self._copy("d2h", pool.address + first * pool.stride + offset, part)
            parts.append(_view(self._pools["window"].address, part).copy())
        whole: Bytes = np.concatenate(parts)
        return whole

    def write(self, pool: Pool, first: int, data: Bytes) -> None:
        """Write the bytes of neighbouring blocks."""
        place = pool.address + first * pool.stride
        if pool.kind != "device":
            _view(place, data.size)[:] = data
            return
        for offset in range(0, data.size, WINDOW_BYTES):
            part = data[offset : offset + WINDOW_BYTES]
            _view(self._pools["window"].address, part.size)[:] = part
            self._copy("h2d", place + offset, part.size)

    def _copy(self, direction: OneWay, device_address: int, nbytes: int) -> None:
        window = self._pools["window"].address
        self.copier(1).drained(self.engine.Lane(direction, window, device_address, nbytes, nbytes, 1), 0)

    def _held(self) -> list[Resource]:
        mover: list[Any] = [] if self._mover is None or self._is_borrowed else [_MoverResource(self._mover)]
        brackets: list[Any] = [_MoverResource(bracket) for bracket in self._brackets]
        return [*mover, *brackets, *self._streams, *super()._held(), *self._pools.values()]

    def _forget(self) -> None:
        super()._forget()
        self._mover = None
        self._brackets.clear()
        self._streams.clear()
        self._pools.clear()


class _Closeable(Protocol):
    def close(self) -> None: ...


@dataclass
class _MoverResource:
    """A resource whose memory the process gives back at its end, if the device does not answer."""

    held: _Closeable

    def close(self) -> None:
        self.held.close()

    def abandon(self) -> None:
        _KEPT.append(self.held)


# Leaked on purpose: a device that does not answer may still use these.
_KEPT: list[_Closeable] = []


def _view(address: int, nbytes: int) -> Bytes:
    view: Bytes = np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)
    return view


def _medians(times: Iterable[tuple[float, float]]) -> tuple[float, float]:
    elapsed_s, called_s = map(median, zip(*times, strict=True))
    return elapsed_s, called_s


class Way(NamedTuple):
    """One direction of a cell."""

    side: OneWay
    source: Pool
    destination: Pool


def ways_of(plan: BlockPlan, resources: BlockResources) -> tuple[Way, ...]:
    """The pools of each direction. Both at once have a half of each, so that neither writes what the other reads."""
    sides: tuple[OneWay, ...] = ("h2d", "d2h") if plan.direction == "both" else (plan.direction,)
    found = []
    for number, side in enumerate(sides):
        half = number if plan.direction == "both" else None
        pools = [resources.pool(kind, plan.block_bytes, half) for kind in (plan.memory, "device")]
        host, device = (pool._replace(blocks=min(each.blocks for each in pools)) for pool in pools)
        found.append(Way(side, host, device) if side == "h2d" else Way(side, device, host))
    return tuple(found)


class Moves:
    """A cell as a subject of the sampler. `link`: the key of the copies that it is compared with."""

    ceiling_of = None

    def __init__(self, plan: BlockPlan, resources: BlockResources, link: str | None, seed: int) -> None:
        self.key = plan.key
        self.anchor = link
        self._plan, self._resources = plan, resources
        self._mover = resources.mover
        self._ways = ways_of(plan, resources)
        self._random = np.random.default_rng(seed)
        self._streams = resources.brackets() if plan.direction == "both" else []
        blocks = self._ways[0].source.blocks
        sets = max(1, min(MAX_PLACES, ROTATED_BYTES // plan.nbytes))
        self._places = [
            [draw_places(plan.order, blocks, plan.count, self._random) for _ in self._ways] for _ in range(sets)
        ]
        self._turn = itertools.cycle(self._places)

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One call; of few bytes the medians of several, after others that wake the processor and the driver."""
        is_short = self._plan.nbytes <= FEW_BYTES and len(self._ways) == 1
        waking = WAKING_CALLS if is_short else 0
        timed = TIMED_CALLS if is_short and self._plan.count <= FEW_BLOCKS else 1
        calls = [self._timed(next(self._turn), self._ways) for _ in range(waking + timed)][waking:]
        return {side: Trial(round_index, *_medians(call[side] for call in calls)) for side in calls[0]}

    def _timed(self, places: Sequence[Places], ways: Sequence[Way]) -> dict[Side, tuple[float, float]]:
        """The seconds until the blocks have arrived, and until the calls have returned."""
        plan, mover = self._plan, self._mover
        if len(ways) > 1:
            return self._both(places, ways)
        (way,), (place,) = ways, places
        begun_s = time.perf_counter()
        mover.move(plan.method, way.source, way.destination, *place, plan.block_bytes, None)
        returned_s = time.perf_counter()
        mover.wait()
        return {way.side: (time.perf_counter() - begun_s, returned_s - begun_s)}

    def _both(self, places: Sequence[Places], ways: Sequence[Way]) -> dict[Side, tuple[float, float]]:
        """Both calls, one after the other on two streams, and then a look at each in turn until it has ended."""
        plan, mover = self._plan, self._mover
        for _, bracket in self._streams:
            bracket.begin()
        begun_s = time.perf_counter()
        called: dict[Side, float] = {}
        for way, place, (stream, bracket) in zip(ways, places, self._streams, strict=True):
            before_s = time.perf_counter()
            mover.move(plan.method, way.source, way.destination, *place, plan.block_bytes, stream)
            called[way.side] = time.perf_counter() - before_s
            bracket.end()
        called["sum"] = time.perf_counter() - begun_s
        ended: dict[Side, float] = {}
        while len(ended) < len(ways):
            for way, (_, bracket) in zip(ways, self._streams, strict=True):
                if way.side not in ended and bracket.ended_within(0):
                    ended[way.side] = time.perf_counter() - begun_s
        ended["sum"] = max(ended.values())
        return {side: (elapsed_s, called[side]) for side, elapsed_s in ended.items()}

    # --- contents -----------------------------------------------------------------------------------------------------

    def verify(self) -> tuple[bool, float]:
        """Whether the blocks arrive and nothing else is written, and the seconds of this first call."""
        window = 2 * max(self._plan.nbytes, needed_blocks(self._plan.order, self._plan.count) * self._plan.block_bytes)
        is_small = window <= WINDOW_BYTES and window <= self._ways[0].source.blocks * self._plan.block_bytes
        return self._verify_window() if is_small else self._verify_sample()

    def _verify_window(self) -> tuple[bool, float]:
        """Every byte of a window of the pools, of which at most half is named."""
        plan, write = self._plan, self._resources.write
        blocks = 2 * needed_blocks(plan.order, plan.count)
        sent, guard = (data[: blocks * plan.block_bytes] for data in (self._resources.sent, self._resources.guard))
        ways = [
            way._replace(source=way.source._replace(blocks=blocks), destination=way.destination._replace(blocks=blocks))
            for way in self._ways
        ]
        places = [draw_places(plan.order, blocks, plan.count, self._random) for _ in ways]
        for way in ways:
            write(way.source, 0, sent)
            write(way.destination, 0, guard)
        times = self._timed(places, ways)
        is_right = True
        for way, place in zip(ways, places, strict=True):
            expected = guard.copy().reshape(blocks, plan.block_bytes)
            expected[place.destination] = sent.reshape(blocks, plan.block_bytes)[place.source]
            is_right &= np.array_equal(self._resources.read(way.destination, 0, blocks), expected.ravel())
        return is_right, max(elapsed_s for elapsed_s, _ in times.values())

    def _verify_sample(self) -> tuple[bool, float]:
        """Some of the named blocks, the first and the last among them, and the blocks beside each."""
        checks: list[Callable[[], bool]] = []
        for way, place in zip(self._ways, self._places[0], strict=True):
            last = self._plan.count - 1
            most = min(SAMPLED_BLOCKS, SAMPLED_BYTES // self._plan.block_bytes)
            chosen = {0, last, *self._random.integers(0, last + 1, most).tolist()}
            named = set(place.destination.tolist())
            checks += [self._prepared(way, int(place.source[k]), int(place.destination[k]), named) for k in chosen]
        times = self._timed(self._places[0], self._ways)
        return all(check() for check in checks), max(elapsed_s for elapsed_s, _ in times.values())

    def _prepared(self, way: Way, source: int, destination: int, named: set[int]) -> Callable[[], bool]:
        """Give the source block new bytes; returns the check of its destination and of the unnamed blocks beside it."""
        resources, nbytes = self._resources, self._plan.block_bytes
        sent = self._drawn_bytes(nbytes)
        resources.write(way.source, source, sent)
        first, end = max(0, destination - 1), min(way.destination.blocks, destination + 2)
        looked_at = [number - first for number in range(first, end) if number == destination or number not in named]

        def look() -> Bytes:
            found: Bytes = resources.read(way.destination, first, end - first).reshape(end - first, nbytes)[looked_at]
            return found

        expected = look()
        expected[looked_at.index(destination - first)] = sent

        def check() -> bool:
            return np.array_equal(look(), expected)

        return check

    def _drawn_bytes(self, nbytes: int) -> Bytes:
        """Bytes that no other block has."""
        sent = self._resources.sent
        if nbytes > sent.size:
            sent = np.resize(sent, nbytes)
        begin = int(self._random.integers(sent.size - nbytes + 1))
        drawn: Bytes = sent[begin : begin + nbytes] ^ self._random.integers(256, dtype=np.uint8)
        return drawn
