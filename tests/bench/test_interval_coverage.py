"""Coverage of intervals, in simulation and on committed runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import interval_coverage as intervals
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from pyxfer._document.intervals import median_interval
from pyxfer._measure import stats

replace = msgspec.structs.replace
RESULTS = Path(__file__).parents[2] / "bench" / "results"


def document() -> intervals.Coverage:
    cells = tuple(
        intervals.Cell(noise, spread, budget, budget, 1.0, 0.96 if spread < 0.005 else 0.95, 0.01, 1.24, 0.875)
        for noise in intervals.NOISES
        for spread in intervals.SPREADS
        for budget in intervals.BUDGETS
    )
    windows = (
        intervals.Window("pinned", "turns", 20, 392, 0.948, 0.062, 2.4, 0.8, 0.937),
        intervals.Window("pageable", "consecutive", 6, 3, 0.77, 0.01, None, 0.5, None),
    )
    alarms = (intervals.Alarm("independent", 30, 0.0), intervals.Alarm("independent", 200, 0.0005))
    return intervals.Coverage(1, 100, cells, windows, alarms)


@pytest.mark.parametrize("budget", [6, 50])
def test_a_budget_allows_that_many_trials(budget: int) -> None:
    assert intervals.sampled(1e-3 * np.linspace(1, 2, budget)).size == budget


@pytest.mark.parametrize("noise", [noise for noise in intervals.NOISES if noise != "modes of 100 trials"])
def test_a_simulation_counts_what_the_interval_encloses(noise: str) -> None:
    cell = intervals.simulate(noise, 0.01, 100, repeats=20, seed=3)
    assert cell.with_interval == 1.0
    assert cell.trials == 100
    assert cell.coverage >= 0.8
    assert cell.half_width >= 0


def narrowed(factor: float) -> Callable[[NDArray[np.float64]], tuple[float, float]]:
    """The rule with intervals of another width."""

    def interval(values: NDArray[np.float64]) -> tuple[float, float]:
        low, high = median_interval(values)
        assert low is not None
        assert high is not None
        median = float(np.median(values))
        return median * (low / median) ** factor, median * (high / median) ** factor

    return interval


def test_a_narrower_interval_covers_less(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = intervals.simulate("AR(1), 0.7", 0.01, 20, repeats=100, seed=3)
    monkeypatch.setattr(stats, "median_interval", narrowed(0.3))
    narrow = intervals.simulate("AR(1), 0.7", 0.01, 20, repeats=100, seed=3)
    assert narrow.coverage < wide.coverage - 0.1


@pytest.mark.parametrize("taken", ["turns", "consecutive"])
def test_parts_have_so_many_trials_in_order(taken: str) -> None:
    found = list(intervals.parts(np.arange(400.0), 20, taken, np.random.default_rng(1)))
    assert {each.size for each in found} == {20}
    assert all((np.diff(each) > 0).all() for each in found)
    spans = [int(each[-1] - each[0]) for each in found]
    assert min(spans) == 19 if taken == "consecutive" else min(spans) > 19


def test_committed_series_are_compared_with_their_own_rest() -> None:
    rng = np.random.default_rng(5)
    steady = 1e-3 * (1 + 0.01 * rng.standard_normal(400))
    assert intervals.covered_parts(steady[:50], 20, "turns", rng) is None
    found = intervals.covered_parts(steady, 20, "turns", rng)
    assert found is not None
    assert np.mean(found.covered) >= 0.8
    rising = intervals.covered_parts(1e-3 * np.linspace(1, 2, 400), 20, "consecutive", rng)
    assert rising is not None
    assert np.mean(rising.covered) < 0.2


def test_the_bootstrap_has_the_width_of_independent_medians() -> None:
    rng = np.random.default_rng(5)
    widths = [high - low for low, high in (intervals.bootstrap(rng.standard_normal(400), rng) for _ in range(20))]
    assert np.median(widths) == pytest.approx(2 * 1.96 * 1.2533 / 20, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, 0),
        ({"coverage": 0.92}, 1),
        ({"of_bootstrap": 1.7}, 1),
        ({"of_bootstrap": 1.7, "budget_trials": 50, "trials": 50}, 0),
        ({"of_bootstrap": 1.7, "noise": "drift"}, 0),
        ({"coverage": 0.5, "noise": "modes of 100 trials"}, 0),
        ({"coverage": 0.5, "noise": "modes of 30 trials"}, 1),
    ],
)
def test_too_low_a_coverage_and_too_wide_intervals_are_misses(changes: dict[str, Any], missed: int) -> None:
    cell = replace(intervals.Cell("AR(1), 0.5", 0.01, 300, 300, 1.0, 0.95, 0.01, 1.3, 0.9), **changes)
    made = replace(document(), simulated=(cell,))
    assert len(list(intervals.misses(made))) == missed


@pytest.mark.parametrize(("taken", "missed"), [("turns", 2), ("consecutive", 0)])
def test_parts_taken_in_turns_have_limits(taken: Any, missed: int) -> None:
    window = intervals.Window("pinned", taken, 100, 20, 0.9, 0.01, 1.7, 0.9, None)
    assert len(list(intervals.misses(replace(document(), simulated=(), committed=(window,))))) == missed


def test_intervals_of_committed_series_are_those_of_a_bootstrap() -> None:
    """The bootstrap's medians lie within the interval as often as 95 % and a little more; it is not far wider."""
    rng = np.random.default_rng(11)
    tallies = []
    for each in intervals.recorded(RESULTS):
        summary = stats.summarise(list(each.seconds))
        tally = intervals.Tally()
        tally.add((summary.low_s, summary.high_s), each.seconds, summary.median_s)
        tally.resample(each.seconds, summary.median_s, rng)
        tallies.append(tally)
    multiples = np.array([each.of_bootstrap for each in tallies if each.of_bootstrap is not None])
    assert multiples.size > 200
    assert 1.0 < np.median(multiples) < 1.6
    assert np.quantile(multiples, 0.9) < 2.5


def test_modes_need_trials_of_both() -> None:
    cells = [cell for cell in document().simulated if cell.noise == "modes of 30 trials"]
    assert [intervals.shows_its_levels(cell) for cell in cells[:7]] == [False] * 4 + [True] * 3
