"""Uploads that run in the background: what they keep alive, and how a caller waits for them."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyxfer._document.printing import ShortRepr
from pyxfer._upload.native_calls import native_call
from pyxfer._upload.trees import map_arrays
from pyxfer.errors import DeviceTimeoutError, UsageError
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._upload.movers import Ticket


# Ctrl-C does not end a wait in native code, so waits are divided into short ones.
SLICE_S = 0.1


class Started:
    """An upload of one or several arrays. The source and the memory on the device must exist until it has ended.

    `finish` makes the framework's array, or the list of several, and keeps their memory; `keep` keeps the source's.
    `places` are the numbers of the arrays in their structure.
    """

    def __init__(self, ticket: Ticket, finish: Callable[[], Any], keep: Any, places: Sequence[int] = (0,)) -> None:
        self.ticket, self.finish, self.keep, self.places = ticket, finish, keep, places


def put(arrays: list[Any], places: Sequence[int], made: Any) -> None:
    """Put the framework's array, or the list of several, into its places."""
    if len(places) == 1:
        arrays[places[0]] = made
        return
    for place, array in zip(places, made, strict=True):
        arrays[place] = array


def ended(ticket: Ticket, until: float = math.inf) -> bool:
    """Wait for a transfer; False at the time `until`. It may have ended with an error, which `result` raises."""
    while not ticket.done():
        left = until - time.monotonic()
        if left <= 0:
            return False
        with native_call(), contextlib.suppress(DeviceTimeoutError):
            ticket.result(min(left, SLICE_S))
    return True


class FixedTicket:
    """The ticket of an upload that has ended, or of one that is kept until the uploader has ended all of them."""

    def __init__(self, *, is_done: bool) -> None:
        self._is_done = is_done

    def done(self) -> bool:
        return self._is_done

    def result(self, seconds: float) -> None:
        pass


class Dropped:
    """Uploads that were dropped before they ended, kept until they have ended.

    A destructor may add to it in any thread and at any time, so there is no lock.
    """

    def __init__(self) -> None:
        self._uploads: deque[Started] = deque()
        self._getpid = os.getpid  # the module's names may be gone at exit
        self._pid = os.getpid()

    def add(self, started: Sequence[Started]) -> None:
        """Keep the uploads that have not ended. In a forked child none is running."""
        if self._getpid() == self._pid:
            self._uploads.extend(upload for upload in started if not upload.ticket.done())

    def sweep(self) -> None:
        for _ in range(len(self._uploads)):
            try:
                upload = self._uploads.popleft()
            except IndexError:  # another thread sweeps too
                return
            if not upload.ticket.done():
                self._uploads.append(upload)

    def clear(self) -> None:
        self._uploads.clear()


class Upload(ShortRepr):
    """A running upload of an array or a structure of arrays, made by `upload(..., block=False)`.

    The sources must not change until it is done. A dropped `Upload` continues, and its memory is kept until it ends.
    """

    def __init__(self, tree: Any, started: Sequence[Started], dropped: Dropped, uploader: object) -> None:
        self._tree = tree
        self._started = started
        self._dropped = dropped
        self._uploader = uploader  # its destructor would wait for this upload
        self._turn = threading.Lock()
        self._made = False
        self._result: Any = None

    def _summary(self) -> str:
        started = self._started  # another thread may be in result()
        done = sum(len(upload.places) for upload in started if upload.ticket.done())
        total = sum(len(upload.places) for upload in started)
        return "done" if done == total else f"running: {done} of {total} arrays done"

    def done(self) -> bool:
        """Whether all arrays have arrived, or an error has ended the upload. Does not wait."""
        return all(upload.ticket.done() for upload in self._started)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the upload, at most `timeout` seconds. Returns the source's structure with the framework's arrays.

        Raises:
            UsageError: `timeout` is not a number.
            DeviceTimeoutError: the upload has not ended within `timeout`. It continues; call `result()` again.
            CudaError: the error that ended the upload.
        """
        seconds = _seconds(timeout)
        until = time.monotonic() + seconds
        for upload in self._started:
            if not ended(upload.ticket, until):
                raise DeviceTimeoutError(
                    f"The upload has not ended within {format_seconds(seconds)}. It continues: call result() again."
                )
            upload.ticket.result(0.0)
        with self._turn:
            if not self._made:
                arrays: list[Any] = [None] * sum(len(upload.places) for upload in self._started)
                for upload in self._started:
                    put(arrays, upload.places, upload.finish())
                finished = iter(arrays)
                self._result = map_arrays(self._tree, lambda _: next(finished), "x")
                self._made = True
                self._tree, self._started = None, ()
            return self._result

    def __del__(self) -> None:
        self._dropped.add(self._started)


def _seconds(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    is_number = isinstance(timeout, numbers.Real) and not isinstance(timeout, bool)
    if not is_number or not timeout <= math.inf:  # refuses nan
        raise UsageError(f"timeout must be a number of seconds, such as 0.5, or None for no limit; got {timeout!r:.40}")
    return max(0.0, float(min(timeout, threading.TIMEOUT_MAX)))
