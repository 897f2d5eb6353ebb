"""An upload that goes on by itself: what it needs, and how it is waited for."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyxfer._upload.natives import inside
from pyxfer._upload.trees import map_arrays
from pyxfer.errors import DeviceTimeoutError, UsageError
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._upload.movers import Ticket


# Ctrl-C does not end a wait in native code, so the wait comes back now and then.
SLICE_S = 0.1


@dataclass(frozen=True, eq=False)
class Started:
    """One array on its way; while it is, the source and the memory on the device have to stay."""

    ticket: Ticket
    finish: Callable[[], Any]
    """Makes the framework's array, and holds its memory."""
    keep: Any


class Unknown:
    """The ticket of what may be on its way: nobody can tell before everything has ended."""

    def done(self) -> bool:
        """Never."""
        return False

    def result(self, seconds: float) -> None:
        """Nobody waits for it."""


class UnderWay:
    """What nobody waits for any more, kept until the device has left it.

    A destructor may add to it in any thread and at any time, so there is no lock.
    """

    def __init__(self) -> None:
        self._left: deque[Started] = deque()
        self._getpid = os.getpid  # by name it may be gone when a process ends
        self._pid = os.getpid()

    def add(self, started: Sequence[Started]) -> None:
        """Keep those that go on; in a forked child none does."""
        if self._getpid() == self._pid:
            self._left.extend(each for each in started if not each.ticket.done())

    def sweep(self) -> None:
        """Let go of those that have ended."""
        for _ in range(len(self._left)):
            try:
                each = self._left.popleft()
            except IndexError:  # another thread sweeps
                return
            if not each.ticket.done():
                self._left.append(each)

    def clear(self) -> None:
        """Let go of all, for everything has ended."""
        self._left.clear()


class Upload:
    """An array, or a structure of arrays, on its way to the device.

    The sources must not change before it is done. To drop it ends nothing: what it needs is kept meanwhile.
    """

    def __init__(self, tree: Any, started: Sequence[Started], left: UnderWay, uploader: object) -> None:
        self._tree = tree
        self._started = started
        self._left = left
        self._uploader = uploader  # which would wait for it if it went first
        self._turn = threading.Lock()
        self._made = False
        self._result: Any = None

    def done(self) -> bool:
        """Whether all of it has ended, well or not."""
        return all(each.ticket.done() for each in self._started)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for all of it, and give the same structure with the framework's arrays in it.

        Raises:
            UsageError: `timeout` is no number.
            DeviceTimeoutError: it goes on after so many seconds; ask again.
            CudaError: what ended it.

        """
        seconds = _seconds(timeout)
        until = time.monotonic() + seconds
        for each in self._started:
            _await(each.ticket, seconds, until)
        with self._turn:
            if not self._made:
                finished = iter(self._started)
                self._result = map_arrays(self._tree, lambda _: next(finished).finish(), "x")
                self._made = True
                self._tree, self._started = None, ()
            return self._result

    def __del__(self) -> None:
        self._left.add(self._started)


def _seconds(timeout: float | None) -> float:
    """How long to wait at most; None is for ever."""
    if timeout is None:
        return math.inf
    is_number = isinstance(timeout, numbers.Real) and not isinstance(timeout, bool)
    if not is_number or not timeout <= math.inf:  # nan is not
        raise UsageError(f"timeout is how many seconds to wait, such as 0.5, or None for no end; got {timeout!r:.40}")
    return max(0.0, float(min(timeout, threading.TIMEOUT_MAX)))


def _await(ticket: Ticket, seconds: float, until: float) -> None:
    while not ticket.done():
        left = until - time.monotonic()
        if left <= 0:
            raise DeviceTimeoutError(
                f"The upload has not ended within {format_seconds(seconds)}. It goes on: ask again, or give it longer."
            )
        with inside(), contextlib.suppress(DeviceTimeoutError):
            ticket.result(min(left, SLICE_S))
    ticket.result(0.0)
