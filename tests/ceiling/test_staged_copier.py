"""The staged_copier: its times, its timeout, and the release of its ring."""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from ceiling.rings import CHOSEN

from pyxfer._ceiling import resources as module
from pyxfer._ceiling.resources import StagedCopier
from pyxfer.errors import CancelledError, CudaMemoryError, DeviceTimeoutError, MeasurementError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
NBYTES = 256 * KIB


@pytest.fixture
def memory(engine: Engine) -> Iterator[tuple[int, int]]:
    """A host and a device address for a copy."""
    with closing(engine.HostBuffer(NBYTES, "pageable")) as host, closing(engine.DeviceBuffer(NBYTES)) as device:
        engine.fill(host.address, NBYTES, 5)
        yield host.address, device.address


def test_moved_bytes_arrive_and_the_bracket_has_all_times(engine: Engine, memory: tuple[int, int]) -> None:
    host, device = memory
    with closing(StagedCopier(engine, 0, CHOSEN, 30.0)) as staged_copier:
        for direction in ("h2d", "d2h"):
            bracket = staged_copier.move(direction, host, device, NBYTES)
            assert 0 < bracket.dispatch_s <= bracket.wall_s
            assert bracket.elapsed_s > 0
            assert bracket.word == "drained"
            ctypes.memset(host, 0, NBYTES if direction == "h2d" else 0)
    assert engine.first_unlike(host, NBYTES, 5) is None
    assert staged_copier.moved == 2


def test_a_device_that_stops_answering_is_a_timeout(engine: Engine, memory: tuple[int, int]) -> None:
    staged_copier = StagedCopier(engine, 0, CHOSEN, 0.2)
    testing.stall("cudaMemcpyAsync", 1, 60)
    with pytest.raises(DeviceTimeoutError, match=r"did not finish a staged copy within 0\.2 s.*look at nvidia-smi"):
        staged_copier.move("h2d", *memory, NBYTES)
    with pytest.raises(DeviceTimeoutError):
        staged_copier.close()
    testing.release_stalls()
    staged_copier.close()
    engine.take_cleanup_failures()


@pytest.mark.threads
@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_transfer_under_way_can_be_cancelled(engine: Engine, memory: tuple[int, int], direction: Any) -> None:
    staged_copier = StagedCopier(engine, 0, CHOSEN, 30.0)
    testing.stall("cudaMemcpyAsync", 1, 60)
    timer = threading.Timer(0.05, staged_copier.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        staged_copier.move(direction, *memory, NBYTES)
    timer.join()
    testing.release_stalls()
    staged_copier.close()
    engine.take_cleanup_failures()


def test_a_transfer_after_the_cancellation_does_not_hang(engine: Engine, memory: tuple[int, int]) -> None:
    staged_copier = StagedCopier(engine, 0, CHOSEN, 30.0)
    staged_copier.cancel()
    testing.stall("cudaMemcpyAsync", 1, 60)
    with pytest.raises(CancelledError):
        staged_copier.move("h2d", *memory, NBYTES)
    testing.release_stalls()
    staged_copier.close()
    engine.take_cleanup_failures()


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaStreamCreateWithFlags", "cuEventCreate"])
def test_a_failed_ring_leaves_nothing_allocated(engine: Engine, call: str) -> None:
    with closing(StagedCopier(engine, 0, CHOSEN, 30.0)):
        made = testing.calls()[call]
    for nth in range(1, made + 1):
        testing.reset()
        testing.fail(call, nth, 2)
        with pytest.raises(CudaMemoryError, match=f"{call} failed"):
            StagedCopier(engine, 0, CHOSEN, 30.0)
        assert testing.allocated() == []


def test_a_failed_thread_start_names_the_limit_to_raise(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(module, "make_ring", refuse)
    with pytest.raises(MeasurementError, match=r"temporarily unavailable.*ulimit -u.* has 2 threads"):
        StagedCopier(engine, 0, CHOSEN, 30.0)


def test_a_failed_start_of_the_watching_thread_frees_the_ring(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(MeasurementError, match="can't start new thread"):
        StagedCopier(engine, 0, CHOSEN, 30.0)
    assert testing.allocated() == []
