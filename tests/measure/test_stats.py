"""Medians, their intervals, shares, and what makes a result doubtful."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyxfer import units
from pyxfer._document.runs import Remark
from pyxfer._measure import stats
from pyxfer.errors import MeasurementError

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

SECONDS = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)
PRECISION = 0.005


def trials(n: int, spread: float = 0.001, seed: int = 7) -> NDArray[np.float64]:
    """Quiet trials around a millisecond."""
    return 1e-3 * (1 + spread * np.random.default_rng(seed).standard_normal(n))


def remark(values: NDArray[np.float64] | list[float], **kwargs: float) -> Remark:
    found = stats.instability(list(values), PRECISION, **kwargs)
    assert found is not None
    return found


# --- summaries -------------------------------------------------------------------------------------------------------


def test_a_summary_holds_the_order_statistics_of_its_trials() -> None:
    summary = stats.summarise([5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 100.0])
    assert (summary.n, summary.min_s, summary.median_s, summary.max_s) == (7, 1.0, 4.0, 100.0)
    assert (summary.q1_s, summary.q3_s, summary.mad_s) == (2.5, 5.5, 2.0)
    assert (summary.low_s, summary.high_s, summary.confidence) == (1.0, 100.0, 0.95)


@pytest.mark.parametrize("n", range(1, 6))
def test_fewer_than_six_trials_have_no_interval(n: int) -> None:
    summary = stats.summarise([1.0] * n)
    assert (summary.low_s, summary.high_s, summary.relative_half_width) == (None, None, None)


# From the binomial table: the k-th smallest and k-th largest of n enclose the median with at least 95 %.
@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40)])
def test_the_interval_ends_at_the_tabulated_order_statistics(n: int, k: int) -> None:
    summary = stats.summarise([float(i) for i in range(1, n + 1)])
    assert (summary.low_s, summary.high_s) == (k, n + 1 - k)


@pytest.mark.parametrize("n", [6, 7, 25, 101, 1999])
def test_the_interval_is_the_narrowest_that_whole_numbers_prove(n: int) -> None:
    def misses(k: int) -> int:
        return 2 * sum(math.comb(n, i) for i in range(k))

    low_s = stats.summarise([float(i) for i in range(1, n + 1)]).low_s
    assert low_s is not None
    assert 20 * misses(int(low_s)) <= 2**n < 20 * misses(int(low_s) + 1)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda rng, n: 10 + rng.standard_normal(n), id="normal"),
        pytest.param(lambda rng, n: rng.lognormal(0, 1, n), id="lognormal"),
        pytest.param(lambda rng, n: np.where(rng.random(n) < 0.6, 1, 2) + 0.05 * rng.standard_normal(n), id="bimodal"),
    ],
)
@pytest.mark.parametrize("n", [6, 15, 40])
def test_the_interval_covers_the_true_median_as_often_as_it_says(draw: Draw, n: int) -> None:
    rng = np.random.default_rng(20251121)
    median = float(np.median(draw(rng, 400_000)))
    covered = 0
    for _ in range(2000):
        summary = stats.summarise(list(draw(rng, n)))
        assert summary.low_s is not None
        assert summary.high_s is not None
        covered += summary.low_s <= median <= summary.high_s
    assert covered / 2000 >= 0.94


@given(SECONDS)
def test_the_parts_of_a_summary_lie_in_their_order(seconds: list[float]) -> None:
    summary = stats.summarise(seconds)
    assert summary.min_s <= summary.q1_s <= summary.median_s <= summary.q3_s <= summary.max_s
    if summary.low_s is not None and summary.high_s is not None:
        assert summary.min_s <= summary.low_s <= summary.median_s <= summary.high_s <= summary.max_s


@given(SECONDS, st.sampled_from([2.0**-20, 0.5, 4.0, 2.0**10]))
def test_a_summary_in_another_unit_is_the_same_summary(seconds: list[float], factor: float) -> None:
    here, there = stats.summarise(seconds), stats.summarise([value * factor for value in seconds])
    for name in ("median_s", "min_s", "max_s", "mad_s", "q1_s", "q3_s"):
        assert getattr(there, name) == pytest.approx(getattr(here, name) * factor)
    assert there.relative_half_width == here.relative_half_width


@given(SECONDS)
def test_the_order_of_the_trials_does_not_matter_to_their_summary(seconds: list[float]) -> None:
    assert stats.summarise(sorted(seconds)) == stats.summarise(seconds)


def test_no_trials_have_no_summary() -> None:
    with pytest.raises(MeasurementError, match="no valid trial is left"):
        stats.summarise([])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_time_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(MeasurementError, match="not a finite number; its clock cannot be trusted"):
        stats.summarise([1.0, value])


# --- rates and shares ------------------------------------------------------------------------------------------------


def test_the_high_time_gives_the_low_rate() -> None:
    rate = stats.rate(3, stats.summarise([0.5, 1.0, 1.0, 1.0, 1.0, 2.0]))
    assert (rate.gbps, rate.low_gbps, rate.high_gbps) == pytest.approx((3e-9, 1.5e-9, 6e-9), rel=1e-12)


def test_a_rate_of_few_trials_has_no_interval() -> None:
    rate = stats.rate(10**9, stats.summarise([2.0]))
    assert (rate.gbps, rate.low_gbps, rate.high_gbps) == (0.5, None, None)


def test_a_rate_whose_interval_reaches_no_time_has_no_upper_end() -> None:
    rate = stats.rate(10**9, stats.summarise([0.0, 1.0, 1.0, 1.0, 1.0, 2.0]))
    assert (rate.low_gbps, rate.high_gbps) == (0.5, None)


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


def test_a_share_takes_both_sides_of_every_round() -> None:
    with pytest.raises(MeasurementError, match="2 rounds cannot be set against 1"):
        stats.ratio_share([1.0, 2.0], [1.0])


def test_a_share_of_no_time_is_refused() -> None:
    with pytest.raises(MeasurementError, match="so it has no ratio; time a larger size"):
        stats.ratio_share([1.0], [0.0])


def test_a_share_of_no_rounds_is_refused() -> None:
    with pytest.raises(MeasurementError, match="no valid round is left"):
        stats.ratio_share([], [])


# --- trials still needed ---------------------------------------------------------------------------------------------


def test_half_the_width_takes_four_times_the_trials() -> None:
    summary = stats.summarise(list(trials(50, spread=0.05)))
    half_width = summary.relative_half_width
    assert half_width is not None
    assert stats.trials_needed(summary, half_width / 2) == pytest.approx(4 * 50, abs=1)


def test_trials_without_an_interval_need_the_six_that_make_one() -> None:
    assert stats.trials_needed(stats.summarise([1.0, 2.0]), PRECISION) == 6


def test_the_trials_said_to_be_needed_bring_the_interval_near_the_precision() -> None:
    needed = stats.trials_needed(stats.summarise(list(trials(60, spread=0.05))), PRECISION)
    half_width = stats.summarise(list(trials(needed, spread=0.05, seed=8))).relative_half_width
    assert half_width == pytest.approx(PRECISION, rel=0.4)


# --- what makes a result doubtful ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 12, 40, 300])
def test_quiet_trials_get_no_remark(n: int) -> None:
    assert stats.instability(list(trials(n)), PRECISION) is None


def test_too_few_trials_name_the_budget_that_would_give_enough() -> None:
    assert remark([1e-3, 1e-3], budget_s=30) == Remark(
        code="few-trials", text="2 trials bound no median: a 95% interval takes 6", fix="--budget 90s"
    )


def test_a_wide_interval_names_its_width_and_the_flags_that_fit() -> None:
    found = remark(trials(40, spread=0.05), budget_s=10)
    assert found.code == "unstable"
    assert found.text.startswith("the median is known within ")
    assert found.text.endswith(" %, not 0.5 %")
    budget, precision = (found.fix or "").split(" or ")
    assert units.parse_duration(budget.removeprefix("--budget ")) > 10
    assert stats.instability(list(trials(40, spread=0.05)), units.parse_ratio(precision.split()[1])) is None


def test_an_interval_that_rounds_to_the_precision_is_said_to_be_just_over_it() -> None:
    found = stats.instability([0.99498, 1.0, 1.0, 1.0, 1.0, 1.00503], PRECISION)
    assert found == Remark(
        code="unstable",
        text="the median is known within just over 0.5 %, not 0.5 %",
        fix="a --budget 2 times as long or --precision 0.6%",
    )


def test_without_a_budget_the_fix_says_how_many_times_as_long() -> None:
    assert "a --budget " in (remark(trials(40, spread=0.05)).fix or "")


def test_a_hopeless_budget_is_not_proposed() -> None:
    found = remark(1e-3 * np.random.default_rng(3).lognormal(0, 1, 40), budget_s=10)
    assert found.code == "unstable"
    assert "--budget" not in (found.fix or "")
    assert "--precision" in (found.fix or "")


def test_two_modes_are_named_with_their_values_and_shares() -> None:
    slow = np.random.default_rng(2).permutation(40) < 16
    found = remark(trials(40, spread=0.005) * np.where(slow, 1.3, 1.0))
    assert found.code == "bimodal"
    assert found.text == "two modes: 60.0 % of the trials near 1.00 ms, the others near 1.30 ms"
    assert "stop other work" in (found.fix or "")


def test_two_neighbouring_ticks_of_a_coarse_clock_are_not_two_modes() -> None:
    ticks = np.where(np.random.default_rng(2).permutation(40) < 10, 2.528e-6, 2.496e-6)
    assert stats.instability(list(ticks), PRECISION) is None


def test_a_drift_is_named_with_where_it_began_and_ended() -> None:
    found = remark(trials(60) * np.linspace(1, 1.06, 60))
    assert found.code == "drift"
    assert found.text == "the time drifted during the run: 1.01 ms in its first third, 1.05 ms in its last"
    assert "--budget" in (found.fix or "")


def test_a_drift_smaller_than_the_precision_is_let_pass() -> None:
    assert stats.instability(list(trials(60, spread=1e-4) * np.linspace(1, 1.004, 60)), PRECISION) is None


def test_a_step_within_the_run_is_told_as_a_drift_and_not_as_two_modes() -> None:
    assert remark(np.concatenate((trials(30), 1.2 * trials(30)))).code == "drift"


def test_outliers_are_counted_and_the_worst_is_named() -> None:
    values = trials(50)
    values[[3, 17, 21, 44]] = 5e-3
    found = remark(values)
    assert found.code == "outliers"
    assert found.text == "4 of 50 trials lie far outside the others, up to 5.00 ms against a median of 1.00 ms"


def test_one_outlier_among_many_is_let_pass() -> None:
    values = trials(50)
    values[3] = 5e-3
    assert stats.instability(list(values), PRECISION) is None


def test_equal_times_with_one_tick_between_them_have_no_outliers() -> None:
    assert stats.instability([1e-3] * 40 + [1.001e-3] * 6, PRECISION) is None


def test_times_below_the_clock_are_told() -> None:
    found = remark([0.0] * 10)
    assert (found.code, found.fix) == ("unstable", "larger --sizes")


@given(SECONDS, st.floats(1e-4, 0.5))
def test_whatever_is_wider_than_the_precision_gets_a_remark_with_a_fix(seconds: list[float], precision: float) -> None:
    half_width = stats.summarise(seconds).relative_half_width
    found = stats.instability(seconds, precision)
    if half_width is None or half_width > precision:
        assert found is not None
    if found is not None:
        assert found.fix


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda rng, n: 1 + 0.05 * rng.standard_normal(n), id="normal"),
        pytest.param(lambda rng, n: rng.lognormal(0, 0.3, n), id="lognormal"),
        pytest.param(lambda rng, n: 1 + 0.1 * rng.random(n), id="uniform"),
    ],
)
@pytest.mark.parametrize("n", [12, 15, 40])
def test_plain_noise_is_rarely_taken_for_a_drift_or_two_modes(draw: Draw, n: int) -> None:
    rng = np.random.default_rng(5)
    found = [remark(1e-3 * draw(rng, n)).code for _ in range(400)]
    assert sum(code in ("drift", "bimodal") for code in found) / 400 < 0.03
