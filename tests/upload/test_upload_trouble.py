"""Too large arrays, several devices, Ctrl-C, a lost device, and too little page-locked memory."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from upload.feeding import LONG_S, SOON_S, threads

from pyxfer._upload import api, uploader
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaMemoryError, DeviceLostError, FallbackWarning
from pyxfer.native import Choice, Engine
from pyxfer.native._host import testing

FOREVER_S = 60.0
NBYTES = 1 << 16


@pytest.fixture
def up(engine: Engine) -> Iterator[Uploader]:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=2, chunk_bytes=4096, slots=4) as made:
        yield made


def filled(seed: int, nbytes: int = NBYTES) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.mark.parametrize("pooled", [True, False])
def test_an_array_larger_than_the_device_raises_and_the_uploader_continues(
    engine: Engine, up: Uploader, pooled: bool
) -> None:
    own = Target(engine, up._pool if pooled else None)
    with pytest.raises(CudaMemoryError, match="Memory ran out"):
        up.upload(np.broadcast_to(np.uint8(7), (1 << 50,)), own)
    assert np.array_equal(np.from_dlpack(up.upload(filled(0), own)), filled(0))


def test_an_array_may_be_larger_than_the_budget(engine: Engine) -> None:
    with Uploader("host", budget="64KiB", chunk_bytes=16 << 10) as small:
        array = filled(1, (3 << 20) + 11)
        y = small.upload(array, Target(engine))
        assert small.pinned_bytes <= 64 << 10
        assert np.array_equal(small.download(y), array)


def test_without_page_locked_memory_a_prefetch_continues_with_a_warning(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    with Uploader("host", threads=2) as plain:
        with pytest.warns(FallbackWarning, match="page-locked memory for fast copies cannot be allocated"):
            batches = plain.prefetch((filled(n) for n in range(9)), Target(engine))
        for n, batch in enumerate(batches):
            assert np.array_equal(np.from_dlpack(batch), filled(n))
        assert plain.pinned_bytes == 0


@pytest.mark.filterwarnings("ignore::pyxfer.errors.CleanupWarning")
def test_a_device_lost_during_a_loop_ends_the_loop_with_the_error(engine: Engine) -> None:
    lost = Uploader("host", threads=2, chunk_bytes=4096, slots=4)
    batches = lost.prefetch((filled(n) for n in range(1000)), Target(engine))
    for _ in range(3):
        next(batches)
    testing.lose_device(719)
    with pytest.raises(DeviceLostError):
        list(batches)
    assert list(batches) == []
    with pytest.raises(DeviceLostError):
        lost.close()
    gc.collect()
    engine.take_cleanup_failures()


def wait_for_an_upload(up: Uploader, own: Target) -> None:
    up.upload(filled(0), own, block=False).result()


def wait_for_a_batch(up: Uploader, own: Target) -> None:
    for _ in up.prefetch([filled(0)], own):
        pass


@pytest.mark.threads
@pytest.mark.parametrize("wait", [wait_for_an_upload, wait_for_a_batch])
def test_ctrl_c_ends_the_wait_for_a_device_that_does_not_answer(
    engine: Engine, up: Uploader, wait: Callable[[Uploader, Target], None]
) -> None:
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)

    def press() -> None:
        until = time.monotonic() + LONG_S
        while not testing.calls().get("cudaMemcpyAsync") and time.monotonic() < until:
            pressed.wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    pressed = threading.Event()
    presser = threading.Thread(target=press)
    begun = time.monotonic()
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        wait(up, Target(engine))
    assert time.monotonic() - begun < SOON_S
    presser.join()
    testing.release_stalls()
    up.close()
    assert threads() == []


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
def test_each_device_has_one_uploader_under_all_its_names(engine: Engine) -> None:
    first, second = api._uploader(0), api._uploader(1)
    assert (first.device, second.device) == (0, 1)
    assert api._uploader("1") is second
    assert first is not second
    y = second.upload(filled(2), Target(engine))
    assert y.device == 1
    assert np.array_equal(second.download(y), filled(2))
