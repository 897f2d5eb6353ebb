"""The calls in steps that copy, wait or allocate, and the ranges that the user has named."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._document import watches
from pyxfer._document.machines import Fact, unknown
from pyxfer._trace.records import CopyKind, Flag, Kind, MemoryKind, clip
from pyxfer._watch.device_records import (
    Cover,
    DeviceRecords,
    Periods,
    Stretches,
    is_allocation,
    is_blocking_copy,
    is_wait,
)
from pyxfer._watch.window import Window

Column = NDArray[np.int64]

# A program that makes a new range name for each call would have any number of groups. The longest are kept.
MAX_GROUPS = 50
# A call is of the first kind that applies.
KINDS: tuple[watches.SurpriseKind, ...] = ("d2h", "blocking copy", "wait", "allocation")
# A call that lasted this many sampling intervals was certainly sampled.
_CERTAINLY = 4
NOT_SEEN = "too short for a sample of its line"
NO_LINE = "no line of yours was seen in it"
NONE_SEEN = "no line of yours was seen in the window"


def calls_in_steps(
    window: Window, records: DeviceRecords, periods: Periods, ranges: Ranges
) -> tuple[watches.Surprise, ...]:
    """Groups of calls inside steps, or inside a window without steps; the longest first."""
    calls = records.calls
    fetched = fetched_bytes(records)
    kind = _kinds(records, fetched)
    chosen = np.flatnonzero((kind >= 0) & Cover(periods.inside).holds(calls["start_ns"]))
    calls, kind, fetched = calls[chosen], kind[chosen], fetched[chosen]
    thread = calls["thread"].astype(np.int64)
    lines, line = _sampled_lines(window, thread, calls["start_ns"], calls["end_ns"])
    around = ranges.innermost(thread, calls["start_ns"])
    alike = np.stack((kind, calls["name"].astype(np.int64), around), axis=1)
    line = _with_lines_of_similar(line, alike)
    keys = np.column_stack((alike[:, :2], line, around))
    found, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    over_time = _over_time(window, calls, np.maximum(fetched, 0), place, len(found))
    seconds = np.array([math.fsum(each.seconds for each in row) for row in over_time])
    sampled = np.bincount(place, weights=_was_sampled(window, calls["start_ns"], calls["end_ns"]), minlength=len(found))
    why: list[Fact[str]] = [
        unknown(NONE_SEEN if not window.seen else NO_LINE if each else NOT_SEEN) for each in sampled.tolist()
    ]
    order = np.argsort(-seconds, kind="stable")[:MAX_GROUPS]
    return tuple(
        watches.Surprise(
            what=KINDS[int(found[row, 0])],
            call=records.names[int(found[row, 1])],
            line=Fact(lines[int(found[row, 2])]) if found[row, 2] >= 0 else why[row],
            range=None if found[row, 3] < 0 else ranges.names[int(found[row, 3])][0],
            **sums_of(over_time[row], len(periods) if periods.stepped else None),
        )
        for row in order.tolist()
    )


def sums_of(over_time: tuple[watches.CallSums, ...], steps: int | None) -> dict[str, Any]:
    """The fields of a `Surprise` that follow from its calls in each stretch; `steps`: their number."""
    count, nbytes = sum(each.count for each in over_time), sum(each.nbytes for each in over_time)
    return {
        "count": count,
        "seconds": math.fsum(each.seconds for each in over_time),
        "nbytes": nbytes,
        "per_step": count / steps if steps else None,
        "over_time": over_time,
    }


def _over_time(
    window: Window, calls: NDArray[Any], nbytes: NDArray[np.float64], place: NDArray[np.int64], groups: int
) -> list[tuple[watches.CallSums, ...]]:
    """For each group the sums of its calls in each stretch of the window. `place`: the group of each call."""
    cell = place * watches.MAX_STRETCHES + Stretches(window.begin_ns, window.end_ns).number(calls["start_ns"])
    sums = [
        np.bincount(cell, weights=weights, minlength=groups * watches.MAX_STRETCHES)
        .reshape(groups, watches.MAX_STRETCHES)
        .tolist()
        for weights in (None, calls["end_ns"] - calls["start_ns"], nbytes)
    ]
    return [
        tuple(watches.CallSums(int(count), ns / 1e9, int(size)) for count, ns, size in zip(*rows, strict=True))
        for rows in zip(*sums, strict=True)
    ]


def _with_lines_of_similar(line: Column, alike: Column) -> Column:
    """Assign calls that were not sampled to the line of similar calls, if those were all on one line."""
    _, group = np.unique(alike, axis=0, return_inverse=True)
    group = group.reshape(-1)
    seen = line >= 0
    least = np.full(len(group), np.iinfo(np.int64).max)
    most = np.full(len(group), -1, np.int64)
    np.minimum.at(least, group[seen], line[seen])
    np.maximum.at(most, group[seen], line[seen])
    only = np.where(least == most, most, -1)[group]
    return np.where(seen, line, only)


def fetched_bytes(records: DeviceRecords) -> NDArray[np.float64]:
    """For each call the bytes that it copied from the device, or -1 if it copied none."""
    fetched = np.full(len(records.calls), -1.0)
    copies = records.copies_of(CopyKind.D2H) & (records.issued >= 0)
    indices = records.issued[copies]
    if len(indices):
        total = np.bincount(indices, weights=records.copies["nbytes"][copies], minlength=len(fetched))
        fetched[np.unique(indices)] = total[np.unique(indices)]
    return fetched


def _kinds(records: DeviceRecords, fetched: NDArray[np.float64]) -> Column:
    """For each call its index in `KINDS`, or -1. Copies from pageable memory block even if they are named Async."""
    tests = (
        fetched >= 0,
        records.calls_named(is_blocking_copy) | records.calls_that_copy(CopyKind.H2D, MemoryKind.PAGEABLE),
        records.calls_named(is_wait),
        records.calls_named(is_allocation),
    )
    return np.select(tests, range(len(KINDS)), default=-1).astype(np.int64)


def _was_sampled(window: Window, begin_ns: Column, end_ns: Column) -> NDArray[np.bool_]:
    """All threads are sampled together.

    A sample that found no line of the user's in any thread left no trace, so long calls count as sampled.
    """
    samples = np.unique(np.array([seen.at_ns for seen in window.seen], np.int64))
    every_ns = float(np.median(np.diff(samples))) if len(samples) > 1 else np.inf
    met = np.searchsorted(samples, end_ns, side="right") > np.searchsorted(samples, begin_ns)
    found: NDArray[np.bool_] = met | (end_ns - begin_ns > _CERTAINLY * every_ns)
    return found


def _sampled_lines(window: Window, thread: Column, begin_ns: Column, end_ns: Column) -> tuple[list[str], Column]:
    """All lines, and each call's index or -1. A thread in a call stays on one line, so the first sample is enough."""
    lines: dict[str, int] = {}
    columns = np.array(
        [(seen.at_ns, seen.thread, lines.setdefault(seen.line, len(lines))) for seen in window.seen], np.int64
    ).reshape(-1, 3)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    found = np.full(len(thread), -1, np.int64)
    for number in np.unique(thread):
        own, at = columns[columns[:, 1] == number], np.flatnonzero(thread == number)
        first = np.searchsorted(own[:, 0], begin_ns[at], side="left")
        known = first < len(own)
        known[known] = own[first[known], 0] <= end_ns[at[known]]
        found[at[known]] = own[first[known], 2]
    return list(lines), found


