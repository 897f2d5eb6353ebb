"""The rings that a tuning looks at, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from upload.tunings import FILLS, START

from pyxfer._upload import tuning_search
from pyxfer._upload.settings import RingSettings
from pyxfer._upload.tuning_search import Candidates, fills_of
from pyxfer.errors import CudaMemoryError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1 << 10, 1 << 20
HERE = Candidates.here(16, FILLS)


@dataclass
class OtherRing:
    """Of a processor that this one is not."""

    fill_kernel: str

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kernels", "fills"),
    [
        ({"streaming": "avx512", "demoting": "avx512-demoting"}, ("demoting", "streaming", "plain")),
        ({"streaming": "avx2", "demoting": "avx2"}, ("streaming", "plain")),
        ({}, ("plain",)),
    ],
)
def test_a_fill_that_this_processor_does_as_another_is_left_out(
    kernels: dict[str, str], fills: tuple[str, ...], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(_: Engine, device: int, settings: RingSettings) -> OtherRing:
        assert device == 0
        return OtherRing(kernels.get(settings.fill, "plain"))

    monkeypatch.setattr(tuning_search, "make_ring", make)
    assert fills_of(engine, 0) == fills


def test_fills_of_this_processor_end_with_the_plain_one_and_lock_hardly_any_memory(engine: Engine) -> None:
    assert fills_of(engine, 0)[-1] == "plain"
    assert testing.allocated() == []


def test_without_any_page_locked_memory_that_is_said(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    with pytest.raises(CudaMemoryError):
        fills_of(engine, 0)


def test_a_start_has_half_a_small_budget() -> None:
    assert HERE.start(64 * MIB) == START
    assert HERE.start(16 * MIB) == replace(START, slots=128)
    assert HERE.start(32 * KIB) == START.within(32 * KIB)


@pytest.mark.parametrize(
    ("name", "more", "less"),
    [
        ("fill", ["streaming", "plain"], []),
        ("threads", [], [12, 10, 8, 6, 4, 2]),
        ("chunk_bytes", [128 * KIB, 256 * KIB], [32 * KIB]),
        ("slots", [1024], [256, 128]),
    ],
)
def test_the_nearest_come_first(name: str, more: list[object], less: list[object]) -> None:
    found = HERE.neighbours(START, name)
    assert [[getattr(ring, name) for ring in rings] for rings in found] == [more, less]


def test_values_between_the_usual_ones_have_neighbours_too() -> None:
    between = replace(START, threads=9, slots=300)
    assert [rings[0].threads for rings in HERE.neighbours(between, "threads")] == [10, 8]
    assert [rings[0].slots for rings in HERE.neighbours(between, "slots")] == [512, 256]


def test_with_other_chunks_a_ring_keeps_its_bytes() -> None:
    found = [ring for rings in HERE.neighbours(START, "chunk_bytes") for ring in rings]
    assert {ring.pinned_bytes for ring in found} == {START.pinned_bytes}
