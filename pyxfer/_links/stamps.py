"""From the raw stamps of copies that ran at once to a trial: when all were busy, and what they copied then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.links import MIN_OVERLAP, LinkTrial
from pyxfer.units import format_percent, format_seconds

Nanoseconds = NDArray[np.int64]

# Between two queued items a stream pauses for microseconds. A longer pause means that it had nothing to do.
LEAST_PAUSE_NS = 50_000
PAUSE_SHARE = 0.1
MOST_CLOCK_ERROR = 0.01
"""Of the common interval. Stamps of different devices that are further apart bound no overlap."""


class Stamps(Protocol):
    """What the engine returns for a flow."""

    @property
    def begin_ns(self) -> Nanoseconds: ...
    @property
    def end_ns(self) -> Nanoseconds: ...
    @property
    def clock_error_ns(self) -> float: ...
    @property
    def late(self) -> bool: ...


@dataclass(frozen=True)
class Busy:
    """The stretches in which a flow was busy, in order and apart from each other."""

    begin_ns: Nanoseconds
    end_ns: Nanoseconds

    @property
    def total_ns(self) -> int:
        return int((self.end_ns - self.begin_ns).sum())


def busy(begin_ns: Nanoseconds, end_ns: Nanoseconds) -> Busy:
    """The stretches of a flow's items, which may follow each other with short pauses."""
    order = np.argsort(begin_ns, kind="stable")
    begins, ends = begin_ns[order], np.maximum.accumulate(end_ns[order])
    pause_ns = max(LEAST_PAUSE_NS, PAUSE_SHARE * float(np.median(ends - begins)))
    new = np.flatnonzero(begins[1:] - ends[:-1] > pause_ns) + 1
    return Busy(begins[np.concatenate(([0], new))], ends[np.concatenate((new - 1, [ends.size - 1]))])


def intersection(one: Busy, other: Busy) -> Busy:
    """The stretches in which both were busy."""
    begins = np.maximum(one.begin_ns[:, None], other.begin_ns[None, :])
    ends = np.minimum(one.end_ns[:, None], other.end_ns[None, :])
    both = ends > begins
    found = np.argsort(begins[both], kind="stable")
    return Busy(begins[both][found], ends[both][found])


def union_ns(flows: Sequence[Busy]) -> int:
    """The time in which any flow was busy."""
    begins = np.concatenate([flow.begin_ns for flow in flows])
    ends = np.concatenate([flow.end_ns for flow in flows])
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    reached = np.concatenate(([begins[0]], np.maximum.accumulate(ends)[:-1]))
    return int(np.maximum(ends - np.maximum(begins, reached), 0).sum())


def overlap(flows: Sequence[Busy]) -> float:
    """The time in which all flows were busy over that in which any was; 0 to 1."""
    common = flows[0]
    for flow in flows[1:]:
        common = intersection(common, flow)
    whole = union_ns(flows)
    return common.total_ns / whole if whole else 0.0


def copied_between(begin_ns: Nanoseconds, end_ns: Nanoseconds, nbytes: int, since_ns: int, until_ns: int) -> float:
    """Bytes of the items inside an interval; an item that crosses an end of it counts in proportion to its time."""
    inside = np.minimum(end_ns, until_ns) - np.maximum(begin_ns, since_ns)
    lengths = np.maximum(end_ns - begin_ns, 1)
    return float(nbytes * (np.clip(inside, 0, None) / lengths).sum())


def make_trial(number: int, flows: Sequence[Stamps], sizes: Sequence[int]) -> LinkTrial:
    """The trial of flows that ran at once, each with items of its size; invalid ones have the reason."""
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


def _fault(flows: Sequence[Stamps], found: float, common_ns: int) -> str | None:
    if any(flow.late for flow in flows):
        return "the gate opened late, so the copies did not begin together"
    if len(flows) == 1:
        return None
    error_ns = sum(sorted(flow.clock_error_ns for flow in flows)[-2:])
    if error_ns > MOST_CLOCK_ERROR * common_ns:
        return f"the clocks of the devices are known within {format_seconds(error_ns / 1e9)} only"
    if found < MIN_OVERLAP:
        return f"all streams were busy in {format_percent(found)} of the time only"
    return None
