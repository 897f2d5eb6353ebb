"""What a run holds on the device: copiers, memory, and the ring of staged copies."""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import pytest
from ceiling.troubles import CHOSEN
from samples import known

from pyxfer import Run, ceiling, errors
from pyxfer._ceiling import resources as module
from pyxfer._ceiling.resources import RunResources, StagedCopier
from pyxfer._upload.tuning import ChosenSettings
from pyxfer.errors import CancelledError, CudaError, MeasurementError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024


def test_a_failed_release_is_reported_and_the_rest_is_released(engine: Engine) -> None:
    resources = RunResources(engine, 0, 1.0)
    resources.allocate(["pinned"], 4 * KIB, 0)
    resources.copier(2)
    testing.fail("cuEventDestroy", 3, 700)
    testing.fail("cudaFreeHost", 1, 1)
    faults = resources.close()
    assert [fault.partition(" ")[0] for fault in faults] == ["cuEventDestroy", "cudaFreeHost"]
    assert testing.allocated() == []


def test_cancelling_ends_the_current_copy_and_later_ones(engine: Engine) -> None:
    testing.stall("cudaMemcpyAsync", 1, 60)
    resources = RunResources(engine, 0, 30.0)
    arena = resources.allocate(["pinned"], 4 * KIB, 0)
    lane = arena.lane("h2d", "pinned", 4 * KIB)
    timer = threading.Timer(0.1, resources.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        resources.copier(1).gated("async", lane, 2, 0, 0)
    assert resources.cancelled()
    testing.stall("cudaMemcpyAsync", 1, 60)
    with pytest.raises(CancelledError):  # a bench made later is cancelled from the start
        resources.copier(2).gated("async", lane, 2, 0, 0)
    timer.join()
    testing.release_stalls()
    resources.close()


REFUSED = CudaError(1, "cudaErrorInvalidValue", "cudaMemcpyAsync", "here", "invalid argument", "")


def choosing(patch: pytest.MonkeyPatch, made: ChosenSettings | BaseException) -> list[threading.Thread]:
    """Replace the search for settings, which finds these or raises this error; the threads of its calls."""
    threads: list[threading.Thread] = []

    def choose(*_: object) -> ChosenSettings:
        threads.append(threading.current_thread())
        if isinstance(made, BaseException):
            raise made
        return made

    patch.setattr(module, "settings_for", choose)
    return threads


def run(**changes: Any) -> Run:
    asked: dict[str, Any] = {"mode": ("memcpy", "staged"), "memory": ("pageable",), "direction": ("h2d", "d2h")}
    sizes = (4 * KIB, 64 * KIB)
    return ceiling("host", **{**asked, **changes}, size=sizes, precision=1.0, budget=2.0, seed=1, trace=False)


@pytest.fixture
def resources(engine: Engine) -> Iterator[RunResources]:
    made = RunResources(engine, 0, 30.0)
    yield made
    assert made.close() == []
    assert testing.allocated() == []


def test_a_copier_is_created_once_for_each_number_of_streams(resources: RunResources) -> None:
    testing.fail("cuEventCreate", 5, 2)
    with pytest.raises(CudaError, match="cuEventCreate failed"):
        resources.copier(2)
    assert testing.allocated() == []
    assert resources.copier(1) is resources.copier(1)
    assert resources.copier(2) is not resources.copier(1)


def test_settings_are_chosen_once_in_the_calling_thread(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = choosing(monkeypatch, ChosenSettings(CHOSEN.settings, "cached", "cached on a day"))
    ring = known(run().ring)
    assert threads == [threading.current_thread()]
    assert (ring.threads, ring.source, ring.reason) == (2, "cached", "cached on a day")


@pytest.mark.parametrize("changes", [{"mode": ("memcpy",)}, {"direction": ("both",)}])
def test_plain_copies_need_no_ring(engine: Engine, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    threads = choosing(monkeypatch, CHOSEN)
    run(**changes)
    assert threads == []


def test_problems_of_choosing_settings_are_remarks_of_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, ChosenSettings(CHOSEN.settings, "tuned", "tuned", None, ("the file is read-only",)))
    assert [(each.code, each.text) for each in run().remarks] == [("ring", "the file is read-only")]


def test_ctrl_c_while_settings_are_chosen_ends_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, KeyboardInterrupt())
    saved: list[Run] = []
    ended = run(save_to=saved.append)
    assert ended.ended == "interrupted"
    assert saved == [ended]
    assert testing.allocated() == []


def test_an_error_of_the_search_affects_only_staged_rows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = choosing(monkeypatch, REFUSED)
    measured = run()
    assert measured.ended == "complete"
    staged = [each for each in measured.measurements if each.mode == "staged"]
    assert {each.rate.reason for each in staged} == {str(REFUSED)} == {measured.ring.reason}
    assert all(each.gbps for each in measured.measurements if each.mode == "memcpy")
    assert len(threads) == 1


@pytest.mark.parametrize("kind", [errors.CudaUnavailableError, errors.DeviceLostError])
def test_a_lost_device_ends_the_search(engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: type[CudaError]) -> None:
    choosing(monkeypatch, kind(719, "cudaErrorLaunchFailure", "cudaMemcpyAsync", "here", "failed", ""))
    with pytest.raises(kind):
        run()
    assert testing.allocated() == []


def test_a_run_creates_and_frees_one_ring(resources: RunResources, monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, CHOSEN)
    assert resources.staged_copier() is resources.staged_copier()
    assert resources.ring.value == resources.staged_copier().made


def test_a_failed_ring_is_not_created_again(resources: RunResources, monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, CHOSEN)
    testing.fail("cudaHostAlloc", 1, 2)
    reasons = []
    for _ in range(3):
        with pytest.raises(MeasurementError) as refused:
            resources.staged_copier()
        reasons.append(str(refused.value))
    assert len(set(reasons)) == 1
    assert reasons[0].startswith("no ring, and PYXFER_RING=slots=16 asks for a smaller one: cudaHostAlloc ")
    assert testing.calls()["cudaHostAlloc"] == 1


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


@pytest.fixture
def stuck(engine: Engine, memory: tuple[int, int]) -> Iterator[StagedCopier]:
    """Its first copy is not done before the end of the test, and before the memory is freed."""
    made = StagedCopier(engine, 0, CHOSEN, 30.0)
    testing.stall("cudaMemcpyAsync", 1, 60)
    yield made
    testing.release_stalls()
    made.close()
    engine.take_cleanup_failures()


def test_a_device_that_stops_answering_is_a_timeout(stuck: StagedCopier, memory: tuple[int, int]) -> None:
    stuck._watch.patience_s = 0.2
    with pytest.raises(errors.DeviceTimeoutError, match=r"not finish a staged copy within 0\.2 s.*look at nvidia-smi"):
        stuck.move("h2d", *memory, NBYTES)
    with pytest.raises(errors.DeviceTimeoutError):
        stuck.close()


@pytest.mark.threads
@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_transfer_under_way_can_be_cancelled(stuck: StagedCopier, memory: tuple[int, int], direction: Any) -> None:
    timer = threading.Timer(0.05, stuck.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        stuck.move(direction, *memory, NBYTES)
    timer.join()


def test_a_transfer_after_the_cancellation_does_not_hang(stuck: StagedCopier, memory: tuple[int, int]) -> None:
    stuck.cancel()
    with pytest.raises(CancelledError):
        stuck.move("h2d", *memory, NBYTES)


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaStreamCreateWithFlags", "cuEventCreate"])
def test_a_failed_ring_leaves_nothing_allocated(engine: Engine, call: str) -> None:
    with closing(StagedCopier(engine, 0, CHOSEN, 30.0)):
        made = testing.calls()[call]
    for nth in range(1, made + 1):
        testing.reset()
        testing.fail(call, nth, 2)
        with pytest.raises(errors.CudaMemoryError, match=f"{call} failed"):
            StagedCopier(engine, 0, CHOSEN, 30.0)
        assert testing.allocated() == []


def test_a_failed_thread_start_names_the_limit_to_raise(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Mock(side_effect=OSError(errno.EAGAIN, "Resource temporarily unavailable"))
    monkeypatch.setattr(module, "make_ring", failing)
    with pytest.raises(MeasurementError, match=r"temporarily unavailable.*ulimit -u.* has 2 threads"):
        StagedCopier(engine, 0, CHOSEN, 30.0)


def test_a_failed_start_of_the_watching_thread_frees_the_ring(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(MeasurementError, match="can't start new thread"):
        StagedCopier(engine, 0, CHOSEN, 30.0)
    assert testing.allocated() == []
