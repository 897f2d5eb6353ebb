"""The life of a watch: started, its window opened and closed, and possibly started again."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any

from pyxfer._document.machines import Fact, Remark
from pyxfer._watch.marks import PYXFER
from pyxfer._watch.options import Target, WatchOptions, find_target
from pyxfer._watch.recording import OpenWindow, Recording
from pyxfer._watch.step_tracking import NO_STEP, AnySteps, SkippedSteps, error_line
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._watch.window import Window, WindowEnding

WANTED_ENDINGS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions that end a program or its block without being a failure."""
_TO_S = 1e-9

_lock = threading.Lock()
_active: Session | None = None
"""The active session. A process can have one, because CUPTI has one user in a process."""
_has_hooks = False


def calling_line() -> str:
    """The innermost line outside of pyxfer that led to this call, for example `train.py:31 in main`."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PYXFER + os.sep):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in the block: while the program ends, a second Ctrl-C could only lose the window."""
    before = _ignore_interrupts()
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _ignore_interrupts() -> Callable[..., object] | int | None:
    """The handler before. None if it cannot be changed: in another thread, or if Python has not set it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        return None
    while True:
        with suppress(KeyboardInterrupt):  # one that came just before the handler was changed
            return signal.signal(signal.SIGINT, signal.SIG_IGN)


class Session:
    """A watch that can be started again after its window has closed.

    One thread may start it, another may take steps, and a third may close it when its time is over.
    """

    def __init__(self, options: WatchOptions) -> None:
        self.options = options
        self.steps: AnySteps = NO_STEP
        self.target: Target | None = None
        self.window: Window | None = None
        self.started_at = ""
        """The line of the program that started it, for example `train.py:31 in main`."""
        self.is_preemptible = False
        """Whether it ends when another session starts."""
        self.ending: WindowEnding | None = None
        """How the program has ended, if that is known before `stop`."""
        self.on_closed: Callable[[Window], None] | None = None
        self.preempted_by = ""
        """The line of the program at which another session has started and ended this one."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._open_window: OpenWindow | None = None
        self._recording: Recording | None = None
        self._timer: threading.Timer | None = None
        self._closed = threading.Event()
        self._closed.set()

    @property
    def is_active(self) -> bool:
        """Whether its window is open, or will open after the steps to skip."""
        return not self._closed.is_set()

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def start(self) -> None:
        if self.is_forked:
            raise UsageError("This watch belongs to the parent process of this fork: make a new one here.")
        _activate(self)
        self._closed.wait()  # another thread may still be closing the previous window
        self.started_at = calling_line()
        self.window, self.preempted_by = None, ""
        try:
            self.target = find_target(self.options.device)
            self._recording = Recording(self.target.choice.engine, self.options.capacity_bytes)
            self._closed.clear()
            if self.options.skip:
                self.steps = SkippedSteps(self.options.skip, self._open)
            else:
                self._open()
        except BaseException:
            recording, self._recording = self._recording, None
            self._open_window, self.steps = None, NO_STEP
            _deactivate(self)
            self._closed.set()
            if recording is not None:
                recording.close()
            raise

    def stop(self, ended: WindowEnding | None = None) -> None:
        if self.is_forked or not self.is_active:
            return
        has_no_limit = self.options.steps is None and self.options.seconds is None
        self._close(ended or self.ending or ("complete" if has_no_limit else "ended"), None)
        self._closed.wait()

    def after_fork_in_parent(self) -> None:
        if self._open_window is not None:
            self._open_window.children.forked += 1

    def after_fork_in_child(self) -> None:
        """Become inactive without touching the tracer, which belongs to the parent."""
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._closed.set()
        self.steps = NO_STEP
        if self._open_window is not None:
            self._open_window.abandon()
        elif self._recording is not None:
            self._recording.forget()
        self._open_window = self._recording = self._timer = None

    def _open(self) -> None:
        """Open the window, in the thread that has ended the last step to skip."""
        options = self.options
        with self._lock:
            if self._recording is None or self.target is None:
                return
            close_when_full = partial(self._close, "complete")
            opened = OpenWindow(options, self._recording, self.target.used_bytes, close_when_full)
            if options.seconds is not None:
                self._timer = threading.Timer(options.seconds, self._close_after, [options.seconds])
                self._timer.name, self._timer.daemon = "pyxfer-watch-clock", True
                self._timer.start()
            self.steps = opened.begin()
            self._open_window = opened

    def _close_after(self, seconds: float) -> None:
        """Called by the timer, which was started before the window began: wait for the rest of the time."""
        with self._lock:
            opened = self._open_window
        if opened is not None:
            sleep(max(0.0, seconds - (perf_counter_ns() - opened.begin_ns) * _TO_S))
            self._close("complete", perf_counter_ns())

    def _close(self, ended: WindowEnding, end_ns: int | None) -> None:
        """Close the window. Only the first call has an effect; other threads continue with unwatched steps."""
        end_ns = end_ns or perf_counter_ns()
        with self._lock:
            opened, self._open_window = self._open_window, None
            recording, self._recording = self._recording, None
            steps, self.steps = self.steps, NO_STEP
            timer, self._timer = self._timer, None
        if recording is None or self.target is None:
            return
        try:
            if timer is not None:
                timer.cancel()
            if opened is not None:
                remarks = self.target.remarks()
                if self.preempted_by:
                    why = f"the window ended where the program began a watch of its own, at {self.preempted_by}"
                    advice = "read that watch's report, or leave it out to watch the program from here"
                    remarks += (Remark("gave-way", why, advice),)
                self.window = opened.close(ended, end_ns, self.target.device.index, remarks)
            else:
                taken = self.options.skip - (steps.left if isinstance(steps, SkippedSteps) else 0)
                why = f"the window never opened: {taken} steps were taken, and {self.options.skip} were to be skipped"
                if self.preempted_by:
                    why += f"; then the program began a watch of its own, at {self.preempted_by}"
                self.window = self._empty_window(Remark("never-opened", why, "skip fewer steps"), taken)
        except BaseException as error:
            self._set_lost_window(error)
            raise
        finally:
            self._finish(recording)

    def _finish(self, recording: Recording) -> None:
        """Become inactive, also if closing the recording or the callback fails or is interrupted."""
        try:
            recording.close()
        finally:
            _deactivate(self)
            try:
                if self.on_closed is not None and self.window is not None:
                    self.on_closed(self.window)
            finally:
                self._closed.set()

    def _set_lost_window(self, error: BaseException) -> None:
        """Replace a window that could not be closed by an empty one with the reason."""
        how = "was interrupted" if isinstance(error, WANTED_ENDINGS) else f"failed: {error_line(error)}"
        why = f"the window is lost: closing it {how}"
        with suppress(Exception, SystemExit):  # the same error may occur again
            self.window = self._empty_window(Remark("lost", why, "watch again"), 0)

    def _empty_window(self, remark: Remark, skipped: int) -> Window:
        from pyxfer._watch.window import Window

        now, why = perf_counter_ns(), remark.text
        index, remarks = (0, ()) if self.target is None else (self.target.device.index, self.target.remarks())
        unknown: dict[str, Any] = dict.fromkeys(("capture", "tracing", "used_before", "used_after"), Fact(reason=why))
        return Window(now, now, "ended", device=index, skipped=skipped, remarks=(*remarks, remark), **unknown)


def _activate(session: Session) -> None:
    global _active, _has_hooks  # noqa: PLW0603
    active = _active
    if active is not None and active is not session and active.is_preemptible:
        active.preempted_by = calling_line()
        active.stop("ended")
    with _lock:
        if _active is session:
            raise UsageError(f"This watch is active already, since {session.started_at}: stop it before starting it.")
        if _active is not None:
            raise UsageError(
                f"Another watch is active, started at {_active.started_at}, and a process can have only one: "
                "stop it first, or start this one after its window has closed."
            )
        if not _has_hooks:
            os.register_at_fork(after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
            atexit.register(_stop_at_exit)
            _has_hooks = True
        _active = session


def _deactivate(session: Session) -> None:
    global _active  # noqa: PLW0603
    with _lock:
        if _active is session:
            _active = None


def _after_fork_in_parent() -> None:
    if _active is not None:
        _active.after_fork_in_parent()


def _after_fork_in_child() -> None:
    global _active, _lock  # noqa: PLW0603
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _active is not None:
        _active.after_fork_in_child()
        _active = None


def _stop_at_exit() -> None:
    with ignoring_interrupts():
        if _active is not None:
            _active.stop()
