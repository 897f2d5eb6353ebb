"""Uploads and downloads on the host runtime, where NumPy can read the memory of the device."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from upload.memories import Capsuled, held

import pyxfer
from pyxfer._upload import api, native_calls, uploader
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, CudaUnavailableError, FallbackWarning, UsageError
from pyxfer.native import Choice, Engine
from pyxfer.native._host import testing

SMALL: dict[str, Any] = {"threads": 3, "chunk_bytes": 4096, "slots": 2}
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def seen(array: Any) -> NDArray[Any]:
    """The array on the device."""
    return np.from_dlpack(array)


# --- what arrives ----------------------------------------------------------------------------------------------------


def test_a_structure_may_be_changed_during_its_upload(up: Uploader, own: Target) -> None:
    x = {"a": VALUES, "b": [VALUES + 1]}
    sent = up.upload(x, own, block=False)
    x["b"].clear()  # type: ignore[attr-defined]
    del x["a"]
    y = sent.result()
    assert np.array_equal(seen(y["b"][0]), VALUES + 1)
    assert np.array_equal(seen(y["a"]), VALUES)


def test_bfloat16_is_sent_and_downloaded(up: Uploader, own: Target) -> None:
    bits = np.array([[0x3F80, 0x4000], [0x4040, 0x4080]], np.uint16)
    y = up.upload(Capsuled(bits, code=4), own)
    assert (y.dtype, y.shape, y.nbytes) == ("bfloat16", (2, 2), 8)
    out = np.zeros((2, 2), np.uint16)
    up.download(y, Capsuled(out, code=4))
    assert np.array_equal(out, bits)


def test_a_download_can_fill_a_given_array(up: Uploader, own: Target) -> None:
    out = np.zeros((4, 3, 2), np.float32)[:, ::-1]
    y = up.upload(VALUES.T, own)
    assert up.download(y, out) is out
    assert np.array_equal(out, VALUES.T)


# --- arguments that are refused --------------------------------------------------------------------------------------


def test_a_framework_that_is_not_installed_is_named(up: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"^PyTorch is not installed: pip install torch$"):
        up.upload(VALUES, "torch")


# --- the order with a stream -----------------------------------------------------------------------------------------


class OnStream(Target):
    """Arrays in pyxfer's memory, with a stream."""

    def __init__(self, engine: Engine, handle: int) -> None:
        super().__init__(DevicePool(engine, 0, 0))
        self.handle = handle

    def stream(self) -> int | None:
        return self.handle


def test_later_work_of_the_stream_sees_the_complete_array(engine: Engine, up: Uploader) -> None:
    testing.model_link(2e8, 0, 2e8, 0)
    array = np.random.default_rng(2).integers(0, 256, 1 << 20, np.uint8)
    with closing(engine.Stream()) as stream, closing(engine.Bracket(0, stream.handle)) as bracket:
        y = up.upload(array, OnStream(engine, stream.handle))
        bracket.begin()
        bracket.end()
        assert bracket.ended_within(30.0)
        assert np.array_equal(seen(y), array)


def test_an_upload_waits_for_earlier_work_of_the_stream(engine: Engine, up: Uploader) -> None:
    with closing(engine.Stream()) as stream, closing(engine.Bracket(0, stream.handle)) as bracket:
        testing.kernel("before", 0.02, stream.handle)
        bracket.begin()
        sent = up.upload(VALUES, OnStream(engine, stream.handle), block=False)
        bracket.end()
        sent.result()
        assert bracket.ended_within(0.0)


@pytest.mark.parametrize("block", [True, False])
def test_a_captured_stream_is_refused_and_its_capture_stays_valid(engine: Engine, up: Uploader, block: bool) -> None:
    with closing(engine.Stream()) as stream:
        testing.begin_capture(stream.handle, "global")
        with pytest.raises(UsageError):
            up.upload(np.zeros(5000, np.uint8), OnStream(engine, stream.handle), block)
        assert testing.end_capture(stream.handle) == 0


# --- memory and closing ----------------------------------------------------------------------------------------------


