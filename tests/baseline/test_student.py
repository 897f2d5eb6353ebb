"""Quantiles of Student's distribution, compared with tabulated values."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._measure.stats import quantile, tail


@pytest.mark.parametrize(
    ("p", "df", "t"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 10, 2.22814),
        (0.975, 30, 2.04227),
        (0.95, 3, 2.35336),
        (0.995, 5, 4.03214),
        (0.9995, 2, 31.5991),
        (0.99999, 1, 31830.9885),
        (0.75, 7, 0.711142),
    ],
)
def test_quantiles_equal_the_tabulated_ones(p: float, df: float, t: float) -> None:
    assert quantile(p, df) == pytest.approx(t, rel=1e-5)


@given(st.floats(0.5001, 0.999999))
def test_two_degrees_of_freedom_have_a_closed_form(p: float) -> None:
    assert quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-6)


@given(st.floats(0.51, 0.9999), st.floats(1, 500))
def test_the_tail_of_a_quantile_has_its_probability(p: float, df: float) -> None:
    assert tail(quantile(p, df), df) == pytest.approx(1 - p, rel=1e-6)


@pytest.mark.parametrize("df", [1, 3.5, 100])
def test_half_of_the_distribution_is_above_zero(df: float) -> None:
    assert tail(0.0, df) == 0.5
    assert quantile(0.5, df) == pytest.approx(0, abs=1e-9)
    assert tail(1e200, df) == 0.0


@pytest.mark.parametrize("df", [1e5, 1e7, math.inf])
def test_very_many_degrees_of_freedom_are_the_normal_distribution(df: float) -> None:
    assert quantile(0.975, df) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-4)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (math.nan, 3), (0.9, 0), (0.9, -1), (0.9, math.nan)])
def test_invalid_arguments_are_refused(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile(p, df)
