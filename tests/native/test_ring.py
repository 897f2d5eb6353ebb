from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native.ring_arrays import CHUNK, FOREVER_S, contents_of, filled, place
from numpy.typing import NDArray

from pyxfer.errors import CancelledError, CudaError, DeviceLostError, DeviceTimeoutError
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


@given(shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), itemsize=st.sampled_from([1, 4, 12]))
def test_an_upload_of_a_broadcast_array_repeats_its_items(
    ring: Ring, memory: DeviceBuffer, shape: tuple[int, int, int], itemsize: int
) -> None:
    array = np.broadcast_to(filled((shape[1], 1), f"V{itemsize}"), shape)
    ring.upload(*place(array), memory.address, None, True)
    assert contents_of(memory)[: array.nbytes].tobytes() == array.tobytes()


@pytest.mark.parametrize("nbytes", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, MOST - 1, MOST])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_all_sizes_can_be_uploaded_and_downloaded(engine: Engine, threads: int, nbytes: int) -> None:
    array, back = filled((nbytes,), "u1"), np.zeros(nbytes, np.uint8)
    with closing(engine.DeviceBuffer(MOST)) as memory, closing(engine.Ring(0, threads, CHUNK, 2, "plain", 0)) as ring:
        ring.upload(*place(array), memory.address, None, True)
        ring.download(*place(back), memory.address, None)
    assert np.array_equal(array, back)


def test_an_array_may_be_changed_when_an_upload_returns(ring: Ring, memory: DeviceBuffer, engine: Engine) -> None:
    testing.model_link(2e9, 0, 0, 0)
    array = filled((MOST,), "u1")
    contents = array.tobytes()
    ring.upload(*place(array), memory.address, 0, False)
    array[:] = 0
    engine.synchronize(0)
    assert contents_of(memory).tobytes() == contents


def test_an_upload_waits_for_earlier_work_of_its_stream(ring: Ring, memory: DeviceBuffer, engine: Engine) -> None:
    array = filled((MOST,), "u1")
    contents_of(memory)[:] = 0
    with closing(engine.Stream()) as stream, closing(engine.Bracket(0, stream.handle)) as bracket:
        testing.kernel("before", 0.02, stream.handle)
        bracket.begin()
        ticket = ring.start_upload(*place(array), memory.address, stream.handle)
        bracket.end()
        assert ticket.result(FOREVER_S).chunks == MOST // CHUNK
        assert bracket.ended_within(0.0)
    assert contents_of(memory).tobytes() == array.tobytes()


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


