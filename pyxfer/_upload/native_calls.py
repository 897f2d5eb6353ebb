"""Keeps Python from ending while threads are in native code.

A thread that returns from native code while Python shuts down is unwound through that code, which aborts the process.
So the exit waits a short time for such threads, and allows no further calls.
"""

from __future__ import annotations

import atexit
import time
import warnings
from typing import TYPE_CHECKING, ClassVar

from pyxfer.errors import CleanupWarning, CudaError

if TYPE_CHECKING:
    from pyxfer.native._cuda import DeviceBuffer, HostBuffer, Registration

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


class Owner:
    """Releases native memory when it is dropped, and leaves it to the end of the process once Python's exit has begun.

    A release would then wait for a device that may never answer.
    """

    failed: ClassVar[str]
    """The beginning of the warning about a failed release."""

    def __init__(self, memory: DeviceBuffer | HostBuffer | Registration) -> None:
        self.memory = memory

    def _release(self) -> None:
        self.memory.close()

    def __del__(self, native_call: type[native_call] = native_call) -> None:  # the module's names may be gone at exit
        with native_call() as allowed:
            if not allowed:
                self.memory.abandon()
                return
            try:
                self._release()
            except CudaError as error:
                warnings.warn(f"{self.failed}: {error}", CleanupWarning, stacklevel=2)


def _at_exit() -> None:
    native_call.exit_begun.add(True)
    until = time.monotonic() + AT_EXIT_S
    while native_call.running and time.monotonic() < until:
        time.sleep(_POLL_S)


atexit.register(_at_exit)
