"""Consistency of figures from a real link."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyxfer
from pyxfer._document.runs import Measurement, Run

pytestmark = pytest.mark.gpu
KIB, MIB = 1024, 1024**2
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB)


@pytest.fixture(scope="module")
def run() -> Run:
    return pyxfer.ceiling(directions=("h2d", "d2h"), sizes=SIZES, budget_s=4.0, seed=1)


def pinned(run: Run, direction: str, nbytes: int) -> Measurement:
    (found,) = (
        each
        for each in run.measurements
        if (each.route, each.direction, each.nbytes) == ("raw.pinned-async", direction, nbytes)
    )
    return found


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_larger_copies_are_faster(run: Run, direction: str) -> None:
    rates = [pinned(run, direction, nbytes).gbps or 0 for nbytes in SIZES]
    assert rates == sorted(rates)


def test_small_pinned_copies_have_the_speed_that_a_gate_shows(run: Run) -> None:
    found = pinned(run, "h2d", 4 * KIB)
    assert found.bracket == "gated"
    assert found.elapsed_s is not None
    assert found.elapsed_s < 5e-6


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_caller_waits_for_small_copies_no_shorter_than_the_device_takes(run: Run, direction: str) -> None:
    found = pinned(run, direction, 4 * KIB)
    assert found.has_both_clocks
    assert 0.95 * (found.elapsed_s or 0.0) < (found.wall_s or 0.0) < 50e-6


def test_the_fit_has_a_latency_of_microseconds_or_a_reason(run: Run) -> None:
    (curve,) = (each for each in run.curves if (each.route, each.direction) == ("raw.pinned-async", "h2d"))
    if curve.latency_s.value is None:
        assert curve.latency_s.reason
    else:
        assert 0 < curve.latency_s.value < 50e-6


def test_page_locking_has_a_cost_and_a_break_even(run: Run) -> None:
    (cost,) = (each for each in run.locking if each.memory == "pinned")
    assert cost.s_per_gib.value is not None
    assert 0 < cost.s_per_gib.value < 60
    assert cost.pays_after_transfers.value is not None
    assert 0 < cost.pays_after_transfers.value < 1000


def test_the_run_has_the_numa_node_of_its_memory(run: Run) -> None:
    nodes = {path.name.removeprefix("node") for path in Path("/sys/devices/system/node").glob("node[0-9]*")}
    pages = run.placement.pages_by_node.value
    assert pages is not None
    assert sum(pages.values()) > 0
    assert pages.keys() <= nodes
