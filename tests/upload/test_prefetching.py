"""Prefetching with sources and uploads of the tests."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upload.feeding import LONG_S, OwnError, Started

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


def test_an_object_that_is_not_iterable_is_refused() -> None:
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        Prefetch(3, Started)  # type: ignore[arg-type]


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


def test_a_prefetch_can_be_the_source_of_another() -> None:
    with Prefetch(Prefetch(range(20), Started), Started) as batches:
        assert list(batches) == list(range(20))
