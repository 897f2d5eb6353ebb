"""`pyxfer.plan_offload`: whether moving blocks to host memory and back pays on this host."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pyxfer._blocks.calibration import newest_kept
from pyxfer._blocks.choice import thresholds_of
from pyxfer._blocks.plans import MEMORIES
from pyxfer._blocks.times import Estimate, HostTimes, MethodTime
from pyxfer._document import codec
from pyxfer._document.blocks import BlockMemory, Thresholds
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.offloads import (
    BreakEven,
    KvLayout,
    Move,
    OffloadPlan,
    OffloadVerdict,
    Origin,
    PlanSource,
    counted,
)
from pyxfer._document.runs import BLOCKS, ORDERS, BlockOrder, OneWay, Run
from pyxfer.errors import StoreError, UsageError
from pyxfer.units import format_size, rate_of, seconds_of, share_of, size_of, whole_of, word_of

_MAX_COUNT = 1 << 50
_PLACES = 48
"""Counts at which moving and computing are compared, from the least to the most that was measured."""


def plan_offload(
    block_bytes: str | int | None = None,
    blocks: int | None = None,
    compute_s: str | float | None = None,
    *,
    layout: KvLayout | None = None,
    tokens: int | None = None,
    prefill: str | float | None = None,
    run: Run | str | os.PathLike[str] | None = None,
    order: BlockOrder = "random",
    memory: BlockMemory = "pinned",
    share: str | float = 1.0,
    load_only: bool = False,
    store: str | os.PathLike[str] | None = None,
) -> OffloadPlan:
    """Predict whether moving blocks to host memory and back pays against computing them again.

    The times are those between the cells of a run of `pyxfer blocks`. Computing takes the same time for each block.

    Args:
        block_bytes: Size of a block, such as "16KiB".
        blocks: Number of blocks that are moved at once.
        compute_s: The time to compute all of them again, such as "0.4s".
        layout: The blocks of a model, from `kv_layout`, in place of `block_bytes` and `blocks`; with `tokens`.
        tokens: Tokens in the blocks.
        prefill: The rate of computing in place of `compute_s`, such as "12000tok/s"; with `tokens`.
        run: A run of `pyxfer blocks` or its file; by default what was kept or stored on this host.
        order: Where the blocks are: "random", "runs" (of 16 neighbours) or "ordered" (every second).
        memory: The host memory: "pinned" or "pageable".
        share: Share of the link that the moves get, such as 0.5. Their bytes take longer on it, the calls do not.
        load_only: Leave out the time of storing, which some servers hide behind computing.
        store: File or URL of the store that the run is in, as for `open_store`; nothing else is looked at.

    Raises:
        UsageError: an argument is invalid, there is no run, or it has nothing near such a move.

    """
    shape = _shape(block_bytes, blocks, layout, tokens)
    order, memory = word_of(order, ORDERS, "order"), word_of(memory, MEMORIES, "memory")
    needed_s, ways = _compute_s(compute_s, prefill, shape.tokens), _ways(load_only)
    found = _measured(run, store)
    times = _Moves(found, ways, memory, order, share_of(share, "share"))
    moves = times.at(shape.block_bytes, shape.blocks, layout)
    total = times.total(moves)
    return OffloadPlan(
        "plan",
        _verdict(total, needed_s),
        *shape,
        needed_s,
        *total,
        moves=tuple(_described(way, each, shape) for way, each in moves.items()),
        break_even=_break_even(times, shape, needed_s),
        memory=memory,
        order=order,
        share=times.share,
        times_measured=max(each.time.times_measured for each in moves.values()),
        trials=min(each.time.trials for each in moves.values()),
        source=found.source,
        layout=layout,
    )


def derive_plan(plan: OffloadPlan) -> OffloadPlan:
    """The plan with what follows from its moves and the time of computing."""
    total = _Total.of((each.seconds, each.low_s, each.high_s) for each in plan.moves)
    moves = tuple(msgspec.structs.replace(each, gbps=plan.moved_bytes / each.seconds / 1e9) for each in plan.moves)
    return msgspec.structs.replace(plan, verdict=_verdict(total, plan.compute_s), moves=moves, **total._asdict())


class _Total(NamedTuple):
    """Seconds of all moves, at the median and at both ends of the interval."""

    seconds: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, times: Iterable[tuple[float, float, float]]) -> _Total:
        return cls(*map(sum, zip(*times, strict=True)))


def _verdict(total: _Total, compute_s: float) -> OffloadVerdict:
    if total.high_s < compute_s:
        return "moving pays"
    return "computing pays" if total.low_s > compute_s else "too close to say"


# --- arguments -------------------------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    block_bytes: int
    blocks: int
    tokens: int | None


def _shape(block_bytes: str | int | None, blocks: int | None, layout: KvLayout | None, tokens: int | None) -> _Shape:
    held = None if tokens is None else whole_of(tokens, "tokens", 1, _MAX_COUNT, "4096")
    if layout is not None:
        if not isinstance(layout, KvLayout):
            raise UsageError(f"layout {layout!r:.80} is not one: give what pyxfer.kv_layout returns.")
        if block_bytes is not None or blocks is not None:
            raise UsageError("A layout has its own blocks: leave out block_bytes and blocks.")
        if held is None:
            raise UsageError("A layout needs the number of tokens: give tokens, such as 4096.")
        return _Shape(layout.block_bytes, layout.blocks(held), held)
    if block_bytes is None or blocks is None:
        raise UsageError("A plan needs block_bytes and blocks, or the layout of a model and tokens: give two of them.")
    return _Shape(size_of(block_bytes, "block_bytes"), whole_of(blocks, "blocks", 1, _MAX_COUNT, "10000"), held)


def _ways(load_only: bool) -> tuple[OneWay, ...]:
    if type(load_only) is not bool:
        raise UsageError(f"load_only is {load_only!r:.40}: give True or False.")
    return ("h2d",) if load_only else ("d2h", "h2d")


def _compute_s(compute_s: str | float | None, prefill: str | float | None, tokens: int | None) -> float:
    if compute_s is not None and prefill is None:
        return seconds_of(compute_s, "compute_s")
    if prefill is None or compute_s is not None:
        raise UsageError("A plan compares with the time of computing: give compute_s or prefill, one of them.")
    rate = rate_of(prefill, "prefill")
    if tokens is None:
        raise UsageError("prefill is a rate of tokens, and their number is missing: give tokens.")
    return tokens / rate


# --- what was measured -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Measured:
    thresholds: Thresholds
    source: PlanSource

    @property
    def name(self) -> str:
        return "The run" if self.source.made_by == "run" else "The quick calibration of copy_blocks"


def _measured(run: Run | str | os.PathLike[str] | None, store: str | os.PathLike[str] | None) -> _Measured:
    """This run, or that of this store; by default what is kept on this host, a run before a calibration."""
    if run is not None:
        return _of_run(_blocks_run(run), "given")
    if store is not None:
        return _of_run(_newest(store), "store")
    kept = newest_kept()
    if kept is not None and kept.made_by == "run":
        return _of_kept(kept)
    try:
        return _of_run(_newest(None), "store")
    except (StoreError, UsageError) as error:
        if kept is not None:
            return _of_kept(kept)
        raise UsageError(
            f"No blocks were measured on this host ({platform.node()!r:.80}): run pyxfer blocks, which keeps its times "
            f"on a GPU, or give the file of a run. The store has none either: {error}"
        ) from error


def _of_run(run: Run, origin: Origin) -> _Measured:
    place = run.environment
    return _Measured(thresholds_of(run), PlanSource(run.device.name, place.host, place.taken_at, "run", origin))


def _of_kept(kept: Thresholds) -> _Measured:
    return _Measured(kept, PlanSource(kept.device, platform.node(), kept.taken_at, kept.made_by, "kept"))


def _blocks_run(run: Run | str | os.PathLike[str]) -> Run:
    if not isinstance(run, (Run, str, os.PathLike)):
        raise UsageError(f"run {run!r:.80} is none: give a pyxfer.Run, or the file of one.")
    found: Run = run if isinstance(run, Run) else codec.load_any(run, (Run,))
    if found.kind != BLOCKS:
        raise UsageError(f"The run is one of pyxfer {found.kind}, and a plan needs one of pyxfer blocks: give another.")
    return found


def _newest(url: str | os.PathLike[str] | None) -> Run:
    from pyxfer._baseline.store import open_store  # a plan of a file needs no SQLAlchemy

    host = platform.node()
    with open_store(url, create=False) as store:
        runs = [stored.run for stored in store.newest_blocks_runs(host) if isinstance(stored.run, Run)]
        if not runs:
            raise UsageError(
                f"The store {store.shown} has no run of pyxfer blocks of this host ({host!r:.80}): measure one with "
                "pyxfer blocks --export-json blocks.json, and give that file as the run."
            )
    return max(runs, key=lambda found: found.environment.taken_at)


# --- moves -----------------------------------------------------------------------------------------------------------


class _Moves:
    """The moves that make up one offload, with a share of the link."""

    def __init__(
        self, measured: _Measured, ways: tuple[OneWay, ...], memory: BlockMemory, order: BlockOrder, share: float
    ) -> None:
        self.share, self._name = share, measured.name
        tables = {(table.direction, table.memory, table.order): table for table in measured.thresholds.tables}
        self._times = {way: HostTimes(tables.get((way, memory, order))) for way in ways}
        missing = [way for way, times in self._times.items() if not times.methods]
        if missing:
            raise UsageError(
                f"{self._name} has no moves {missing[0]} of {memory} memory in the order {order}: measure it again "
                "with pyxfer blocks, or give another order or memory."
            )

    def at(self, block_bytes: int, count: int, layout: KvLayout | None = None) -> dict[OneWay, MethodTime]:
        found = self._at(block_bytes, count)
        if found is None:
            ranges = [each.range_of(block_bytes) for each in self._times.values()]
            known = [each for each in ranges if each is not None]
            what = f"{counted(count)} of {format_size(block_bytes)}"
            if len(known) < len(ranges):
                raise UsageError(f"{self._name} has nothing near {what}: measure this size too, or give another.")
            least, most = max(each.least for each in known), min(each.most for each in known)
            asked = f"a number of blocks from {least:,} to {most:,}"
            if layout is not None:
                fewest, most = (each // layout.parts * layout.block_tokens for each in (least + layout.parts - 1, most))
                asked = f"{fewest:,} to {most:,} tokens"
            raise UsageError(f"{self._name} has nothing near {what}: give {asked}.")
        return found

    def _at(self, block_bytes: int, count: int) -> dict[OneWay, MethodTime] | None:
        found = {way: times.fastest(block_bytes, count) for way, times in self._times.items()}
        known = {
            way: MethodTime(each.method, self._shared(way, each.time, block_bytes * count))
            for way, each in found.items()
            if each is not None
        }
        return known if len(known) == len(found) else None

    def _shared(self, way: OneWay, time: Estimate, nbytes: int) -> Estimate:
        """The time with a share of the link: its bytes take longer there, and what a call costs does not."""
        on_link_s = nbytes / self._times[way].most_gbps / 1e9
        return time.scaled(1 + on_link_s / time.seconds * (1 / self.share - 1))

    def total(self, moves: dict[OneWay, MethodTime]) -> _Total:
        return _Total.of((each.time.seconds, each.time.low_s, each.time.high_s) for each in moves.values())

    def totals_of(self, block_bytes: int) -> list[tuple[int, _Total]]:
        """The seconds at counts from the least to the most that the run has for this size."""
        ranges = [each for times in self._times.values() if (each := times.range_of(block_bytes)) is not None]
        least, most = max(each.least for each in ranges), min(each.most for each in ranges)
        growth = (most / least) ** (1 / _PLACES)
        counts = sorted({min(most, max(least, round(least * growth**place))) for place in range(_PLACES + 1)})
        found = [(count, self.total_at(block_bytes, count)) for count in counts]
        return [(count, total) for count, total in found if total is not None]

    def total_at(self, block_bytes: int, count: int) -> _Total | None:
        moves = self._at(block_bytes, count)
        return None if moves is None else self.total(moves)


def _described(way: OneWay, move: MethodTime, shape: _Shape) -> Move:
    time, nbytes = move.time, shape.block_bytes * shape.blocks
    return Move(way, move.method, time.seconds, time.low_s, time.high_s, nbytes / time.seconds / 1e9)


def _break_even(times: _Moves, shape: _Shape, compute_s: float) -> Fact[BreakEven]:
    """From which count on a move takes less than computing, if each block takes the same part of `compute_s`."""
    each_s = compute_s / shape.blocks
    totals = times.totals_of(shape.block_bytes)

    def first(which: int) -> int | None:
        """The least count from which on all are faster, exact within the two counts around it."""
        slower = [place for place, (count, total) in enumerate(totals) if total[which] >= each_s * count]
        if not slower:
            return totals[0][0]
        if slower[-1] + 1 == len(totals):
            return None
        low, high = totals[slower[-1]][0], totals[slower[-1] + 1][0]
        while high - low > 1:
            middle = (low + high) // 2
            total = times.total_at(shape.block_bytes, middle)
            is_faster = total is not None and total[which] < each_s * middle
            low, high = (low, middle) if is_faster else (middle, high)
        return high

    middle, best, worst = first(0), first(1), first(2)
    least, most = totals[0][0], totals[-1][0]
    if middle is None:
        return unknown(f"moving does not pay, not even for {counted(most)}, the most that was measured")
    tokens = None if shape.tokens is None else math.ceil(middle * shape.tokens / shape.blocks)
    # Where a curve crosses the time of computing more than once, the three may be of different crossings.
    low, high = min(middle, best or middle), None if worst is None else max(middle, worst)
    return Fact(BreakEven(middle, low, high, tokens, least, most))
