"""A watch from its start to its report."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Protocol

from pyxfer._document.runs import Fact, Remark
from pyxfer._watch.order import Place, find_place
from pyxfer._watch.recording import Gathering, Recording
from pyxfer._watch.steps_taken import NO_STEP, NoStep, SkippedSteps, WatchedSteps, in_words
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._watch.order import Order
    from pyxfer._watch.window import Window, WindowEnding


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class AtWork(Protocol):
    """What a watch offers while it is at work."""

    begun_at: str
    """Where in the program it was begun: `train.py:31 in main`."""
    gives_way: bool
    """Whether it ends when another one begins."""

    def stop(self) -> None:
        """Close the window."""

    def give_way(self, to: str) -> None:
        """Close the window, because a watch begins at that line of the program."""

    def forked(self) -> None:
        """The process has forked; this is the parent."""

    def orphan(self) -> None:
        """The process has forked; this is the child, in which nothing is watched."""


_lock = threading.Lock()
_current: AtWork | None = None
_is_prepared = False


def take(watch: AtWork) -> None:
    """Be the one.

    Raises:
        UsageError: another one is at work; the text says where it was begun.

    """
    current = _current
    if current is not None and current is not watch and current.gives_way:
        current.give_way(caller())
    with _lock:
        _take(watch)


def leave(watch: AtWork) -> None:
    """Be it no longer."""
    global _current  # noqa: PLW0603 - there is one in a process
    with _lock:
        if _current is watch:
            _current = None


def caller() -> str:
    """The innermost line of the program outside of pyxfer."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS + os.sep):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C does nothing meanwhile: where a program ends, a second one could only cost what was watched."""
    before = _ignore_interrupts()
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _ignore_interrupts() -> Callable[..., object] | int | None:
    """What becomes of Ctrl-C otherwise; None where it is not ours to change."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        return None
    while True:
        with suppress(KeyboardInterrupt):  # one that came just before
            return signal.signal(signal.SIGINT, signal.SIG_IGN)


def _take(watch: AtWork) -> None:
    global _current, _is_prepared  # noqa: PLW0603
    if _current is watch:
        raise UsageError(f"This watch is at work already, since {watch.begun_at}: stop it before it is started again.")
    if _current is not None:
        raise UsageError(
            f"A watch is at work already, begun at {_current.begun_at}, and there can be one in a process: "
            "end it first, or begin this one after its window has closed."
        )
    if not _is_prepared:
        os.register_at_fork(after_in_parent=_in_parent, after_in_child=_in_child)
        atexit.register(_at_end)
        _is_prepared = True
    _current = watch


def _in_parent() -> None:
    if _current is not None:
        _current.forked()


def _in_child() -> None:
    global _current, _lock  # noqa: PLW0603
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _current is not None:
        _current.orphan()
        _current = None


def _at_end() -> None:
    """A watch that was never left: its window closes with the program."""
    with uninterrupted():
        if _current is not None:
            _current.stop()


OnClosed = Callable[["Window"], None]
WANTED_ENDINGS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends a program or its block without being a failure."""
_TO_S = 1e-9


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
        self.path: Sequence[str] = ()
        """Where NumPy is looked for, if not where the program looks for it."""
        self._gave_way_to = ""
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
        take(self)
        self._closed.wait()  # another thread may still be putting the window before together
        self.begun_at = caller()
        self.window = None
        self._gave_way_to = ""
        try:
            self.place = find_place(self.order.device)
            self._recording = Recording(self.place.choice.engine, self.order.capacity_bytes, self.path)
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

    def give_way(self, to: str) -> None:
        """Close the window before its end, because a watch begins at that line of the program."""
        self._gave_way_to = to
        self.stop("ended")

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
            if self.order.seconds is not None:
                self._timer = threading.Timer(self.order.seconds, self._is_late, [self.order.seconds])
                self._timer.name, self._timer.daemon = "pyxfer-watch-clock", True
                self._timer.start()
            self.steps = gathering.begin()
            self._gathering = gathering

    def _is_full(self, end_ns: int) -> None:
        self._close("complete", end_ns)

    def _is_late(self, seconds: float) -> None:
        """The clock was set before the window began."""
        with self._lock:
            gathering = self._gathering
        if gathering is not None:
            sleep(max(0.0, seconds - (perf_counter_ns() - gathering.begin_ns) * _TO_S))
            self._close("complete", perf_counter_ns())

    def _close(self, ended: WindowEnding, end_ns: int | None) -> None:
        """Whoever comes first; the steps of other threads go on meanwhile, unwatched."""
        end_ns = end_ns or perf_counter_ns()
        with self._lock:
            gathering, self._gathering = self._gathering, None
            recording, self._recording = self._recording, None
            skipping, self.steps = self.steps, NO_STEP
            timer, self._timer = self._timer, None
        if recording is None or self.place is None:
            return
        try:
            if timer is not None:
                timer.cancel()
            if gathering is not None:
                remarks = (*self.place.remarks(), *self._gave_way())
                self.window = gathering.close(ended, end_ns, self.place.device.index, remarks)
            else:
                self.window = self._never_opened(skipping)
        except BaseException as error:
            self._lose(error)
            raise
        finally:
            self._leave(recording)

    def _leave(self, recording: Recording) -> None:
        """Whatever goes wrong or is interrupted here, nobody waits for this window any longer."""
        try:
            recording.close()
        finally:
            leave(self)
            try:
                if self.on_closed is not None and self.window is not None:
                    self.on_closed(self.window)
            finally:
                self._closed.set()

    def _lose(self, error: BaseException) -> None:
        """What is left of a window that could not be put together is why."""
        why = "the window is lost: "
        if isinstance(error, WANTED_ENDINGS):
            why += "it was interrupted while it was being put together"
        else:
            why += f"it could not be put together: {in_words(error)}"
        with suppress(Exception, SystemExit):  # what was in the way may be in the way of this too
            self.window = self._without_length(Remark("lost", why, "watch again"), 0)

    def _gave_way(self) -> tuple[Remark, ...]:
        if not self._gave_way_to:
            return ()
        text = f"the window ended where the program began a watch of its own, at {self._gave_way_to}"
        return (Remark("gave-way", text, "read that watch's report, or leave it out to watch the program from here"),)

    def _never_opened(self, skipping: NoStep | SkippedSteps | WatchedSteps) -> Window:
        left = skipping.left if isinstance(skipping, SkippedSteps) else 0
        taken = self.order.skip - left
        why = f"the window never opened: {taken} steps were taken, and {self.order.skip} were to be skipped"
        if self._gave_way_to:
            why += f"; then the program began a watch of its own, at {self._gave_way_to}"
        return self._without_length(Remark("never-opened", why, "skip fewer steps"), taken)

    def _without_length(self, remark: Remark, skipped: int) -> Window:
        """A window in which there is nothing; the remark says why."""
        from pyxfer._watch.window import Window

        now, why = perf_counter_ns(), remark.text
        place = self.place
        index, remarks = (place.device.index, place.remarks()) if place is not None else (0, ())
        nothing = Fact[int](reason=why)
        return Window(
            *(now, now, "ended", Fact(reason=why), Fact(reason=why), index),
            skipped=skipped,
            used_before=nothing,
            used_after=nothing,
            remarks=(*remarks, remark),
        )

    def _give_up(self) -> None:
        """It could not be started."""
        recording, self._recording = self._recording, None
        self._gathering, self.steps = None, NO_STEP
        leave(self)
        self._closed.set()
        if recording is not None:
            recording.close()
