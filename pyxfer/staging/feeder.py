"""A thread that draws batches and starts to send them, a few ahead of who takes them.

The queues wake either side, and nothing looks up now and then. `SimpleQueue.put` and `get_nowait` may be called from
anywhere, even from a destructor that the collector runs in the middle of the same queue's `get`; a condition would
lose that wake-up.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Generator, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

Batch = TypeVar("Batch")
Sent = TypeVar("Sent")

# While another batch is ready nobody waits for the next, and what sends it would hold Python's lock just when the loop
# launches its work on the one that it has taken.
LATER_S = 0.002

# A thread that comes back from native code while Python shuts down would be unwound through it and abort the process.
AT_EXIT_S = 0.5

_at_work: set[Feeder[Any, Any]] = set()


class Failure:
    """What the source or the sending raised, in the place of the batch that there is not."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Over:
    """Says in a batch's place that no more will come."""


OVER = Over()


class Feeder(Generic[Batch, Sent]):
    """The thread, and what it has sent and nobody has taken."""

    def __init__(
        self,
        batches: Iterator[Batch],
        send: Callable[[Batch], Sent],
        depth: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._depth = depth
        self._prepare = prepare
        self._sent: SimpleQueue[Sent | Failure | Over] = SimpleQueue()
        self._taken: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self._exhausted = False
        self._thread = threading.Thread(target=self._run, args=(batches, send), name="pyxfer-prefetch", daemon=True)
        _at_work.add(self)
        try:
            self._thread.start()
        except BaseException:
            _at_work.discard(self)
            raise

    def take(self) -> Sent | Over:
        """The next one, in order; OVER after the last. One thread at a time may take.

        Raises:
            BaseException: what was raised instead of it; there is nothing after that.

        """
        if self._stopped:
            return OVER
        found = self._sent.get()
        if self._stopped or isinstance(found, Over):
            self._stopped = True
            return OVER
        if isinstance(found, Failure):
            self._stopped = True
            try:
                raise found.error
            finally:
                del found  # it would keep itself, and everything that its frames hold
        self._taken.put(None)
        return found

    def stop(self) -> None:
        """No more: who waits is told, what was not taken is dropped, and the thread ends at its next step."""
        self._stopped = True
        self._taken.put(None)
        self._drop()

    def join(self, seconds: float) -> None:
        """Wait so long at most for the thread's end."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _run(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> None:
        try:
            try:
                self._feed(batches, send)
            except BaseException as error:  # noqa: BLE001 - handed to who takes
                self._sent.put(Failure(error))
            if isinstance(batches, Generator):
                batches.close()  # here, because another thread cannot while it runs
        finally:
            _at_work.discard(self)
            if self._stopped:
                self._drop()
            else:
                self._sent.put(OVER)

    def _feed(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> None:
        ahead = 0
        while True:
            if ahead == self._depth:
                self._taken.get()
                ahead -= 1
                if not (self._stopped or self._sent.empty()):
                    time.sleep(LATER_S)
            if self._stopped:
                return
            self._sent.put(self._draw(batches, send))  # no name here may keep it, for it may be taken at once
            if self._exhausted:
                return
            ahead += 1

    def _draw(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> Sent | Over:
        self._prepare()
        batch = next(batches, OVER)
        self._exhausted = isinstance(batch, Over)
        return OVER if isinstance(batch, Over) or self._stopped else send(batch)

    def _drop(self) -> None:
        """Whoever comes last, of the thread and of who stops it, leaves nothing behind but the word that it is over."""
        while True:
            try:
                self._sent.get_nowait()
            except Empty:
                break
        self._sent.put(OVER)


def _at_end() -> None:
    until = time.monotonic() + AT_EXIT_S
    left = list(_at_work)
    for each in left:
        each.stop()
    for each in left:
        each.join(max(0.0, until - time.monotonic()))


atexit.register(_at_end)
