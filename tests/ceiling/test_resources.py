"""What a run holds: memory for copies and the cost of page-locking it, copiers, and the ring of staged copies."""

from __future__ import annotations

import ctypes
import errno
import mmap
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from ceiling.troubles import CHOSEN
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from native.scenarios import lanes
from samples import known, make_measurement, make_missing

from pyxfer import Run, ceiling, errors
from pyxfer._ceiling import arena as arenas
from pyxfer._ceiling import resources as module
from pyxfer._ceiling.arena import Arena, locking_cost, sent_bytes, stride_bytes
from pyxfer._ceiling.plans import MEMORIES
from pyxfer._ceiling.resources import RunResources, StagedCopier
from pyxfer._document.machines import Fact, LinkState, unknown
from pyxfer._document.runs import Direction, Measurement, Memory
from pyxfer._measure import stats
from pyxfer._upload.tuning import ChosenSettings
from pyxfer.errors import CancelledError, CudaError, MeasurementError, UsageError
from pyxfer.native import Engine
from pyxfer.native._cuda import Copier, Lane
from pyxfer.native._host import testing

KIB, MIB, GIB = 1024, 1024**2, 1024**3
CACHE = 3 * MIB


@contextmanager
def held(
    engine: Engine, largest: int, cache: int = CACHE, memories: tuple[Memory, ...] = ("pageable",)
) -> Iterator[Arena]:
    with closing(Arena(engine, 0, memories, largest, cache)) as arena:
        yield arena


