"""Medians, their intervals, rates, shares, and fits of curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import known

from pyxfer._document.intervals import interval_rank
from pyxfer._document.machines import Fact, unknown
from pyxfer._measure import stats
from pyxfer._measure.stats import Fit
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


def interval(seconds: Iterable[float]) -> tuple[float, float]:
    summary = stats.summarise(list(seconds))
    assert summary.low_s is not None
    assert summary.high_s is not None
    return summary.low_s, summary.high_s


# --- summaries -------------------------------------------------------------------------------------------------------


def test_a_summary_holds_the_order_statistics_of_its_trials() -> None:
    seconds = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 100.0]
    summary = stats.summarise(seconds)
    assert (summary.n, summary.min_s, summary.median_s, summary.max_s) == (7, 1.0, 4.0, 100.0)
    assert (summary.q1_s, summary.q3_s, summary.mad_s, summary.confidence) == (2.5, 5.5, 2.0, 0.95)
    low, high = interval(seconds)
    assert low <= 1.0
    assert high >= 100.0


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
    low, high = interval(map(float, np.random.default_rng(n).permutation(n) + 1))
    assert low <= k
    assert high >= n + 1 - k


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
    low, high = interval(np.repeat([1.0, 1.01, 1.0, 1.01], 50) * trials(200))
    assert low < 1.0e-3
    assert high > 1.009e-3


def test_equal_trials_have_an_interval_without_width() -> None:
    assert half_width([1e-3] * 50) == 0.0
    without_time = stats.summarise([0.0] * 10)
    assert (without_time.low_s, without_time.high_s, without_time.relative_half_width) == (0.0, 0.0, None)


def test_far_apart_trials_keep_a_finite_interval() -> None:
    assert math.isfinite(interval([1e-300, 1.0, 1e300, 1.0, 1e300, 1e-300])[1])


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


def ar1(phi: float) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        steps = rng.standard_normal(n + 50)
        values = np.zeros(n + 50)
        for i in range(1, n + 50):
            values[i] = phi * values[i - 1] + steps[i]
        return 10 + 0.1 * values[50:]

    return draw


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


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: stats.summarise([]), "no valid trial is left"),
        (lambda: stats.summarise([1.0, math.nan]), "not a finite number; its clock cannot be trusted"),
        (lambda: stats.summarise([1.0, math.inf]), "not a finite number; its clock cannot be trusted"),
        (lambda: stats.rate(1, stats.summarise([0.0, 0.0, 1.0])), r"no time that the clock.*time a larger size"),
        (lambda: stats.ratio_share([1.0, 2.0], [1.0]), "2 rounds cannot be set against 1"),
        (lambda: stats.ratio_share([1.0], [0.0]), "so it has no ratio; time a larger size"),
    ],
)
def test_times_that_give_no_figure_are_refused(refused: Callable[[], object], words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        refused()


# --- rates and shares ------------------------------------------------------------------------------------------------


def test_the_high_time_gives_the_low_rate() -> None:
    seconds = [0.5, 1.0, 1.0, 1.0, 1.0, 2.0]
    (low, high), rate = interval(seconds), stats.rate(10**9, stats.summarise(seconds))
    assert (rate.gbps, rate.low_gbps, rate.high_gbps) == (1.0, 1 / high, 1 / low)


def test_a_share_of_the_peak_needs_a_rate_and_a_peak() -> None:
    rate = Fact(stats.rate(10**9, stats.summarise([1.0] * 6)))
    assert stats.share_of_peak(rate, Fact(4.0)) == Fact(0.25)
    assert stats.share_of_peak(unknown("no rate"), Fact(4.0)) == unknown("no rate")
    assert stats.share_of_peak(rate, unknown("no link")) == unknown("no link")


def test_a_rate_whose_interval_reaches_no_time_has_no_upper_end() -> None:
    rate = stats.rate(10**9, stats.summarise([0.0, 1.0, 1.0, 1.0, 1.0, 2.0]))
    assert rate.low_gbps is not None
    assert rate.high_gbps is None


def test_a_share_is_the_median_of_the_ratios_and_not_the_ratio_of_the_medians() -> None:
    share = stats.ratio_share([1.0, 2.0, 30.0], [2.0, 2.0, 40.0])
    assert (share.value, share.low, share.high) == (0.75, None, None)


def test_a_share_cancels_a_drift_that_both_sides_had() -> None:
    drift = np.linspace(1, 3, 30)
    share = stats.ratio_share(list(0.9 * drift), list(drift))
    assert (share.low, share.value, share.high) == pytest.approx((0.9, 0.9, 0.9))


def test_the_interval_of_an_inverted_ratio_is_the_inverse_of_its_interval() -> None:
    one, other = list(trials(30, spread=0.02)), list(trials(30, spread=0.02, seed=8))
    share: Any = stats.ratio_share(one, other)
    inverted = stats.ratio_share(other, one)
    assert (inverted.low, inverted.high) == pytest.approx((1 / share.high, 1 / share.low), rel=1e-3)


# --- trials still needed ---------------------------------------------------------------------------------------------


def test_half_the_width_takes_four_times_the_trials_and_any_at_least_six() -> None:
    wide = list(trials(50, spread=0.05))
    assert stats.trials_needed(stats.summarise(wide), half_width(wide) / 2) == pytest.approx(4 * 50, abs=1)
    assert stats.trials_needed(stats.summarise(list(trials(50))), 0.5) == 6
    assert stats.trials_needed(stats.summarise([1.0, 2.0]), PRECISION) == 6


SIZES = [4096 * 4**k for k in range(9)]
# One H200, PCIe 5.0 x16: bytes and GB/s of gated pinned copies, and of blocking pageable ones.
PINNED = {2**12: 1.62, 2**16: 17.9, 2**18: 36.3, 2**20: 48.1, 2**22: 53.5, 2**24: 55.0, 2**26: 55.4, 2**28: 55.5}
PAGEABLE = {2**12: 0.53, 2**16: 3.3, 2**18: 10.5, 2**20: 14.0, 2**22: 16.5, 2**24: 16.5, 2**26: 15.0, 2**28: 11.0}


def fit_curve(rated_points: Sequence[tuple[int, float]], half_width: float = 0.001) -> Fit:
    return stats.fit_curve([(nbytes, seconds, half_width) for nbytes, seconds in rated_points])


def rated_points(gbps: dict[int, float]) -> list[tuple[int, float]]:
    return [(nbytes, nbytes / rate / 1e9) for nbytes, rate in gbps.items()]


def values(fit: Fit) -> tuple[float | None, ...]:
    return fit.latency_s.value, fit.asymptote_gbps.value, fit.half_bytes.value


@given(st.floats(1e-6, 1e-4), st.floats(2, 500))
def test_an_exact_line_is_fitted_exactly(latency_s: float, gbps: float) -> None:
    fit = fit_curve([(nbytes, latency_s + nbytes / (gbps * 1e9)) for nbytes in SIZES])
    assert values(fit) == pytest.approx((latency_s, gbps, latency_s * gbps * 1e9), rel=1e-6)
    assert fit.worst_misfit.value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_one_percent_of_noise_changes_the_fit_little(seed: int) -> None:
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(len(SIZES))
    fit = fit_curve([(n, (2.3e-6 + n / 55.5e9) * factor) for n, factor in zip(SIZES, noise, strict=True)])
    assert fit.latency_s.value == pytest.approx(2.3e-6, rel=0.04)
    assert fit.asymptote_gbps.value == pytest.approx(55.5, rel=0.02)
    assert 0 < known(fit.worst_misfit) < 0.04


def test_a_pinned_curve_of_a_real_link_is_fitted_within_two_percent() -> None:
    fit = fit_curve(rated_points(PINNED))
    assert values(fit) == pytest.approx((2.46e-6, 55.2, 136e3), rel=0.01)
    assert fit.worst_misfit.value == pytest.approx(0.016, abs=0.002)


ONE_LINE = "one line does not fit these times (35.9 % off at 64 KiB); read each size by itself"
SMALLER, LARGER = "measure smaller sizes", "measure larger sizes"
FEW = "a curve needs 3 sizes and {} a result; measure more sizes"
LARGE = (2**24, 2**26, 2**28)
LINE = [(n, 2.3e-6 + n / 55.5e9) for n in SIZES]


@pytest.mark.parametrize(
    ("points", "half_width", "latency_s", "gbps"),
    [
        (rated_points(PAGEABLE), 0.001, ONE_LINE, ONE_LINE),
        ([], 0.001, FEW.format("0 sizes have"), FEW.format("0 sizes have")),
        ([(4096, 1e-6)] * 5, 0.001, FEW.format("1 size has"), FEW.format("1 size has")),
        ([(4096, 1e-6), (8192, 1e-6), (4096, 1e-6)], 0.001, FEW.format("2 sizes have"), FEW.format("2 sizes have")),
        ([(n, n / PINNED[n] / 1e9) for n in LARGE], 0.001, SMALLER, pytest.approx(55.5, rel=0.01)),
        ([(n, n / 10e9 * (1 + n / 2**31)) for n in LARGE], 0.001, SMALLER, pytest.approx(9.3, rel=0.1)),
        ([(n, 2.3e-6 + n / 55.5e9) for n in (1024, 4096, 16384)], 0.001, pytest.approx(2.3e-6), LARGER),
        ([(1024, 0.0), (2048, 2e-6), (4096, 1e-6)], 0.001, *["took no time that the clock could see"] * 2),
        ([(1024, 3e-6), (2048, 2e-6), (4096, 1e-6)], 0.001, *["does not grow with the size"] * 2),
        (LINE[4:], 0.097, pytest.approx(2.3e-6), pytest.approx(55.5)),
        (LINE[4:], 0.098, SMALLER, pytest.approx(55.5)),  # the fixed cost is within the error of the medians
        (LINE, 0.40, pytest.approx(2.3e-6), pytest.approx(55.5)),
        (LINE, 0.41, pytest.approx(2.3e-6), "give a longer budget"),
    ],
)
def test_a_figure_that_the_points_do_not_determine_has_a_reason(
    points: list[tuple[int, float]], half_width: float, latency_s: object, gbps: object
) -> None:
    fit = fit_curve(points, half_width)
    for found, expected in ((fit.latency_s, latency_s), (fit.asymptote_gbps, gbps)):
        if isinstance(expected, str):
            assert expected in (found.reason or "")
        else:
            assert found.value == expected
    assert fit.half_bytes.reason == (fit.latency_s.reason or fit.asymptote_gbps.reason)


def test_a_curve_that_no_line_fits_has_its_worst_misfit() -> None:
    assert fit_curve(rated_points(PAGEABLE)).worst_misfit.value == pytest.approx(0.359, abs=0.001)


def of_line(sizes: Sequence[float], half_width: float = 0.0) -> Fit:
    """The fit of an exact line: 1 us and 50 GB/s."""
    return fit_curve([(int(n), 1e-6 + n / 50e9) for n in sizes], half_width)


@pytest.mark.parametrize(("share", "given"), [(0.101, True), (0.099, False)])
def test_a_fixed_cost_below_a_tenth_of_the_shortest_time_is_not_given(share: float, given: bool) -> None:
    smallest = 50e3 / share - 50e3
    assert (of_line([smallest, 4 * smallest, 16 * smallest]).latency_s.value is not None) == given


@pytest.mark.parametrize(("largest", "given"), [(50_100, True), (49_900, False)])
def test_a_bandwidth_is_given_if_a_size_reaches_half_of_it(largest: int, given: bool) -> None:
    assert (of_line([largest // 16, largest // 4, largest]).asymptote_gbps.value is not None) == given


@pytest.mark.parametrize(("raised", "worst", "fits"), [(1.39, 0.2453, True), (1.41, 0.2552, False)])
def test_a_line_may_miss_a_point_by_a_quarter(raised: float, worst: float, fits: bool) -> None:
    sizes = [4096 * 16**k for k in range(5)]
    line = [(n, (1e-5 + n / 50e9) * (raised if place == 2 else 1)) for place, n in enumerate(sizes)]
    fit = fit_curve(line, half_width=0.0)
    assert fit.worst_misfit.value == pytest.approx(worst, abs=1e-4)
    assert (fit.latency_s.value is not None) == fits
    assert fit_curve(line, half_width=0.05).worst_misfit.value == pytest.approx(worst, abs=1e-3)


def test_a_point_with_a_wide_interval_weighs_less() -> None:
    line = [(n, 1e-6 + n / 50e9, 0.01) for n in SIZES]
    size, seconds, _ = line[-1]
    narrow = stats.fit_curve([*line[:-1], (size, 1.2 * seconds, 0.01)])
    wide = stats.fit_curve([*line[:-1], (size, 1.2 * seconds, 0.2)])
    assert narrow.asymptote_gbps.value == pytest.approx(48.740, abs=1e-3)
    assert wide.asymptote_gbps.value == pytest.approx(49.996, abs=1e-3)


# One H200, both ways at once: bytes one way, and GB/s of the sum. No line describes it: 256 KiB is 12 % off.
BOTH = {2**12: 2.65, 2**14: 9.53, 2**16: 28.2, 2**18: 55.2, 2**20: 88.9, 2**22: 97.8, 2**24: 101.8, 2**26: 102.7}


@pytest.mark.parametrize("wide", [0.001, 0.02, 0.1])
def test_large_sizes_with_wide_intervals_decide_the_bandwidth_of_a_curve_that_no_line_describes(wide: float) -> None:
    half_widths = {size: wide if size >= 2**22 else 0.005 for size in BOTH}
    fit = stats.fit_curve([(2 * n, 2 * n / rate / 1e9, half_widths[n]) for n, rate in BOTH.items()])
    assert fit.asymptote_gbps.value == pytest.approx(102.7, rel=0.035)
    assert fit.worst_misfit.value == pytest.approx(0.12, abs=0.01)


@given(st.lists(st.floats(0.9, 1.1), min_size=9, max_size=9), st.lists(st.floats(0, 0.3), min_size=9, max_size=9))
def test_the_worst_misfit_bounds_the_distance_of_every_median(noise: list[float], half_widths: list[float]) -> None:
    line = [
        (n, (2.3e-6 + n / 55.5e9) * factor, half) for n, factor, half in zip(SIZES, noise, half_widths, strict=True)
    ]
    fit = stats.fit_curve(line)
    t0, gbps, worst = fit.latency_s.value, fit.asymptote_gbps.value, fit.worst_misfit.value
    if t0 is not None and gbps is not None and worst is not None:
        assert max(abs((t0 + n / gbps / 1e9) / seconds - 1) for n, seconds, _ in line) <= worst + 1e-9


@given(st.lists(st.tuples(st.integers(1, 2**40), st.floats(1e-9, 1e3)), max_size=12))
def test_every_figure_of_any_fit_is_finite_or_has_a_reason(measured: list[tuple[int, float]]) -> None:
    fit = fit_curve(measured)
    for fact in (fit.latency_s, fit.asymptote_gbps, fit.half_bytes, fit.worst_misfit):
        assert fact.reason or (fact.value is not None and 0 <= fact.value < float("inf"))
    if fit.half_bytes.value is not None:
        assert fit.half_bytes.value <= max(nbytes for nbytes, _ in measured)
