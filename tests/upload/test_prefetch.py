"""Prefetching with sources and uploads of the tests; stopping early leaves no thread and no batch."""

from __future__ import annotations

import _thread
import gc
import itertools
import os
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upload.feeding import LONG_S, SOON_S, Blocked, OwnError, Started, threads, wait_until_waiting

from pyxfer._upload import prefetch
from pyxfer._upload.prefetch import Prefetch
from pyxfer.errors import UsageError

pytestmark = pytest.mark.threads


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_each_batch_comes_once_and_in_order(batches: list[int], depth: int) -> None:
    assert list(Prefetch(batches, Started, depth)) == batches


def test_another_thread_draws_and_sends_and_the_loop_waits() -> None:
    ran_in: dict[str, threading.Thread] = {}

    class Recording(Started[int]):
        def result(self) -> int:
            ran_in["result"] = threading.current_thread()
            return super().result()

    def source() -> Iterator[int]:
        ran_in["source"] = threading.current_thread()
        yield 1

    def send(batch: int) -> Recording:
        ran_in["send"] = threading.current_thread()
        return Recording(batch)

    assert list(Prefetch(source(), send)) == [1]
    assert ran_in["source"] is ran_in["send"] is not ran_in["result"] is threading.current_thread()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth_is_the_number_of_batches_sent_ahead(depth: int) -> None:
    sent = [threading.Event() for _ in range(10)]

    def send(batch: int) -> Started[int]:
        sent[batch].set()
        return Started(batch)

    with Prefetch(range(10), send, depth) as batches:
        for taken in range(10 - depth):
            assert sent[taken + depth - 1].wait(LONG_S)
            assert not sent[taken + depth].wait(0.01)
            assert next(batches) == taken


@pytest.mark.parametrize(("depth", "at_once"), [(1, True), (2, False)])
def test_drawing_is_delayed_while_another_batch_is_ready(
    depth: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "DELAY_S", LONG_S if at_once else 2.0)
    sent = [threading.Event() for _ in range(10)]

    def send(batch: int) -> Started[int]:
        sent[batch].set()
        return Started(batch)

    with Prefetch(range(10), send, depth) as batches:
        assert sent[depth - 1].wait(LONG_S)
        assert next(batches) == 0
        assert sent[depth].wait(LONG_S if at_once else 0.05) == at_once
        assert sent[depth].wait(LONG_S)


@pytest.mark.parametrize("depth", [0, -1, 1.5, "2", None])
def test_an_invalid_depth_is_refused(depth: Any) -> None:
    with pytest.raises(UsageError, match=f"depth is .*; got {depth!r}"):
        Prefetch([], Started, depth)


def failing(batches: Iterable[int]) -> Iterator[int]:
    yield from batches
    raise OwnError("in the source")


def test_an_error_of_the_source_comes_after_the_batches_before_it() -> None:
    taken: list[int] = []
    batches = Prefetch(failing(range(5)), Started)
    with pytest.raises(OwnError, match="in the source") as caught:
        taken.extend(batches)
    assert taken == [0, 1, 2, 3, 4]
    assert list(batches) == []
    assert "failing" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def failing_to_send(_: int) -> Started[int]:
    raise OwnError("in send")


def test_an_error_of_sending_has_its_own_traceback() -> None:
    with pytest.raises(OwnError, match="in send") as caught:
        next(Prefetch([1], failing_to_send))
    assert "failing_to_send" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


class Late(Started[int]):
    """An upload whose result raises."""

    error: BaseException = OwnError("in the copy")

    def result(self) -> int:
        if self.batch == 1:
            raise self.error
        return self.batch


def test_an_error_of_an_upload_ends_the_iteration() -> None:
    batches = Prefetch(range(5), Late)
    assert next(batches) == 0
    with pytest.raises(OwnError, match="in the copy"):
        next(batches)
    assert list(batches) == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_system_exit_and_keyboard_interrupt_are_passed_on(error: BaseException) -> None:
    def source() -> Iterator[int]:
        yield 0
        raise error

    batches = Prefetch(source(), Started)
    assert next(batches) == 0
    with pytest.raises(type(error)) as caught:
        next(batches)
    assert caught.value is error


class Stopping(Late):
    """An upload whose result raises StopIteration."""

    error = StopIteration()


def test_stop_iteration_in_sending_becomes_a_runtime_error() -> None:
    def send(_: int) -> Started[int]:
        raise StopIteration

    for batches in (Prefetch(range(5), send), Prefetch([1], Stopping)):
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(batches)


def test_several_threads_get_each_batch_exactly_once() -> None:
    batches = Prefetch(range(500), Started, 3)
    taken: list[list[int]] = [[] for _ in range(4)]
    consumers = [threading.Thread(target=mine.extend, args=(batches,)) for mine in taken]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join()
    assert sorted(itertools.chain(*taken)) == list(range(500))
    assert all(mine == sorted(mine) for mine in taken)


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