@pytest.mark.parametrize("nbytes", [1, 4095, 4096, 4097, 64 * KIB, MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_places_do_not_overlap_and_are_within_their_part(engine: Engine, nbytes: int) -> None:
    with held(engine, 2 * MIB) as arena:
        first, total = arena.pages("pageable")
        h2d, d2h = (arena.lane(direction, "pageable", nbytes) for direction in ("h2d", "d2h"))
        stride = stride_bytes(nbytes)
        assert stride >= nbytes
        sent = sent_bytes(2 * MIB, CACHE)
        assert h2d.slots * stride <= sent or h2d.slots == 1
        assert d2h.slots * stride <= total - sent or d2h.slots == 1
        assert first % arenas.PLACE_BYTES == 0


@given(largest=st.integers(1, 1 << 40), cache=st.integers(0, 1 << 30), part=st.floats(0, 1))
def test_every_size_has_two_sources(largest: int, cache: int, part: float) -> None:
    nbytes = max(1, int(largest * part))
    assert sent_bytes(largest, cache) // stride_bytes(nbytes) >= 2


def test_large_sources_are_larger_than_the_cache_and_small_ones_few_with_gaps_between(engine: Engine) -> None:
    with held(engine, 2 * MIB, cache=20 * MIB) as arena:
        lane = arena.lane("h2d", "pageable", 2 * MIB)
        assert lane.slots * lane.nbytes > 20 * MIB
        assert arena.lane("h2d", "pageable", 4 * KIB).slots == arenas.SMALL_SLOTS
    assert stride_bytes(4 * KIB) > 4 * KIB
    assert stride_bytes(arenas.SMALL_BYTES) == arenas.SMALL_BYTES


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_lane_uses_its_own_memory(engine: Engine, direction: Direction) -> None:
    with held(engine, MIB, memories=("pageable", "pinned")) as arena:
        first, total = arena.pages("pinned")
        ctypes.memset(first, 0, total)
        lane = arena.lane(direction, "pinned", 64 * KIB)
        engine.prepare_check(0, lane, 0, 5, arena.scratch)
        touched = ctypes.string_at(first, total).rstrip(b"\0").lstrip(b"\0")
        assert 0 < len(touched) <= 64 * KIB
        other, size = arena.pages("pageable")
        assert ctypes.string_at(other, size).count(1) == -(-size // mmap.PAGESIZE)  # as allocation left them


def test_forgetting_frees_only_the_destination_of_the_next_copy(engine: Engine) -> None:
    with held(engine, 64 * KIB) as arena:
        lane = arena.lane("d2h", "pageable", 4 * KIB)
        first, total = arena.pages("pageable")
        begin = first + sent_bytes(64 * KIB, CACHE)
        for turn in (0, 1, lane.slots, 3 * lane.slots + 2):
            ctypes.memset(first, 7, total)
            arena.forget_received("pageable", lane, turn)
            place = begin + turn % lane.slots * stride_bytes(4 * KIB)
            assert ctypes.string_at(place, 4 * KIB) == bytes(4 * KIB)
            assert ctypes.string_at(first, total).count(0) == 4 * KIB


def test_each_kind_of_memory_is_allocated_once(engine: Engine) -> None:
    scratch = "pinned"
    with held(engine, MIB, memories=(*MEMORIES, "pinned")):
        kinds = sorted(kind for kind, _, _ in testing.allocated())
        assert kinds == ["device", "pinned", scratch, "registered", "write-combined"]
    assert testing.allocated() == []


@pytest.mark.parametrize(
    ("call", "nth"), [("cudaMalloc", 1), ("cudaHostAlloc", 1), ("cudaHostAlloc", 2), ("cudaHostRegister", 1)]
)
def test_a_failed_allocation_frees_the_other_buffers(engine: Engine, call: str, nth: int) -> None:
    testing.fail(call, nth, 2)
    with pytest.raises(MemoryError, match=f"{call} failed"):
        Arena(engine, 0, MEMORIES, MIB, CACHE)
    assert testing.allocated() == []


def test_a_failed_release_does_not_prevent_the_others(engine: Engine) -> None:
    arena = Arena(engine, 0, MEMORIES, MIB, CACHE)
    testing.fail("cudaFreeHost", 1, 1)
    testing.fail("cudaFree", 1, 719)
    with pytest.raises(CudaError, match="cudaFreeHost failed"):
        arena.close()
    assert testing.allocated() == []


def test_a_refusal_names_the_needed_and_the_free_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "available_host_bytes", lambda: Fact(10 * GIB))
    arenas.check_memory(engine, 0, ["pinned"], GIB, CACHE)
    # Each kind of memory and the device's own, two sources and a destination each, and scratch memory.
    with pytest.raises(UsageError, match=r"^Copies of 1 GiB need 9232 MiB of host memory .* 10 GiB is free\. Choose"):
        arenas.check_memory(engine, 0, ["pageable", "pinned"], GIB, CACHE)


def never() -> bool:
    return False


def h2d(memory: str, seconds: float, nbytes: int = 16 * MIB, **changes: object) -> Measurement:
    summary = stats.summarise([seconds] * 6)
    return structs.replace(make_measurement(), memory=memory, nbytes=nbytes, summary=summary, **changes)


@pytest.mark.parametrize(("memory", "call"), [("pinned", "cudaHostAlloc"), ("registered", "cudaHostRegister")])
def test_each_page_locking_is_timed_and_freed(engine: Engine, memory: Memory, call: str) -> None:
    testing.stall(call, 1, 0.02)
    seconds = arenas.measure_locking(engine, 0, memory, 4 * KIB, never)
    assert len(seconds) == arenas.TRIALS == testing.calls()[call]
    assert seconds[0] >= 0.02
    assert all(each > 0 for each in seconds)
    assert testing.allocated() == []


def test_page_locking_ends_when_it_is_cancelled_and_after_its_time_limit(engine: Engine) -> None:
    assert arenas.measure_locking(engine, 0, "pinned", 4 * KIB, lambda: True) == []
    testing.stall("cudaHostAlloc", 1, 0.6)
    assert len(arenas.measure_locking(engine, 0, "pinned", 4 * KIB, never)) == 1


def test_at_most_64_mib_are_locked_at_a_time() -> None:
    costs = [locking_cost("pinned", largest, [], []) for largest in (4 * KIB, 16 * GIB)]
    assert [cost.nbytes for cost in costs] == [4 * KIB, arenas.MAX_LOCKED_BYTES]


@pytest.mark.parametrize(
    "measurements",
    [
        [],
        [h2d("pageable", 2e-3)],
        [h2d("pinned", 1e-3)],
        [h2d("pageable", 2e-3), h2d("pinned", 1e-3, 4 * KIB)],
        [h2d("pageable", 2e-3), h2d("pinned", 1e-3, variant="fresh")],
        [h2d("pageable", 2e-3), h2d("pinned", 1e-3, direction="d2h", side="d2h")],
        [h2d("pageable", 2e-3), make_missing()],
        [h2d("pageable", 2e-3, mode="staged"), h2d("pinned", 1e-3)],
    ],
)
def test_without_a_common_size_the_result_has_a_reason(measurements: list[Measurement]) -> None:
    pays = locking_cost("pinned", 64 * MIB, [0.01] * 6, measurements).pays_after_transfers
    assert pays.reason is not None
    assert "h2d was not measured from pageable and from page-locked memory at one size" in pays.reason


SMALL = [h2d("pageable", 1e-5, 4 * KIB), h2d("pinned", 0.9e-5, 4 * KIB), h2d("pageable", 1.0, 256 * MIB)]
BOTH = [h2d("pageable", 2e-3), h2d("pinned", 1e-3)]


@pytest.mark.parametrize(
    ("memory", "rows"),
    [
        ("pinned", BOTH),
        ("registered", BOTH),  # as fast as pinned memory, if it was not measured
        ("pinned", [*BOTH, *SMALL]),  # the largest common size decides
        ("pinned", [h2d("pageable", 9e-3), *BOTH, h2d("pinned", 5e-3)]),  # the best modes do
        ("pinned", [*BOTH, h2d("pageable", 1.1e-3, mode="staged")]),
    ],
)
def test_locking_pays_when_the_saved_time_exceeds_its_cost(memory: Memory, rows: list[Measurement]) -> None:
    cost = locking_cost(memory, 64 * MIB, [0.01] * 6, rows)  # 16 MiB cost 2.5 ms to lock, and each transfer saves 1 ms
    assert (cost.pays_after_transfers.value, cost.pays_direction) == (3, "h2d")
    assert cost.s_per_gib.value == pytest.approx(0.01 * GIB / cost.nbytes)


def test_locking_never_pays_if_pageable_memory_is_as_fast_and_without_a_time_there_is_the_reason() -> None:
    pays = locking_cost("pinned", MIB, [0.01] * 6, [h2d("pageable", 1e-3), h2d("pinned", 1e-3)]).pays_after_transfers
    assert pays.value is None
    cost = locking_cost("pinned", arenas.MAX_LOCKED_BYTES, [], BOTH)
    assert cost.summary is None
    assert cost.s_per_gib.reason == cost.pays_after_transfers.reason == "no page-locking was timed before the run ended"


SLOW, FAST = Fact(LinkState(1, 16)), Fact(LinkState(5, 16))


@contextmanager
def waking(engine: Engine, memory: str = "pinned") -> Iterator[tuple[Copier, Lane]]:
    with lanes(engine, memory) as (h2d, _, _), closing(engine.Copier(0)) as copier:
        yield copier, h2d


def test_it_copies_until_the_link_state_is_steady(engine: Engine) -> None:
    states = [SLOW] * 3 + [FAST] * 2 + [SLOW] + [FAST] * 10_000
    readings = iter(states)
    with waking(engine) as (copier, lane):
        assert arenas.wake_link(copier, lane, lambda: next(readings), never, gated=True) == FAST
    assert testing.calls()["cudaMemcpyAsync"] >= 8 * 6


@pytest.mark.parametrize(("memory", "gated"), [("pinned", True), ("pageable", False)])
def test_a_link_of_unknown_state_is_woken_for_a_fixed_time(engine: Engine, memory: str, gated: bool) -> None:
    nothing: Fact[LinkState] = unknown("no PCIe link")
    begun = time.perf_counter()
    with waking(engine, memory) as (copier, lane):
        assert arenas.wake_link(copier, lane, lambda: nothing, never, gated=gated) == nothing
    assert time.perf_counter() - begun >= arenas.MIN_WAKING_S


def test_cancelling_ends_the_waking(engine: Engine) -> None:
    with waking(engine) as (copier, lane):
        assert arenas.wake_link(copier, lane, lambda: SLOW, lambda: True, gated=True) == SLOW
    assert "cudaMemcpyAsync" not in testing.calls()


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
