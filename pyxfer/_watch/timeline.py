"""The timeline of a few steps: when the device copied and computed, as a bounded number of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyxfer._document.watches import Lane, LaneName, StepSpan, Timeline
from pyxfer._trace.records import CopyWay, clip, intervals, union

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._watch.device_records import DeviceRecords, Periods
    from pyxfer._watch.window import Window

STEPS = 4
MOST_SPANS = 300
"""In one lane. If there are more, spans that are close to each other become one."""
_LANES: tuple[tuple[LaneName, CopyWay], ...] = (("h2d", CopyWay.H2D), ("d2h", CopyWay.D2H))


def timeline(window: Window, records: DeviceRecords, periods: Periods, numbers: NDArray[np.int64]) -> Timeline:
    """The stretch of a few usual steps, or of the whole window without steps. `numbers`: of the completed steps."""
    chosen = _middle_steps(periods) if periods.stepped else np.arange(len(periods))
    begin_ns, end_ns = int(np.min(periods.from_ns[chosen])), int(np.max(periods.end_ns[chosen]))
    merged_ns, spans = 0, _spans(records, begin_ns, end_ns)
    if max(map(len, spans.values()), default=0) > MOST_SPANS:
        merged_ns = -(-(end_ns - begin_ns) // MOST_SPANS)
        spans = {name: _merged(own, merged_ns) for name, own in spans.items()}
    steps = [] if not periods.stepped else chosen.tolist()
    zero = window.begin_ns
    return Timeline(
        begin_s=_seconds(begin_ns - zero),
        end_s=_seconds(end_ns - zero),
        merged_s=_seconds(merged_ns),
        steps=tuple(
            StepSpan(
                int(numbers[row]),
                _seconds(int(periods.begin_ns[row]) - zero),
                _seconds(int(periods.end_ns[row]) - zero),
            )
            for row in steps
        ),
        lanes=tuple(
            Lane(name, tuple((_seconds(begin), _seconds(end)) for begin, end in (own - zero).tolist()))
            for name, own in spans.items()
            if len(own)
        ),
    )


def _middle_steps(periods: Periods) -> NDArray[np.intp]:
    """The consecutive steps of one thread whose length together is the median of all such stretches."""
    threads, counts = np.unique(periods.thread, return_counts=True)
    own = np.flatnonzero(periods.thread == threads[np.argmax(counts)])
    own = own[np.argsort(periods.end_ns[own], kind="stable")]
    count = min(STEPS, len(own))
    lengths = periods.end_ns[own][count - 1 :] - periods.from_ns[own][: len(own) - count + 1]
    first = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    return own[first : first + count]


def _spans(records: DeviceRecords, begin_ns: int, end_ns: int) -> dict[LaneName, NDArray[np.int64]]:
    """The time in which each kind of work ran."""
    way = records.copies["way"]
    others = ~np.isin(way, [known for _, known in _LANES])
    found: dict[LaneName, NDArray[np.int64]] = {
        "kernels": records.computing,
        **{name: intervals(records.copies[way == known]) for name, known in _LANES},
        "other copies": intervals(records.copies[others]),
    }
    return {name: clip(union(own), begin_ns, end_ns) for name, own in found.items()}


def _merged(spans: NDArray[np.int64], most_ns: int) -> NDArray[np.int64]:
    """Without the gaps of at most this length."""
    if len(spans) < 2:  # noqa: PLR2004 - one has no gap
        return spans
    apart = spans[1:, 0] - spans[:-1, 1] > most_ns
    return np.column_stack((spans[np.concatenate(([True], apart)), 0], spans[np.concatenate((apart, [True])), 1]))


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9
