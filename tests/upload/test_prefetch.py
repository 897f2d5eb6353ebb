"""Prefetching with sources and uploads of the tests; stopping early leaves no thread and no batch."""

from __future__ import annotations

import _thread
import gc
import itertools
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from upload.feeding import LONG_S, SOON_S, Blocked, OwnError, Started, threads, wait_until_waiting
from upload.memories import held

import pyxfer
from pyxfer._upload import prefetch, uploader
from pyxfer._upload.pools import block_bytes
from pyxfer._upload.prefetch import Feeder, Prefetch, Unmapper, shared_tensors
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, FallbackWarning, UsageError
from pyxfer.native._host import testing

pytestmark = pytest.mark.threads


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_each_batch_comes_once_and_in_order(batches: list[int], depth: int) -> None:
    assert list(Prefetch(batches, Started, depth)) == batches


class Sending(list[threading.Event]):
    """Tells which of 12 batches were sent."""

    def __init__(self) -> None:
        super().__init__(threading.Event() for _ in range(12))

    def __call__(self, batch: int) -> Started[int]:
        self[batch].set()
        return Started(batch)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth_is_the_number_of_batches_sent_ahead(depth: int) -> None:
    sent = Sending()
    with Prefetch(range(12), sent, depth) as batches:
        for taken in range(12 - depth):
            assert sent[taken + depth - 1].wait(LONG_S)
            assert not sent[taken + depth].wait(0.01)
            assert next(batches) == taken


def test_another_thread_draws_sends_and_then_prepares_for_the_next_batch() -> None:
    done: list[str] = []
    ran_in: dict[str, threading.Thread] = {}

    def note(what: str) -> None:
        done.append(what)
        ran_in[what] = threading.current_thread()

    class Recording(Started[int]):
        def __call__(self) -> int:
            ran_in["result"] = threading.current_thread()
            return super().__call__()

    def source() -> Iterator[int]:
        for n in range(2):
            note(f"draw {n}")
            yield n

    def send(batch: int) -> Started[int]:
        note(f"send {batch}")
        return Recording(batch)

    batches = Prefetch(source(), send, 1, lambda: note("before"), lambda: note("after"))
    assert list(batches) == [0, 1]
    assert done == ["before", "draw 0", "send 0", "after", "before", "draw 1", "send 1", "after", "before"]
    assert ran_in["draw 0"] is ran_in["send 0"] is not ran_in["result"] is threading.current_thread()


@pytest.mark.parametrize(("depth", "at_once"), [(1, True), (2, False)])
def test_drawing_is_delayed_while_another_batch_is_ready(
    depth: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "DELAY_S", LONG_S if at_once else 2.0)
    sent = Sending()
    with Prefetch(range(12), sent, depth) as batches:
        assert sent[depth - 1].wait(LONG_S)
        assert next(batches) == 0
        assert sent[depth].wait(LONG_S if at_once else 0.05) == at_once
        assert sent[depth].wait(LONG_S)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_drawing_goes_on_when_the_loop_asks_again(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "DELAY_S", 3 * LONG_S)
    sent = Sending()
    with Prefetch(range(12), sent, depth) as batches:
        for taken in range(12 - depth):
            assert next(batches) == taken  # asks for this one, so the one after those ahead is drawn
            assert sent[taken + depth - 1].wait(LONG_S)


