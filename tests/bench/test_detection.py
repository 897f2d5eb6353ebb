"""Counting how often fleets, histories and maps of links are judged right: a part of each table, and its limits."""

from __future__ import annotations

import fleet_detection as detection
import history_changes as changes
import links_map
import msgspec
import numpy as np
import pytest

from pyxfer._document.fleets import FleetSettings

SPREADS = (0.0012, 0.0015, 0.11, 0.08)


def row_fleets(**fields: object) -> detection.Row:
    counted = detection.Row("normal", 0.5, 1000, 300, 1.0, 1, 1000, 1000, (0.015,) * 4, (0.016,) * 4, (300, 300))
    return msgspec.structs.replace(counted, **fields)


def document_fleets(*rows: detection.Row) -> detection.Detection:
    return detection.Detection(1, FleetSettings(), (detection.Spread("h2d", "pinned", 5, 25, 0.0012),), rows)


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


def test_counts_of_fleets_within_the_limits_pass() -> None:
    assert detection.misses(document_fleets(row_fleets(false=3, found=990))) == []


@pytest.mark.parametrize(
    "fields", [{"false": 9}, {"found_printed": (270, 300)}, {"found": 989}, {"printed": (0.015, 0.02, 0.015, 0.015)}]
)
def test_counts_of_fleets_beyond_a_limit_are_told(fields: dict[str, object]) -> None:
    assert len(detection.misses(document_fleets(row_fleets(**fields)))) == 1


def test_the_error_of_the_limit_counts_for_large_fleets() -> None:
    assert detection.misses(document_fleets(row_fleets(hosts=20, found=500, true=(0.03,) * 4))) == []


def test_more_than_chance_explains_is_a_miss() -> None:
    assert detection.most_by_chance(300, 0.01) == 8
    assert detection.most_by_chance(100, 0.05) == 11


@pytest.mark.parametrize("hosts", [5, 12])
def test_the_printed_loss_is_found_in_few_hosts(hosts: int) -> None:
    counted = detection.count("normal", 0.5, SPREADS, hosts, 30, np.random.default_rng(2))
    assert counted.false == 0
    assert min(counted.found_printed) >= 28


NORMAL = changes.NOISES[0]


def row_histories(**fields: object) -> changes.Row:
    counted = changes.Row(NORMAL.name, 60, 100, 5, 0, 95, 95, 90, 90, 95, 80, 0.018, 5.0, 76)
    return msgspec.structs.replace(counted, **fields)


def document_histories(*rows: changes.Row) -> changes.Found:
    return changes.Found(1, changes.SPREAD, rows)


def test_losses_in_normal_noise_are_found() -> None:
    counted = changes.count(NORMAL, 60, 20, np.random.default_rng(1))
    assert changes.misses(document_histories(counted)) == []
    assert counted.stating >= 18
    assert 0.01 < counted.stated < 0.03


def test_neighbours_are_correlated_as_asked() -> None:
    drawn = changes.correlated(0.5)(np.random.default_rng(1), 20000)
    assert np.corrcoef(drawn[1:], drawn[:-1])[0, 1] == pytest.approx(0.5, abs=0.03)
    assert np.std(drawn) == pytest.approx(changes.SPREAD, rel=0.05)


def test_counts_of_histories_within_the_limits_pass() -> None:
    assert changes.misses(document_histories(row_histories())) == []


@pytest.mark.parametrize(
    "fields", [{"changed": 6}, {"found": 75}, {"steps": 94}, {"small_steps": 94}, {"short": 89}, {"long": 89}]
)
def test_counts_of_histories_beyond_a_limit_are_told(fields: dict[str, int]) -> None:
    assert len(changes.misses(document_histories(row_histories(**fields)))) == 1


def test_short_histories_and_other_models_have_no_limit() -> None:
    assert (
        changes.misses(
            document_histories(row_histories(runs=20, changed=50), row_histories(noise="drift of 3 %", changed=50))
        )
        == []
    )


def document_maps(named: int = 0, found: int = 50) -> links_map.Maps:
    row = links_map.Row(
        "normal",
        {"6 rounds, 4 GPUs": 1000},
        {"6 rounds, 4 GPUs": named},
        {"6 rounds, faults": 50},
        {"6 rounds, faults": found},
    )
    return links_map.Maps(1, 0.001, (row,))


@pytest.mark.parametrize("noise", links_map.NOISES)
def test_clean_maps_name_nobody_and_faults_are_found(noise: str) -> None:
    row = links_map.count(noise, 20, np.random.default_rng(5))
    assert sum(row.named.values()) == 0
    assert row.found == row.planted


@pytest.mark.parametrize(("fields", "count"), [({}, 0), ({"named": 4}, 0), ({"named": 5}, 1), ({"found": 47}, 1)])
def test_counts_of_maps_beyond_a_limit_are_told(fields: dict[str, int], count: int) -> None:
    assert len(links_map.misses(document_maps(**fields))) == count
