"""Rings: arrays of any layout, tickets, signals, and other threads during a wait."""

from __future__ import annotations

import functools
import gc
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native.scenarios import CHUNK, FOREVER_S, contents_of, filled, place
from numpy.typing import NDArray

from pyxfer.errors import DeviceTimeoutError
from pyxfer.native import Engine, load
from pyxfer.native._cuda import DeviceBuffer, Ring
from pyxfer.native._host import testing

Array = NDArray[Any]

MOST = 1 << 18
DTYPES = ["u1", "<f2", "V3", "<f4", "<f8", "V12", "<c16", "V24"]


@pytest.fixture(scope="module")
def module_engine() -> Engine:
    return load("host")


@pytest.fixture(scope="module")
def memory(module_engine: Engine) -> Iterator[DeviceBuffer]:
    with closing(module_engine.DeviceBuffer(MOST)) as made:
        yield made


@pytest.fixture(scope="module", params=["plain", "streaming", "demoting"])
def ring(module_engine: Engine, request: pytest.FixtureRequest) -> Iterator[Ring]:
    with closing(module_engine.Ring(0, 3, CHUNK, 2, request.param, 20)) as made:
        yield made


@st.composite
def views(draw: st.DrawFn) -> Array:
    """An array of any order, sliced and reversed, whose items do not share bytes."""
    shape = tuple(draw(st.lists(st.integers(1, 12), max_size=4)))
    dtype = draw(st.sampled_from(DTYPES))
    array = filled(shape, dtype, draw(st.integers(0, 1000)))
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    index = (..., *[draw(st.slices(extent)) for extent in array.shape])
    kept: Array = array[index]
    return kept


@given(array=views())
def test_an_upload_copies_an_array_in_c_order(ring: Ring, memory: DeviceBuffer, array: Array) -> None:
    device = contents_of(memory)
    device[: array.nbytes + 1] = 0x5A
    taken = ring.upload(*place(array), memory.address, None, True)
    assert device[: array.nbytes].tobytes() == array.tobytes()
    assert device[array.nbytes] == 0x5A
    assert taken.chunks == -(-array.nbytes // CHUNK)


@given(array=views())
def test_a_download_writes_only_the_array(ring: Ring, memory: DeviceBuffer, array: Array) -> None:
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    expected = base.copy()
    at = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    contents = filled((array.nbytes,), "u1", 7)
    np.ndarray(array.shape, array.dtype, expected, at, array.strides)[...] = contents.view(array.dtype).reshape(
        array.shape
    )
    contents_of(memory)[: array.nbytes] = contents
    ring.download(*place(array), memory.address, None)
    assert base.tobytes() == expected.tobytes()


def test_a_started_upload_reports_its_end(memory: DeviceBuffer, ring: Ring, engine: Engine) -> None:
    assert engine.RUNTIME == "host"
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    array = filled((MOST,), "u1")
    ticket = ring.start_upload(*place(array), memory.address, None)
    assert not ticket.done()
    with pytest.raises(DeviceTimeoutError):
        ticket.result(0.01)
    testing.release_stalls()
    assert ticket.result(FOREVER_S).wall_s > 0
    assert ticket.done()
    assert contents_of(memory).tobytes() == array.tobytes()


def test_a_dropped_ring_finishes_its_uploads(engine: Engine) -> None:
    array = filled((MOST,), "u1")
    with closing(engine.DeviceBuffer(MOST)) as memory:
        for _ in range(3):
            engine.Ring(0, 2, CHUNK, 2, "plain", 0).start_upload(*place(array), memory.address, None)
            gc.collect()
            assert contents_of(memory).tobytes() == array.tobytes()
            contents_of(memory)[:] = 0


def test_a_ring_has_its_settings(engine: Engine) -> None:
    with closing(engine.Ring(0, 3, 8192, 4, "streaming", 7)) as ring:
        assert (ring.device, ring.threads, ring.chunk_bytes, ring.slots, ring.spin_us) == (0, 3, 8192, 4, 7)
        assert [ring.threads_for(nbytes) for nbytes in (0, 8192, 4 * 8192, 4 * 8192 + 1, 10**6)] == [1, 1, 1, 3, 3]
        assert ring.fill == "streaming"
        assert ring.fill_kernel in {"sse2", "avx2", "avx512", "stnp"}
        assert ring.pinned_bytes == 8192 * 4
        assert ring.pinned_bytes in [nbytes for kind, _, nbytes in testing.allocated() if kind == "pinned"]


NBYTES = 1 << 18


@pytest.mark.parametrize("direction", ["upload", "download"])
def test_ctrl_c_ends_a_transfer_on_a_stuck_device(engine: Engine, direction: str) -> None:
    array = filled((NBYTES,), "u1")
    with ExitStack() as stack:
        memory = stack.enter_context(closing(engine.DeviceBuffer(NBYTES)))
        ring = stack.enter_context(closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)))
        testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
        stack.callback(testing.release_stalls)

        def interrupt() -> None:
            while not testing.calls().get("cudaMemcpyAsync"):
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        transfer = functools.partial(ring.upload, wait=True) if direction == "upload" else ring.download
        with pytest.raises(KeyboardInterrupt):
            transfer(*place(array), memory.address, stream=None)
        interrupting.join()
        engine.take_cleanup_failures()


def test_a_signal_handler_that_returns_does_not_end_a_transfer(engine: Engine) -> None:
    array = filled((NBYTES,), "u1")
    handled = []

    def handle(*_: object) -> None:
        handled.append(1)
        testing.release_stalls()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with closing(engine.DeviceBuffer(NBYTES)) as memory, closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)) as ring:
            testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
            threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
            ring.upload(*place(array), memory.address, None, True)
            assert contents_of(memory).tobytes() == array.tobytes()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [1]


@pytest.mark.threads
def test_dropping_a_stuck_ring_does_not_block_other_threads(engine: Engine) -> None:
    array = filled((CHUNK,), "u1")
    with closing(engine.DeviceBuffer(CHUNK)) as memory, closing(engine.Stream()) as stream:
        rings = [engine.Ring(0, 2, CHUNK, 2, "plain", 0)]
        testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
        rings[0].upload(*place(array), memory.address, stream.handle, False)
        begun = threading.Event()

        def drop() -> None:
            begun.set()
            rings.clear()

        dropping = threading.Thread(target=drop)
        dropping.start()
        begun.wait()
        for _ in range(100):  # would block until the device continues
            time.sleep(0.001)
        assert dropping.is_alive()
        testing.release_stalls()
        dropping.join()
