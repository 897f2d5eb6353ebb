from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from native.scenarios import lanes

from pyxfer._ceiling.arena import LEAST_S, wake_link
from pyxfer._document.runs import Fact, LinkState, unknown
from pyxfer.native import Engine
from pyxfer.native._cuda import Copier, Lane
from pyxfer.native._host import testing

SLOW, FAST = Fact(LinkState(1, 16)), Fact(LinkState(5, 16))


@contextmanager
def bench(engine: Engine, memory: str = "pinned") -> Iterator[tuple[Copier, Lane]]:
    with lanes(engine, memory) as (h2d, _, _):
        copier = engine.Copier(0)
        try:
            yield copier, h2d
        finally:
            copier.close()


def never() -> bool:
    return False


def test_it_copies_until_the_link_state_is_steady(engine: Engine) -> None:
    states = [SLOW] * 3 + [FAST] * 2 + [SLOW] + [FAST] * 10_000
    readings = iter(states)
    with bench(engine) as (copier, lane):
        assert wake_link(copier, lane, lambda: next(readings), never, gated=True) == FAST
    assert testing.calls()["cudaMemcpyAsync"] >= 8 * 6


@pytest.mark.parametrize(("memory", "gated"), [("pinned", True), ("pageable", False)])
def test_a_link_of_unknown_state_is_woken_for_a_fixed_time(engine: Engine, memory: str, gated: bool) -> None:
    nothing: Fact[LinkState] = unknown("no PCIe link")
    begun = time.perf_counter()
    with bench(engine, memory) as (copier, lane):
        assert wake_link(copier, lane, lambda: nothing, never, gated=gated) == nothing
    assert time.perf_counter() - begun >= LEAST_S


def test_cancelling_ends_it(engine: Engine) -> None:
    with bench(engine) as (copier, lane):
        assert wake_link(copier, lane, lambda: SLOW, lambda: True, gated=True) == SLOW
    assert "cudaMemcpyAsync" not in testing.calls()
