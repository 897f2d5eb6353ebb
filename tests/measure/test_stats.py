"""Medians, their intervals, rates and shares."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyxfer._document.intervals import interval_rank
from pyxfer._measure import stats
from pyxfer.errors import MeasurementError

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

# Of neighbours in n of these, as many more are alike than not: 61 of 100, 37 of 60, and 19 of 40.
FIVES = [1.0] * 5 + [4.0] * 5
SYMMETRIC = [1.0, 1.0, *([4.0] * 4 + [1.0] * 4) * 4, *[4.0] * 4, 1.0, 1.0]


def inflation(correlation: float) -> float:
    return (1 + correlation) / (1 - correlation)


def correlation(alike: float, n: int, bias: float = 1, slope: float = 3) -> float:
    """The correlation that is assumed where `alike` is found: corrected for its bias, and raised by its error."""
    return alike + (bias + slope * alike) / n + math.sqrt((1 - alike**2) / n)


SECONDS = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)
PRECISION = 0.005


def trials(n: int, spread: float = 0.001, seed: int = 7) -> NDArray[np.float64]:
    """Quiet trials around a millisecond."""
    return 1e-3 * (1 + spread * np.random.default_rng(seed).standard_normal(n))


# --- summaries -------------------------------------------------------------------------------------------------------


def test_a_summary_holds_the_order_statistics_of_its_trials() -> None:
    summary = stats.summarise([5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 100.0])
    assert (summary.n, summary.min_s, summary.median_s, summary.max_s) == (7, 1.0, 4.0, 100.0)
    assert (summary.q1_s, summary.q3_s, summary.mad_s) == (2.5, 5.5, 2.0)
    assert summary.low_s is not None
    assert summary.high_s is not None
    assert summary.low_s <= 1.0
    assert summary.high_s >= 100.0
    assert summary.confidence == 0.95


@pytest.mark.parametrize("n", range(1, 6))
def test_fewer_than_six_trials_have_no_interval(n: int) -> None:
    summary = stats.summarise([1.0] * n)
    assert (summary.low_s, summary.high_s, summary.relative_half_width) == (None, None, None)


def half_width(values: NDArray[np.float64] | list[float]) -> float:
    found = stats.summarise(list(values)).relative_half_width
    assert found is not None
    return found


# From the binomial table: the k-th smallest and k-th largest of n enclose the median with at least 95 %.
@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40)])
def test_the_interval_encloses_the_tabulated_order_statistics(n: int, k: int) -> None:
    summary = stats.summarise([float(i) for i in np.random.default_rng(n).permutation(n) + 1])
    assert summary.low_s is not None
    assert summary.high_s is not None
    assert summary.low_s <= k
    assert summary.high_s >= n + 1 - k


@pytest.mark.parametrize("n", [6, 7, 25, 101, 1999])
def test_the_rank_of_the_order_statistics_is_the_largest_that_whole_numbers_prove(n: int) -> None:
    def misses(k: int) -> int:
        return 2 * sum(math.comb(n, i) for i in range(k))

    rank = interval_rank(n)
    assert 20 * misses(rank) <= 2**n < 20 * misses(rank + 1)


def test_the_interval_of_correlated_trials_is_wider() -> None:
    quiet = trials(200)
    pairs = np.sort(quiet.reshape(20, 10), axis=1).reshape(-1)
    assert half_width(np.sort(quiet)) > 2 * half_width(quiet)
    assert half_width(pairs) > half_width(quiet)


def test_the_interval_of_two_slow_levels_spans_both() -> None:
    levels = np.repeat([1.0, 1.01, 1.0, 1.01], 50) * trials(200)
    summary = stats.summarise(list(levels))
    assert summary.low_s is not None
    assert summary.high_s is not None
    assert summary.low_s < 1.0e-3
    assert summary.high_s > 1.009e-3


def test_equal_trials_have_an_interval_without_width() -> None:
    assert half_width([1e-3] * 50) == 0.0
    without_time = stats.summarise([0.0] * 10)
    assert (without_time.low_s, without_time.high_s, without_time.relative_half_width) == (0.0, 0.0, None)


def test_the_interval_of_independent_trials_is_near_that_of_their_order_statistics() -> None:
    found = [half_width(trials(400, seed=seed)) for seed in range(100)]
    ordered = [np.sort(trials(400, seed=seed)) for seed in range(100)]
    naive = [(each[-interval_rank(400)] - each[interval_rank(400) - 1]) / 2e-3 for each in ordered]
    assert 1.0 <= np.median(found) / np.median(naive) < 1.15


@pytest.mark.parametrize("turn", [5, 10])
def test_the_interval_follows_levels_that_last_for_a_turn(turn: int) -> None:
    rng = np.random.default_rng(3)
    levels = [np.repeat(rng.standard_normal(400 // turn), turn) for _ in range(200)]
    found = [stats.summarise(list(np.exp(0.01 * level + 0.001 * rng.standard_normal(400)))) for level in levels]
    held = [(each.low_s or 1.0) <= 1.0 <= (each.high_s or 1.0) for each in found]
    assert np.mean(held) >= 0.93


def test_far_apart_trials_keep_a_finite_interval() -> None:
    summary = stats.summarise([1e-300, 1.0, 1e300, 1.0, 1e300, 1e-300])
    assert summary.high_s is not None
    assert math.isfinite(summary.high_s)


@pytest.mark.parametrize("phi", [0.0, 0.7])
def test_the_standard_error_is_the_deviation_of_medians(phi: float) -> None:
    rng = np.random.default_rng(5)
    drawn = [np.exp(0.01 * ar1(phi)(rng, 200)) for _ in range(200)]
    found = np.median([stats.standard_error(list(each)) for each in drawn])
    assert found == pytest.approx(np.std([np.log(np.median(each)) for each in drawn]), rel=0.2)
    assert stats.standard_error([1.0]) == math.inf


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert list(stats.mid_ranks(np.array([3.0, 1.0, 1.0, 2.0]))) == [4.0, 1.5, 1.5, 3.0]


@pytest.mark.parametrize(
    ("stretches", "detrended", "assumed"),
    [
        ([[1.0] * 100], False, correlation(0, 100)),
        ([[1.0] * 50] * 2, True, correlation(0, 100, bias=2 * 2)),
        ([list(range(50))] * 2, True, correlation(0, 100, bias=2 * 2)),
        ([list(range(100))], False, 0.9),
        ([[1.0, 4.0] * 50], False, 0.0),
        ([FIVES * 10], False, correlation(0.61, 100)),
        ([SYMMETRIC], True, correlation(0.475, 40, bias=2, slope=4)),
    ],
)
def test_correlated_trials_are_worth_fewer(stretches: list[list[float]], detrended: bool, assumed: float) -> None:
    found = stats.variance_inflation(*(np.array(each, float) for each in stretches), detrended=detrended)
    assert found == pytest.approx(inflation(assumed))


def test_more_independent_trials_have_a_narrower_interval() -> None:
    assert half_width(trials(400)) < 0.5 * half_width(trials(40))


def ar1(phi: float) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        steps = rng.standard_normal(n + 50)
        values = np.zeros(n + 50)
        for i in range(1, n + 50):
            values[i] = phi * values[i - 1] + steps[i]
        return 10 + 0.1 * values[50:]

    return draw


@pytest.mark.parametrize(
    ("draw", "median"),
    [
        pytest.param(lambda rng, n: 10 + rng.standard_normal(n), 10.0, id="normal"),
        pytest.param(lambda rng, n: rng.lognormal(0, 1, n), 1.0, id="lognormal"),
        pytest.param(ar1(0.3), 10.0, id="AR(1), 0.3"),
        pytest.param(ar1(0.5), 10.0, id="AR(1), 0.5"),
        pytest.param(ar1(0.7), 10.0, id="AR(1), 0.7"),
    ],
)
@pytest.mark.parametrize("n", [6, 15, 40])
def test_the_interval_covers_the_true_median_as_often_as_promised(draw: Draw, median: float, n: int) -> None:
    rng = np.random.default_rng(20251121)
    covered = 0
    for _ in range(500):
        summary = stats.summarise(list(draw(rng, n)))
        assert summary.low_s is not None
        assert summary.high_s is not None
        covered += summary.low_s <= median <= summary.high_s
    assert covered / 500 >= 0.93


@given(SECONDS)
def test_the_parts_of_a_summary_lie_in_their_order(seconds: list[float]) -> None:
    summary = stats.summarise(seconds)
    assert summary.min_s <= summary.q1_s <= summary.median_s <= summary.q3_s <= summary.max_s
    if summary.low_s is not None and summary.high_s is not None:
        assert 0 <= summary.low_s <= summary.median_s <= summary.high_s


@given(SECONDS, st.sampled_from([2.0**-20, 0.5, 4.0, 2.0**10]))
def test_a_summary_in_another_unit_is_the_same_summary(seconds: list[float], factor: float) -> None:
    here, there = stats.summarise(seconds), stats.summarise([value * factor for value in seconds])
    for name in ("median_s", "min_s", "max_s", "mad_s", "q1_s", "q3_s"):
        assert getattr(there, name) == pytest.approx(getattr(here, name) * factor)
    assert there.relative_half_width == pytest.approx(here.relative_half_width)


@given(SECONDS)
def test_the_order_of_the_trials_matters_to_their_interval_alone(seconds: list[float]) -> None:
    ordered, as_taken = stats.summarise(sorted(seconds)), stats.summarise(seconds)
    for name in ("n", "median_s", "q1_s", "q3_s", "mad_s", "min_s", "max_s"):
        assert getattr(ordered, name) == getattr(as_taken, name)


def test_no_trials_have_no_summary() -> None:
    with pytest.raises(MeasurementError, match="no valid trial is left"):
        stats.summarise([])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_time_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(MeasurementError, match="not a finite number; its clock cannot be trusted"):
        stats.summarise([1.0, value])


# --- rates and shares ------------------------------------------------------------------------------------------------


def test_the_high_time_gives_the_low_rate() -> None:
    summary = stats.summarise([0.5, 1.0, 1.0, 1.0, 1.0, 2.0])
    rate = stats.rate(10**9, summary)
    assert summary.low_s is not None
    assert summary.high_s is not None
    assert (rate.gbps, rate.low_gbps, rate.high_gbps) == (1.0, 1 / summary.high_s, 1 / summary.low_s)


def test_a_rate_whose_interval_reaches_no_time_has_no_upper_end() -> None:
    rate = stats.rate(10**9, stats.summarise([0.0, 1.0, 1.0, 1.0, 1.0, 2.0]))
    assert rate.low_gbps is not None
    assert rate.high_gbps is None


def test_no_time_at_all_is_no_bandwidth() -> None:
    with pytest.raises(MeasurementError, match=r"no time that the clock could see.*time a larger size"):
        stats.rate(1, stats.summarise([0.0, 0.0, 1.0]))


def test_a_share_is_the_median_of_the_ratios_and_not_the_ratio_of_the_medians() -> None:
    share = stats.ratio_share([1.0, 2.0, 30.0], [2.0, 2.0, 40.0])
    assert (share.value, share.low, share.high) == (0.75, None, None)


def test_a_share_cancels_a_drift_that_both_sides_had() -> None:
    drift = np.linspace(1, 3, 30)
    share = stats.ratio_share(list(0.9 * drift), list(drift))
    assert (share.low, share.value, share.high) == pytest.approx((0.9, 0.9, 0.9))


def test_the_interval_of_an_inverted_ratio_is_the_inverse_of_its_interval() -> None:
    one, other = list(trials(30, spread=0.02)), list(trials(30, spread=0.02, seed=8))
    share, inverted = stats.ratio_share(one, other), stats.ratio_share(other, one)
    assert share.low is not None
    assert share.high is not None
    assert (inverted.low, inverted.high) == pytest.approx((1 / share.high, 1 / share.low), rel=1e-3)


def test_a_share_takes_both_sides_of_every_round() -> None:
    with pytest.raises(MeasurementError, match="2 rounds cannot be set against 1"):
        stats.ratio_share([1.0, 2.0], [1.0])


def test_a_share_of_no_time_is_refused() -> None:
    with pytest.raises(MeasurementError, match="so it has no ratio; time a larger size"):
        stats.ratio_share([1.0], [0.0])


# --- trials still needed ---------------------------------------------------------------------------------------------


def test_at_least_the_trials_of_an_interval_are_needed() -> None:
    assert stats.trials_needed(stats.summarise(list(trials(50))), 0.5) == 6


def test_half_the_width_takes_four_times_the_trials() -> None:
    summary = stats.summarise(list(trials(50, spread=0.05)))
    width = summary.relative_half_width
    assert width is not None
    assert stats.trials_needed(summary, width / 2) == pytest.approx(4 * 50, abs=1)


def test_trials_without_an_interval_need_the_six_that_make_one() -> None:
    assert stats.trials_needed(stats.summarise([1.0, 2.0]), PRECISION) == 6


def test_the_trials_said_to_be_needed_bring_the_interval_near_the_precision() -> None:
    needed = stats.trials_needed(stats.summarise(list(trials(60, spread=0.05))), PRECISION)
    reached = [half_width(trials(needed, spread=0.05, seed=seed)) for seed in range(20)]
    assert np.median(reached) == pytest.approx(PRECISION, rel=0.4)
