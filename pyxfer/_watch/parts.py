"""Where the time of each step went: every instant belongs to the first part that holds at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._document.watches import Parts, SlowSteps, StepPartName
from pyxfer._measure import stats
from pyxfer._trace.records import CopyWay, MemoryKind, intervals
from pyxfer._watch.gathered import Cover, is_allocation, is_blocking_copy, is_wait, issued_by, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._watch.gathered import Periods


LEAST_STEPS = 8
"""Of fewer in a thread a quartile is hardly more than one of them."""
FAR_OUT = 3.0
"""Tukey's far-out fence, in interquartile ranges above the upper quartile. Modes that take turns, or a steady
drift, widen that range and lie within the fence, as long as they are a quarter of the steps."""
ALIKE = 1.05
"""Steps of one length have no such range; what is within this of their upper quartile is no other kind of step."""
MOST_SHARE = 0.15
"""Of a thread's steps: what comes about in more of them is how the program is. By the fence alone every fourth step, if
it is longer (as where gradients are gathered), would be slow or not by one step more in the window."""
_MOST = 0.5


@dataclass(frozen=True)
class Timed:
    """Steps, or the window where it has none, and where their time went."""

    periods: Periods
    columns: Columns

    def of(self, chosen: NDArray[np.bool_]) -> Timed:
        """Some of them."""
        return Timed(self.periods.of(chosen), self.columns.of(chosen))


def slow_ones(timed: Timed) -> NDArray[np.bool_]:
    """Which of them are steps beyond the fence of their own thread."""
    slow = np.zeros(len(timed.periods), np.bool_)
    if timed.periods.stepped:
        threads, counts = np.unique(timed.periods.thread, return_counts=True)
        for thread in threads[counts >= LEAST_STEPS]:
            own = timed.periods.thread == thread
            slow[own] = _far_out(timed.columns.period[own] / 1e9)
    return slow


def slow_steps(timed: Timed, slow: NDArray[np.bool_]) -> SlowSteps | None:
    """What they took beyond the usual ones of their own thread, if there are any."""
    if not slow.any():
        return None
    columns, thread = timed.columns, timed.periods.thread
    more_ns = 0.0
    more: dict[StepPartName, float] = {}
    for each in np.unique(thread[slow]):
        took, usual = columns.of(slow & (thread == each)), columns.of(~slow & (thread == each))
        count = len(took.period)
        more_ns += int(took.period.sum()) - count * int(usual.period.sum()) / len(usual.period)
        before = dict(usual.mean().named())
        for name, seconds in took.mean().named():
            more[name] = more.get(name, 0.0) + count * (seconds - before[name])
    return SlowSteps(
        count=int(slow.sum()),
        longest_s=int(columns.period[slow].max()) / 1e9,
        more_s=more_ns / 1e9,
        share=more_ns / int(columns.period.sum()),
        mostly=_mostly(more, more_ns / 1e9),
    )


def _far_out(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of one thread's steps lie beyond the fence; none, where they are too many to be but slow."""
    summary = stats.summarise(seconds.tolist())
    beyond: NDArray[np.bool_] = seconds > max(summary.q3_s + FAR_OUT * summary.iqr_s, ALIKE * summary.q3_s)
    return beyond & (int(beyond.sum()) / len(beyond) <= MOST_SHARE)


def _mostly(more: Mapping[StepPartName, float], more_s: float) -> StepPartName | None:
    """The part that holds more of the difference than all others together; a period in one part does not tell."""
    most = max(more, key=lambda name: more[name])
    return most if len(more) > 1 and more[most] > _MOST * more_s else None


if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._watch.gathered import Gathered, Periods

    Column = NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """Nanoseconds of each period. The first eight are its parts; without records the device's are None."""

    period: Column
    kernels: Column | None
    h2d: Column | None
    d2h: Column | None
    other_copies: Column | None
    input: Column | None
    idle: Column | None
    host: Column
    hidden_h2d: Column | None = None
    hidden_d2h: Column | None = None
    waiting: Column | None = None
    """The step's thread in calls that wait for the device, whatever that does meanwhile."""
    staging: Column | None = None
    """Of input, idle and host: the step's thread in calls that send pageable memory."""
    allocating: Column | None = None
    """Of input, idle and host: the step's thread in calls that ask for memory or give it back."""
    pageable_h2d: Column | None = None
    """Of h2d: from pageable memory."""
    pageable_d2h: Column | None = None
    """Of d2h: to pageable memory."""

    def of(self, chosen: NDArray[np.bool_]) -> Columns:
        """Some of the periods."""
        each = {field.name: getattr(self, field.name) for field in fields(self)}
        some: dict[str, Any] = {name: None if column is None else column[chosen] for name, column in each.items()}
        return Columns(**some)

    def row(self, place: int) -> Parts:
        """One period, in seconds."""
        return self._parts(lambda column: int(column[place]) / 1e9)

    def mean(self) -> Parts:
        """The mean period: the means of its parts sum to it, as their medians would not."""
        return self._parts(mean_s)

    def _parts(self, say: Callable[[Column], float]) -> Parts:
        return Parts(
            period_s=say(self.period),
            kernels_s=maybe(say, self.kernels),
            h2d_s=maybe(say, self.h2d),
            d2h_s=maybe(say, self.d2h),
            other_copies_s=maybe(say, self.other_copies),
            input_s=maybe(say, self.input),
            idle_s=maybe(say, self.idle),
            host_s=say(self.host),
            hidden_h2d_s=maybe(say, self.hidden_h2d),
            hidden_d2h_s=maybe(say, self.hidden_d2h),
        )