def test_memory_is_locked_at_the_first_use_within_the_budget(own: Target) -> None:
    array = np.random.default_rng(1).integers(0, 256, (4 << 20) + 11, np.uint8)
    with Uploader("host", threads=8, chunk_bytes=1 << 20, slots=4, max_pinned="2MiB") as up:
        assert held("pinned") == 0
        assert np.array_equal(up.download(up.upload(array, own)), array)
        assert 1 << 20 < held("pinned") <= 2 << 20
        locked = held("pinned")
        up.upload([array] * 3, own, block=False).result()
        assert held("pinned") == locked == up.pinned_bytes
    assert held("pinned") == up.pinned_bytes == 0


def test_close_waits_for_uploads_whose_results_stay_available(own: Target) -> None:
    testing.model_link(2e8, 0, 2e8, 0)
    array = np.random.default_rng(3).integers(0, 256, 1 << 20, np.uint8)
    up = Uploader("host", **SMALL)
    sent = up.upload(array, own, block=False)
    up.close()
    up.close()
    assert sent.done()
    assert np.array_equal(seen(sent.result()), array)
    with pytest.raises(UsageError, match=r"^this Uploader is closed"):
        up.upload(array, own)
    with pytest.raises(UsageError):
        up.download(sent.result())


def test_a_dropped_uploader_is_closed_when_its_uploads_are_done(own: Target) -> None:
    testing.stall("cudaMemcpyAsync", 1, 60.0)
    sent = Uploader("host", **SMALL).upload(np.ones(1 << 20, np.uint8), own, block=False)
    gc.collect()
    assert not sent.done()
    testing.release_stalls()
    assert seen(sent.result()).all()
    del sent
    gc.collect()
    assert testing.allocated() == []


def test_open_uploaders_share_the_time_limit_at_exit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    patience: list[float] = []

    class Stuck:
        def cancel(self) -> None:
            assert patience == []  # all are cancelled before one is ended

        def end(self, patience_s: float) -> None:
            patience.append(patience_s)
            now[0] += patience_s

    uploaders = [Uploader("host") for _ in range(3)]
    monkeypatch.setattr(uploader, "_open", uploaders)
    monkeypatch.setattr("pyxfer._upload.uploader.time.monotonic", lambda: now[0])
    for up in uploaders:
        monkeypatch.setattr(up, "_mover", Stuck())
    uploader._at_exit()
    assert patience == [native_calls.AT_EXIT_S, 0, 0]


# --- failing calls ---------------------------------------------------------------------------------------------------


def test_without_page_locked_memory_the_driver_copies_with_one_warning(own: Target) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    with Uploader("host", **SMALL) as up:
        with pytest.warns(FallbackWarning, match=r"^The 8 KiB of page-locked memory .* more slowly: cudaHostAlloc fa"):
            y = up.upload(VALUES.T, own)
        assert np.array_equal(seen(y), VALUES.T)
        sent = up.upload([VALUES, np.empty((0, 3))], own, block=False)
        assert sent.done()
        assert np.array_equal(up.download(sent.result()[0]), VALUES)
        out = np.zeros((2, 4, 3), np.float32).transpose(0, 2, 1)
        assert np.array_equal(up.download(sent.result()[0], out), VALUES)
        assert held("pinned") == 0


def session(engine: Engine) -> None:
    """A small program with all kinds of transfers."""
    array = np.ones(1 << 15, np.uint8)
    with Uploader("host", threads=2, chunk_bytes=4096, slots=2) as up, closing(engine.Stream()) as stream:
        y = up.upload(array, OnStream(engine, stream.handle))
        up.upload([array, array], Target(DevicePool(engine, 0, 0)), block=False).result()
        up.download(y)
        up.upload(array, Target(DevicePool(engine, 0, 0)), block=False)


