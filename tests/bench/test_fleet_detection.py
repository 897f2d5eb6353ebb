"""Counting how often the judging of fleets is right: a part of the table, and the limits."""

from __future__ import annotations

import fleet_detection as detection
import msgspec
import numpy as np
import pytest

from pyxfer._document.fleets import FleetSettings

SPREADS = (0.0012, 0.0015, 0.11, 0.08)


def row(**fields: object) -> detection.Row:
    counted = detection.Row("normal", 0.5, 1000, 300, 1.0, 1, 1000, 1000, (0.015,) * 4, (0.016,) * 4, (300, 300))
    return msgspec.structs.replace(counted, **fields)


def document(*rows: detection.Row) -> detection.Detection:
    return detection.Detection(1, FleetSettings(), (detection.Spread("h2d", "pinned", 5, 25, 0.0012),), rows)


@pytest.mark.parametrize("noise", detection.NOISES)
def test_losses_are_found_without_false_alarms(noise: str) -> None:
    counted = detection.count(noise, 0.5, SPREADS, 1000, 8, np.random.default_rng(1))
    assert counted.false == 0
    assert counted.lost > 50
    assert counted.found >= detection.LEAST_FOUND * counted.lost
    assert counted.error(slice(detection.PINNED)) <= detection.LARGEST_ERROR


@pytest.mark.parametrize("noise", detection.NOISES)
def test_noise_has_the_spread_of_the_documents(noise: str) -> None:
    drawn = detection.NOISES[noise](np.random.default_rng(1), (4000, 50))
    assert np.mean(drawn) == pytest.approx(0.0, abs=0.05)
    assert np.std(drawn) == pytest.approx(1.0, rel=0.15)


def test_the_spreads_are_those_of_the_committed_documents() -> None:
    spreads = {(each.direction, each.memory): each for each in detection.read_spreads()}
    assert spreads.keys() == set(detection.FAMILIES)
    assert all(each.runs >= detection.LEAST_RUNS for each in spreads.values())
    assert 0.0005 < spreads["h2d", "pinned"].spread < 0.003
    assert 0.03 < spreads["h2d", "pageable"].spread < 0.2


def test_counts_within_the_limits_pass() -> None:
    assert detection.misses(document(row(false=3, found=990))) == []


@pytest.mark.parametrize(
    "fields", [{"false": 9}, {"found_printed": (270, 300)}, {"found": 989}, {"printed": (0.015, 0.02, 0.015, 0.015)}]
)
def test_counts_beyond_a_limit_are_told(fields: dict[str, object]) -> None:
    assert len(detection.misses(document(row(**fields)))) == 1


def test_the_error_of_the_limit_counts_for_large_fleets() -> None:
    assert detection.misses(document(row(hosts=20, found=500, true=(0.03,) * 4))) == []


def test_more_than_chance_explains_is_a_miss() -> None:
    assert detection.most_by_chance(300, 0.01) == 8
    assert detection.most_by_chance(100, 0.05) == 11


@pytest.mark.parametrize("hosts", [5, 12])
def test_the_printed_loss_is_found_in_few_hosts(hosts: int) -> None:
    counted = detection.count("normal", 0.5, SPREADS, hosts, 30, np.random.default_rng(2))
    assert counted.false == 0
    assert min(counted.found_printed) >= 28