def mean_s(column: NDArray[np.int64] | None) -> float:
    """Mean seconds of a column; nothing of one that is not there."""
    return 0.0 if column is None or not len(column) else float(column.sum()) / len(column) / 1e9


def maybe(say: Callable[[Column], float], column: Column | None) -> float | None:
    """What is known of it."""
    return None if column is None else say(column)


def by_the_clock(periods: Periods) -> Columns:
    """Without records: the host between its steps, and in them."""
    between = periods.begin_ns - periods.from_ns
    return Columns(
        period=periods.end_ns - periods.from_ns,
        kernels=None,
        h2d=None,
        d2h=None,
        other_copies=None,
        input=between if periods.begun else None,
        idle=None,
        host=periods.end_ns - periods.begin_ns,
    )


def by_the_records(periods: Periods, gathered: Gathered) -> Columns:
    """Parts are differences of covers that each hold one kind of work more."""
    copies = {way: intervals(gathered.copies[gathered.copies_of(way)]) for way in (CopyWay.H2D, CopyWay.D2H)}
    computing = gathered.computing
    layers = [
        Cover(computing),
        Cover(computing, copies[CopyWay.H2D]),
        Cover(computing, copies[CopyWay.H2D], copies[CopyWay.D2H]),
        gathered.busy,
    ]
    covered = [layer.within(periods.from_ns, periods.end_ns) for layer in layers]
    busy = layers[-1]
    between = periods.begin_ns - periods.from_ns - busy.within(periods.from_ns, periods.begin_ns)
    inside = periods.end_ns - periods.begin_ns - busy.within(periods.begin_ns, periods.end_ns)
    waits = _Calls(gathered, _waits(gathered))
    idle = waits.beside(busy, periods, periods.begin_ns)
    return Columns(
        period=periods.end_ns - periods.from_ns,
        kernels=covered[0],
        h2d=covered[1] - covered[0],
        d2h=covered[2] - covered[1],
        other_copies=covered[3] - covered[2],
        input=between if periods.begun else None,
        idle=idle,
        host=inside - idle,
        hidden_h2d=_hidden(layers[0], copies[CopyWay.H2D], periods),
        hidden_d2h=_hidden(layers[0], copies[CopyWay.D2H], periods),
        waiting=waits.within(periods),
        staging=_Calls(gathered, issued_by(gathered, CopyWay.H2D, MemoryKind.PAGEABLE)).beside(
            busy, periods, periods.from_ns
        ),
        allocating=_Calls(gathered, named(gathered.calls, gathered.names, is_allocation)).beside(
            busy, periods, periods.from_ns
        ),
        pageable_h2d=_exposed(gathered, CopyWay.H2D, [computing], periods),
        pageable_d2h=_exposed(gathered, CopyWay.D2H, [computing, copies[CopyWay.H2D]], periods),
    )


class _Calls:
    """Some calls by thread; where there are no steps, whichever thread it was counts."""

    def __init__(self, gathered: Gathered, chosen: NDArray[np.bool_]) -> None:
        self._calls = gathered.calls[chosen]

    def within(self, periods: Periods) -> Column:
        """How long the period's thread is in one of them."""
        return self._each(periods, lambda calls, mine: Cover(calls).within(periods.from_ns[mine], periods.end_ns[mine]))

    def beside(self, busy: Cover, periods: Periods, since_ns: Column) -> Column:
        """How long the period's thread is in one of them while the device does nothing."""

        def idle(calls: NDArray[np.int64], mine: NDArray[np.bool_]) -> Column:
            begin, end = since_ns[mine], periods.end_ns[mine]
            return Cover(busy.united, calls).within(begin, end) - busy.within(begin, end)

        return self._each(periods, idle)

    def _each(self, periods: Periods, say: Callable[[NDArray[np.int64], NDArray[np.bool_]], Column]) -> Column:
        if not periods.stepped:
            return say(intervals(self._calls), np.ones(len(periods), np.bool_))
        found = np.zeros(len(periods), np.int64)
        for thread in np.unique(periods.thread):
            mine = periods.thread == thread
            found[mine] = say(intervals(self._calls[self._calls["thread"] == thread]), mine)
        return found


def _waits(gathered: Gathered) -> NDArray[np.bool_]:
    """Calls in which the thread waits; one that fetches to pageable memory does, whatever its name says."""
    waits = named(gathered.calls, gathered.names, lambda name: is_wait(name) or is_blocking_copy(name))
    return waits | issued_by(gathered, CopyWay.D2H, MemoryKind.PAGEABLE)


def _hidden(computing: Cover, copies: NDArray[np.int64], periods: Periods) -> Column:
    """Copies of one direction under kernels."""
    both, either = Cover(copies), Cover(computing.united, copies)
    begin, end = periods.from_ns, periods.end_ns
    return computing.within(begin, end) + both.within(begin, end) - either.within(begin, end)


def _exposed(gathered: Gathered, way: CopyWay, above: list[NDArray[np.int64]], periods: Periods) -> Column:
    """Copies between pageable memory and the device, where nothing that comes before them in the parts holds."""
    copies = intervals(gathered.copies[gathered.copies_of(way, MemoryKind.PAGEABLE)])
    begin, end = periods.from_ns, periods.end_ns
    return Cover(*above, copies).within(begin, end) - Cover(*above).within(begin, end)