MAX_LINES = 10


def line_uses(window: Window) -> tuple[watches.LineUse, ...]:
    """The lines of which samples saw most, of the thread with the steps, or of the main thread."""
    threads = Counter(step.thread for step in window.steps) or Counter(
        number for number, name in window.threads.items() if name == "MainThread"
    )
    thread = threads.most_common(1)[0][0] if threads else None
    lines = Counter(seen.line for seen in window.seen if seen.thread == thread)
    return tuple(
        watches.LineUse(window.threads.get(thread or 0, ""), line, count, count / lines.total())
        for line, count in lines.most_common(MAX_LINES)
    )


# A program that puts a number into every name would make a row for each range.
MAX_NAMES = 100


@dataclass(frozen=True)
class Ranges:
    """All ranges as columns; `name` is an index of `names`."""

    names: tuple[tuple[str, watches.RangeSource], ...]
    name: Column
    begin_ns: Column
    end_ns: Column
    thread: Column
    unpaired: int = 0
    """Number of NVTX ranges that had not ended with the window; they are cut to its end."""

    def innermost(self, thread: Column, at_ns: Column) -> Column:
        """For each time the index in `names` of the thread's innermost range around it, or -1."""
        found = np.full(len(at_ns), -1, np.int64)
        for number in np.unique(thread):
            at = thread == number
            found[at] = self._innermost(np.flatnonzero(self.thread == number), at_ns[at])
        return found

    def _innermost(self, own: NDArray[np.intp], at_ns: Column) -> Column:
        """Ranges of one thread are nested, so the open range of the greatest depth began last."""
        begins, ends = np.sort(self.begin_ns[own]), np.sort(self.end_ns[own])
        found = np.full(len(at_ns), -1, np.int64)
        depth = np.searchsorted(begins, self.begin_ns[own], side="right") - np.searchsorted(
            ends, self.begin_ns[own], side="right"
        )
        open_at = np.searchsorted(begins, at_ns, side="right") - np.searchsorted(ends, at_ns, side="right")
        for level in np.unique(open_at[open_at > 0]):
            on_level = own[depth == level]
            on_level = on_level[np.argsort(self.begin_ns[on_level], kind="stable")]
            at = np.flatnonzero(open_at == level)
            last = np.searchsorted(self.begin_ns[on_level], at_ns[at], side="right") - 1
            held = (last >= 0) & (self.end_ns[on_level][last] > at_ns[at]) if len(on_level) else last >= 0
            found[at[held]] = self.name[on_level][last[held]]
        return found


