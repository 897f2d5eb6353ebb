"""How long a move of blocks takes, between the cells that were measured: what `copy_blocks` and plans choose by.

A move of `count` blocks takes a + b * count + c * count * block_bytes seconds, with other constants in other places. So
it is linear along the counts of one size, and along the sizes for one count, and between two cells the line is exact
unless the constants change there. Of the laws that were compared with the cells of an H200 that were left out, this one
was the nearest, see docs/decisions.md.

A change of the constants bends the curve, and the lines of the neighbouring pieces show how far at most: the interval
has that too. A driver also changes its method at some size, and then a larger block takes less time. The change is
taken to lie just above the smaller of two cells, as on an H200. It may lie elsewhere, so the interval there has all
that follows from either cell.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyxfer._blocks.mover import WORD_BYTES
from pyxfer._document.blocks import BlockMethod, BlockTable
from pyxfer._document.intervals import MIN_TRIALS

STEADY_BYTES = 32 << 20
"""From these bytes on a move takes as long as the link needs for them, whatever it is cut into."""
LARGE_BLOCK_BYTES = 1 << 20
"""Blocks from this size on are as fast as one copy, so a larger one takes as long as several of these."""
FARTHEST = 64
"""A move of more bytes than this multiple of the largest measured one is not estimated."""


class Estimate(NamedTuple):
    """Seconds with their interval.

    `times_measured`: how many of the largest measured moves it consists of, or 1. `trials`: the fewest of a cell that
    it follows from; with less than `MIN_TRIALS` the interval is too narrow.
    """

    seconds: float
    low_s: float
    high_s: float
    times_measured: float = 1.0
    trials: int = MIN_TRIALS

    def scaled(self, factor: float) -> Estimate:
        return self._replace(seconds=self.seconds * factor, low_s=self.low_s * factor, high_s=self.high_s * factor)

    def with_too(self, *seconds: float) -> Estimate:
        """The same estimate with an interval that has these seconds as well."""
        return self._replace(low_s=min(self.low_s, *seconds), high_s=max(self.high_s, *seconds))


class Cell(NamedTuple):
    block_bytes: int
    blocks: int
    time: Estimate


class Range(NamedTuple):
    """The counts of blocks that can be estimated."""

    least: int
    most: int


class Line(NamedTuple):
    """Seconds at some sizes or counts, in ascending order."""

    at_each: Sequence[float]
    seconds: Sequence[float]

    def at(self, wanted: float) -> float:
        """Linear between two; below the first its own, above the last they grow with the size or count."""
        at, seconds = self
        place = bisect_right(at, wanted)
        if place == 0:
            return seconds[0]
        left, below = at[place - 1], seconds[place - 1]
        if place == len(at):
            return below * wanted / left
        return below + (seconds[place] - below) * (wanted - left) / (at[place] - left)


Point = tuple[float, Estimate]
"""A count or a size, and the time of a move there."""


class MoveTimes:
    """The times of one method in one direction, between one pair of memories, in one order."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        rows: dict[int, list[Cell]] = {}
        for cell in cells:
            rows.setdefault(cell.block_bytes, []).append(cell)
        self._rows = {size: sorted(rows[size], key=lambda cell: cell.blocks) for size in sorted(rows)}
        self._sizes = list(self._rows)
        self._lines = {
            size: Line([cell.blocks for cell in row], [cell.time.seconds for cell in row])
            for size, row in self._rows.items()
        }

    def seconds(self, block_bytes: int, count: float) -> float:
        """The time of any move: outside of what was measured it is that of the nearest cells, see `Line`."""
        sizes, lines = self._sizes, self._lines
        if block_bytes > sizes[-1]:  # as several of the largest blocks
            return lines[sizes[-1]].at(count * block_bytes / sizes[-1])
        place = bisect_left(sizes, block_bytes)
        if place == 0 or sizes[place] == block_bytes:
            return lines[sizes[place]].at(count)
        near = sizes[place - 1 : place + 1]
        least, most = (lines[size].at(count) for size in near)
        return most if most < least else Line(near, (least, most)).at(block_bytes)

    def at(self, block_bytes: int, count: float) -> Estimate | None:
        """`seconds` with their interval; None if such a move is outside of what was measured."""
        largest = self._sizes[-1]
        if block_bytes > largest:
            is_near = largest >= LARGE_BLOCK_BYTES and block_bytes <= FARTHEST * largest
            return self._of_size(largest, count * block_bytes / largest) if is_near else None
        place = bisect_left(self._sizes, block_bytes)
        if self._sizes[place] == block_bytes:
            return self._of_size(block_bytes, count)
        if place == 0:
            return None
        found = [(float(size), self._of_size(size, count)) for size in self._sizes[max(0, place - 2) : place + 2]]
        after = min(place, 2)
        if found[after - 1][1] is None or found[after][1] is None:
            return None
        known = [(size, estimate) for size, estimate in found if estimate is not None]
        return _between(known, block_bytes)

    def range_of(self, block_bytes: int) -> Range | None:
        """The counts for which `at` has a time of this size."""
        sizes = self._sizes
        if block_bytes > sizes[-1]:
            whole = self._counts(sizes[-1])
            scale = sizes[-1] / block_bytes
            found = Range(math.ceil(whole.least * scale), int(whole.most * scale))
            return found if self.at(block_bytes, found.least) is not None else None
        place = bisect_left(sizes, block_bytes)
        if place == 0 and sizes[0] != block_bytes:
            return None
        around = [self._counts(size) for size in sizes[place - (sizes[place] != block_bytes) : place + 1]]
        found = Range(max(each.least for each in around), min(each.most for each in around))
        return found if found.least <= found.most else None

    def _counts(self, size: int) -> Range:
        row = self._rows[size]
        most = row[-1].blocks
        return Range(row[0].blocks, most * FARTHEST if most * size >= STEADY_BYTES else most)

    def _of_size(self, size: int, count: float) -> Estimate | None:
        row = self._rows[size]
        counts = self._counts(size)
        if not counts.least <= count <= counts.most:
            return None
        points = [(float(cell.blocks), cell.time) for cell in row]
        if count <= row[-1].blocks:
            return _between(points, count)
        return _beyond(points, count)


