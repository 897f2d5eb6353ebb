"""Run long native work so that Ctrl-C ends it within a second, even if the device hangs.

The work runs in a separate thread, because Python handles no signal while the main thread is inside a native call.
That thread also gets the NUMA binding, so the caller's thread stays as it is.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from enum import Enum
from queue import Empty, SimpleQueue

# Ctrl-C has to end a run within a second. A running copy usually ends within milliseconds.
GRACE_S = 0.7
# A signal that the kernel delivers to another thread does not wake a waiting one, so the wait is in slices.
SLICE_S = 0.05
# The exit waits this long for abandoned work, such as a large allocation. A thread that returns from native code while
# Python shuts down would be unwound through C++ and abort the process.
AT_EXIT_S = 1.0
# A kept thread ends when nothing has come for so long.
KEPT_S = 5.0

# Running work. Not Thread.is_alive(): in CPython a join() that Ctrl-C interrupts can leave a running thread marked as
# ended.
_unfinished: set[threading.Event] = set()
# The queues from which idle kept threads take their next work.
_idle: list[SimpleQueue[Callable[[], None]]] = []
os.register_at_fork(after_in_child=_idle.clear)


class Ending(Enum):
    DONE = "done"
    INTERRUPTED = "interrupted"
    STUCK = "stuck"


def is_work_left() -> bool:
    return bool(_unfinished)


def run_interruptible(
    work: Callable[[], None], cancel: Callable[[], None], grace_s: float = GRACE_S, *, kept: bool = False
) -> Ending:
    """Run the work in a thread. On Ctrl-C call `cancel`, wait for `grace_s`, and abandon a thread that is stuck.

    With `kept` the thread may be one that earlier work has used, and starts in a quarter of the time.
    """
    finished = threading.Event()
    raised: list[BaseException] = []
    try:
        _start(work, finished, raised, kept=kept)
        _wait(finished, None)
    except KeyboardInterrupt:
        try:
            cancel()
            _wait(finished, grace_s)
        except KeyboardInterrupt:  # a second Ctrl-C: do not wait
            pass
        if finished.is_set():
            return Ending.INTERRUPTED
        _abandon(finished)
        return Ending.STUCK
    if raised:
        raise raised.pop()  # a reference in this frame would make a cycle, and keep the frames' objects alive
    return Ending.DONE


def run_at_most(work: Callable[[], None], seconds: float | None) -> bool:
    """Run the work in a thread, wait up to `seconds`, and return whether it has ended. Its exceptions are dropped."""
    finished = threading.Event()
    _start(work, finished, [])
    if not _wait(finished, seconds):
        _abandon(finished)
    return finished.is_set()


def _start(
    work: Callable[[], None], finished: threading.Event, raised: list[BaseException], *, kept: bool = False
) -> None:
    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            raised.append(error)
        finally:
            _unfinished.discard(finished)
            finished.set()

    _unfinished.add(finished)
    if not kept:
        threading.Thread(target=body, name="pyxfer-measuring", daemon=True).start()
        return
    try:
        _idle.pop().put(body)
    except IndexError:
        threading.Thread(target=_serve, args=(body,), name="pyxfer-kept", daemon=True).start()


def _serve(body: Callable[[], None]) -> None:
    own: SimpleQueue[Callable[[], None]] = SimpleQueue()
    while True:
        body()
        del body  # it keeps what the work has used
        _idle.append(own)
        try:
            body = own.get(timeout=KEPT_S)
        except Empty:
            try:
                _idle.remove(own)
            except ValueError:  # it was taken just now
                body = own.get()
            else:
                return


def _wait(finished: threading.Event, seconds: float | None) -> bool:
    until = None if seconds is None else time.monotonic() + seconds
    while not finished.wait(SLICE_S):
        if until is not None and time.monotonic() > until:
            return False
    return True


def _abandon(finished: threading.Event) -> None:
    atexit.register(finished.wait, AT_EXIT_S)