def ranges_of(window: Window) -> Ranges:
    capture = window.capture.value
    indices: dict[tuple[str, watches.RangeSource], int] = {}
    rows = [
        (indices.setdefault((marked.name, "mark"), len(indices)), marked.begin_ns, marked.end_ns, marked.thread)
        for marked in window.ranges
    ]
    columns, unpaired = np.array(rows, np.int64).reshape(-1, 4), 0
    if capture is not None:
        nvtx, unpaired = _paired(capture.of(Kind.MARK), window.end_ns)
        used, place = np.unique(nvtx[:, 0], return_inverse=True)
        known = [indices.setdefault((capture.names[int(name)], "nvtx"), len(indices)) for name in used]
        nvtx[:, 0] = np.array(known, np.int64)[place.reshape(-1)]
        columns = np.concatenate((columns, nvtx))
    begin, end = np.maximum(columns[:, 1], window.begin_ns), np.minimum(columns[:, 2], window.end_ns)
    kept = end >= begin
    return Ranges(tuple(indices), columns[kept, 0], begin[kept], end[kept], columns[kept, 3], unpaired)


def named_ranges(ranges: Ranges, records: DeviceRecords | None, window: Window) -> tuple[watches.NamedRange, ...]:
    seconds = np.bincount(ranges.name, weights=ranges.end_ns - ranges.begin_ns, minlength=len(ranges.names)) / 1e9
    longest = np.argsort(-seconds, kind="stable")[:MAX_NAMES]
    over = Stretches(window.begin_ns, window.end_ns)
    inside = None if records is None else _RangeWork(records, over)
    return tuple(_row(ranges, int(name), inside, over) for name in longest if (ranges.name == name).any())


