"""Counting how often checks, fleets, histories, maps and intervals are right: a part of each table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fleet_detection as detection
import history_changes as changes
import interval_coverage as intervals
import links_map
import msgspec
import numpy as np
import pytest
import verdicts
from numpy.typing import NDArray

from pyxfer._document.intervals import median_interval
from pyxfer._measure import stats

QUIET = "0.1 % normal"


def host(noise: verdicts.Noise, seed: int = 1) -> verdicts.Host:
    return verdicts.Host(noise, np.random.default_rng(seed))


def checked(noise: verdicts.Noise, lost: float, seed: int = 1) -> verdicts.Checked:
    made = host(noise, seed)
    return verdicts.check_once(made.baseline((5,)), verdicts.slower(made.sitting(20), lost))


@pytest.mark.parametrize(("lost", "outcome"), [(0.0, "SAME"), (0.05, "confirmed"), (0.5, "confirmed")])
def test_a_quiet_host_is_checked_rightly(lost: float, outcome: str) -> None:
    assert checked(verdicts.NOISES[0], lost).outcome == outcome


def test_a_baseline_of_sittings_knows_the_level_of_the_day() -> None:
    noise = next(noise for noise in verdicts.NOISES if noise.level == 0.02)
    counted = verdicts.count_checks(host(noise), noise, (3,) * 5, 0.0, 20)
    assert counted.outcomes.get("confirmed", 0) == 0
    assert counted.processes == "5 x 3"


@pytest.mark.parametrize("noise", verdicts.NOISES, ids=lambda noise: noise.name)
def test_one_run_against_one_run_fails_for_half_the_bandwidth_only(noise: verdicts.Noise) -> None:
    equal, halved = (verdicts.count_comparisons(host(noise), noise, lost, 50) for lost in (0.0, 0.5))
    assert set(equal.outcomes) <= {"SAME", "AMBIGUOUS"}
    # A run that is itself up to 30 % slow hides a part of the loss in one comparison in five.
    assert halved.outcomes.get("confirmed", 0) >= (44 if noise.process is verdicts.one_bad else 48)


@pytest.mark.parametrize(("noise", "sittings"), [(verdicts.PRINTED[0][0], (5,)), (verdicts.PRINTED[3][0], (3,))])
def test_a_printed_loss_is_found_and_not_far_above_what_is_needed(
    noise: verdicts.Noise, sittings: tuple[int, ...]
) -> None:
    counted = verdicts.count_printed(host(noise, 5), noise, sittings, 24)
    assert counted.found >= 20
    assert 0.03 < counted.needed < counted.median + 0.015
    assert counted.median < 0.08


def test_a_seed_gives_the_same_result_again() -> None:
    noise = next(noise for noise in verdicts.NOISES if noise.name == "1 % normal")
    first, again, other = (checked(noise, 0.0, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


# --- fleets, histories and maps of links -----------------------------------------------------------------------------


SPREADS = (0.0012, 0.0015, 0.11, 0.08)


@pytest.mark.parametrize("noise", detection.NOISES)
def test_losses_are_found_without_false_alarms(noise: str) -> None:
    counted = detection.count(noise, 0.5, SPREADS, 1000, 8, np.random.default_rng(1))
    assert counted.false == 0
    assert counted.lost > 50
    assert counted.found >= detection.MIN_FOUND * counted.lost
    assert counted.error(slice(detection.PINNED)) <= detection.LARGEST_ERROR


@pytest.mark.parametrize("noise", detection.NOISES)
def test_noise_has_the_spread_of_the_documents(noise: str) -> None:
    drawn = detection.NOISES[noise](np.random.default_rng(1), (4000, 50))
    assert np.mean(drawn) == pytest.approx(0.0, abs=0.05)
    assert np.std(drawn) == pytest.approx(1.0, rel=0.15)


def test_more_than_chance_explains_is_a_miss() -> None:
    assert detection.most_by_chance(300, 0.01) == 8
    assert detection.most_by_chance(100, 0.05) == 11


@pytest.mark.parametrize("hosts", [5, 12])
def test_the_printed_loss_is_found_in_few_hosts(hosts: int) -> None:
    counted = detection.count("normal", 0.5, SPREADS, hosts, 30, np.random.default_rng(2))
    assert counted.false == 0
    assert min(counted.found_printed) >= 28


NORMAL = changes.NOISES[0]


def test_losses_in_normal_noise_are_found() -> None:
    counted = changes.count(NORMAL, 60, 20, np.random.default_rng(1))
    assert changes.misses(changes.Found(1, changes.SPREAD, (counted,))) == []
    assert counted.stating >= 18
    assert 0.01 < counted.stated < 0.03


def test_neighbours_are_correlated_as_asked() -> None:
    drawn = changes.correlated(0.5)(np.random.default_rng(1), 20000)
    assert np.corrcoef(drawn[1:], drawn[:-1])[0, 1] == pytest.approx(0.5, abs=0.03)
    assert np.std(drawn) == pytest.approx(changes.SPREAD, rel=0.05)


@pytest.mark.parametrize("noise", links_map.NOISES)
def test_clean_maps_name_nobody_and_faults_are_found(noise: str) -> None:
    row = links_map.count(noise, 20, np.random.default_rng(5))
    assert sum(row.named.values()) == 0
    assert row.found == row.planted


replace = msgspec.structs.replace
# --- coverage of intervals -------------------------------------------------------------------------------------------


RESULTS = Path(__file__).parents[2] / "bench" / "results"


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
