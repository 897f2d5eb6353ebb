"""Change points of simulated histories: steps are found where they are, and clean histories have none."""

from __future__ import annotations

import numpy as np
import pytest

from pyxfer._baseline.changes import LEAST_RUNS, change_points

RUNS = 60


def history(seed: int, noise: float = 0.005, step: float = 0.0, at: int = 0, runs: int = RUNS) -> list[float]:
    """Bandwidths with a relative noise; from run `at` on they are smaller by `step`."""
    rates = 55.0 * (1 + noise * np.random.default_rng(seed).standard_normal(runs))
    rates[at:] *= 1 - step
    return list(rates)


@pytest.mark.parametrize("at", [10, 30, 50])
def test_a_step_of_three_per_cent_is_found_within_one_run(at: int) -> None:
    found = [change_points(history(seed, step=0.03, at=at)) for seed in range(20)]
    assert all(len(places) >= 1 and min(abs(place - at) for place in places) <= 1 for places in found)


def test_clean_histories_have_at_most_one_false_change_in_twenty() -> None:
    assert sum(bool(change_points(history(seed))) for seed in range(100)) <= 5


def test_noise_with_heavy_tails_has_at_most_one_false_change_in_twenty() -> None:
    noisy = [55 * np.exp(-0.02 * np.random.default_rng(seed).exponential(size=RUNS)) for seed in range(100)]
    assert sum(bool(change_points(list(rates))) for rates in noisy) <= 5


def test_a_step_down_and_up_again_are_two_changes() -> None:
    rates = history(1)
    rates[20:40] = [rate * 0.95 for rate in rates[20:40]]
    down, up = change_points(rates)
    assert (abs(down - 20) <= 1, abs(up - 40) <= 1) == (True, True)


def test_single_slow_runs_are_no_change() -> None:
    rates = history(2)
    for place in (7, 8, 31, 50):
        rates[place] *= 0.7
    assert change_points(rates) == []


def test_a_few_runs_equal_runs_and_none_have_no_change() -> None:
    assert change_points(history(3, step=0.5, at=4, runs=2 * LEAST_RUNS - 1)) == []
    assert change_points([55.0] * RUNS) == []
    assert change_points([]) == []


def test_the_newest_of_a_very_long_history_are_searched() -> None:
    rates = history(5, step=0.03, at=1900, runs=2000)
    (place,) = change_points(rates)
    assert abs(place - 1900) <= 1


def test_a_history_without_a_positive_rate_has_no_change() -> None:
    assert change_points([0.0] * RUNS) == []


def test_the_same_history_has_the_same_changes() -> None:
    rates = history(4, noise=0.02, step=0.02, at=30)
    assert change_points(rates) == change_points(rates)
