"""The parts of each step's time, and slow steps. Every instant belongs to the first part that applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._document.watches import Parts, SlowSteps, StepPartName
from pyxfer._measure import stats
from pyxfer._trace.records import CopyKind, MemoryKind, intervals
from pyxfer._watch.device_records import Cover, is_allocation, is_blocking_copy, is_wait, stream_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._watch.device_records import DeviceRecords, Periods

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
_MOSTLY = 0.5


@dataclass(frozen=True)
class Timed:
    periods: Periods
    columns: Columns

    def select(self, chosen: NDArray[np.bool_]) -> Timed:
        return Timed(self.periods.select(chosen), self.columns.select(chosen))


def find_slow(timed: Timed) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the slow steps, and of those with which their thread warms up; the others are beyond its fence."""
    slow, first = np.zeros((2, len(timed.periods)), np.bool_)
    if timed.periods.stepped:
        for thread in np.unique(timed.periods.thread):
            own = np.flatnonzero(timed.periods.thread == thread)
            seconds = timed.columns.period[own] / 1e9
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


def slow_steps(timed: Timed, slow: NDArray[np.bool_]) -> SlowSteps | None:
    """How much longer the slow steps took than usual steps of their own thread; None without slow steps."""
    if not slow.any():
        return None
    columns, thread = timed.columns, timed.periods.thread
    more_ns = 0.0
    more: dict[StepPartName, float] = {}
    for number in np.unique(thread[slow]):
        own = thread == number
        took, usual = columns.select(slow & own), columns.select(~slow & own)
        count = len(took.period)
        more_ns += int(took.period.sum()) - count * int(usual.period.sum()) / len(usual.period)
        before = dict(usual.mean().named())
        for name, seconds in took.mean().named():
            more[name] = more.get(name, 0.0) + count * (seconds - before[name])
    return SlowSteps(
        count=int(slow.sum()),
        longest_s=int(np.max(columns.period[slow])) / 1e9,
        more_s=more_ns / 1e9,
        share=more_ns / int(columns.period.sum()),
        mostly=main_part(more, more_ns / 1e9),
    )


def _far_out(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A mask of one thread's steps beyond the fence; empty if there are too many of them."""
    summary = stats.summarise(seconds.tolist())
    beyond: NDArray[np.bool_] = seconds > max(summary.q3_s + FAR_OUT * summary.iqr_s, ALIKE * summary.q3_s)
    return beyond & (int(beyond.sum()) / len(beyond) <= MAX_SHARE)


def main_part(more: Mapping[StepPartName, float], more_s: float) -> StepPartName | None:
    """The part with more than half of the difference; None if there is none, or if a period has only one part."""
    most = max(more, key=lambda name: more[name])
    return most if len(more) > 1 and more[most] > _MOSTLY * more_s else None


@dataclass(frozen=True)
class Columns:
    """Nanoseconds of each period and of its parts. Without records the columns of the device are None."""

    period: Column
    host: Column
    kernels: Column | None = None
    h2d: Column | None = None
    d2h: Column | None = None
    other_copies: Column | None = None
    input: Column | None = None
    idle: Column | None = None
    hidden_h2d: Column | None = None
    hidden_d2h: Column | None = None
    waiting: Column | None = None
    """Time of the step's thread in calls that wait for the device, whether or not the device works."""
    staging: Column | None = None
    """The part of idle and host in which the step's thread is in calls that send pageable memory."""
    allocating: Column | None = None
    """The part of input, idle and host in which the step's thread requests or returns memory."""
    pageable_h2d: Column | None = None
    pageable_d2h: Column | None = None
    behind_kernels: Column | None = None
    """The part of h2d and d2h in which page-locked memory is copied on a stream that kernels run on."""

    def select(self, chosen: NDArray[np.bool_]) -> Columns:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        selected: dict[str, Any] = {name: None if it is None else it[chosen] for name, it in columns.items()}
        return Columns(**selected)

    def row(self, place: int) -> Parts:
        return self._parts(lambda column: int(column[place]) / 1e9)

    def mean(self) -> Parts:
        """The mean period. The means of the parts sum to it, and medians would not."""
        return self._parts(mean_s)

    def _parts(self, seconds: Callable[[Column], float]) -> Parts:
        columns: dict[str, Any] = {name: getattr(self, name.removesuffix("_s")) for name in Parts.__struct_fields__}
        parts: dict[str, Any] = {name: None if it is None else seconds(it) for name, it in columns.items()}
        return Parts(**parts)


def mean_s(column: NDArray[np.int64] | None) -> float:
    """The mean in seconds; 0 for a column that is missing or empty."""
    return 0.0 if column is None or not len(column) else float(column.sum()) / len(column) / 1e9


def columns_by_clock(periods: Periods) -> Columns:
    between = periods.begin_ns - periods.from_ns
    return Columns(
        period=periods.end_ns - periods.from_ns,
        input=between if periods.begun else None,
        host=periods.end_ns - periods.begin_ns,
    )


def columns_by_records(periods: Periods, records: DeviceRecords) -> Columns:
    """The parts by the device's records: differences of covers, each of which contains one more kind of work."""
    begin_ns, end_ns = periods.from_ns, periods.end_ns
    h2d, d2h = (intervals(records.copies[records.copies_of(kind)]) for kind in (CopyKind.H2D, CopyKind.D2H))
    computing, busy = Cover(records.computing), records.busy
    received = Cover(records.computing, h2d)
    layers = (computing, received, Cover(received.united, d2h), busy)
    covered = [layer.within(begin_ns, end_ns) for layer in layers]
    between = periods.begin_ns - begin_ns - busy.within(begin_ns, periods.begin_ns)
    inside = end_ns - periods.begin_ns - busy.within(periods.begin_ns, end_ns)
    waits, pageable = records.calls[_waits(records)], MemoryKind.PAGEABLE
    staging = records.calls[records.calls_that_copy(CopyKind.H2D, pageable)]
    idle = _time_in(waits, busy, periods, periods.begin_ns)
    return Columns(
        period=end_ns - begin_ns,
        kernels=covered[0],
        h2d=covered[1] - covered[0],
        d2h=covered[2] - covered[1],
        other_copies=covered[3] - covered[2],
        input=between if periods.begun else None,
        idle=idle,
        host=inside - idle,
        hidden_h2d=_hidden(computing, h2d, periods),
        hidden_d2h=_hidden(computing, d2h, periods),
        waiting=_time_in(waits, Cover(), periods, begin_ns),
        staging=_time_in(staging, busy, periods, periods.begin_ns),
        allocating=_time_in(records.calls[records.calls_named(is_allocation)], busy, periods, begin_ns),
        pageable_h2d=_exposed(records, records.copies_of(CopyKind.H2D, pageable), computing, periods),
        pageable_d2h=_exposed(records, records.copies_of(CopyKind.D2H, pageable), received, periods),
        behind_kernels=_exposed(records, _behind_kernels(records), computing, periods),
    )


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
