"""Who is inside of native code, so that Python does not end meanwhile.

A thread that comes back from native code while Python shuts down is unwound through it, which aborts the process. So
the end waits for those that are inside, a while, and lets nobody in any more.
"""

from __future__ import annotations

import atexit
import time

AT_EXIT_S = 1.0
_LOOK_UP_S = 0.001

# Changed without a lock, by operations that cannot be interrupted: a destructor may enter at any time.
_inside: set[object] = set()
_ends: set[bool] = set()


class inside:  # noqa: N801 - reads as a function, and is a class because a generator takes twice as long
    """Around native code that may block; `as` False where Python ends, and no thread may call it any more."""

    __slots__ = ()

    def __enter__(self) -> bool:
        _inside.add(self)
        return not _ends

    def __exit__(self, *_: object) -> None:
        _inside.discard(self)


def _at_end() -> None:
    _ends.add(True)
    until = time.monotonic() + AT_EXIT_S
    while _inside and time.monotonic() < until:
        time.sleep(_LOOK_UP_S)


atexit.register(_at_end)
