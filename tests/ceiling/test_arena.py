"""The memory of raw copies, the cost of page-locking it, and the waking of the link."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from native.scenarios import lanes
from samples import make_measurement, make_missing

from pyxfer._ceiling import arena as module
from pyxfer._ceiling.arena import Arena, locking_cost, sent_bytes, stride_bytes
from pyxfer._ceiling.plans import MEMORIES
from pyxfer._document.machines import Fact, LinkState, unknown
from pyxfer._document.runs import Direction, Measurement, Memory
from pyxfer._measure import stats
from pyxfer.errors import CudaError, UsageError
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
        assert first % module.PLACE_BYTES == 0


@given(largest=st.integers(1, 1 << 40), cache=st.integers(0, 1 << 30), part=st.floats(0, 1))
def test_every_size_has_two_sources(largest: int, cache: int, part: float) -> None:
    nbytes = max(1, int(largest * part))
    assert sent_bytes(largest, cache) // stride_bytes(nbytes) >= 2


def test_large_sources_are_larger_than_the_cache_and_small_ones_few_with_gaps_between(engine: Engine) -> None:
    with held(engine, 2 * MIB, cache=20 * MIB) as arena:
        lane = arena.lane("h2d", "pageable", 2 * MIB)
        assert lane.slots * lane.nbytes > 20 * MIB
        assert arena.lane("h2d", "pageable", 4 * KIB).slots == module.SMALL_SLOTS
    assert stride_bytes(4 * KIB) > 4 * KIB
    assert stride_bytes(module.SMALL_BYTES) == module.SMALL_BYTES


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
    monkeypatch.setattr(module, "available_host_bytes", lambda: Fact(10 * GIB))
    module.check_memory(engine, 0, ["pinned"], GIB, CACHE)
    # Each kind of memory and the device's own, two sources and a destination each, and scratch memory.
    with pytest.raises(UsageError, match=r"^Copies of 1 GiB need 9232 MiB of host memory .* 10 GiB is free\. Choose"):
        module.check_memory(engine, 0, ["pageable", "pinned"], GIB, CACHE)


def never() -> bool:
    return False


def h2d(memory: str, seconds: float, nbytes: int = 16 * MIB, **changes: object) -> Measurement:
    summary = stats.summarise([seconds] * 6)
    return structs.replace(make_measurement(), memory=memory, nbytes=nbytes, summary=summary, **changes)


@pytest.mark.parametrize(("memory", "call"), [("pinned", "cudaHostAlloc"), ("registered", "cudaHostRegister")])
def test_each_page_locking_is_timed_and_freed(engine: Engine, memory: Memory, call: str) -> None:
    testing.stall(call, 1, 0.02)
    seconds = module.measure_locking(engine, 0, memory, 4 * KIB, never)
    assert len(seconds) == module.TRIALS == testing.calls()[call]
    assert seconds[0] >= 0.02
    assert all(each > 0 for each in seconds)
    assert testing.allocated() == []


def test_page_locking_ends_when_it_is_cancelled_and_after_its_time_limit(engine: Engine) -> None:
    assert module.measure_locking(engine, 0, "pinned", 4 * KIB, lambda: True) == []
    testing.stall("cudaHostAlloc", 1, 0.6)
    assert len(module.measure_locking(engine, 0, "pinned", 4 * KIB, never)) == 1


def test_at_most_64_mib_are_locked_at_a_time() -> None:
    costs = [locking_cost("pinned", largest, [], []) for largest in (4 * KIB, 16 * GIB)]
    assert [cost.nbytes for cost in costs] == [4 * KIB, module.MAX_LOCKED_BYTES]


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
    cost = locking_cost("pinned", module.MAX_LOCKED_BYTES, [], BOTH)
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
        assert module.wake_link(copier, lane, lambda: next(readings), never, gated=True) == FAST
    assert testing.calls()["cudaMemcpyAsync"] >= 8 * 6


@pytest.mark.parametrize(("memory", "gated"), [("pinned", True), ("pageable", False)])
def test_a_link_of_unknown_state_is_woken_for_a_fixed_time(engine: Engine, memory: str, gated: bool) -> None:
    nothing: Fact[LinkState] = unknown("no PCIe link")
    begun = time.perf_counter()
    with waking(engine, memory) as (copier, lane):
        assert module.wake_link(copier, lane, lambda: nothing, never, gated=gated) == nothing
    assert time.perf_counter() - begun >= module.MIN_WAKING_S


def test_cancelling_ends_the_waking(engine: Engine) -> None:
    with waking(engine) as (copier, lane):
        assert module.wake_link(copier, lane, lambda: SLOW, lambda: True, gated=True) == SLOW
    assert "cudaMemcpyAsync" not in testing.calls()
