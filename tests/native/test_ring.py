"""Rings: their settings, signals, and other threads during a wait."""

from __future__ import annotations

import functools
import signal
import threading
import time
from contextlib import ExitStack, closing

import pytest
from native.scenarios import CHUNK, FOREVER_S, contents_of, filled, place

from pyxfer.native import Engine
from pyxfer.native._host import testing


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