@pytest.mark.threads
def test_threads_upload_and_download_at_once(engine: Engine) -> None:
    right = []

    def use(ring: Ring, seed: int) -> None:
        with closing(engine.DeviceBuffer(8 * CHUNK)) as memory:
            for turn in range(10):
                array, back = filled((8 * CHUNK,), "u1", seed + turn), np.zeros(8 * CHUNK, np.uint8)
                if turn % 2:
                    ring.upload(*place(array), memory.address, None, True)
                else:
                    ring.start_upload(*place(array), memory.address, None).result(FOREVER_S)
                ring.download(*place(back), memory.address, None)
                right.append(np.array_equal(array, back))

    with closing(engine.Ring(0, 2, CHUNK, 2, "streaming", 0)) as ring:
        threads = [threading.Thread(target=use, args=(ring, 100 * n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert right == [True] * 40


@pytest.mark.threads
def test_a_ring_works_after_a_cancelled_transfer(engine: Engine) -> None:
    array = filled((MOST,), "u1")
    with ExitStack() as stack:
        memory = stack.enter_context(closing(engine.DeviceBuffer(MOST)))
        ring = stack.enter_context(closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)))
        testing.stall("cudaMemcpyAsync", 3, FOREVER_S)
        later = threading.Timer(0.05, ring.cancel)
        later.start()
        with pytest.raises(CancelledError, match=r"^cancelled during an upload$"):
            ring.upload(*place(array), memory.address, None, True)
        later.join()
        testing.release_stalls()
        ring.upload(*place(array), memory.address, None, True)
        assert contents_of(memory).tobytes() == array.tobytes()
        assert len(engine.take_cleanup_failures()) == 1


def test_a_lost_device_fails_transfer_and_close(engine: Engine) -> None:
    array = filled((MOST,), "u1")
    memory, ring = engine.DeviceBuffer(MOST), engine.Ring(0, 2, CHUNK, 2, "plain", 0)
    testing.fail_sticky("cudaMemcpyAsync", 3, 719)
    with pytest.raises(DeviceLostError):
        ring.upload(*place(array), memory.address, None, True)
    with pytest.raises(DeviceLostError):
        ring.close()
    with pytest.raises(DeviceLostError):
        memory.close()
    assert engine.take_cleanup_failures()


def test_a_ring_without_page_locked_memory_is_refused(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    with pytest.raises(CudaError, match="cudaHostAlloc") as caught:
        engine.Ring(0, 2, CHUNK, 2, "plain", 0)
    assert "ulimit -l" in caught.value.hint


def test_a_ring_whose_close_timed_out_can_be_closed_again(engine: Engine) -> None:
    array = filled((CHUNK,), "u1")
    with closing(engine.DeviceBuffer(CHUNK)) as memory:
        ring = engine.Ring(0, 2, CHUNK, 2, "plain", 0)
        testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
        ring.upload(*place(array), memory.address, None, False)
        with pytest.raises(DeviceTimeoutError, match=r"did not finish the copies of a ring within 0\.01 s"):
            ring.close(0.01)
        testing.release_stalls()
        ring.close()


def test_a_closed_ring_refuses_transfers(engine: Engine) -> None:
    array = filled((1,), "u1")
    with closing(engine.DeviceBuffer(1)) as memory:
        ring = engine.Ring(0, 2, CHUNK, 2, "plain", 0)
        ring.close()
        ring.close()
        with pytest.raises(RuntimeError, match=r"^the ring is closed: make another one$"):
            ring.upload(*place(array), memory.address, None, True)


def test_a_ring_has_its_settings(engine: Engine) -> None:
    with closing(engine.Ring(0, 3, 8192, 4, "streaming", 7)) as ring:
        assert (ring.device, ring.threads, ring.chunk_bytes, ring.slots, ring.spin_us) == (0, 3, 8192, 4, 7)
        assert [ring.threads_for(nbytes) for nbytes in (0, 8192, 4 * 8192, 4 * 8192 + 1, 10**6)] == [1, 1, 1, 3, 3]
        assert ring.fill == "streaming"
        assert ring.fill_kernel in {"sse2", "avx2", "avx512", "stnp"}
        assert ring.pinned_bytes == 8192 * 4
        assert ring.pinned_bytes in [nbytes for kind, _, nbytes in testing.allocated() if kind == "pinned"]


@pytest.mark.parametrize(
    ("settings_", "sentence"),
    [
        ((0, CHUNK, 2, "plain", 0), "a ring has 1 to 64 threads, and not 0"),
        ((2, -1, 2, "plain", 0), "a power of two, and not of -1"),
        ((2, 5000, 2, "plain", 0), "a power of two, and not of 5000"),
        ((2, CHUNK, 1, "plain", 0), "a ring has 2 to 4096 slots, and not 1"),
        ((2, CHUNK, 2, "fast", 0), 'unknown fill "fast"; known are plain, streaming and demoting'),
        ((2, CHUNK, 2, "plain", 10**6 + 1), "a ring has 0 to 1000000 microseconds to spin, and not 1000001"),
    ],
)
def test_impossible_settings_of_a_ring_are_refused(
    engine: Engine, settings_: tuple[int, int, int, str, int], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        engine.Ring(0, *settings_)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        ((4096, 0, (3,), (4,)), "an item has at least one byte"),
        ((4096, 4, (-3,), (4,)), "an array has no dimension of -3 items"),
        ((4096, 4, (3, 4), (4,)), "one stride for each: shape has 2 and strides has 1"),
        ((4096, 4, (1 << 40, 1 << 40), (0, 0)), "more bytes than can be addressed"),
        ((4096, 4, (2,), (-8192,)), "leaves the address space"),
        ((0, 4, (3,), (4,)), "needs the address of its first item"),
        ((4096, 4, (3,), (0,)), "the items of the destination overlap or interleave"),
    ],
)
def test_an_impossible_array_is_refused(
    ring: Ring, memory: DeviceBuffer, array: tuple[int, int, tuple[int, ...], tuple[int, ...]], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ring.download(*array, memory.address, None)
