"""Change points of simulated histories: changes are found where they are, and clean histories have none."""

from __future__ import annotations

import numpy as np
import pytest

from pyxfer._baseline.changes import MIN_HISTORY, MIN_RUNS, Changes, find_changes

RUNS = 60


def history(seed: int, noise: float = 0.005, step: float = 0.0, at: int = 0, runs: int = RUNS) -> list[float]:
    """Bandwidths with a relative noise; from run `at` on they are smaller by `step`."""
    rates = 55.0 * (1 + noise * np.random.default_rng(seed).standard_normal(runs))
    rates[at:] *= 1 - step
    return list(rates)


def lower(rates: list[float], begin: int, end: int, by: float = 0.05) -> list[float]:
    return [rate * (1 - by) if begin <= place < end else rate for place, rate in enumerate(rates)]


def with_outliers(rates: list[float], seed: int, share: float = 0.08) -> list[float]:
    rng = np.random.default_rng(seed)
    lost = np.where(rng.random(len(rates)) < share, rng.uniform(0.05, 0.3, len(rates)), 0.0)
    return list(np.asarray(rates) * (1 - lost))


def correlated(seed: int, correlation: float, runs: int = RUNS) -> list[float]:
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal()]
    while len(values) < runs:
        values.append(correlation * values[-1] + np.sqrt(1 - correlation**2) * rng.standard_normal())
    return list(55 * np.exp(0.005 * np.array(values)))


def within(places: tuple[int, ...], *expected: int, by: int = 1) -> bool:
    return len(places) == len(expected) and all(abs(a - b) <= by for a, b in zip(places, expected, strict=True))


@pytest.mark.parametrize("at", [10, 30, 50])
def test_a_step_of_three_per_cent_is_found_within_one_run(at: int) -> None:
    found = [find_changes(history(seed, step=0.03, at=at)).places for seed in range(20)]
    assert all(within(places, at) for places in found)


@pytest.mark.parametrize("runs", [60, 200])
@pytest.mark.parametrize("length", [5, 8, 12, 15])
def test_a_slow_time_that_has_ended_is_two_changes(runs: int, length: int) -> None:
    found = [find_changes(lower(history(seed, runs=runs), 20, 20 + length)).places for seed in range(10)]
    assert all(within(places, 20, 20 + length) for places in found)


def test_a_loss_of_the_newest_five_runs_is_found() -> None:
    assert all(within(find_changes(history(seed, step=0.05, at=55)).places, 55) for seed in range(20))


def test_outliers_do_not_hide_a_step() -> None:
    found = [find_changes(with_outliers(history(seed, step=0.05, at=35), seed)).places for seed in range(20)]
    assert sum(within(places, 35, by=2) for places in found) >= 18


def test_several_changes_are_found() -> None:
    rates = lower(lower(lower(history(3, runs=200), 30, 40), 100, 200), 150, 200, by=0.03)
    assert within(find_changes(rates).places, 30, 40, 100, 150)


def test_clean_histories_have_at_most_one_false_change_in_twenty() -> None:
    assert sum(bool(find_changes(history(seed)).places) for seed in range(100)) <= 5


def test_noise_with_heavy_tails_has_at_most_one_false_change_in_twenty() -> None:
    noisy = [55 * np.exp(-0.02 * np.random.default_rng(seed).exponential(size=RUNS)) for seed in range(100)]
    assert sum(bool(find_changes(list(rates)).places) for rates in noisy) <= 5


def test_runs_that_are_like_their_neighbours_have_at_most_one_false_change_in_twenty() -> None:
    found = [find_changes(correlated(seed, 0.5)) for seed in range(100)]
    assert sum(bool(each.places) for each in found) <= 5
    assert 0.35 < float(np.median([each.correlation for each in found])) < 0.65


def test_two_modes_have_at_most_one_false_change_in_twenty() -> None:
    modes = [np.random.default_rng(seed) for seed in range(100)]
    rates = [55 * (1 + 0.002 * rng.standard_normal(RUNS)) * (1 - 0.05 * (rng.random(RUNS) < 0.3)) for rng in modes]
    assert sum(bool(find_changes(list(each)).places) for each in rates) <= 5


def test_single_slow_runs_are_no_change() -> None:
    rates = history(2)
    for place in (7, 8, 31, 50):
        rates[place] *= 0.7
    assert find_changes(rates).places == ()


def test_a_drift_is_no_step() -> None:
    rates = np.asarray(history(1)) * np.exp(np.linspace(0, np.log(0.95), RUNS))
    found = find_changes(list(rates))
    assert found.places == ()
    assert found.drift == pytest.approx(-0.05, abs=0.005)


def test_a_step_is_no_drift() -> None:
    assert find_changes(history(1, step=0.05, at=30)).drift is None


@pytest.mark.parametrize("last", [True, False])
def test_the_stated_loss_is_found(last: bool) -> None:
    found = 0
    for seed in range(40):
        limit = find_changes(history(seed)).limit
        assert limit is not None
        at = RUNS - limit.runs if last else 12
        places = find_changes(lower(history(seed), at, at + limit.runs, by=limit.loss)).places
        found += any(abs(place - at) <= 2 for place in places)
    assert found >= 38


def test_two_modes_show_no_limit() -> None:
    rng = np.random.default_rng(1)
    rates = history(1, noise=0.002, runs=200) * (1 - 0.05 * (rng.random(200) < 0.3))
    assert find_changes(list(rates)).limit is None


def test_a_few_runs_have_no_limit() -> None:
    assert find_changes(history(3, step=0.5, at=4, runs=MIN_HISTORY - 1)) == Changes()
    assert find_changes([]) == Changes()


def test_the_fewest_runs_can_show_a_step() -> None:
    assert find_changes(history(3, step=0.05, at=MIN_RUNS, runs=MIN_HISTORY)).places == (MIN_RUNS,)


def test_equal_runs_have_no_change() -> None:
    found = find_changes([55.0] * RUNS)
    assert found.places == ()
    assert found.limit is not None
    assert found.limit.loss < 0.001


def test_the_newest_of_a_very_long_history_are_searched() -> None:
    assert within(find_changes(history(5, step=0.03, at=1900, runs=2000)).places, 1900)


def test_a_history_without_a_positive_rate_has_no_change() -> None:
    assert find_changes([0.0] * RUNS) == Changes()
