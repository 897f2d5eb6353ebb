"""From the raw stamps of copies that ran at once to a trial: when all were busy, and what they copied then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.links import LEAST_OVERLAP, LinkTrial
from pyxfer._trace.records import intersection, total_ns, union
from pyxfer.units import format_percent, format_seconds

if TYPE_CHECKING:
    from pyxfer.native._cuda import FlowStamps

Nanoseconds = NDArray[np.int64]

# Between two queued items a stream pauses for microseconds. A longer pause means that it had nothing to do.
MIN_PAUSE_NS = 50_000
PAUSE_SHARE = 0.1
MAX_CLOCK_ERROR = 0.01
"""Of the common interval. Stamps of different devices that are further apart bound no overlap."""


def busy(begin_ns: Nanoseconds, end_ns: Nanoseconds) -> Nanoseconds:
    """The intervals in which a flow was busy; its items may follow each other with short pauses."""
    order = np.argsort(begin_ns, kind="stable")
    begins, ends = begin_ns[order], np.maximum.accumulate(end_ns[order])
    pause_ns = max(MIN_PAUSE_NS, PAUSE_SHARE * float(np.median(ends - begins)))
    new = np.flatnonzero(begins[1:] - ends[:-1] > pause_ns) + 1
    return np.column_stack((begins[np.concatenate(([0], new))], ends[np.concatenate((new - 1, [ends.size - 1]))]))


def overlap(flows: Sequence[Nanoseconds]) -> float:
    """The time in which all flows were busy over that in which any was; 0 to 1."""
    whole_ns = total_ns(union(*flows))
    return total_ns(reduce(intersection, flows)) / whole_ns if whole_ns else 0.0


def copied_between(begin_ns: Nanoseconds, end_ns: Nanoseconds, nbytes: int, since_ns: int, until_ns: int) -> float:
    """Bytes of the items inside an interval; an item that crosses an end of it counts in proportion to its time."""
    inside = np.minimum(end_ns, until_ns) - np.maximum(begin_ns, since_ns)
    lengths = np.maximum(end_ns - begin_ns, 1)
    return float(nbytes * (np.clip(inside, 0, None) / lengths).sum())


def make_trial(number: int, flows: Sequence[FlowStamps], sizes: Sequence[int]) -> LinkTrial:
    if any(flow.begin_ns.size == 0 for flow in flows):
        return LinkTrial(number, 0.0, (0.0,) * len(flows), 0.0, "a stream finished no copy")
    since_ns = max(int(np.min(flow.begin_ns)) for flow in flows)
    until_ns = min(int(np.max(flow.end_ns)) for flow in flows)
    found = overlap([busy(flow.begin_ns, flow.end_ns) for flow in flows])
    if until_ns <= since_ns:
        return LinkTrial(number, 0.0, (0.0,) * len(flows), found, "at no time were all streams busy")
    copied = tuple(
        copied_between(flow.begin_ns, flow.end_ns, size, since_ns, until_ns)
        for flow, size in zip(flows, sizes, strict=True)
    )
    invalid = _fault(flows, found, until_ns - since_ns)
    return LinkTrial(number, (until_ns - since_ns) / 1e9, copied, found, invalid)


def _fault(flows: Sequence[FlowStamps], found: float, common_ns: int) -> str | None:
    if any(flow.late for flow in flows):
        return "the gate opened late, so the copies did not begin together"
    if len(flows) == 1:
        return None
    error_ns = sum(sorted(flow.clock_error_ns for flow in flows)[-2:])
    if error_ns > MAX_CLOCK_ERROR * common_ns:
        return f"the clocks of the devices are known within {format_seconds(error_ns / 1e9)} only"
    if found < LEAST_OVERLAP:
        return f"all streams were busy in {format_percent(found)} of the time only"
    return None