def _between(points: Sequence[Point], x: float) -> Estimate:
    """The estimate at x, which lies between the first and the last point."""
    place = bisect_left([at for at, _ in points], x)
    (above, most) = points[place]
    if above == x:
        return most
    (below, least) = points[place - 1]
    seconds, low_s, high_s = (Line((below, above), ends).at(x) for ends in zip(least[:3], most[:3], strict=True))
    times_measured, trials = max(least.times_measured, most.times_measured), min(least.trials, most.trials)
    found = Estimate(seconds, low_s, high_s, times_measured, trials)
    if most.seconds < least.seconds:
        found = found._replace(seconds=most.seconds).with_too(most.seconds)
    floor = max(least.seconds, most.seconds * x / above)  # more takes no less, and not at a lower rate
    ceiling = min(most.seconds, least.seconds * x / below)
    if floor > ceiling:
        hull = (least.low_s, most.low_s, least.low_s * x / below, most.low_s * x / above)
        high = (least.high_s, most.high_s, least.high_s * x / below, most.high_s * x / above)
        return found.with_too(*hull, *high) if _is_switch(least, most, below / above) else found
    bends = [min(max(bend, floor), ceiling) for bend in _lines_at(points, place, x)]
    return found.with_too(_bend(found.seconds, bends))


def _is_switch(least: Estimate, most: Estimate, ratio: float) -> bool:
    """Whether the larger one takes less time, or has the lower rate, by more than their intervals explain."""
    return most.high_s < least.low_s or most.low_s * ratio > least.high_s


def _lines_at(points: Sequence[Point], place: int, x: float) -> list[float]:
    """Where the pieces before and after the one that ends at `place` would be at x, unless the method changes there."""
    found = []
    for end, near in ((place - 1, place - 1), (place + 1, place)):
        if 1 <= end < len(points):
            (x0, first), (x1, last) = points[end - 1 : end + 1]
            if first.seconds <= last.seconds <= first.seconds * x1 / x0:
                slope = (last.seconds - first.seconds) / (x1 - x0)
                found.append(points[near][1].seconds + slope * (x - points[near][0]))
    return found


