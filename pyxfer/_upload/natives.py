"""Who is inside of native code, so that Python does not end meanwhile.

A thread that comes back from native code while Python shuts down is unwound through it, which aborts the process. So
the end waits for those that are inside, a while, and lets nobody in any more.
"""

from __future__ import annotations

import atexit
import time
from typing import ClassVar

AT_EXIT_S = 0.5
_LOOK_UP_S = 0.001


class inside:  # noqa: N801 - reads as a function, and is a class because a generator takes twice as long
    """Around native code that may block; `as` False where Python ends, and no thread may call it any more.

    The sets are changed without a lock, by operations that cannot be interrupted: a destructor may enter at any time,
    also when the module's own names are gone.
    """

    __slots__ = ()
    threads: ClassVar[set[object]] = set()
    ends: ClassVar[set[bool]] = set()

    def __enter__(self) -> bool:
        self.threads.add(self)
        return not self.ends

    def __exit__(self, *_: object) -> None:
        self.threads.discard(self)


def _at_end() -> None:
    inside.ends.add(True)
    until = time.monotonic() + AT_EXIT_S
    while inside.threads and time.monotonic() < until:
        time.sleep(_LOOK_UP_S)


atexit.register(_at_end)
