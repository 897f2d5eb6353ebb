"""The parts of each step's time, and slow steps. Every instant belongs to the first part that applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._measure import stats
from pyxfer._trace.records import CopyKind, MemoryKind, intervals
from pyxfer._watch.device_records import (
    Cover,
    DeviceRecords,
    Periods,
    is_allocation,
    is_blocking_copy,
    is_wait,
    stream_keys,
)

Column = NDArray[np.int64]

MIN_STEPS = 8
"""Of fewer steps only the first can be slow, because their quartiles are hardly more than single steps."""
FAR_OUT = 3.0
"""Tukey's far-out fence, in interquartile ranges above the upper quartile. Alternating modes and a steady drift widen
that range, and stay within the fence if they are a quarter of the steps."""
ALIKE = 1.05
"""A step is not slow up to this multiple of the upper quartile. Needed if steps are of equal length, and the quartiles
coincide."""
WARM_UP = 2.0
"""A first step of this many times the median of the steps after it is slow, however few there are."""
MAX_WARM_UP = 3
"""More slow steps than this at the beginning are a phase of the program."""
MIN_AFTER_SECOND = 3
"""Fewer steps after a long second one do not show that it is not every second step that is long."""
AGAIN = 0.8
"""A long first step is how the program works if a later step takes this share of it."""
MAX_SHARE = 0.15
"""If more of a thread's steps are beyond the fence, none is slow: it is how the program works. Without this bound, one
more step in the window could decide whether every fourth step is slow, for example where gradients are accumulated."""
MIN_OF_KERNELS = 0.1
"""A stream with a smaller share of the kernels' time is one for copies."""


