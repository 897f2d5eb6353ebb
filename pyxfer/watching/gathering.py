"""Everything that is gathered while a window is open: begun together, ended together, and then one `Window`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyxfer.model import Fact, Remark
from pyxfer.watching.children import Children
from pyxfer.watching.lines import Lines, SeenAt, why_no_lines
from pyxfer.watching.marks import Ranges
from pyxfer.watching.steps_taken import MOST_STEPS, WatchedSteps

if TYPE_CHECKING:
    from pyxfer.tracing.records import Capture
    from pyxfer.watching.order import Order
    from pyxfer.watching.recording import Recording
    from pyxfer.watching.window import Window, WindowEnding

ReadUsed = Callable[[], Fact[int]]
"""Bytes of the device's memory that are in use."""


class Gathering:
    """One window. `on_full` is given the time at which the last step that was asked for has ended.

    Setting it up takes the program's time, and is over before the window begins.
    """

    def __init__(
        self, order: Order, recording: Recording, read_used: ReadUsed, skipped: int, on_full: Callable[[int], None]
    ) -> None:
        self._order = order
        self._recording = recording
        self._read_used = read_used
        self._skipped = skipped
        self._used_before = read_used()
        self._names = _thread_names()
        self._why_no_lines = why_no_lines() if order.lines else ""
        self._lines = Lines() if self._why_no_lines is None else None
        self._ranges = Ranges()
        self.children = Children()
        self._on_full = on_full
        self.begin_ns = 0
        recording.start()
        self._start_lines()

    def begin(self) -> WatchedSteps:
        """The window is open from now on; its steps."""
        self.begin_ns = self._ranges.open()
        self.steps = WatchedSteps(self.begin_ns, self._order.steps, self._on_full)
        if self._order.skip:
            self.steps.begin_at_boundary()
        return self.steps

    def close(self, ended: WindowEnding, end_ns: int, device: int, remarks: tuple[Remark, ...]) -> Window:
        """No more of anything. What the device was still at when the window closed is not in its records."""
        try:
            steps = self.steps.close(end_ns)
            capture = self._recording.finish()
        finally:  # an interrupt must not leave marks and looks at lines at work in the rest of the program
            try:
                ranges = self._ranges.close(end_ns)
            finally:
                seen = self._end_lines()
        used_after = self._read_used()
        from pyxfer.watching.window import Range, Seen, Step, Window

        return Window(
            begin_ns=self.begin_ns,
            end_ns=end_ns,
            ended=ended,
            capture=capture,
            tracing=self._recording.tracing,
            device=device,
            steps=tuple(Step(*taken) for taken in steps),
            skipped=self._skipped,
            ranges=tuple(Range(*each) for each in ranges),
            seen=tuple(Seen(*each) for each in seen if self.begin_ns <= each.at_ns <= end_ns),
            threads={**self._names, **(self._lines.names if self._lines else {}), **_thread_names()},
            used_before=self._used_before,
            used_after=used_after,
            remarks=(*remarks, *self._remarks(capture, end_ns), *self.children.remarks()),
        )

    def abandon(self) -> None:
        """In a forked child: all of this is its parent's."""
        self._ranges.close(0)
        self._recording.forget()

    def _start_lines(self) -> None:
        try:
            if self._lines is not None:
                self._lines.start()
        except RuntimeError as error:  # no more threads are to be had
            self._lines, self._why_no_lines = None, str(error)

    def _end_lines(self) -> list[SeenAt]:
        if self._lines is None:
            return []
        self._lines.stop()
        return list(self._lines.seen)

    def _remarks(self, capture: Fact[Capture], end_ns: int) -> list[Remark]:
        remarks = []
        if self.steps.nested:
            text = f"steps begun inside a step of the same thread belong to it, and there were {self.steps.nested}"
            remarks.append(Remark("nested", text, "close each step before the next begins"))
        if len(self.steps.optimizers) > 1:
            text = f"steps of {len(self.steps.optimizers)} optimizers are counted as steps of their own"
            advice = "where they belong to one iteration, name the steps in the script: with w.step() of pyxfer.watch()"
            remarks.append(Remark("optimizers", text, advice))
        if self.steps.count >= MOST_STEPS:
            text = f"the window closed after {MOST_STEPS} steps, which is all that there is room for"
            remarks.append(Remark("full", text, "watch fewer steps"))
        if self._ranges.dropped:
            text = f"{self._ranges.dropped} ranges found no room and are left out"
            remarks.append(Remark("ranges", text, "mark longer stretches, or watch for a shorter time"))
        failure = self._lines.failure if self._lines is not None else self._why_no_lines
        if failure:
            remarks.append(Remark("lines", f"the program's own lines are not known: {failure}"))
        return remarks


def _thread_names() -> dict[int, str]:
    return {each.native_id: each.name for each in threading.enumerate() if each.native_id is not None}
