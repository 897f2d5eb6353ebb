"""The memory of a run of links: what is filled, and what is noticed of what arrives."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from pyxfer._document.runs import unknown
from pyxfer._links import resources
from pyxfer._links.plan import FlowPlan, d2h, h2d, write
from pyxfer._links.resources import PIECE_BYTES, Memory, checked_pieces, pieces
from pyxfer.native import Engine
from pyxfer.native._host import testing

NBYTES = 1 << 20


@pytest.fixture
def held(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    testing.set_device_count(2)
    monkeypatch.setattr(resources, "PIECE_BYTES", NBYTES // 8)
    made = Memory(engine, {0: unknown("one node"), 1: unknown("one node")}, seed=5)
    yield made
    for buffer in made.held:
        buffer.close()


def test_pieces_cover_a_block() -> None:
    parts = pieces(3 * PIECE_BYTES + 16)
    assert [size for _, size in parts] == [PIECE_BYTES] * 3 + [16]
    assert [offset for offset, _ in parts] == [PIECE_BYTES * n for n in range(4)]


@pytest.mark.parametrize("seed", range(5))
def test_the_first_and_the_last_piece_are_always_checked(seed: int) -> None:
    assert checked_pieces(4 * PIECE_BYTES, seed) == [0, 1, 2, 3]
    found = checked_pieces(100 * PIECE_BYTES, seed)
    assert found[0] == 0
    assert found[-1] == 99
    assert len(set(found)) == 4


@pytest.mark.parametrize("flow", [h2d(0), d2h(0), write(0, 1)], ids=["h2d", "d2h", "peer"])
def test_only_what_was_copied_has_arrived(held: Memory, flow: FlowPlan) -> None:
    source, landing = held.source(flow, None, NBYTES), held.landing(flow, None, NBYTES)
    assert source.seed is not None
    held.poison(landing, NBYTES)
    assert not held.arrived(landing, NBYTES, source.seed)
    ctypes.memmove(landing.address, source.address, NBYTES)  # the simulated devices have ordinary memory
    assert held.arrived(landing, NBYTES, source.seed)
    ctypes.memset(
        landing.address + NBYTES - 1, 255 - ctypes.c_uint8.from_address(landing.address + NBYTES - 1).value, 1
    )
    assert not held.arrived(landing, NBYTES, source.seed)


def test_each_source_has_contents_of_its_own(held: Memory) -> None:
    seeds = {held.source(flow, None, NBYTES).seed for flow in (h2d(0), h2d(1), d2h(0), d2h(1))}
    assert len(seeds) == 4
    assert held.source(h2d(0), None, NBYTES) is held.source(h2d(0), None, NBYTES)


def test_flows_to_one_gpu_land_apart(held: Memory) -> None:
    landings = [held.landing(flow, None, NBYTES).address for flow in (h2d(0), write(1, 0), write(0, 0))]
    assert len(set(landings)) == 3
