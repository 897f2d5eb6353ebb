"""Ctrl-C on the command line: the first one ends the run, and impatient ones after it break nothing.

It is heeded before anything else is loaded, so this loads hardly anything itself.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from types import FrameType

INTERRUPTED = 130
# The first Ctrl-C ends a run within a second, saving included; who still waits after this long may leave by force.
PATIENCE_S = 2.0
# So soon an interrupt that Python has dropped comes again; by then the code that it cannot leave has ended.
_AGAIN_S = 0.01


class CtrlC(KeyboardInterrupt):
    """A KeyboardInterrupt that is caught for good once it is caught.

    Where the very KeyboardInterrupt has come through code that was made of text, as that of dataclasses and SQLAlchemy
    is, Python ends `python -m pyxfer` by the signal, whatever the exit code was to be.
    """


class OnInterrupt:
    """The handler: KeyboardInterrupt once, then nothing for a while, then the end of the process."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """As `signal.signal` wants it."""
        now = time.monotonic()
        if self._first_s is None:
            self._first_s = now
            raise CtrlC
        if now - self._first_s > PATIENCE_S:
            os._exit(INTERRUPTED)

    def answer_again(self) -> None:
        """The first one has led to nothing: forget it, and have it come once more."""
        self._first_s = None
        try:  # noqa: SIM105 - contextlib takes a while to load
            _thread.start_new_thread(self._come_again, (_thread.get_ident(),))
        except RuntimeError:  # Python is shutting down, which is what was wanted
            pass

    def _come_again(self, thread: int) -> None:
        """In a thread of its own: sent at once it would be raised where nothing can be."""
        time.sleep(_AGAIN_S)
        if self._first_s is None and signal.getsignal(signal.SIGINT) is self:
            signal.pthread_kill(thread, signal.SIGINT)


def heed_interrupts() -> None:
    """Take over from Python's own handler, unless whoever started this process wants Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    handler, usual = OnInterrupt(), sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        # Raised in a __del__ or the callback of a weak reference it would be printed, and the command would go on.
        if issubclass(unraisable.exc_type, CtrlC):
            handler.answer_again()
        else:
            usual(unraisable)

    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook
