"""What is left of a window in which the records found no room any more: the part that they cover."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyxfer.model import Remark
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer.watching.window import Window

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
