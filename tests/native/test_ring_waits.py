"""What a thread that waits for a ring lets happen: signals, and other threads."""

from __future__ import annotations

import functools
import signal
import threading
import time
from contextlib import ExitStack, closing

import pytest
from native.ring_arrays import CHUNK, FOREVER_S, filled, place, seen

from pyxfer.native import Engine
from pyxfer.native._host import testing

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


def test_ctrl_c_is_raised_also_where_the_transfer_has_just_ended(engine: Engine) -> None:
    """The handler runs while the last question to the device is on its way."""
    array = filled((NBYTES,), "u1")
    with closing(engine.DeviceBuffer(NBYTES)) as memory, closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)) as ring:
        ring.upload(*place(array), memory.address, None, True)
        testing.reset()
        testing.stall("cuEventQuery", 1, 0.3)

        def interrupt() -> None:
            while not testing.calls().get("cuEventQuery"):
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            ring.upload(*place(array), memory.address, None, True)
        interrupting.join()
        engine.take_cleanup_failures()


def test_a_transfer_goes_on_beside_a_signal_whose_handler_raises_nothing(engine: Engine) -> None:
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
            assert seen(memory).tobytes() == array.tobytes()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [1]


@pytest.mark.threads
def test_a_stuck_ring_that_is_dropped_stops_no_other_thread(engine: Engine) -> None:
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
        for _ in range(100):  # this thread would stand still until the device goes on
            time.sleep(0.001)
        assert dropping.is_alive()
        testing.release_stalls()
        dropping.join()