@pytest.mark.filterwarnings("ignore::pyxfer.errors.FallbackWarning", "ignore::pyxfer.errors.CleanupWarning")
def test_no_failed_call_leaves_anything_allocated(engine: Engine) -> None:
    session(engine)
    counts = testing.calls()
    raised = set()
    for call, count in counts.items():
        for nth in sorted({1, 2, 3, count // 2, count} - {0}):
            testing.reset()
            testing.fail(call, nth, 1)
            try:
                session(engine)
            except CudaError as error:
                raised.add(error.call)
                error.__traceback__ = None
            engine.take_cleanup_failures()
            if testing.allocated():  # in reference cycles of tracebacks
                gc.collect()
            assert testing.allocated() == [], (call, nth)
    assert raised >= {"cudaMalloc", "cudaHostAlloc", "cudaMemcpyAsync"}


def test_settings_may_be_text_and_numbers_of_numpy(engine: Engine, own: Target) -> None:
    assert engine.RUNTIME == "host"
    with Uploader(
        "host", threads=np.int32(2), chunk_bytes="8KiB", slots=np.int64(4), max_pinned=np.int64(1 << 20)
    ) as up:
        up.upload(VALUES, own)
        assert up.pinned_bytes == 32 << 10


@pytest.mark.parametrize("device", ["nonsense", "", -1, 1.5, None, True, []])
def test_without_a_gpu_an_invalid_device_is_refused(
    device: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "host", "There is no GPU."))
    with pytest.raises(UsageError, match=r" is not a device: give an index, a UUID, a PCI address, or 'host'$"):
        Uploader(device)
    for named in (0, 7, "GPU-97fb2697-5e33-f94c-e6f8-46badc1872ff", "0000:00:06.0"):
        with pytest.warns(FallbackWarning, match=r"^There is no GPU\. Arrays stay in host memory"):
            Uploader(named).close()


@pytest.mark.usefixtures("no_gpu")
def test_require_gpu_raises_at_once_without_a_gpu() -> None:
    with pytest.raises(CudaUnavailableError):
        Uploader(require_gpu=True)


@pytest.mark.parametrize("pool", [0, "0", "0B", "0 B"])
def test_a_pool_of_zero_keeps_nothing(pool: Any, own: Target) -> None:
    with Uploader("host", pool=pool) as up:
        del (y := [up.upload(np.ones(1000), own)])[:]
        assert y == []
        assert up._pool.idle_bytes == 0


def test_an_uploader_closed_by_another_thread_raises_usage_error(own: Target) -> None:
    up = Uploader("host")
    up.upload(VALUES, own)
    mover = up._mover
    assert mover is not None
    mover.close()  # as another thread may, after the check of the uploader
    with pytest.raises(RuntimeError, match="the ring is closed"):
        up.upload(VALUES, own)
    up._closed, ready = True, up._ready
    up._ready = lambda **_: mover  # type: ignore[method-assign]
    with pytest.raises(UsageError):
        up.upload(VALUES, own)
    up._ready = ready  # type: ignore[method-assign]


@pytest.mark.usefixtures("own_uploaders")
def test_threads_share_one_uploader_which_allocates_nothing_before_its_use() -> None:
    found: set[int] = set()
    threads = [threading.Thread(target=lambda: found.add(id(api.shared_uploader("host")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(api._by_index) == 1
    assert found == {id(next(iter(api._by_index.values())))}
    assert testing.allocated() == []


@pytest.mark.usefixtures("own_uploaders")
def test_arrays_are_page_locked_and_released() -> None:
    x = pyxfer.empty_pinned((3, 4), np.int16, device="host")
    assert (x.shape, x.dtype.name, held("pinned")) == ((3, 4), "int16", 24)
    assert pyxfer.empty_pinned(2, device="host").dtype == np.float64
    y = pyxfer.pin(VALUES, device="host")
    assert held("registered") == VALUES.nbytes
    assert np.array_equal(y, VALUES)
    del x, y
    assert held("pinned") + held("registered") == 0


@pytest.mark.usefixtures("own_uploaders")
@pytest.mark.parametrize("device", ["no such device", -1, 99])
def test_an_unknown_device_is_refused(device: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "cuda", ""))
    with pytest.raises(UsageError, match="is none of the devices of this host"):
        pyxfer.upload(VALUES, to="torch", device=device)
