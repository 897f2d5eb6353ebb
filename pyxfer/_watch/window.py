"""What a watch has gathered: steps, ranges, the device's records, and what else happened meanwhile.

Times are nanoseconds on the clock of `time.perf_counter_ns`, as in the records; threads are native ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pyxfer._document.runs import Fact, Remark, Tracing
from pyxfer._trace.records import Capture
from pyxfer.units import format_seconds

# Records that the library has lost say nothing of room here.
_LOST = "unknown"
_TO_S = 1e-9


def within_capacity(window: Window) -> Window:
    """The window up to its last record, where others were left out for want of room.

    After that the device would seem to do nothing.
    """
    capture = window.capture.value
    if capture is None or not len(capture.records):
        return window
    left_out = sum(count for kind, count in capture.dropped.items() if kind != _LOST)
    last_ns = max(int(capture.records["end_ns"].max()), int(capture.records["start_ns"].max()))
    if not left_out or not window.begin_ns < last_ns < window.end_ns:
        return window
    covered, whole = (format_seconds((end_ns - window.begin_ns) * _TO_S) for end_ns in (last_ns, window.end_ns))
    text = (
        f"after {covered} records found no room any more, so the rest of the {whole} is left out, {left_out} "
        "records with it"
    )
    remark = Remark("capacity", text, "watch fewer steps or a shorter time, or give a larger capacity")
    ranges = [replace(each, end_ns=min(each.end_ns, last_ns)) for each in window.ranges if each.begin_ns < last_ns]
    return replace(
        window,
        end_ns=last_ns,
        steps=tuple(step for step in window.steps if step.end_ns <= last_ns),
        ranges=tuple(ranges),
        seen=tuple(each for each in window.seen if each.at_ns <= last_ns),
        remarks=(*window.remarks, remark),
    )


# complete: all steps, or all the time, that was asked for; ended: the program or its block came to an end before.
WindowEnding = Literal["complete", "ended", "failed"]


@dataclass(frozen=True)
class Step:
    """One step of the program. What lies between the step before and this one is its input."""

    from_ns: int
    """Where the step before ended, or the watch began."""
    begin_ns: int
    end_ns: int
    thread: int
    failed: str | None = None
    """What was raised in it."""
    closed: bool = True
    """False where the window ended before the step did."""


@dataclass(frozen=True)
class Range:
    """A stretch that the user has named."""

    name: str
    begin_ns: int
    end_ns: int
    thread: int


@dataclass(frozen=True)
class Seen:
    """Where in its Python source a thread was at a moment."""

    at_ns: int
    thread: int
    line: str
    """As `train.py:31 in step`: the innermost line that is the user's own."""


@dataclass(frozen=True)
class Window:
    """All of it; nothing in here is worked out yet."""

    begin_ns: int
    end_ns: int
    ended: WindowEnding
    capture: Fact[Capture]
    """The records of the device, or why there are none."""
    tracing: Fact[Tracing]
    device: int = 0
    steps: tuple[Step, ...] = ()
    skipped: int = 0
    """Steps that were left out before."""
    ranges: tuple[Range, ...] = ()
    seen: tuple[Seen, ...] = ()
    threads: Mapping[int, str] = field(default_factory=dict)
    """Their names, by native id."""
    used_before: Fact[int] = field(default_factory=lambda: Fact(reason="it was not read"))
    """Bytes of the device's memory in use, everybody's."""
    used_after: Fact[int] = field(default_factory=lambda: Fact(reason="it was not read"))
    remarks: tuple[Remark, ...] = ()
