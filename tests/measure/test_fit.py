"""`fit_curve`: the fixed cost and the bandwidth of a curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._measure import stats
from pyxfer._measure.stats import Fit

SIZES = [4096 * 4**k for k in range(9)]
# One H200, PCIe 5.0 x16: bytes and GB/s of gated pinned copies, and of blocking pageable ones.
PINNED = {2**12: 1.62, 2**16: 17.9, 2**18: 36.3, 2**20: 48.1, 2**22: 53.5, 2**24: 55.0, 2**26: 55.4, 2**28: 55.5}
PAGEABLE = {2**12: 0.53, 2**16: 3.3, 2**18: 10.5, 2**20: 14.0, 2**22: 16.5, 2**24: 16.5, 2**26: 15.0, 2**28: 11.0}


def fit_curve(points: Sequence[tuple[int, float]], half_width: float = 0.001) -> Fit:
    return stats.fit_curve([(nbytes, seconds, half_width) for nbytes, seconds in points])


def points(gbps: dict[int, float]) -> list[tuple[int, float]]:
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
    assert fit.worst_misfit.value is not None
    assert 0 < fit.worst_misfit.value < 0.04


def test_a_pinned_curve_of_a_real_link_is_fitted_within_two_percent() -> None:
    fit = fit_curve(points(PINNED))
    assert values(fit) == pytest.approx((2.46e-6, 55.2, 136e3), rel=0.01)
    assert fit.worst_misfit.value == pytest.approx(0.016, abs=0.002)


def test_a_curve_that_no_line_fits_has_its_worst_misfit() -> None:
    fit = fit_curve(points(PAGEABLE))
    assert values(fit) == (None, None, None)
    assert fit.latency_s.reason == "one line does not fit these times (35.9 % off at 64 KiB); read each size by itself"
    assert fit.worst_misfit.value == pytest.approx(0.359, abs=0.001)


@pytest.mark.parametrize(
    ("sizes", "counted"), [([], "0 sizes have"), ([4096] * 5, "1 size has"), ([4096, 8192, 4096], "2 sizes have")]
)
def test_a_fit_needs_three_sizes(sizes: list[int], counted: str) -> None:
    fit = fit_curve([(nbytes, 1e-6) for nbytes in sizes])
    assert fit.worst_misfit.reason == f"a curve needs 3 sizes and {counted} a result; measure more sizes"
    assert values(fit) == (None, None, None)


def test_large_sizes_alone_give_only_the_bandwidth() -> None:
    fit = fit_curve([(n, n / PINNED[n] / 1e9) for n in (2**24, 2**26, 2**28)])
    assert fit.asymptote_gbps.value == pytest.approx(55.5, rel=0.01)
    assert "measure smaller sizes" in (fit.latency_s.reason or "")
    assert fit.half_bytes.reason == fit.latency_s.reason


def test_a_negative_fixed_cost_is_not_given() -> None:
    fit = fit_curve([(n, n / 10e9 * (1 + n / 2**31)) for n in (2**24, 2**26, 2**28)])
    assert "measure smaller sizes" in (fit.latency_s.reason or "")
    assert fit.asymptote_gbps.value == pytest.approx(9.3, rel=0.1)


def test_small_sizes_alone_give_only_the_fixed_cost() -> None:
    fit = fit_curve([(n, 2.3e-6 + n / 55.5e9) for n in (1024, 4096, 16384)])
    assert fit.latency_s.value == pytest.approx(2.3e-6)
    assert "measure larger sizes" in (fit.asymptote_gbps.reason or "")


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


def test_a_fixed_cost_within_the_error_of_the_medians_is_not_given() -> None:
    line = [(n, 2.3e-6 + n / 55.5e9) for n in SIZES[4:]]
    assert fit_curve(line, half_width=0.097).latency_s.value == pytest.approx(2.3e-6)
    rough = fit_curve(line, half_width=0.098)
    assert rough.latency_s.value is None
    assert rough.half_bytes.value is None


def test_a_bandwidth_of_rough_medians_is_not_given() -> None:
    line = [(n, 2.3e-6 + n / 55.5e9) for n in SIZES]
    assert fit_curve(line, half_width=0.40).asymptote_gbps.value == pytest.approx(55.5)
    rough = fit_curve(line, half_width=0.41)
    assert rough.asymptote_gbps.value is None
    assert "budget" in (rough.asymptote_gbps.reason or "")


def test_a_time_of_zero_gives_no_fit() -> None:
    fit = fit_curve([(1024, 0.0), (2048, 2e-6), (4096, 1e-6)])
    assert "took no time that the clock could see" in (fit.asymptote_gbps.reason or "")


@given(st.lists(st.tuples(st.integers(1, 2**40), st.floats(1e-9, 1e3)), max_size=12))
def test_every_figure_of_any_fit_is_finite_or_has_a_reason(measured: list[tuple[int, float]]) -> None:
    fit = fit_curve(measured)
    for fact in (fit.latency_s, fit.asymptote_gbps, fit.half_bytes, fit.worst_misfit):
        assert fact.reason or (fact.value is not None and 0 <= fact.value < float("inf"))
    if fit.half_bytes.value is not None:
        assert fit.half_bytes.value <= max(nbytes for nbytes, _ in measured)


def test_times_that_do_not_grow_give_no_bandwidth() -> None:
    fit = fit_curve([(1024, 3e-6), (2048, 2e-6), (4096, 1e-6)])
    assert "does not grow with the size" in (fit.asymptote_gbps.reason or "")
