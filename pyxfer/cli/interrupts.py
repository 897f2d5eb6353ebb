"""Ctrl-C on the command line: the first one ends the run, and impatient ones after it break nothing."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from .failures import INTERRUPTED

# The first Ctrl-C ends a run within a second, saving included; who still waits after this long may leave by force.
PATIENCE_S = 2.0


class OnInterrupt:
    """The handler: KeyboardInterrupt once, then nothing for a while, then the end of the process."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """As `signal.signal` wants it."""
        now = time.monotonic()
        if self._first_s is None:
            self._first_s = now
            raise KeyboardInterrupt
        if now - self._first_s > PATIENCE_S:
            os._exit(INTERRUPTED)


def heed_interrupts() -> None:
    """Take over from Python's own handler, unless whoever started this process wants Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, OnInterrupt())
