"""Uploads in the background: waiting for them, dropping them, and their errors."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from upload.memories import held

from pyxfer._upload import pending
from pyxfer._upload.arrays import Source
from pyxfer._upload.movers import RingMover, Ticket
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, DeviceLostError, DeviceTimeoutError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

FOREVER_S = 60.0
NBYTES = 1 << 16


@pytest.fixture
def up(engine: Engine) -> Iterator[Uploader]:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=2, chunk_bytes=4096, slots=2) as made:
        yield made


@pytest.fixture
def own(engine: Engine) -> Target:
    return Target(engine)


def filled(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8)


def test_done_and_result_with_a_timeout(up: Uploader, own: Target) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    array = filled(0)
    sent = up.upload([array, array[::-1]], own, block=False)
    assert not sent.done()
    with pytest.raises(DeviceTimeoutError, match=r"^The upload has not ended within 10\.0 ms\. It continues"):
        sent.result(0.01)
    testing.release_stalls()
    y = sent.result(FOREVER_S)
    assert sent.done()
    assert np.array_equal(np.from_dlpack(y[0]), array)
    assert np.array_equal(np.from_dlpack(y[1]), array[::-1])


@pytest.mark.parametrize("timeout", ["a", b"1", float("nan"), True, [1]], ids=repr)
def test_a_timeout_that_is_not_a_number_is_refused(up: Uploader, own: Target, timeout: Any) -> None:
    sent = up.upload(filled(1), own, block=False)
    with pytest.raises(UsageError, match=f"^timeout must be a number of seconds, .*; got {re.escape(repr(timeout))}$"):
        sent.result(timeout)
    sent.result(None)


@pytest.mark.parametrize("timeout", [60, 60.0, np.float32(60), np.int64(60), float("inf"), 10**400])
def test_any_number_is_a_timeout(up: Uploader, own: Target, timeout: Any) -> None:
    assert up.upload(filled(1), own, block=False).result(timeout) is not None


def test_a_negative_timeout_does_not_wait(up: Uploader, own: Target) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    sent = up.upload(filled(1), own, block=False)
    with pytest.raises(DeviceTimeoutError, match="within 0 s"):
        sent.result(-1)
    testing.release_stalls()


def test_result_returns_the_same_arrays_each_time(up: Uploader, own: Target) -> None:
    sent = up.upload({"a": filled(1)}, own, block=False)
    assert sent.result()["a"] is sent.result(0)["a"]


def test_a_wait_may_consist_of_several_slices(up: Uploader, own: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "SLICE_S", 0.001)
    testing.stall("cudaMemcpyAsync", 1, 0.05)
    array = filled(2)
    assert np.array_equal(np.from_dlpack(up.upload(array, own, block=False).result()), array)


def test_the_source_is_released_with_the_result(up: Uploader, own: Target) -> None:
    array = filled(3)
    gone = weakref.ref(array)
    sent = up.upload([array], own, block=False)
    del array
    gc.collect()
    assert gone() is not None
    sent.result()
    assert gone() is None


def test_a_dropped_upload_continues_and_keeps_its_memory(engine: Engine) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    up = Uploader("host", threads=2, chunk_bytes=4096, slots=2)
    array = filled(4)
    gone = weakref.ref(array)
    up.upload(array, Target(engine), block=False)
    del array
    gc.collect()
    assert gone() is not None
    assert held("device") == NBYTES
    testing.release_stalls()
    up.close()
    assert gone() is None
    assert held("device") == 0


def test_a_dropped_upload_that_is_done_keeps_nothing(up: Uploader, own: Target) -> None:
    sent = up.upload(filled(5), own, block=False)
    sent.result()
    del sent
    assert held("device") == 0


def test_uploads_started_before_a_refused_array_continue(up: Uploader, own: Target) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    with pytest.raises(UsageError, match=r"^x\[1\]: "):
        up.upload([filled(6), np.array([object()])], own, block=False)
    gc.collect()
    assert held("device") == NBYTES
    testing.release_stalls()
    up.close()
    assert held("device") == 0


def test_an_upload_interrupted_at_its_start_is_kept_until_close(engine: Engine) -> None:
    class Interrupted(RingMover):
        def start(self, source: Source, address: int, stream: int | None) -> Ticket:
            super().start(source, address, stream)
            raise KeyboardInterrupt

    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    up = Uploader("host", threads=2, chunk_bytes=4096, slots=2)
    up._mover = Interrupted(engine.Ring(0, 2, 4096, 2, "plain", 0))
    with pytest.raises(KeyboardInterrupt):
        up.upload(filled(11), Target(engine), block=False)
    gc.collect()
    assert held("device") == NBYTES
    testing.release_stalls()
    up.close()
    assert held("device") == 0


def test_result_raises_an_error_of_the_device_and_the_uploader_continues(up: Uploader, own: Target) -> None:
    testing.fail("cudaMemcpyAsync", 3, 1)
    sent = up.upload(filled(7), own, block=False)
    for _ in range(2):
        with pytest.raises(CudaError, match="cudaMemcpyAsync"):
            sent.result()
    assert sent.done()
    array = filled(8)
    assert np.array_equal(np.from_dlpack(up.upload(array, own)), array)


def test_a_lost_device_is_an_error_of_every_call(engine: Engine) -> None:
    up = Uploader("host", threads=2, chunk_bytes=4096, slots=2)
    up.upload(filled(9)[:0], Target(engine))
    testing.fail_sticky("cudaMemcpyAsync", 1, 719)
    sent = up.upload([filled(9)], Target(engine), block=False)
    with pytest.raises(DeviceLostError):
        sent.result()
    with pytest.raises(DeviceLostError):
        up.upload(filled(9), Target(engine))
    with pytest.raises(DeviceLostError):
        up.close()
    with pytest.warns(match="was not released"):  # noqa: PT031
        del sent
        gc.collect()
    engine.take_cleanup_failures()


def test_an_upload_keeps_its_uploader_alive(engine: Engine) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    array = filled(10)
    sent = Uploader("host", threads=2, chunk_bytes=4096, slots=2).upload(array, Target(engine), block=False)
    gc.collect()
    assert not sent.done()
    testing.release_stalls()
    assert np.array_equal(np.from_dlpack(sent.result()), array)
