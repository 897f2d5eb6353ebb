"""Uploads in the background: waiting, dropping, errors, Ctrl-C, a lost device, and several devices."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from upload.feeding import SOON_S, interrupt_when
from upload.memories import held

from pyxfer._upload import api, pending, uploader
from pyxfer._upload.arrays import Source
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.movers import RingMover, Ticket
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, CudaMemoryError, DeviceLostError, DeviceTimeoutError, UsageError
from pyxfer.native import Choice, Engine
from pyxfer.native._cuda import Pack
from pyxfer.native._host import testing

FOREVER_S = 60.0
NBYTES = 1 << 16


def filled(seed: int, nbytes: int = NBYTES) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def test_done_and_result_with_a_timeout(up: Uploader, own: Target) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    array = filled(0)
    sent = up.upload([array, array[::-1]], own, block=False)
    assert not sent.done()
    with pytest.raises(DeviceTimeoutError, match=r"^The upload has not ended within 10\.0 ms\. It continues"):
        sent.result(0.01)
    with pytest.raises(DeviceTimeoutError, match="within 0 s"):
        sent.result(-1)
    testing.release_stalls()
    y = sent.result(FOREVER_S)
    assert sent.done()
    assert np.array_equal(np.from_dlpack(y[0]), array)
    assert np.array_equal(np.from_dlpack(y[1]), array[::-1])


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


class Interrupted(RingMover):
    def start(self, source: Source | Pack, address: int, stream: int | None) -> Ticket:
        super().start(source, address, stream)
        raise KeyboardInterrupt


def drop(up: Uploader, own: Target, array: Any) -> None:
    up.upload(array, own, block=False)


def be_refused(up: Uploader, own: Target, array: Any) -> None:
    with pytest.raises(UsageError, match=r"^x\[1\]: "):
        up.upload([array, np.array([object()])], own, block=False)


def interrupt(up: Uploader, own: Target, array: Any) -> None:
    up._mover = Interrupted(up.engine.Ring(0, 2, 4096, 2, "plain", 0))
    with pytest.raises(KeyboardInterrupt):
        up.upload(array, own, block=False)


@pytest.mark.parametrize("leave", [drop, be_refused, interrupt])
def test_an_upload_without_a_result_continues_and_keeps_its_memory(
    up: Uploader, own: Target, leave: Callable[..., None]
) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    array = filled(4)
    gone = weakref.ref(array)
    leave(up, own, array)
    del array
    gc.collect()
    assert gone() is not None
    assert held("device") == NBYTES
    testing.release_stalls()
    up.close()
    gc.collect()
    assert gone() is None
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
    up.upload(filled(9)[:0], Target(DevicePool(engine, 0, 0)))
    testing.fail_sticky("cudaMemcpyAsync", 1, 719)
    sent = up.upload([filled(9)], Target(DevicePool(engine, 0, 0)), block=False)
    with pytest.raises(DeviceLostError):
        sent.result()
    with pytest.raises(DeviceLostError):
        up.upload(filled(9), Target(DevicePool(engine, 0, 0)))
    with pytest.raises(DeviceLostError):
        up.close()
    with pytest.warns(match="was not released"):  # noqa: PT031
        del sent
        gc.collect()
    engine.take_cleanup_failures()


@pytest.mark.parametrize("pooled", [True, False])
def test_an_array_larger_than_the_device_raises_and_the_uploader_continues(
    engine: Engine, up: Uploader, pooled: bool
) -> None:
    own = Target(up._pool if pooled else DevicePool(engine, 0, 0))
    with pytest.raises(CudaMemoryError, match="Memory ran out"):
        up.upload(np.broadcast_to(np.uint8(7), (1 << 50,)), own)
    assert np.array_equal(np.from_dlpack(up.upload(filled(0), own)), filled(0))


@pytest.mark.threads
def test_ctrl_c_ends_the_wait_for_a_device_that_does_not_answer(up: Uploader, own: Target) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    begun = time.monotonic()
    waiting = interrupt_when(lambda: "cudaMemcpyAsync" in testing.calls())
    with pytest.raises(KeyboardInterrupt):
        up.upload(filled(0), own, block=False).result()
    assert time.monotonic() - begun < SOON_S
    waiting.join()
    testing.release_stalls()
    up.close()


def test_ctrl_c_in_a_with_block_releases_all_memory() -> None:
    with pytest.raises(KeyboardInterrupt), Uploader("host", threads=2, chunk_bytes=4096, slots=2) as up:  # noqa: PT012
        own = Target(up._pool)
        up.upload(filled(0), own)
        assert held("device") > 0
        raise KeyboardInterrupt
    assert held("device") == held("pinned") == 0


def test_ctrl_c_in_close_leaves_the_memory_to_the_destructor(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Uploader("host", threads=2, chunk_bytes=4096, slots=2)
    up.upload(filled(0), Target(up._pool))

    def interrupted(_: RingMover) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RingMover, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            up.close()
    assert held("device") > 0
    del up
    gc.collect()
    assert held("device") == held("pinned") == 0


def test_ctrl_c_beside_a_device_that_does_not_answer_leaves_memory_to_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    up = Uploader("host", threads=2, chunk_bytes=4096, slots=2)
    up.upload(filled(0), Target(up._pool))
    left: list[float] = []

    def end(self: RingMover, patience_s: float) -> bool:
        self.close()
        left.append(patience_s)
        return False

    monkeypatch.setattr(RingMover, "end", end)
    monkeypatch.setattr(Uploader, "_abandon_memory", lambda self: left.append(held("device")))
    with pytest.raises(KeyboardInterrupt), up:
        raise KeyboardInterrupt
    assert left == [0.5, NBYTES]
    up._pool.close()


@pytest.fixture
def _two_devices(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    testing.set_device_count(2)
    made: dict[Any, Uploader] = {}
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "cuda", ""))
    monkeypatch.setattr(api, "_by_name", {})
    monkeypatch.setattr(api, "_by_index", made)
    monkeypatch.setattr(api, "is_host", lambda _: False)
    yield
    for made_uploader in made.values():
        made_uploader.close()


@pytest.mark.usefixtures("_two_devices")
def test_each_device_has_one_uploader_under_all_its_names() -> None:
    first, second = api.shared_uploader(0), api.shared_uploader(1)
    assert (first.device, second.device) == (0, 1)
    assert api.shared_uploader("1") is second
    assert first is not second
    y = second.upload(filled(2), Target(second._pool))
    assert y.device == 1
    assert np.array_equal(second.download(y), filled(2))
