"""Stopping early leaves no thread and no batch."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from upload.feeding import LONG_S, SOON_S, Blocked, OwnError, Started, threads, wait_until_waiting

from pyxfer._upload import prefetch
from pyxfer._upload.prefetch import Prefetch

pytestmark = pytest.mark.threads


def leave_by_break(batches: Prefetch[int, int]) -> None:
    for _ in batches:
        break


def leave_the_block(batches: Prefetch[int, int]) -> None:
    with batches:
        next(batches)


def close(batches: Prefetch[int, int]) -> None:
    next(batches)
    batches.close()


all_ways_to_stop = pytest.mark.parametrize("leave", [leave_by_break, leave_the_block, close])


@all_ways_to_stop
def test_stopping_early_ends_the_thread_which_closes_the_generator(leave: Callable[..., None]) -> None:
    source = Blocked()
    source.released.set()
    batches = Prefetch(iter(source), Started, 1)
    (thread,) = threads()
    leave(batches)
    del batches
    thread.join(SOON_S)
    assert not thread.is_alive()
    assert source.closed_in is thread


@all_ways_to_stop
def test_stopping_does_not_wait_for_a_blocked_source_which_is_closed_later(
    leave: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "GRACE_S", 0.05)
    source = Blocked()
    sent: list[int] = []

    def send(batch: int) -> Started[int]:
        sent.append(batch)
        return Started(batch)

    batches = Prefetch(iter(source), send)
    (thread,) = threads()
    assert source.begun.wait(LONG_S)
    begun = time.perf_counter()
    leave(batches)
    del batches
    assert time.perf_counter() - begun < SOON_S
    assert thread.is_alive()
    source.released.set()
    thread.join(SOON_S)
    assert source.closed_in is thread
    assert sent == [0]


def test_an_error_in_closing_a_generator_goes_to_the_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    def source() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            raise OwnError("in closing")

    unraised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", unraised.append)
    with Prefetch(source(), Started) as batches:
        next(batches)
    assert [str(raised.exc_value) for raised in unraised] == ["in closing"]


def test_close_wakes_a_thread_that_waits_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "GRACE_S", 0.0)
    source = Blocked()
    taken: list[int] = []
    batches = Prefetch(iter(source), Started)
    consumer = threading.Thread(target=lambda: taken.extend(batches))
    consumer.start()
    assert source.begun.wait(LONG_S)
    wait_until_waiting(consumer)
    batches.close()
    consumer.join(SOON_S)
    assert not consumer.is_alive()
    assert taken == [0]
    source.released.set()


def test_a_closed_prefetch_is_empty_and_may_be_closed_again() -> None:
    batches = Prefetch(range(5), Started)
    batches.close()
    batches.close()
    assert list(batches) == []


def test_a_source_may_close_its_own_prefetch() -> None:
    def source() -> Iterator[int]:
        yield 0
        batches.close()
        yield 1

    ready = threading.Event()

    def send(batch: int) -> Started[int]:
        ready.wait(LONG_S)
        return Started(batch)

    batches = Prefetch(source(), send, 1)
    ready.set()
    assert list(batches) in ([], [0])


@pytest.mark.parametrize("interrupt", [lambda: os.kill(os.getpid(), signal.SIGINT), _thread.interrupt_main])
def test_ctrl_c_during_the_wait_for_a_batch_ends_the_thread(interrupt: Callable[[], None]) -> None:
    # interrupt_main is as a signal that came just before the wait: it does not wake the thread.
    source = Blocked()
    batches = Prefetch(iter(source), Started)
    (thread,) = threads()
    assert next(batches) == 0

    def press() -> None:
        wait_until_waiting(threading.main_thread())
        interrupt()

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    presser.join()
    assert thread.is_alive()
    source.released.set()
    thread.join(SOON_S)
    assert not thread.is_alive()
    assert list(batches) == []


class Big:
    """A batch that can have weak references."""


def test_a_taken_batch_is_not_kept() -> None:
    made: list[weakref.ref[Big]] = []

    def make() -> Big:
        made.append(weakref.ref(big := Big()))
        return big

    with Prefetch(iter(make, None), Started, 1) as batches:
        for _ in range(100):
            gone = weakref.ref(next(batches))
            assert gone() is None
            assert sum(batch() is not None for batch in made.copy()) <= 1  # the one that is ahead


def test_the_batches_of_a_closed_prefetch_are_not_kept() -> None:
    alive: list[weakref.ref[Big]] = []

    def send(batch: Big) -> Started[Big]:
        alive.append(weakref.ref(batch))
        return Started(batch)

    with Prefetch((Big() for _ in range(9)), send, 4) as batches:
        next(batches)
    gc.collect()
    assert len(alive) >= 1
    assert [batch for batch in alive if batch() is not None] == []


def test_a_handled_error_keeps_no_batch() -> None:
    def send(batch: Big) -> Started[Big]:
        raise OwnError

    big = Big()
    gone = weakref.ref(big)
    source = iter([big])
    del big
    gc.disable()
    try:
        with pytest.raises(OwnError):
            next(Prefetch(source, send))
        del source
        for thread in threads():
            thread.join(SOON_S)
        assert gone() is None
    finally:
        gc.enable()


def test_a_prefetch_in_a_reference_cycle_is_collected() -> None:
    circle: list[Any] = [Prefetch(range(100), Started)]
    circle.append(circle)
    (thread,) = threads()
    del circle
    gc.collect()
    thread.join(SOON_S)
    assert not thread.is_alive()