@pytest.mark.parametrize("error", [OwnError("in the source"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_of_the_source_comes_after_the_batches_before_it(error: BaseException) -> None:
    def failing() -> Iterator[int]:
        yield from range(5)
        raise error

    taken: list[int] = []
    batches = Prefetch(failing(), Started)
    with pytest.raises(type(error)) as caught:
        taken.extend(batches)
    assert caught.value is error
    assert taken == [0, 1, 2, 3, 4]
    assert list(batches) == []
    assert "failing" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


class Stopping(Started[int]):
    """An upload whose result raises StopIteration."""

    def __call__(self) -> int:
        raise StopIteration


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


def test_ctrl_c_while_the_thread_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        begin(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Prefetch(itertools.count(), Started)
    for thread in threads():
        thread.join(SOON_S)
    assert not threads()


class Shared:
    """One iterator for all loops, which blocks in its first draw."""

    def __init__(self, persistent_workers: bool) -> None:
        self.persistent_workers = persistent_workers
        self.drawing = threading.Event()
        self.released = threading.Event()
        self.disturbed = False

    def __iter__(self) -> Iterator[int]:
        self.disturbed |= self.persistent_workers and self.drawing.is_set()
        return self

    def __next__(self) -> int:
        self.disturbed |= self.drawing.is_set()
        self.drawing.set()
        self.released.wait(LONG_S)
        self.drawing.clear()
        return 0


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_a_loop_waits_until_a_stopped_thread_has_left_its_iterator(
    persistent_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "GRACE_S", 0.0)
    source = Shared(persistent_workers)
    with Prefetch(source, Started):
        assert source.drawing.wait(LONG_S)
    join = Feeder.join

    def release_and_join(self: Feeder[int, Any], seconds: float) -> bool:
        source.released.set()
        return join(self, seconds)

    monkeypatch.setattr(Feeder, "join", release_and_join)
    with Prefetch(source, Started) as batches:
        assert next(batches) == 0
    assert not source.disturbed


def test_a_loop_over_a_blocked_source_may_be_made_before_the_source_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "GRACE_S", 0.0)
    source = Shared(persistent_workers=False)
    with Prefetch(source, Started):
        assert source.drawing.wait(LONG_S)
    with Prefetch(source, Started) as batches:
        source.released.set()
        assert next(batches) == 0


def test_the_iterator_of_the_source_is_gone_when_the_loop_ends() -> None:
    source = (number for number in range(3))
    gone = weakref.ref(source)
    batches = Prefetch(source, Started)
    del source
    assert list(batches) == [0, 1, 2]
    assert gone() is None


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


def test_an_error_of_sending_has_its_own_traceback_and_once_handled_keeps_no_batch() -> None:
    def failing_to_send(_: Big) -> Started[Big]:
        raise OwnError

    big = Big()
    gone = weakref.ref(big)
    source = iter([big])
    del big
    gc.disable()
    try:
        with pytest.raises(OwnError) as caught:
            next(Prefetch(source, failing_to_send))
        assert "failing_to_send" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        del source, caught
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


# --- through an uploader ----------------------------------------------------------------------------------------------

NBYTES = 1 << 16


@pytest.fixture
def own(up: Uploader) -> Target:
    """Arrays in pyxfer's memory, like those of TensorFlow and JAX."""
    return Target(up._pool)


def filled(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8)


def test_batches_of_any_shape_arrive_complete_and_in_order(up: Uploader, own: Target) -> None:
    images = [filled(n)[: n << 11].reshape(2, n << 10).T[::-1] for n in range(20)]
    sent = ((image, [np.int32(n), f"batch {n}"]) for n, image in enumerate(images))
    for n, (image, labels) in enumerate(up.prefetch(sent, own)):
        assert np.array_equal(np.from_dlpack(image), images[n])
        assert (int(np.from_dlpack(labels[0])), labels[1]) == (n, f"batch {n}")


@dataclass(eq=False)
class Loader:
    """In place of torch's DataLoader."""

    pin_memory: bool

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return iter([filled(0)])


@pytest.mark.usefixtures("own_uploaders")
def test_a_loader_that_page_locks_is_named_once_at_the_calling_line(
    up: Uploader, own: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.data", SimpleNamespace(DataLoader=Loader))
    monkeypatch.setattr(uploader, "is_host", lambda _: False)
    loaders = [Loader(pin_memory=True), Loader(pin_memory=True), Loader(pin_memory=False)]
    with pytest.warns(FallbackWarning, match="pin_memory=False") as caught:
        assert [len(list(up.prefetch(loader, own))) for loader in (*loaders, *loaders)] == [1] * 6
    with pytest.warns(FallbackWarning, match="pin_memory=False") as from_function:
        list(pyxfer.prefetch(Loader(pin_memory=True), own, device="host"))  # type: ignore[arg-type]
    assert [warning.filename for warning in (*caught, *from_function)] == [__file__] * 3


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_at_most_depth_plus_two_batches_are_on_the_device(up: Uploader, own: Target, depth: int) -> None:
    seen = set()
    for batch in up.prefetch((filled(n) for n in range(40)), own, depth):
        assert batch.nbytes == NBYTES
        seen.add(held("device"))
    assert max(seen) <= (depth + 2) * block_bytes(NBYTES)


def test_an_array_that_cannot_be_sent_is_named_in_place_of_its_batch(up: Uploader, own: Target) -> None:
    batches = up.prefetch([{"a": filled(0)}, {"a": np.array([object()])}], own)
    assert np.array_equal(np.from_dlpack(next(batches)["a"]), filled(0))
    with pytest.raises(UsageError, match=r'^batch\["a"\]: '):
        next(batches)
    assert list(batches) == []


def test_an_error_of_the_device_comes_in_place_of_the_batch(up: Uploader, own: Target) -> None:
    up.upload(filled(0), own)
    testing.fail("cudaMemcpyAsync", 2, 1)
    with pytest.raises(CudaError, match="cudaMemcpyAsync"):
        list(up.prefetch((filled(n) for n in range(9)), own))
    assert np.array_equal(np.from_dlpack(up.upload(filled(1), own)), filled(1))


def test_closing_the_uploader_ends_the_loop_with_an_error(up: Uploader, own: Target) -> None:
    released = threading.Event()

    def source() -> Iterator[NDArray[np.uint8]]:
        yield filled(0)
        released.wait(LONG_S)
        yield filled(1)

    batches = up.prefetch(source(), own)
    assert np.array_equal(np.from_dlpack(next(batches)), filled(0))
    up.close()
    released.set()
    with pytest.raises(UsageError):
        next(batches)


# --- tensors that a loader's workers have shared ---------------------------------------------------------------------


class Tensor:
    """Stands for a tensor of PyTorch in shared memory."""

    is_cpu = True
    _base = None

    def __init__(self, array: Any) -> None:
        self.array = array
        self.nbytes = array.nbytes

    def is_shared(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array


Tensor.__module__ = "torch"
Tensor.__qualname__ = "Tensor"


class Unmapping:
    """Notes what is unmapped."""

    def __init__(self) -> None:
        self.unmapped: list[tuple[int, int]] = []

    def unmap_shared(self, address: int, nbytes: int) -> bool:
        self.unmapped.append((address, nbytes))
        return True


def test_tensors_of_workers_are_unmapped_where_nobody_keeps_them() -> None:
    noted: Any = Unmapping()
    unmapper = Unmapper(noted)
    arrays = [filled(seed) for seed in range(3)]
    tensors: list[Any] = [Tensor(array) for array in arrays]
    kept = tensors[1]
    unmapper.take_over(tensors)
    assert tensors == []
    unmapper.stop()
    for thread in threading.enumerate():
        if thread.name == "pyxfer-unmap":
            thread.join(SOON_S)
    assert sorted(noted.unmapped) == sorted((array.ctypes.data, array.nbytes) for array in (arrays[0], arrays[2]))
    assert kept.array is arrays[1]
    later: list[Any] = [Tensor(arrays[0])]
    unmapper.take_over(later)
    assert len(later) == 1


def test_only_whole_tensors_in_shared_memory_go_to_the_unmapper() -> None:
    own, view, on_gpu, private = (Tensor(filled(0)) for _ in range(4))
    view._base = own  # type: ignore[assignment]
    on_gpu.is_cpu = False
    private.is_shared = lambda: False  # type: ignore[method-assign]
    assert shared_tensors([filled(1), own, view, on_gpu, private, b"bytes"]) == [own]
