from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from native.scenarios import MEMORIES, NBYTES

from pyxfer.errors import CudaMemoryError
from pyxfer.native import Engine
from pyxfer.native._host import testing

_MEMORY = ctypes.create_string_buffer(NBYTES)
KINDS = {"pinned": "pinned", "registered": "registered", "write-combined": "write-combined"}


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_buffer_can_be_written_to_its_end(engine: Engine, memory: str) -> None:
    with closing(engine.HostBuffer(NBYTES + 1, memory)) as buffer:
        assert buffer.nbytes == NBYTES + 1
        ctypes.memset(buffer.address, 7, NBYTES + 1)
        assert ctypes.string_at(buffer.address + NBYTES, 1) == b"\x07"


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_buffer_begins_on_a_page(engine: Engine, memory: str) -> None:
    with closing(engine.HostBuffer(NBYTES, memory)) as buffer:
        assert buffer.address % 4096 == 0


@pytest.mark.parametrize(("memory", "kind"), KINDS.items())
def test_page_locked_memory_is_of_its_kind(engine: Engine, memory: str, kind: str) -> None:
    with closing(engine.HostBuffer(NBYTES, memory)) as buffer:
        assert (kind, buffer.address, NBYTES) in testing.allocated()


def test_pageable_memory_is_not_allocated_by_cuda(engine: Engine) -> None:
    with closing(engine.HostBuffer(NBYTES, "pageable")) as buffer:
        assert testing.allocated() == []
        assert buffer.locking_s == 0


@pytest.mark.parametrize("memory", ["pinned", "registered"])
def test_page_locking_is_timed(engine: Engine, memory: str) -> None:
    testing.stall("cudaHostAlloc" if memory == "pinned" else "cudaHostRegister", 1, 0.05)
    with closing(engine.HostBuffer(NBYTES, memory)) as buffer:
        assert buffer.locking_s >= 0.05


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


def test_forgotten_pages_are_zero(engine: Engine) -> None:
    with closing(engine.HostBuffer(NBYTES, "pageable")) as buffer:
        ctypes.memset(buffer.address, 7, NBYTES)
        buffer.forget(4096, 4096)
        contents = ctypes.string_at(buffer.address, NBYTES)
        assert contents == b"\x07" * 4096 + b"\x00" * 4096 + b"\x07" * (NBYTES - 8192)


@pytest.mark.parametrize(("offset", "nbytes"), [(0, NBYTES + 1), (NBYTES, 1), (4096, 2**64 - 1)])
def test_only_pages_of_the_buffer_can_be_forgotten(engine: Engine, offset: int, nbytes: int) -> None:
    with (
        closing(engine.HostBuffer(NBYTES, "pageable")) as buffer,
        pytest.raises(IndexError, match="not inside the buffer"),
    ):
        buffer.forget(offset, nbytes)


@pytest.mark.parametrize("memory", KINDS)
def test_page_locked_memory_cannot_be_forgotten(engine: Engine, memory: str) -> None:
    with closing(engine.HostBuffer(NBYTES, memory)) as buffer, pytest.raises(ValueError, match="only pageable"):
        buffer.forget(0, 4096)


@pytest.mark.parametrize("memory", ["pageable", "registered"])
def test_too_much_host_memory_is_refused(engine: Engine, memory: str) -> None:
    with pytest.raises(MemoryError, match="Host memory ran out: ask for smaller sizes"):
        engine.HostBuffer(1 << 60, memory)


def test_too_much_page_locked_memory_is_refused(engine: Engine) -> None:
    with pytest.raises(CudaMemoryError, match="cudaHostAlloc failed with cudaErrorMemoryAllocation"):
        engine.HostBuffer(1 << 60, "pinned")


def test_too_much_device_memory_is_refused(engine: Engine) -> None:
    with pytest.raises(CudaMemoryError, match="cudaMalloc failed with cudaErrorMemoryAllocation"):
        engine.DeviceBuffer(1 << 60)


def test_an_unknown_kind_of_memory_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="known are pageable, pinned, registered, write-combined"):
        engine.HostBuffer(NBYTES, "cardboard")


def test_a_buffer_of_zero_bytes_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        engine.HostBuffer(0, "pinned")
