from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from native.scenarios import MEMORIES, NBYTES

from pyxfer.native import Engine
from pyxfer.native._host import testing

_MEMORY = ctypes.create_string_buffer(NBYTES)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_buffer_can_be_written_to_its_end(engine: Engine, memory: str) -> None:
    with closing(engine.HostBuffer(NBYTES + 1, memory)) as buffer:
        assert buffer.nbytes == NBYTES + 1
        ctypes.memset(buffer.address, 7, NBYTES + 1)
        assert ctypes.string_at(buffer.address + NBYTES, 1) == b"\x07"


def test_a_second_close_does_nothing(engine: Engine) -> None:
    buffer = engine.HostBuffer(NBYTES, "pinned")
    buffer.close()
    buffer.close()
    assert testing.calls()["cudaFreeHost"] == 1


def test_a_buffer_is_released_with_its_last_reference(engine: Engine) -> None:
    buffer = engine.DeviceBuffer(NBYTES)
    assert testing.allocated() == [("device", buffer.address, NBYTES)]
    del buffer
    assert testing.allocated() == []


OWNERS: dict[str, tuple[str, Callable[[Engine], Any]]] = {
    "HostBuffer": ("cudaFreeHost", lambda engine: engine.HostBuffer(NBYTES, "pinned")),
    "DeviceBuffer": ("cudaFree", lambda engine: engine.DeviceBuffer(NBYTES)),
    "Registration": ("cudaHostUnregister", lambda engine: engine.Registration(ctypes.addressof(_MEMORY), NBYTES)),
    "Stream": ("cudaStreamDestroy", lambda engine: engine.Stream()),
    "Bracket": ("cuEventDestroy", lambda engine: engine.Bracket(0)),
    "Copier": ("cuEventDestroy", lambda engine: engine.Copier(0)),
}


@pytest.mark.threads
@pytest.mark.parametrize(("call", "make"), OWNERS.values(), ids=OWNERS)
def test_other_threads_run_during_a_release(engine: Engine, call: str, make: Callable[[Engine], Any]) -> None:
    testing.stall(call, 1, 30)
    held = [make(engine)]
    before = testing.allocated()
    dropping = threading.Thread(target=held.clear)
    dropping.start()
    while call not in testing.calls():
        time.sleep(0.001)
    assert testing.allocated() == before  # the stall, which only this thread ends, holds up nothing here
    testing.release_stalls()
    dropping.join()
    assert testing.allocated() == []
