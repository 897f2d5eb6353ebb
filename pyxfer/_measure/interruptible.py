"""Long native work that Ctrl-C ends within a second, whatever the device does.

The work runs in a thread of its own, because a signal handler cannot run while the main thread is inside a native call.
That thread also takes the NUMA binding, so the caller's own thread keeps its place.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from enum import Enum

# Ctrl-C has to end a run within a second; a copy that is under way usually ends within milliseconds.
GRACE_S = 0.7
# A signal that another thread was given wakes no lock, so the wait looks up now and then.
SLICE_S = 0.05
# What is finite ends meanwhile, a large allocation for one; a thread that comes back from native code while Python
# shuts down would be unwound through it and abort the process.
AT_EXIT_S = 1.0

# Not Thread.is_alive(): in CPython a join() that Ctrl-C interrupts can leave a running thread marked as ended.
_unfinished: set[threading.Event] = set()


class Ending(Enum):
    """How the work ended."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    STUCK = "stuck"


def is_work_left() -> bool:
    """Whether a thread of this module is still at work."""
    return bool(_unfinished)


def run_interruptible(work: Callable[[], None], cancel: Callable[[], None], grace_s: float = GRACE_S) -> Ending:
    """Run the work; on Ctrl-C cancel it and give it a moment. A thread that is stuck in the driver is left behind.

    Raises:
        BaseException: whatever the work raised, unless it was interrupted.

    """
    finished = threading.Event()
    raised: list[BaseException] = []
    try:
        _start(work, finished, raised)
        _wait(finished, None)
    except KeyboardInterrupt:
        return _end_early(finished, cancel, grace_s)
    if raised:
        raise raised.pop()  # kept here it would keep itself, and everything that its frames hold
    return Ending.DONE


def run_at_most(work: Callable[[], None], seconds: float | None) -> bool:
    """Run the work and wait so long for it at most; whether it has ended. What it raises is lost."""
    finished = threading.Event()
    _start(work, finished, [])
    if not _wait(finished, seconds):
        atexit.register(finished.wait, AT_EXIT_S)
    return finished.is_set()


def _start(work: Callable[[], None], finished: threading.Event, raised: list[BaseException]) -> None:
    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            raised.append(error)
        finally:
            _unfinished.discard(finished)
            finished.set()

    _unfinished.add(finished)
    threading.Thread(target=body, name="pyxfer-measuring", daemon=True).start()


def _wait(finished: threading.Event, seconds: float | None) -> bool:
    until = None if seconds is None else time.monotonic() + seconds
    while not finished.wait(SLICE_S):
        if until is not None and time.monotonic() > until:
            return False
    return True


def _end_early(finished: threading.Event, cancel: Callable[[], None], grace_s: float) -> Ending:
    try:
        cancel()
        _wait(finished, grace_s)
    except KeyboardInterrupt:  # a second Ctrl-C: do not wait
        pass
    if finished.is_set():
        return Ending.INTERRUPTED
    atexit.register(finished.wait, AT_EXIT_S)
    return Ending.STUCK
