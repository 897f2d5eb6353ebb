"""Uploads, sources, and a look at the thread between them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from pyxfer._upload.prefetch import Feeder

T = TypeVar("T")
SOON_S = 30.0
LONG_S = 60.0


class OwnError(Exception):
    """Of the program that uses it."""


class Started(Generic[T]):
    """An upload that has arrived at once."""

    def __init__(self, batch: T) -> None:
        self.batch = batch

    def result(self) -> T:
        return self.batch


class Blocked:
    """A source whose second batch is long in coming."""

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


def wait_until_it_waits(consumer: threading.Thread) -> None:
    """Return when that thread waits for the second batch of a source that is blocked."""
    moment = threading.Event()
    for _ in range(10_000):
        frame = sys._current_frames().get(consumer.ident or 0)
        if frame is not None and frame.f_code is Feeder.take.__code__ and not frame.f_locals["self"]._sent.qsize():
            return
        moment.wait(0.001)
    raise TimeoutError("it never waited")


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "pyxfer-prefetch"]
