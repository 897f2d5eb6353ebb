"""Busy intervals, overlap and bytes of copies that ran at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from pyxfer._links import stamps, traffic

MS = 1_000_000


def times(*milliseconds: float) -> NDArray[np.int64]:
    return np.asarray([round(each * MS) for each in milliseconds], dtype=np.int64)


@dataclass
class Flow:
    """Stamps as the engine returns them."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    clock_error_ns: float = 0.0
    late: bool = False


def steady(start: float, each: float, count: int, pause: float = 0.0, **more: object) -> Flow:
    """Items of `each` milliseconds, one after the other."""
    begins = [start + number * (each + pause) for number in range(count)]
    return Flow(times(*begins), times(*(begin + each for begin in begins)), **more)  # type: ignore[arg-type]


def test_queued_items_are_one_busy_stretch() -> None:
    flow = steady(5, 2.0, 10, pause=0.01)
    found = stamps.busy(flow.begin_ns, flow.end_ns)
    assert found.tolist() == [[5 * MS, int(flow.end_ns[-1])]]


def test_a_long_pause_divides_a_busy_stretch() -> None:
    found = stamps.busy(times(0, 1, 5), times(1, 2, 6))
    assert found.tolist() == [[0, 2 * MS], [5 * MS, 6 * MS]]


@pytest.mark.parametrize(
    ("flows", "overlap"),
    [
        ([(0, 10), (0, 10)], 1.0),
        ([(0, 10), (5, 15)], 5 / 15),
        ([(0, 10), (2, 8)], 0.6),
        ([(0, 10), (10, 20)], 0.0),
        ([(0, 10), (0, 10), (0, 5)], 0.5),
    ],
)
def test_the_overlap_is_the_intersection_over_the_union(flows: list[tuple[int, int]], overlap: float) -> None:
    assert stamps.overlap([times(*flow).reshape(1, 2) for flow in flows]) == pytest.approx(overlap)


def test_a_pause_of_one_flow_lowers_the_overlap() -> None:
    paused = times(0, 4, 6, 10).reshape(2, 2)
    assert stamps.overlap([paused, times(0, 10).reshape(1, 2)]) == pytest.approx(0.8)


def test_bytes_count_in_proportion_at_the_ends_of_the_common_interval() -> None:
    trial = stamps.make_trial(3, [steady(0, 1.0, 100), steady(0.5, 1.0, 100)], [1000, 500])
    assert (trial.round, trial.invalid) == (3, None)
    assert trial.seconds == pytest.approx(0.0995)
    assert trial.nbytes == pytest.approx((99.5 * 1000, 99.5 * 500))
    assert trial.overlap == pytest.approx(99.5 / 100.5)


def test_a_flow_by_itself_has_all_of_its_bytes() -> None:
    trial = stamps.make_trial(0, [steady(7, 2.0, 5, pause=0.1)], [100])
    assert (trial.seconds, *trial.nbytes, trial.overlap) == pytest.approx((0.0104, 500.0, 1.0))


@pytest.mark.parametrize("apart", [0.04, 0.06, 0.5])
def test_a_trial_counts_from_an_overlap_of_95_percent_on(apart: float) -> None:
    # Of two equal stretches that are shifted by a share s of their length, (1 - s)/(1 + s) is common.
    shift = 100 * apart / (2 - apart)
    trial = stamps.make_trial(0, [steady(0, 1.0, 100), steady(shift, 1.0, 100)], [1, 1])
    assert trial.overlap == pytest.approx(1 - apart, abs=1e-6)
    assert (trial.invalid is None) == (apart < 0.05)


def test_flows_that_never_run_at_once_have_no_bytes() -> None:
    trial = stamps.make_trial(0, [steady(0, 1.0, 10), steady(20, 1.0, 10)], [1, 1])
    assert (trial.seconds, trial.nbytes, trial.overlap) == (0.0, (0.0, 0.0), 0.0)
    assert trial.invalid is not None


def test_a_late_gate_and_a_flow_without_copies_and_loose_clocks_are_invalid() -> None:
    fine = steady(0, 1.0, 100)
    for other in (
        steady(0, 1.0, 100, late=True),
        Flow(times(), times()),
        steady(0, 1.0, 100, clock_error_ns=2 * MS),
    ):
        assert stamps.make_trial(0, [fine, other], [1, 1]).invalid is not None
    assert stamps.make_trial(0, [steady(0, 1.0, 100, clock_error_ns=2 * MS)], [1]).invalid is None


@pytest.mark.parametrize("seed", range(20))
def test_the_rates_of_flows_at_random_are_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    flows, rates = [], []
    for _ in range(4):
        each = random.uniform(0.5, 2.0)
        flows.append(steady(random.uniform(0, 1.0), each, round(200 / each)))
        rates.append(1 / each)
    trial = stamps.make_trial(0, flows, [MS] * 4)
    assert trial.invalid is None
    found = np.asarray(trial.nbytes) / trial.seconds / 1e9
    assert found == pytest.approx(rates, rel=1e-3)


@pytest.mark.parametrize(("item_s", "seconds"), [(0.001, 0.02), (0.005, 0.06), (0.02, 0.1), (0.1, 0.3), (0.9, 2.0)])
def test_a_trial_of_one_flow_is_long_against_its_items_but_not_longer_than_needed(
    item_s: float, seconds: float
) -> None:
    assert traffic.trial_seconds([item_s], 4) == pytest.approx(seconds)


def test_a_trial_of_several_flows_is_long_against_the_time_in_which_they_stop() -> None:
    assert traffic.trial_seconds([0.001, 0.003], 2) == pytest.approx(2 * 0.003 / 0.03)
