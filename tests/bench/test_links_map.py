"""Counting how often the map of links is right: a part of the table, and the limits."""

from __future__ import annotations

import links_map
import numpy as np
import pytest


def document(named: int = 0, found: int = 50) -> links_map.Maps:
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
def test_counts_beyond_a_limit_are_told(fields: dict[str, int], count: int) -> None:
    assert len(links_map.misses(document(**fields))) == count