def _row(ranges: Ranges, name: int, inside: _RangeWork | None, over: Stretches) -> watches.NamedRange:
    chosen = ranges.name == name
    spans, threads = np.column_stack((ranges.begin_ns[chosen], ranges.end_ns[chosen])), ranges.thread[chosen]
    covered = Cover(spans)
    begins, ends, number = over.bounds[:, 0], over.bounds[:, 1], over.number(spans[:, 0])
    nothing = [None] * len(begins)
    columns: list[list[Any]] = [
        np.bincount(number, minlength=len(begins)).tolist(),
        [ns / 1e9 for ns in over.sums(number, spans[:, 1] - spans[:, 0])],
        (covered.within(begins, ends) / 1e9).tolist(),
        nothing if inside is None else inside.busy_s(covered),
        nothing if inside is None else inside.nbytes(CopyKind.H2D, spans, threads),
        nothing if inside is None else inside.nbytes(CopyKind.D2H, spans, threads),
    ]
    over_time = tuple(watches.RangeSums(*row) for row in zip(*columns, strict=True))
    return summed(*ranges.names[name], over_time, (over.end_ns - over.begin_ns) / 1e9)


def summed(
    name: str, source: watches.RangeSource, over_time: tuple[watches.RangeSums, ...], window_s: float
) -> watches.NamedRange:
    def whole(column: str) -> Any:
        values = [getattr(each, column) for each in over_time]
        return None if None in values else math.fsum(values) if column.endswith("_s") else sum(values)

    return watches.NamedRange(
        name=name,
        source=source,
        count=whole("count"),
        seconds=math.fsum(each.seconds for each in over_time),
        share=whole("covered_s") / window_s if window_s > 0 else 0.0,
        busy_s=whole("busy_s"),
        h2d_bytes=whole("h2d_bytes"),
        d2h_bytes=whole("d2h_bytes"),
        over_time=over_time,
    )


class _RangeWork:
    """The device's work during ranges, and the bytes that calls in them requested to copy, by stretch."""

    def __init__(self, records: DeviceRecords, over: Stretches) -> None:
        self._busy, self._over = records.busy, over
        self._requested: dict[tuple[int, int], tuple[Column, Column]] = {}
        known = records.issued >= 0
        calls = records.calls[records.issued[known]]
        copies = records.copies[known]
        for kind in (CopyKind.H2D, CopyKind.D2H):
            for thread in np.unique(calls["thread"]):
                chosen = (copies["way"] == kind) & (calls["thread"] == thread)
                self._requested[int(kind), int(thread)] = (
                    calls["start_ns"][chosen],
                    copies["nbytes"][chosen].astype(np.int64),
                )

    def busy_s(self, covered: Cover) -> list[float]:
        pieces = [clip(covered.united, begin, end) for begin, end in self._over.bounds.tolist()]
        return [int(self._busy.within(own[:, 0], own[:, 1]).sum()) / 1e9 for own in pieces]

    def nbytes(self, kind: CopyKind, spans: NDArray[np.int64], threads: Column) -> list[int]:
        """Bytes of the copies that the threads of the ranges requested in them, counted once."""
        found = np.zeros(len(self._over.bounds), np.int64)
        for thread in np.unique(threads):
            at, nbytes = self._requested.get((int(kind), int(thread)), (_NONE, _NONE))
            inside = Cover(spans[threads == thread]).holds(at)
            found += self._over.sums(self._over.number(at[inside]), nbytes[inside])
        return [int(each) for each in found]


def _paired(marks: NDArray[Any], end_ns: int) -> tuple[NDArray[np.int64], int]:
    """Name, begin, end and thread of each range, and the number of ranges without an end, which get `end_ns`."""
    begins = marks[(marks["flags"] & Flag.BEGIN) != 0]
    ends = marks[(marks["flags"] & Flag.END) != 0]
    ends = ends[np.argsort(ends["correlation"], kind="stable")]
    place = np.searchsorted(ends["correlation"], begins["correlation"])
    known = place < len(ends)
    known[known] = ends["correlation"][place[known]] == begins["correlation"][known]
    until = np.full(len(begins), end_ns, np.int64)
    until[known] = ends["start_ns"][place[known]]
    rows = (begins["name"], begins["start_ns"], until, begins["thread"])
    return np.stack([row.astype(np.int64) for row in rows], axis=1), int((~known).sum())


_NONE = np.empty(0, np.int64)
