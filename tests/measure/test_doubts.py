"""Doubts about medians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measure.test_stats import PRECISION, SECONDS, Draw, ar1, half_width, trials
from numpy.typing import NDArray

from pyxfer import units
from pyxfer._document.machines import Remark
from pyxfer._measure import stats
from pyxfer._measure.doubts import QUIETER, instability


def remark(values: NDArray[np.float64] | list[float], budget_s: float | None = None) -> Remark:
    found = instability(list(values), PRECISION, budget_s)
    assert found is not None
    return found


TICKS = list(np.where(np.random.default_rng(2).permutation(80) < 20, 2.528e-6, 2.496e-6))


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        *((trials(n, spread=0.0005), PRECISION) for n in (6, 12, 40, 300)),
        (trials(40), half_width(trials(40))),  # an interval as wide as the precision
        (TICKS, PRECISION),  # two neighbouring ticks of a coarse clock are not two modes
        ([1.0] * 80 + [1.5] * 40, 0.5),  # levels that differ by the precision are neither a drift nor modes
        (trials(60, spread=1e-4) * np.linspace(1, 1.004, 60), PRECISION),  # a drift smaller than the precision
        ([1e-3] * 40 + [1.001e-3] * 6, PRECISION),  # equal times with one tick between them have no outliers
    ],
)
def test_quiet_trials_get_no_remark(values: Sequence[float], precision: float) -> None:
    assert instability(list(values), precision) is None


@pytest.mark.parametrize(
    ("n", "budget_s", "trials", "fix"),
    [(1, None, "1 trial is", "give a budget 6 times as long"), (4, 30, "4 trials are", "give a budget of 45s")],
)
def test_too_few_trials_name_the_budget_for_enough(n: int, budget_s: float | None, trials: str, fix: str) -> None:
    text = f"{trials} too few for a 95% interval, which takes 6"
    assert remark([1e-3] * n, budget_s=budget_s) == Remark(code="few-trials", text=text, fix=fix)


def test_a_wide_interval_names_its_width_and_what_fits() -> None:
    found = remark(trials(40, spread=0.02), budget_s=10)
    assert found.code == "unstable"
    assert found.text.startswith("the median is known within ")
    assert found.text.endswith(" %, not 0.5 %")
    budget, precision = (found.fix or "").split(" or ")
    assert units.parse_duration(budget.removeprefix("give a budget of ")) > 10
    wider = units.parse_ratio(precision.removeprefix("a precision of "))
    assert instability(list(trials(40, spread=0.02)), wider) is None


@pytest.mark.parametrize(
    ("spread", "budget_s", "fix"),
    [
        (0.02, None, "give a budget 4 times as long or a precision of 1%"),  # 0.91 % is reached
        (0.02, 10.0, "give a budget of 34s or a precision of 1%"),
        (0.15, 10.0, QUIETER),  # 7.1 %: no budget is long enough, and a far looser precision would only hide the doubt
    ],
)
def test_a_longer_budget_and_a_rounder_precision_are_proposed(spread: float, budget_s: float | None, fix: str) -> None:
    assert remark(trials(40, spread), budget_s=budget_s).fix == fix


@pytest.mark.parametrize(
    ("times", "just_over", "budget"),
    [(1.00002, True, "a budget 2 times as long"), (99.9, False, "a budget 100 times as long"), (100.2, False, None)],
)
def test_a_budget_of_up_to_a_hundred_times_is_proposed(times: float, just_over: bool, budget: str | None) -> None:
    values = list(trials(40, spread=0.02))
    found: Any = instability(values, half_width(values) / times**0.5)
    assert (found.code, " just over " in found.text) == ("unstable", just_over)
    assert "budget" not in found.fix if budget is None else budget in found.fix


def test_a_width_that_no_flag_reaches_asks_for_a_quieter_machine() -> None:
    values = np.random.default_rng(3).lognormal(0, 1.5, 20)
    assert half_width(values) > 1
    assert (remark(values).fix or "").startswith("let the machine settle")


def test_two_modes_have_their_values_and_shares() -> None:
    slow = np.random.default_rng(2).permutation(40) < 16
    found = remark(trials(40, spread=0.005) * np.where(slow, 1.3, 1.0))
    assert found.code == "bimodal"
    assert found.text == "two modes: 60.0 % of the trials near 1.00 ms, the others near 1.30 ms"
    assert "stop other work" in (found.fix or "")


@pytest.mark.parametrize(
    ("n", "slow", "code"),
    [
        *[(20, 5, "unstable"), (20, 6, "bimodal"), (20, 14, "bimodal"), (20, 15, "unstable")],
        *[(40, 7, "outliers"), (40, 8, "bimodal"), (40, 32, "bimodal"), (40, 33, "outliers")],
    ],
)
def test_a_mode_has_a_fifth_of_the_trials_and_at_least_six(n: int, slow: int, code: str) -> None:
    values = trials(n) * np.where(np.random.default_rng(2).permutation(n) < slow, 1.3, 1.0)
    assert remark(values).code == code


def test_a_drift_is_named_with_where_it_began_and_ended() -> None:
    found = remark(trials(60) * np.linspace(1, 1.06, 60))
    assert found.code == "drift"
    assert found.text == "the time drifted during the run: 1.01 ms in its first third, 1.05 ms in its last"
    assert "budget" in (found.fix or "")


def zigzag(values: Sequence[float]) -> NDArray[np.float64]:
    """The values in an order in which neighbours do not resemble each other."""
    ordered = np.sort(values)
    half = (len(ordered) + 1) // 2
    mixed = np.empty_like(ordered)
    mixed[::2], mixed[1::2] = ordered[:half], ordered[half:]
    return mixed


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("third", "inversions", "drifts"), [(20, 59, True), (20, 60, False), (21, 69, True), (21, 70, False)]
)
def test_a_drift_is_3_8_deviations_of_the_rank_sum(third: int, inversions: int, drifts: bool, sign: int) -> None:
    """Of `third`² pairs of a value of the first third and one of the last, this many are in the other order."""
    above_all, above_some = divmod(inversions, third)
    first = [*range(300, 300 + above_all), 200 + above_some - 0.5, *range(100, 100 + third - above_all - 1)]
    last = range(200, 200 + third)
    values = np.concatenate((zigzag(first), zigzag(first), zigzag(last)))
    assert (remark(1000 + sign * values).code == "drift") == drifts


@pytest.mark.parametrize("n", [60, 200])
def test_correlated_noise_is_rarely_taken_for_a_drift(n: int) -> None:
    rng = np.random.default_rng(11)
    found = (instability(list(ar1(0.7)(rng, n)), 1e-9) for _ in range(300))
    assert sum(each is not None and each.code == "drift" for each in found) <= 2


def test_outliers_are_counted_and_the_worst_is_named() -> None:
    values = trials(50)
    values[[3, 17, 21, 44]] = 5e-3
    found = remark(values)
    assert found.code == "outliers"
    assert found.text == "4 of 50 trials are far outside the others, up to 5.00 ms against a median of 1.00 ms"


@pytest.mark.parametrize("factor", [5, 0.2])
@pytest.mark.parametrize(("n", "outside", "named"), [(20, 1, False), (20, 2, True), (100, 4, False), (100, 5, True)])
def test_outliers_are_named_from_two_and_five_percent_on(n: int, outside: int, named: bool, factor: float) -> None:
    values = trials(n)
    values[3 : n - 3 : n // outside] *= factor
    found = instability(list(values), precision=0.5)
    assert (found is not None and found.code == "outliers") == named


@pytest.mark.parametrize(("ranges", "named"), [(2.9, False), (3.1, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_outliers_are_three_interquartile_ranges_beyond_a_quartile(ranges: float, named: bool, sign: int) -> None:
    values = np.random.default_rng(4).permutation(np.linspace(-1, 1, 101))
    values[5:100:17] = 10
    q1, q3 = np.quantile(values, (0.25, 0.75))
    values[5:100:17] = q3 + ranges * (q3 - q1)
    found = instability(list(1 + sign * 0.005 * values), 0.004)
    assert (found is not None) == named


def test_times_of_zero_ask_for_larger_sizes() -> None:
    found = remark([0.0] * 10)
    assert (found.code, found.fix) == ("unstable", "measure larger sizes")


@given(SECONDS, st.floats(1e-4, 0.5))
def test_an_interval_wider_than_the_precision_has_a_remark_with_a_fix(seconds: list[float], precision: float) -> None:
    half_width = stats.summarise(seconds).relative_half_width
    found = instability(seconds, precision)
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