def find_slow(periods: Periods) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the slow steps, and of those with which their thread warms up; the others are beyond its fence."""
    slow, first = np.zeros((2, len(periods)), np.bool_)
    if periods.stepped:
        for thread in np.unique(periods.thread):
            own = np.flatnonzero(periods.thread == thread)
            seconds = periods.seconds["period_s"][own]
            first[own] = warming_up(seconds)
            rest = own[~first[own]]
            if len(rest) >= MIN_STEPS:
                slow[rest] = _far_out(seconds[~first[own]])
    return slow | first, first


def warming_up(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A mask of the first steps of a thread that compile, allocate or load, by their lengths in their order.

    With enough steps after it, the second may be the first that is long, because only then something is compiled.
    """
    warm = np.zeros(len(seconds), np.bool_)
    for count in range(min(MAX_WARM_UP, len(seconds) - 1, max(2, len(seconds) // 2)), 0, -1):
        rest = seconds[count:]
        long = seconds[:count] > WARM_UP * float(np.median(rest))
        begins = long[0] or len(rest) >= MIN_AFTER_SECOND
        if begins and long[-1] and long[1:].all() and np.max(rest) < AGAIN * np.min(seconds[:count][long]):
            warm[:count] = long
            break
    return warm


def _far_out(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A mask of one thread's steps beyond the fence; empty if there are too many of them."""
    summary = stats.summarise(seconds.tolist())
    beyond: NDArray[np.bool_] = seconds > max(summary.q3_s + FAR_OUT * summary.iqr_s, ALIKE * summary.q3_s)
    return beyond & (int(beyond.sum()) / len(beyond) <= MAX_SHARE)


def timed(periods: Periods, records: DeviceRecords | None) -> Periods:
    """The periods with their parts by the device's records. Without records only input and host are known."""
    ns = _by_clock(periods) if records is None else _by_records(periods, records)
    if not periods.begun:
        del ns["input_s"]
    return replace(periods, seconds={name: column / 1e9 for name, column in ns.items()})


def _by_clock(periods: Periods) -> dict[str, Column]:
    begin_ns = periods.begin_ns
    period = periods.end_ns - periods.from_ns
    return {"period_s": period, "input_s": begin_ns - periods.from_ns, "host_s": periods.end_ns - begin_ns}


def _by_records(periods: Periods, records: DeviceRecords) -> dict[str, Column]:
    """The parts are differences of covers, each of which contains one more kind of work."""
    begin_ns, end_ns = periods.from_ns, periods.end_ns
    h2d, d2h = (intervals(records.copies[records.copies_of(kind)]) for kind in (CopyKind.H2D, CopyKind.D2H))
    computing, busy = Cover(records.computing), records.busy
    received = Cover(records.computing, h2d)
    layers = (computing, received, Cover(received.united, d2h), busy)
    covered = [layer.within(begin_ns, end_ns) for layer in layers]
    inside = end_ns - periods.begin_ns - busy.within(periods.begin_ns, end_ns)
    waits, pageable = records.calls[_waits(records)], MemoryKind.PAGEABLE
    staging = records.calls[records.calls_that_copy(CopyKind.H2D, pageable)]
    idle = _time_in(waits, busy, periods, periods.begin_ns)
    return {
        "period_s": end_ns - begin_ns,
        "kernels_s": covered[0],
        "h2d_s": covered[1] - covered[0],
        "d2h_s": covered[2] - covered[1],
        "other_copies_s": covered[3] - covered[2],
        "input_s": periods.begin_ns - begin_ns - busy.within(begin_ns, periods.begin_ns),
        "idle_s": idle,
        "host_s": inside - idle,
        "hidden_h2d_s": _hidden(computing, h2d, periods),
        "hidden_d2h_s": _hidden(computing, d2h, periods),
        # In calls of the step's thread that wait for the device, whether or not the device works.
        "waiting_s": _time_in(waits, Cover(), periods, begin_ns),
        # The part of idle and host in which the step's thread is in calls that send pageable memory.
        "staging_s": _time_in(staging, busy, periods, periods.begin_ns),
        # The part of input, idle and host in which the step's thread requests or returns memory.
        "allocating_s": _time_in(records.calls[records.calls_named(is_allocation)], busy, periods, begin_ns),
        "pageable_h2d_s": _exposed(records, records.copies_of(CopyKind.H2D, pageable), computing, periods),
        "pageable_d2h_s": _exposed(records, records.copies_of(CopyKind.D2H, pageable), received, periods),
        # The part of h2d and d2h in which page-locked memory is copied on a stream that kernels run on.
        "behind_kernels_s": _exposed(records, _behind_kernels(records), computing, periods),
    }


def _time_in(calls: NDArray[Any], besides: Cover, periods: Periods, since_ns: Column) -> Column:
    """Time since `since_ns` in calls of the step's thread, or of any thread without steps, and not in `besides`."""
    found = np.zeros(len(periods), np.int64)
    for thread in np.unique(periods.thread):
        mine = periods.thread == thread
        own = calls[calls["thread"] == thread] if periods.stepped else calls
        found[mine] = besides.added_by(intervals(own), since_ns[mine], periods.end_ns[mine])
    return found


def _waits(records: DeviceRecords) -> NDArray[np.bool_]:
    """A mask of the calls that wait. A call that copies to pageable memory waits also if its name says Async."""
    waits = records.calls_named(lambda name: is_wait(name) or is_blocking_copy(name))
    return waits | records.calls_that_copy(CopyKind.D2H, MemoryKind.PAGEABLE)


def _hidden(computing: Cover, copies: NDArray[np.int64], periods: Periods) -> Column:
    begin, end = periods.from_ns, periods.end_ns
    return Cover(copies).within(begin, end) - computing.added_by(copies, begin, end)


def _behind_kernels(records: DeviceRecords) -> NDArray[np.bool_]:
    """A mask of the pinned copies on streams with a tenth of the kernels' time or more."""
    streams, place = np.unique(stream_keys(records.kernels), return_inverse=True)
    lengths = records.kernels["end_ns"] - records.kernels["start_ns"]
    took = np.bincount(place.reshape(-1), weights=lengths, minlength=len(streams))
    used = streams[took >= MIN_OF_KERNELS * took.sum()] if len(streams) else streams
    between = records.copies_of(CopyKind.H2D) | records.copies_of(CopyKind.D2H)
    chosen: NDArray[np.bool_] = between & (records.host_memory != MemoryKind.PAGEABLE)
    return chosen & np.isin(stream_keys(records.copies), used)


def _exposed(records: DeviceRecords, copies: NDArray[np.bool_], above: Cover, periods: Periods) -> Column:
    """Time of some copies in which no earlier part applies; `above` covers the earlier parts."""
    return above.added_by(intervals(records.copies[copies]), periods.from_ns, periods.end_ns)
