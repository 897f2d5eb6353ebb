"""Long native work that Ctrl-C ends within a second, whatever the device does.

The work runs in a thread of its own, because a signal handler cannot run while the main thread is inside a native call.
That thread also takes the NUMA binding, so the caller's own thread keeps its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

# Ctrl-C has to end a run within a second; a copy that is under way usually ends within milliseconds.
GRACE_S = 0.7


class Ending(Enum):
    """How the work ended."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    STUCK = "stuck"


def run_interruptible(work: Callable[[], None], cancel: Callable[[], None], grace_s: float = GRACE_S) -> Ending:
    """Run the work; on Ctrl-C cancel it and give it a moment. A thread that is stuck in the driver is left behind.

    Raises:
        BaseException: whatever the work raised, unless it was interrupted.

    """
    finished = threading.Event()
    raised: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            raised.append(error)
        finally:
            finished.set()

    thread = threading.Thread(target=body, name="pyxfer-measuring", daemon=True)
    thread.start()
    try:
        finished.wait()
    except KeyboardInterrupt:
        return _end_early(thread, cancel, grace_s)
    thread.join()
    if raised:
        raise raised.pop()  # kept here it would keep itself, and everything that its frames hold
    return Ending.DONE


def _end_early(thread: threading.Thread, cancel: Callable[[], None], grace_s: float) -> Ending:
    cancel()
    try:
        thread.join(grace_s)
    except KeyboardInterrupt:  # a second Ctrl-C: do not wait
        return Ending.STUCK
    return Ending.STUCK if thread.is_alive() else Ending.INTERRUPTED
