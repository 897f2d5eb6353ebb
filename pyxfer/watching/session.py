"""A watch from its start to its report."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

from pyxfer.errors import UsageError
from pyxfer.model import Fact, Remark
from pyxfer.watching import at_work
from pyxfer.watching.gathering import Gathering
from pyxfer.watching.place import Place, find_place
from pyxfer.watching.recording import Recording
from pyxfer.watching.steps_taken import NO_STEP, NoStep, SkippedSteps, WatchedSteps

if TYPE_CHECKING:
    from pyxfer.watching.order import Order
    from pyxfer.watching.window import Window, WindowEnding

OnClosed = Callable[["Window"], None]


class Session:
    """The window of a watch: armed, open, closed; and armed again, if it is started once more.

    One thread may start it, another take steps, a third close it when its time is over.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.steps: NoStep | SkippedSteps | WatchedSteps = NO_STEP
        self.place: Place | None = None
        self.window: Window | None = None
        self.begun_at = ""
        self.gives_way = False
        self.at_end: WindowEnding | None = None
        """How the program has ended, where that is known before it is stopped."""
        self.on_closed: OnClosed | None = None
        """Called in whichever thread has closed the window."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._gathering: Gathering | None = None
        self._recording: Recording | None = None
        self._timer: threading.Timer | None = None
        self._closed = threading.Event()
        self._closed.set()

    @property
    def is_at_work(self) -> bool:
        """Whether its window is open, or will open after the steps to skip."""
        return not self._closed.is_set()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that watches."""
        return os.getpid() != self._pid

    def start(self) -> None:
        """Open the library, and the window as soon as the steps to skip have been taken."""
        if self.is_forked:
            raise UsageError("This watch belongs to the process that this one was forked from: make one of its own.")
        at_work.take(self)
        self._closed.wait()  # another thread may still be putting the window before together
        self.begun_at = at_work.caller()
        self.window = None
        try:
            self.place = find_place(self.order.device)
            self._recording = Recording(self.place.choice.engine, self.order.capacity_bytes)
            self._closed.clear()
            if self.order.skip:
                self.steps = SkippedSteps(self.order.skip, self._open)
            else:
                self._open()
        except BaseException:
            self._give_up()
            raise

    def stop(self, ended: WindowEnding | None = None) -> None:
        """Close the window, if it is open; nothing to do where it was never started."""
        if self.is_forked or not self.is_at_work:
            return
        open_ended = self.order.steps is None and self.order.seconds is None
        self._close(ended or self.at_end or ("complete" if open_ended else "ended"), None)
        self._closed.wait()

    def forked(self) -> None:
        """The process has forked; this is the parent."""
        if self._gathering is not None:
            self._gathering.children.forked()

    def orphan(self) -> None:
        """The process has forked; this is the child, in which nothing is watched."""
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._closed.set()
        self.steps = NO_STEP
        if self._gathering is not None:
            self._gathering.abandon()
        elif self._recording is not None:
            self._recording.forget()
        self._gathering = self._recording = self._timer = None

    def _open(self) -> None:
        """Everything begins, in the thread that has ended the last step to skip."""
        with self._lock:
            if self._recording is None or self.place is None:
                return
            gathering = Gathering(self.order, self._recording, self.place.used_bytes, self.order.skip, self._is_full)
            if self.order.skip:
                gathering.steps.begin_at_boundary()
            self._gathering, self.steps = gathering, gathering.steps
            if self.order.seconds is not None:
                self._timer = threading.Timer(self.order.seconds, self._is_late)
                self._timer.name, self._timer.daemon = "pyxfer-watch-clock", True
                self._timer.start()

    def _is_full(self, end_ns: int) -> None:
        self._close("complete", end_ns)

    def _is_late(self) -> None:
        self._close("complete", perf_counter_ns())

    def _close(self, ended: WindowEnding, end_ns: int | None) -> None:
        """Whoever comes first; the steps of other threads go on meanwhile, unwatched."""
        with self._lock:
            gathering, self._gathering = self._gathering, None
            recording, self._recording = self._recording, None
            skipping, self.steps = self.steps, NO_STEP
            timer, self._timer = self._timer, None
        if recording is None or self.place is None:
            return
        if timer is not None:
            timer.cancel()
        try:
            if gathering is not None:
                self.window = gathering.close(ended, end_ns, self.place.device.index, self.place.remarks())
            else:
                self.window = self._never_opened(skipping)
        finally:
            recording.close()
            at_work.leave(self)
            if self.on_closed is not None and self.window is not None:
                self.on_closed(self.window)
            self._closed.set()

    def _never_opened(self, skipping: NoStep | SkippedSteps | WatchedSteps) -> Window:
        """A window without length, which says why."""
        from pyxfer.watching.window import Window

        left = skipping.left if isinstance(skipping, SkippedSteps) else 0
        taken = self.order.skip - left
        why = f"the window never opened: {taken} steps were taken, and {self.order.skip} were to be skipped"
        remark = Remark("never-opened", why, "skip fewer steps")
        now = perf_counter_ns()
        place = self.place
        index, remarks = (place.device.index, place.remarks()) if place is not None else (0, ())
        nothing = Fact[int](reason=why)
        return Window(
            *(now, now, "ended", Fact(reason=why), Fact(reason=why), index),
            skipped=taken,
            used_before=nothing,
            used_after=nothing,
            remarks=(*remarks, remark),
        )

    def _give_up(self) -> None:
        """It could not be started."""
        recording, self._recording = self._recording, None
        self._gathering, self.steps = None, NO_STEP
        at_work.leave(self)
        self._closed.set()
        if recording is not None:
            recording.close()
