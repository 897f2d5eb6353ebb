"""Sources and uploads for tests of prefetching, and its thread."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from pyxfer._upload.prefetch import Feeder

T = TypeVar("T")
SOON_S = 30.0
LONG_S = 60.0


class OwnError(Exception):
    """An error of the program under test."""


class Started(Generic[T]):
    """An upload that is done at once."""

    def __init__(self, batch: T) -> None:
        self.batch = batch

    def __call__(self) -> T:
        return self.batch


class Blocked:
    """A source that blocks before its second batch."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.released = threading.Event()
        self.closed_in: threading.Thread | None = None

    def __iter__(self) -> Iterator[int]:
        try:
            yield 0
            self.begun.set()
            self.released.wait(LONG_S)
            yield 1
        finally:
            self.closed_in = threading.current_thread()


def wait_until_waiting(consumer: threading.Thread) -> None:
    """Return when that thread waits for the second batch of a blocked source."""
    moment = threading.Event()
    for _ in range(10_000):
        frame = sys._current_frames().get(consumer.ident or 0)
        if frame is not None and frame.f_code is Feeder.take.__code__ and not frame.f_locals["self"]._sent.qsize():
            return
        moment.wait(0.001)
    raise TimeoutError("the thread never waited")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pyxfer-prefetch"]


def interrupt_when(happened: Callable[[], bool]) -> threading.Thread:
    """Send SIGINT as soon as the condition holds."""
    main = threading.main_thread().ident or 0
    moment = threading.Event()

    def wait() -> None:
        while not happened():
            moment.wait(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
