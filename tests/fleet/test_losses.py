"""The arithmetic of verdicts on figures with known answers, and of facts that slow hosts share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fleet_samples import cell_named
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._document.fleets import Contrast, FleetSettings
from pyxfer._fleet.contrast import Member, chance_of, contrasts, facts_of
from pyxfer._fleet.losses import (
    Floats,
    Judged,
    answers_of,
    confirmed,
    controls_of,
    find_groups,
    is_chance,
    judge_figures,
    looks_again,
    shift_of,
)

SETTINGS = FleetSettings()
SPREAD = 0.001


def noise(hosts: int, cells: int = 4, seed: int = 1, spread: float = SPREAD) -> Floats:
    return spread * np.random.default_rng(seed).standard_normal((hosts, cells))


def judged(figures: Floats, errors: Floats | None = None, settings: FleetSettings = SETTINGS) -> Judged:
    unknown = np.full(figures.shape, np.nan) if errors is None else errors
    return judge_figures(figures, unknown, range(figures.shape[1]), figures.size, settings)


def test_equal_hosts_are_not_flagged() -> None:
    assert not any(judged(noise(500, seed=seed)).flagged.any() for seed in range(20))


@pytest.mark.parametrize(
    ("factor", "spread", "least_loss", "flagged"),
    [(0.97, SPREAD, 0.01, True), (1.5, SPREAD, 0.01, False), (0.985, 1e-5, 0.02, False), (0.975, 1e-5, 0.02, True)],
    ids=["loss", "gain", "below the least loss", "above the least loss"],
)
def test_a_loss_is_flagged_in_its_cell(factor: float, spread: float, least_loss: float, flagged: bool) -> None:
    figures = noise(200, spread=spread)
    figures[7, 2] += math.log(factor)
    found = judged(figures, settings=FleetSettings(least_loss=least_loss))
    assert list(zip(*np.nonzero(found.flagged), strict=True)) == ([(7, 2)] if flagged else [])
    assert (found.limits > np.maximum(found.first, found.again)).all()


def test_hosts_are_assumed_to_differ_by_the_least_spread() -> None:
    loose = judged(noise(200, spread=1e-6), settings=FleetSettings(least_spread=0.01))
    assert (loose.first > 0.04).all()


def test_the_spread_is_the_standard_deviation_of_normal_noise() -> None:
    figures = noise(2000)
    assert judged(figures).spreads == pytest.approx(SPREAD, rel=0.08)
    figures[:100] += math.log(0.5)
    assert judged(figures).spreads == pytest.approx(SPREAD, rel=0.2)


def test_cells_of_one_family_share_their_spread() -> None:
    figures = noise(8, cells=8, spread=0.01)
    own = judge_figures(figures, np.full(figures.shape, np.nan), range(8), figures.size, SETTINGS)
    shared = judge_figures(figures, np.full(figures.shape, np.nan), [0] * 8, figures.size, SETTINGS)
    assert float(np.min(shared.spreads)) == pytest.approx(np.median(own.spreads))


def test_a_host_whose_own_interval_is_wide_is_not_flagged() -> None:
    figures, errors = noise(200), np.full((200, 4), 0.0005)
    figures[7, 2] += math.log(0.97)
    errors[7, 2] = 0.02
    assert not judged(figures, errors).flagged.any()


def test_heavy_tails_of_the_good_side_raise_the_limits() -> None:
    rng = np.random.default_rng(3)
    heavy = SPREAD * rng.standard_t(2, (1000, 4))
    assert (judged(heavy).first > judged(noise(1000)).first).all()


def test_missing_figures_are_neither_flagged_nor_counted() -> None:
    figures = noise(50)
    figures[:20, 1] = np.nan
    found = judged(figures)
    assert not found.flagged.any()
    assert np.isfinite(found.first).all()


@pytest.mark.parametrize("hosts", [6, 200])
def test_a_loss_of_the_stated_limit_is_found_with_the_stated_power(hosts: int) -> None:
    rng = np.random.default_rng(9)
    shares = []
    for part in (1.0, 0.6):
        hits = 0
        for seed in range(100):
            figures = noise(hosts, seed=seed)
            loss = part * judged(figures).limits[0]
            host = int(rng.integers(hosts))
            figures[host, 0] -= loss
            found = judged(figures)
            second = SPREAD * rng.standard_normal() - loss
            hits += bool(found.flagged[host, 0]) and second <= -found.again[0]
        shares.append(hits / 100)
    assert shares[0] >= SETTINGS.power - 0.05
    assert shares[1] < 0.5


@pytest.mark.parametrize("loss", [0.5, 0.03])
def test_two_groups_are_found_and_no_host_is_flagged(loss: float) -> None:
    figures = noise(16)
    slower = [1, 3, 5, 7, 9, 10, 11, 13, 15]
    figures[slower, 0] += math.log(1 - loss)
    found = judged(figures)
    assert set(found.splits[0].slower) == set(slower)
    assert found.splits.keys() == {0}
    assert not found.flagged.any()
    assert found.medians[0] == pytest.approx(0.0, abs=0.002)  # that of the faster one


def test_a_host_is_slow_within_its_group() -> None:
    figures = noise(60)
    figures[:20, 0] += math.log(0.9)
    figures[3, 0] += math.log(0.9)
    found = judged(figures)
    assert np.flatnonzero(found.flagged[:, 0]).tolist() == [3]


def test_equal_hosts_are_not_two_groups() -> None:
    rng = np.random.default_rng(5)
    for hosts in (5, 8, 12, 30, 200):
        assert not any(find_groups(0.1 * rng.standard_normal(hosts), SETTINGS) for _ in range(300))


def test_a_few_hosts_of_many_are_no_group() -> None:
    figures = noise(100)[:, 0]
    figures[:4] += math.log(0.9)
    assert find_groups(figures, SETTINGS) is None


def test_all_controls_have_to_fall_for_a_shift() -> None:
    assert shift_of(np.array([[-0.02, 0.01], [-0.03, -0.02]])).tolist() == [-0.02, 0.0]
    assert shift_of(np.empty((0, 2))).tolist() == [0.0, 0.0]
    assert shift_of(np.array([[np.nan, -0.01]])).tolist() == [0.0, -0.01]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([-0.03], True),
        ([-0.02], True),
        ([0.0], False),
        ([-0.03, 0.0, -0.03], True),
        ([-0.03, 0.0], False),
        ([-0.05, -0.05, 0.0, 0.0], False),
    ],
)
def test_a_loss_is_confirmed_by_most_looks(looks: list[float], expected: bool) -> None:
    assert confirmed(np.array(looks), 0.02) is expected


def test_a_cell_that_is_low_at_random_confirms_nothing() -> None:
    assert is_chance(hosts=1000, flagged=100, looked_again=100, kept=10, error_rate=0.01)
    assert not is_chance(hosts=1000, flagged=3, looked_again=3, kept=2, error_rate=0.01)
    assert not is_chance(hosts=1000, flagged=100, looked_again=100, kept=90, error_rate=0.01)


def with_low(hosts: int, low: int, cells: int = 2) -> Judged:
    """A cohort of which the first `low` hosts lose 10 % in the first cell."""
    figures = noise(hosts, cells)
    figures[:low, 0] -= 0.1
    return judged(figures)


def again(found: Judged, kept: int, looked: int) -> dict[int, Floats]:
    """The looks at the first `looked` hosts, of which the first `kept` are still low in the first cell."""
    looks = {row: np.zeros((1, found.ratios.shape[1])) for row in range(looked)}
    for row in range(kept):
        looks[row][0, 0] = -0.1
    return looks


@pytest.mark.parametrize(
    ("looked", "kept", "unsteady", "confirmed_rows"),
    [
        (20, 3, [0], 0),
        (20, 20, [], 20),
        (20, 19, [], 19),
        (20, 0, [], 0),
        (1, 1, [], 1),
    ],
    ids=["most answers are chance", "all losses stay", "nearly all stay", "none stays", "one look"],
)
def test_a_cell_is_unsteady_if_chance_explains_the_losses_that_stay(
    looked: int, kept: int, unsteady: list[int], confirmed_rows: int
) -> None:
    found = with_low(200, 20)
    answers, cells = answers_of(found, again(found, kept, looked), SETTINGS)
    assert cells == unsteady
    assert sum(answer is True for answer in answers.values()) == confirmed_rows
    assert sum(answer is None for answer in answers.values()) == 20 - looked


def test_an_unsteady_cell_leaves_the_other_cells_confirmed() -> None:
    figures = noise(200, 2)
    figures[:20, 0] -= 0.1
    figures[0, 1] -= 0.1
    found = judged(figures)
    looks = again(found, 3, 20)
    looks[0][0, 1] = -0.1
    answers, cells = answers_of(found, looks, SETTINGS)
    assert cells == [0]
    assert [place for place, answer in answers.items() if answer] == [(0, 1)]


def test_an_unsteady_cell_counts_only_the_hosts_that_have_it() -> None:
    """That 3 of 20 losses stay is chance among 200 hosts, and would not be among 2200."""
    figures = np.vstack([noise(200, 2), np.column_stack([np.full(2000, np.nan), noise(2000, 1, seed=2)])])
    figures[:20, 0] -= 0.1
    found = judged(figures)
    assert answers_of(found, again(found, 3, 20), SETTINGS)[1] == [0]


def test_the_shift_of_the_controls_is_no_loss() -> None:
    found = with_low(50, 1)
    (first, second) = sorted(controls_of(found))
    shifted = found.centres[0] - 0.1
    looks = looks_again(found, {0: shifted[np.newaxis], first: shifted[np.newaxis], second: shifted[np.newaxis]})
    assert list(looks) == [0]
    assert looks[0] == pytest.approx(np.zeros((1, 2)), abs=1e-12)
    assert answers_of(found, looks, SETTINGS)[0] == {(0, 0): False}
    assert looks_again(found, {0: found.centres[:1] - 0.1}) == {}  # without a control nothing is known
    assert answers_of(found, {}, SETTINGS) == ({(0, 0): None}, [])


def members(count: int, first: int = 0, **facts: str) -> list[Member]:
    return [(place, facts_of(facts, {})) for place in range(first, first + count)]


def found(slow: list[Member], others: list[Member]) -> tuple[Contrast, ...]:
    return contrasts(slow, others, (cell_named("h2d:gpu0:pinned:256MiB"),), 0.01)


def test_a_fact_of_all_slow_hosts_and_no_other_is_significant() -> None:
    (contrast,) = found(members(4, driver="old"), members(252, 4, driver="new"))
    assert (contrast.what, contrast.value, contrast.label) == ("driver", "old", False)
    assert (contrast.slow, contrast.of_slow, contrast.others, contrast.of_others) == (4, 4, 0, 252)
    assert contrast.significant
    assert contrast.chance < 1e-6
    assert contrast.hosts == (0, 1, 2, 3)


def test_a_fact_of_most_slow_hosts_and_few_others_is_significant() -> None:
    slow = [*members(6, driver="old"), *members(2, 6, driver="new"), *members(1, 300)]
    others = [*members(3, 8, driver="old"), *members(200, 11, driver="new")]
    contrast = found(slow, others)[0]
    assert contrast.significant
    assert (contrast.slow, contrast.of_slow) == (6, 8)  # without the host that does not have the fact


@pytest.mark.parametrize(
    ("slow", "others"),
    [
        (members(4, driver="new"), members(100, 4, driver="new")),
        (
            [*members(2, rack="a"), *members(2, 2, rack="b")],
            [*members(50, 4, rack="a"), *members(50, 54, rack="b")],
        ),
        (members(1, serial="s0"), [one for place in range(1, 100) for one in members(1, place, serial=f"s{place}")]),
    ],
    ids=["of every host", "of others as often", "of each host its own"],
)
def test_a_fact_that_says_nothing_is_left_out(slow: list[Member], others: list[Member]) -> None:
    assert found(slow, others) == ()


def test_many_facts_make_a_coincidence_likely() -> None:
    def member(place: int, value: str) -> Member:
        return (place, facts_of({f"fact{number}": value for number in range(30)}, {}))

    slow = [member(0, "x")]
    others = [member(place, "y") for place in range(1, 256)]
    assert not any(contrast.significant for contrast in found(slow, others))


def test_of_three_hosts_an_exclusive_fact_is_given_and_not_significant() -> None:
    (contrast,) = found(members(1, governor="powersave"), members(2, 1, governor="performance"))
    assert not contrast.significant
    assert contrast.chance == pytest.approx(1 / 3)


def test_chances_are_those_of_drawing_without_putting_back() -> None:
    assert chance_of(4, 4, 0, 252) == pytest.approx(1 / 174792640)
    assert chance_of(1, 1, 0, 9) == pytest.approx(0.1)
    assert chance_of(0, 4, 3, 10) == pytest.approx(1.0)


@given(st.integers(1, 20), st.integers(1, 50), st.data())
def test_a_chance_is_a_probability(of_slow: int, of_others: int, data: st.DataObject) -> None:
    slow, others = data.draw(st.integers(0, of_slow)), data.draw(st.integers(0, of_others))
    assert 0 <= chance_of(slow, of_slow, others, of_others) <= 1
