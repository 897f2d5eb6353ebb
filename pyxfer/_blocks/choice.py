"""From the rows of a run of blocks to a choice: the fastest method of each cell, between cells, and what rules lose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, cast

from pyxfer._blocks.times import fastest_of, times_of
from pyxfer._document.blocks import (
    METHODS,
    BlockDirection,
    BlockMemory,
    BlockMethod,
    BlockTable,
    BlockTimes,
    Thresholds,
)
from pyxfer._document.runs import BlockOrder, Measurement, Run
from pyxfer._measure.stats import ratio_share

RUN_BLOCKS = 16
"""The neighbours in each run of the order `runs`."""
MERGING: tuple[BlockMethod, ...] = ("loop", "batch")
"""The methods that copy neighbours together."""
COPIES: tuple[BlockMethod, ...] = (*MERGING, "strided")
"""The methods that are carried out by copy engines."""


class Place(NamedTuple):
    """What cells of one table share."""

    direction: BlockDirection
    memory: BlockMemory
    order: BlockOrder


@dataclass(frozen=True)
class Cell:
    """Blocks of one size and count, with the row of each method that has a rate."""

    block_bytes: int
    count: int
    rows: Mapping[BlockMethod, Measurement]

    @property
    def best(self) -> Measurement:
        return max(self.rows.values(), key=_gbps)

    @property
    def equal(self) -> tuple[BlockMethod, ...]:
        """The fastest method, and then those that are not shown to take longer in the same rounds."""
        ordered = sorted(self.rows, key=lambda method: -_gbps(self.rows[method]))
        return tuple(method for method in ordered if not is_slower(self.rows[method], self.best))

    def times(self, method: BlockMethod) -> float | None:
        """How many times as long as the fastest method it takes."""
        own = self.rows.get(method)
        return None if own is None else _gbps(self.best) / _gbps(own)


def _gbps(row: Measurement) -> float:
    return row.gbps or 0.0


# With too few trials for an interval, a method is slower if its least time is this multiple of the other's greatest.
_CLEARLY = 2


def is_slower(row: Measurement, than: Measurement) -> bool:
    """Whether it takes longer in the rounds that both have."""
    other = {trial.round: trial.elapsed_s for trial in than.trials if trial.invalid is None}
    pairs = [
        (trial.elapsed_s, other[trial.round])
        for trial in row.trials
        if trial.invalid is None and other.get(trial.round, 0.0) > 0
    ]
    if row is than or not pairs:
        return False
    own, least = zip(*pairs, strict=True)
    low = ratio_share(own, least).low
    return min(own) > _CLEARLY * max(least) if low is None else low > 1


def cells_of(run: Run) -> dict[Place, list[Cell]]:
    """The cells of each place, by size and count; of two directions at once those of both together."""
    found: dict[Place, dict[tuple[int, int], dict[BlockMethod, Measurement]]] = defaultdict(lambda: defaultdict(dict))
    for row in run.measurements:
        if row.block_bytes is None or row.batch is None or not row.gbps or row.verified.value is False:
            continue
        if row.mode in METHODS and row.side == ("sum" if row.direction == "both" else row.direction):
            place = Place(
                *cast("tuple[BlockDirection, BlockMemory, BlockOrder]", (row.direction, row.memory, row.variant))
            )
            found[place][row.block_bytes, row.batch][row.mode] = row
    return {place: [Cell(*at, rows) for at, rows in sorted(cells.items())] for place, cells in found.items()}


# --- thresholds ------------------------------------------------------------------------------------------------------


def thresholds_json(run: Run) -> str:
    """The thresholds for a server to read."""
    from pyxfer._document.codec import to_json

    return f"{to_json(thresholds_of(run)).decode()}\n"


def thresholds_of(run: Run) -> Thresholds:
    tables = [BlockTable(*place, tuple(map(_times_of, cells))) for place, cells in cells_of(run).items()]
    return Thresholds(run.device.name, run.environment.taken_at, "run", tuple(tables), run.ended)


def _times_of(cell: Cell) -> BlockTimes:
    first, *equal = cell.equal
    times = {method: row.summary for method, row in cell.rows.items() if row.summary is not None}
    return BlockTimes(
        cell.block_bytes,
        cell.count,
        first,
        tuple(equal),
        seconds={method: time.median_s for method, time in times.items()},
        low_seconds={method: time.min_s if time.low_s is None else time.low_s for method, time in times.items()},
        high_seconds={method: time.max_s if time.high_s is None else time.high_s for method, time in times.items()},
        call_seconds={method: row.dispatch_s for method, row in cell.rows.items() if row.dispatch_s is not None},
        trials={method: time.n for method, time in times.items()},
    )


# --- between cells ---------------------------------------------------------------------------------------------------


_MAX_KNOWN = 4096


class Choices:
    """Chooses the method with the least time, by `times.MoveTimes`."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self._times = {
            Place(table.direction, table.memory, table.order): times_of(table) for table in thresholds.tables
        }
        # A server asks for the same few shapes again and again.
        self._known: dict[tuple[object, ...], BlockMethod | None] = {}

    def seconds(
        self,
        method: BlockMethod,
        direction: BlockDirection,
        memory: BlockMemory,
        block_bytes: int,
        count: int,
        order: BlockOrder = "random",
    ) -> float | None:
        """The predicted seconds of any size and count; None if the method was not measured there."""
        times = self._times.get(Place(direction, memory, order), {}).get(method)
        return None if times is None else times.seconds(block_bytes, count)

    def method_for(
        self,
        direction: BlockDirection,
        memory: BlockMemory,
        block_bytes: int,
        count: int,
        *,
        order: BlockOrder = "random",
        runs: int | None = None,
        possible: tuple[BlockMethod, ...] = METHODS,
    ) -> BlockMethod | None:
        """The possible method with the least predicted seconds; None if none of them was measured.

        `runs` is the number of copies that are left when neighbours are merged; None if it follows from the order. An
        order that was not measured is taken to be random.
        """
        if order == "runs":
            order, runs = "random", runs or -(-count // RUN_BLOCKS)
        asked = direction, memory, block_bytes, count, order, runs, possible
        if asked not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[asked] = self._fastest(*asked)
        return self._known[asked]

    def _fastest(
        self,
        direction: BlockDirection,
        memory: BlockMemory,
        block_bytes: int,
        count: int,
        order: BlockOrder,
        runs: int | None,
        possible: tuple[BlockMethod, ...],
    ) -> BlockMethod | None:
        times: dict[BlockMethod, float] = {}
        for method in possible:
            merged = runs if runs is not None and method in MERGING else count
            at = block_bytes * count // max(1, merged), merged
            for each in dict.fromkeys((order, "random")):
                if (seconds := self.seconds(method, direction, memory, *at, each)) is not None:
                    times[method] = seconds
                    break
        return fastest_of(times, count if runs is None else runs)


# --- rules of others -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A choice by constants. `method`: of a direction, a size and a count."""

    name: str
    text: str
    method: Callable[[BlockDirection, int, int], BlockMethod]


_VLLM_BYTES, _VLLM_BLOCKS, _OFTEN_BYTES = 28 << 10, 16, 64 << 10
RULES = (
    Rule(
        "vLLM",
        "to the GPU a kernel below 28 KiB from 16 blocks on, else a batch",
        lambda direction, nbytes, count: (
            "kernel" if direction != "d2h" and nbytes < _VLLM_BYTES and count >= _VLLM_BLOCKS else "batch"
        ),
    ),
    Rule(
        "64 KiB",
        "a kernel below 64 KiB, else a batch",
        lambda _, nbytes, __: "kernel" if nbytes < _OFTEN_BYTES else "batch",
    ),
    Rule("kernel only", "as LMCache, and SGLang with io_backend=kernel", lambda *_: "kernel"),
    Rule("batch only", "as vLLM's SimpleCPUOffload, and later SGLang with io_backend=direct", lambda *_: "batch"),
)


class Cost(NamedTuple):
    """How many times as long as with the fastest method a rule takes, over the cells that have its method."""

    rule: Rule
    typical: float
    worst: float
    at: Cell
    cells: int


def costs_of(direction: BlockDirection, cells: Sequence[Cell]) -> list[Cost]:
    """What each rule costs in these cells; without those whose methods were not measured."""
    return [cost for rule in RULES if (cost := _cost_of(rule, direction, cells)) is not None]


def _cost_of(rule: Rule, direction: BlockDirection, cells: Iterable[Cell]) -> Cost | None:
    times = [
        (times, cell)
        for cell in cells
        if (times := cell.times(rule.method(direction, cell.block_bytes, cell.count))) is not None
    ]
    if not times:
        return None
    worst, at = max(times, key=lambda each: each[0])
    return Cost(rule, median(each for each, _ in times), worst, at, len(times))


class Knee(NamedTuple):
    """The block size from which on copies are as fast as the kernel, or None; and the largest that has both."""

    block_bytes: int | None
    largest: int


def knees_of(cells: Iterable[Cell]) -> dict[int, Knee]:
    """The knee of each count; without those of which one size or none has both."""
    by_count: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for cell in cells:
        copies = [row for method, row in cell.rows.items() if method in COPIES]
        if copies and "kernel" in cell.rows:
            is_reached = not is_slower(max(copies, key=_gbps), cell.rows["kernel"])
            by_count[cell.count].append((cell.block_bytes, is_reached))
    return {count: _knee(sizes) for count, sizes in sorted(by_count.items()) if len(sizes) > 1}


def _knee(sizes: Sequence[tuple[int, bool]]) -> Knee:
    found = None
    for size, is_reached in sorted(sizes, reverse=True):
        if not is_reached:
            break
        found = size
    return Knee(found, max(size for size, _ in sizes))
