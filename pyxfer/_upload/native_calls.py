"""Keeps Python from ending while threads are in native code.

A thread that returns from native code while Python shuts down is unwound through that code, which aborts the process.
So the exit waits a short time for such threads, and allows no further calls.
"""

from __future__ import annotations

import atexit
import time
from typing import ClassVar

AT_EXIT_S = 0.5
_POLL_S = 0.001


class native_call:  # noqa: N801 - reads as a function, and is a class because a generator takes twice as long
    """Around native code that may block. `as` gives False after Python's exit has begun: then do not call it.

    The sets are changed without a lock, by operations that cannot be interrupted: a destructor may enter at any time,
    even after the names of this module are gone.
    """

    __slots__ = ()
    running: ClassVar[set[object]] = set()
    exit_begun: ClassVar[set[bool]] = set()

    def __enter__(self) -> bool:
        self.running.add(self)
        return not self.exit_begun

    def __exit__(self, *_: object) -> None:
        self.running.discard(self)


def _at_exit() -> None:
    native_call.exit_begun.add(True)
    until = time.monotonic() + AT_EXIT_S
    while native_call.running and time.monotonic() < until:
        time.sleep(_POLL_S)


atexit.register(_at_exit)
