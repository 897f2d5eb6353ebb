"""Batches that are on their way to the GPU before they are asked for."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from pyxfer.errors import ForkedError, UsageError
from pyxfer.staging.feeder import Feeder, Over

Batch = TypeVar("Batch")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

# How long `close` waits for a source that is at work on its next batch; after that the thread ends by itself.
GRACE_S = 0.7


class Upload(Protocol[Result_co]):
    """What has been started; it keeps what it needs until it is done or dropped."""

    def result(self) -> Result_co:
        """Wait for it, and take what has arrived."""


def prefetch(
    batches: Iterable[Batch], send: Callable[[Batch], Upload[Result]], depth: int = 2
) -> Prefetch[Batch, Result]:
    """The results of sending each batch, in order, with up to `depth` batches on their way ahead of the one in use.

    A thread draws the batches and calls `send`. What either raises comes out where its batch would have come, and
    ends the iteration. A generator is closed by that thread, be it exhausted or not.

    Raises:
        UsageError: `depth` is not a whole number from 1 on.

    """
    return Prefetch(batches, send, depth_of(depth))


def depth_of(depth: object) -> int:
    """How many batches are sent ahead.

    Raises:
        UsageError: it is not a whole number from 1 on.

    """
    try:
        count = operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(f"depth is how many batches are sent ahead, a whole number from 1 on; got {depth!r}")
    return count


class Prefetch(Generic[Batch, Result]):
    """An iterator, which `with` or `close` ends early; to drop it does too. `prepare` is called before each is drawn.

    Several threads may take from it: they take turns, and each result goes to one of them.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        send: Callable[[Batch], Upload[Result]],
        depth: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._feeder = Feeder(iter(batches), send, depth, prepare)

    def __iter__(self) -> Prefetch[Batch, Result]:
        return self

    def __next__(self) -> Result:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This prefetch belongs to the process that this one was forked from, and its thread is not here: make "
                "one in this process."
            )
        with self._turn:
            try:
                upload = self._feeder.take()
                if not isinstance(upload, Over):
                    return upload.result()
            except StopIteration as error:
                self._feeder.stop()
                raise RuntimeError("sending a batch raised StopIteration, which would have ended the loop") from error
            except BaseException:
                self._feeder.stop()
                raise
        raise StopIteration

    def close(self) -> None:
        """End it early: what is on its way is dropped, and the thread ends as soon as the source lets it."""
        self._feeder.stop()
        self._feeder.join(GRACE_S)

    def __enter__(self) -> Prefetch[Batch, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        feeder = self.__dict__.get("_feeder")  # not there if the source could not be iterated over
        if feeder is not None:
            feeder.stop()  # and not wait: a destructor may run in any thread, that one too
