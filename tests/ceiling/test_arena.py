from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._ceiling import arena as module
from pyxfer._ceiling.arena import PLACE_BYTES, SMALL_BYTES, SMALL_SLOTS, Arena, check_memory, sent_bytes, stride_bytes
from pyxfer._ceiling.ways import MEMORIES
from pyxfer._document.runs import Direction, Fact, Memory
from pyxfer.errors import CudaError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB, GIB = 1024, 1024**2, 1024**3
CACHE = 3 * MIB


@contextmanager
def held(
    engine: Engine, largest: int, cache: int = CACHE, memories: tuple[Memory, ...] = ("pageable",)
) -> Iterator[Arena]:
    arena = Arena(engine, 0, memories, largest, cache)
    try:
        yield arena
    finally:
        arena.close()


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
        assert first % PLACE_BYTES == 0


@given(largest=st.integers(1, 1 << 40), cache=st.integers(0, 1 << 30), part=st.floats(0, 1))
def test_every_size_has_two_sources(largest: int, cache: int, part: float) -> None:
    nbytes = max(1, int(largest * part))
    assert sent_bytes(largest, cache) // stride_bytes(nbytes) >= 2


def test_large_sources_together_are_larger_than_the_cache(engine: Engine) -> None:
    with held(engine, 2 * MIB, cache=20 * MIB) as arena:
        lane = arena.lane("h2d", "pageable", 2 * MIB)
        assert lane.slots * lane.nbytes > 20 * MIB


def test_small_copies_use_few_places_with_gaps_between(engine: Engine) -> None:
    with held(engine, 2 * MIB, cache=20 * MIB) as arena:
        assert arena.lane("h2d", "pageable", 4 * KIB).slots == SMALL_SLOTS
    assert stride_bytes(4 * KIB) > 4 * KIB
    assert stride_bytes(SMALL_BYTES) == SMALL_BYTES


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
    with held(engine, MIB, memories=(*MEMORIES, "pinned")):
        assert sorted(kind for kind, _, _ in testing.allocated()) == [
            "device",
            "pinned",
            "pinned",  # the scratch memory
            "registered",
            "write-combined",
        ]
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


def test_the_refusal_names_the_needed_and_the_free_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_host_bytes", lambda: Fact(4 * GIB))
    with pytest.raises(UsageError) as caught:
        check_memory(engine, 0, ["pageable", "pinned"], GIB, CACHE)
    # Each kind of memory and the device's own, two sources and a destination each, and scratch memory.
    assert str(caught.value) == (
        "Copies of 1 GiB need 9232 MiB of host memory for several buffers of that size, and 4 GiB is free. "
        "Choose smaller sizes or fewer kinds of memory."
    )


def test_fewer_kinds_of_memory_need_less(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_host_bytes", lambda: Fact(10 * GIB))
    check_memory(engine, 0, ["pinned"], GIB, CACHE)
    with pytest.raises(UsageError):
        check_memory(engine, 0, ["pageable", "pinned"], GIB, CACHE)