def _bend(chord: float, lines: Sequence[float]) -> float:
    """The farthest that a curve without a further change can be from its chord: where it meets one of the lines."""
    if lines and all(line <= chord for line in lines):
        return max(lines)
    return min(lines) if lines and all(line >= chord for line in lines) else chord


def _beyond(points: Sequence[Point], x: float) -> Estimate:
    """As many of the largest move as x is; its interval also has the line of the last two."""
    last, largest = points[-1]
    factor = x / last
    whole = largest.scaled(factor)._replace(times_measured=factor)
    if len(points) < 2:  # noqa: PLR2004 - a line has two points
        return whole
    before, smaller = points[-2]
    line = largest.seconds + (largest.seconds - smaller.seconds) / (last - before) * (x - last)
    return whole.with_too(max(line, 0.0))


# --- the fastest method ----------------------------------------------------------------------------------------------


_NOISE = 0.05


def fastest_of(seconds: Mapping[BlockMethod, float], copies: float) -> BlockMethod | None:
    """The method with the least seconds; None if there is none.

    A run cannot tell a loop and a batch call apart that differ by less than its noise. Longer measurements on an H200
    can: where the two are that near, one copy takes less time by a loop, and several by a batch call.
    """
    found = min(seconds, key=seconds.__getitem__, default=None)
    likely: BlockMethod = "loop" if copies <= 1 else "batch"
    if found in ("loop", "batch") and likely in seconds and seconds[likely] <= (1 + _NOISE) * seconds[found]:
        return likely
    return found


# --- of a host -------------------------------------------------------------------------------------------------------


def times_of(table: BlockTable) -> dict[BlockMethod, MoveTimes]:
    """The times of every method of a table. With too few trials for an interval it has their least and greatest."""
    cells: dict[BlockMethod, list[Cell]] = {}
    for each in table.cells:
        for method, seconds in each.seconds.items():
            interval = each.low_seconds[method], each.high_seconds[method]
            time = Estimate(seconds, *interval, trials=each.trials[method])
            cells.setdefault(method, []).append(Cell(each.block_bytes, each.count, time))
    return {method: MoveTimes(found) for method, found in cells.items()}


@dataclass(frozen=True)
class MethodTime:
    method: BlockMethod
    time: Estimate


class HostTimes:
    """The times of every method in one direction, memory and order; none if `table` is None."""

    def __init__(self, table: BlockTable | None) -> None:
        self.methods = {} if table is None else times_of(table)
        self.most_gbps = 0.0 if table is None else _most_gbps(table)

    def fastest(self, block_bytes: int, count: float) -> MethodTime | None:
        """The method with the shortest time for such a move; None if none was measured near it."""
        known = {
            method: time
            for method, times in self.methods.items()
            if is_possible(method, block_bytes) and (time := times.at(block_bytes, count)) is not None
        }
        found = fastest_of({method: time.seconds for method, time in known.items()}, count)
        return None if found is None else MethodTime(found, known[found])

    def range_of(self, block_bytes: int) -> Range | None:
        """The counts from the least to the most that any method has for this size."""
        ranges = [
            found
            for method, times in self.methods.items()
            if is_possible(method, block_bytes) and (found := times.range_of(block_bytes)) is not None
        ]
        return Range(min(each.least for each in ranges), max(each.most for each in ranges)) if ranges else None


def _most_gbps(table: BlockTable) -> float:
    """The highest rate of any cell: what the link gives to moves."""
    rates = [cell.block_bytes * cell.count / min(cell.seconds.values()) / 1e9 for cell in table.cells if cell.seconds]
    return max(rates, default=0.0)


def is_possible(method: str, block_bytes: int) -> bool:
    return block_bytes % WORD_BYTES == 0 or method not in ("kernel", "packed")
