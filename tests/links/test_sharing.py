"""Groups of GPUs that share an uplink, and slow links, found in simulated hosts."""

from __future__ import annotations

import numpy as np
import pytest
from links.wiring import LINK, NVLINK, Host

from pyxfer._links import sharing

SEEDS = range(100)
TWO = [((0, 1, 2, 3), LINK), ((4, 5, 6, 7), LINK)]
FOUR = [((0, 1), 1.5 * LINK), ((2, 3), 1.5 * LINK), ((4, 5), 1.5 * LINK), ((6, 7), 1.5 * LINK)]
SCATTERED = [((0, 5), LINK), ((1, 3, 7), LINK)]


def found(host: Host, seed: int) -> tuple[list[tuple[int, ...]], set[tuple[int, int]], set[tuple[int, int]]]:
    """The groups, the slow pairs and the slow host links of a host."""
    alone = host.alone(seed)
    groups = sharing.groups_of(sharing.losses(alone, host.beside(seed)))
    links = sharing.slow_links({(-1, gpu): rates for gpu, rates in alone.items()})
    return groups, set(sharing.slow_links(host.pair_rates(seed))), set(links)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "groups", "pairs", "links"),
    [
        (Host(uplinks=TWO), [(0, 1, 2, 3), (4, 5, 6, 7)], set(), set()),
        (Host(uplinks=FOUR), [(0, 1), (2, 3), (4, 5), (6, 7)], set(), set()),
        (Host(uplinks=SCATTERED), [(0, 5), (1, 3, 7)], set(), set()),
        (Host(slow={(2, 5): NVLINK / 2, (5, 2): NVLINK / 2}), [], {(2, 5), (5, 2)}, set()),
        (Host(slow={(-1, 3): LINK / 2}), [], set(), {(-1, 3)}),
        (Host(uplinks=[(range(8), 1.6 * LINK)]), [tuple(range(8))], set(), set()),
        (Host(), [], set(), set()),
    ],
    ids=["two-uplinks", "four-uplinks", "scattered", "slow-pair", "x8", "one-uplink", "clean"],
)
def test_what_is_planted_is_found_in_every_one_of_a_hundred_hosts(
    host: Host, groups: list[tuple[int, ...]], pairs: set[tuple[int, int]], links: set[tuple[int, int]]
) -> None:
    wrong = {seed: each for seed in SEEDS if (each := found(host, seed)) != (groups, pairs, links)}
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, 12])
def test_the_stated_error_rate_holds_for_noise_alone(rounds: int) -> None:
    named = 0
    for seed in range(300):
        noise = np.random.default_rng(seed).normal
        alone = {gpu: list(noise(1, 0.05, rounds)) for gpu in range(8)}
        beside = {pair: list(noise(2, 0.07, rounds)) for pair in sharing.pairs_to_measure(range(8), 0)}
        named += any(loss.keeps < loss.bound for loss in sharing.losses(alone, beside, error_rate=0.05).values())
    assert named <= 0.05 * 300 + 3 * np.sqrt(0.05 * 0.95 * 300)


def test_two_gpus_that_share_are_a_group() -> None:
    alone = {0: [54.0, 55.0, 56.0] * 2, 1: [55.0, 54.5, 55.5] * 2}
    assert sharing.groups_of(sharing.losses(alone, {(0, 1): [55.0, 56.0, 54.0] * 2})) == [(0, 1)]


def test_a_loss_without_interest_names_no_group() -> None:
    alone = dict.fromkeys((0, 1, 2), [50.0] * 6)
    assert sharing.groups_of(sharing.losses(alone, {(0, 1): [97.0] * 6, (0, 2): [100.0] * 6})) == []


def test_one_pair_by_chance_does_not_join_two_groups() -> None:
    lost, kept = sharing.Loss(0.5, 0.95), sharing.Loss(1.0, 0.95)
    groups = [(0, 1, 2, 3), (4, 5, 6, 7)]
    pairs = {
        (one, other): lost if any({one, other} <= set(group) for group in groups) or (one, other) == (3, 4) else kept
        for one, other in sharing.pairs_to_measure(range(8), 0)
    }
    assert sharing.groups_of(pairs) == groups


def test_too_few_rounds_name_nothing() -> None:
    assert sharing.losses({0: [50.0] * 9, 1: [50.0] * 9}, {(0, 1): [50.0] * 5}) == {}
    assert sharing.slow_links({(0, 1): [1.0] * 6, (1, 0): [9.0] * 6}) == {}


def test_links_of_which_most_are_slow_have_no_usual_rate() -> None:
    rates = {(0, 1): [100.0] * 6, (1, 2): [50.0] * 6, (2, 3): [20.0] * 6, (3, 0): [10.0] * 6}
    assert sharing.slow_links(rates) == {}


@pytest.mark.parametrize(("count", "pairs"), [(1, 0), (2, 1), (8, 28), (16, 120), (32, 120), (72, 216)])
def test_above_sixteen_devices_pairs_are_sampled(count: int, pairs: int) -> None:
    chosen = sharing.pairs_to_measure(range(count), seed=1)
    assert len(chosen) == len(set(chosen)) == pairs
    assert all(one < other for one, other in chosen)


def test_neighbours_on_the_bus_are_found_among_sampled_pairs() -> None:
    host = Host(count=32, uplinks=[(range(start, start + 4), LINK) for start in range(0, 32, 4)])
    chosen = sharing.pairs_to_measure(range(32), seed=3)
    everything = host.beside(seed=3)
    groups = sharing.groups_of(sharing.losses(host.alone(seed=3), {pair: everything[pair] for pair in chosen}))
    assert groups == [tuple(range(start, start + 4)) for start in range(0, 32, 4)]
