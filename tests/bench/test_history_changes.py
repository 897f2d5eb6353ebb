"""Counting how often the changes of histories are right: a part of the table, and the limits."""

from __future__ import annotations

import history_changes as changes
import msgspec
import numpy as np
import pytest

NORMAL = changes.NOISES[0]


def row(**fields: object) -> changes.Row:
    counted = changes.Row(NORMAL.name, 60, 100, 5, 0, 95, 95, 90, 90, 95, 80, 0.018, 5.0, 76)
    return msgspec.structs.replace(counted, **fields)


def document(*rows: changes.Row) -> changes.Found:
    return changes.Found(1, changes.SPREAD, rows)


def test_losses_in_normal_noise_are_found() -> None:
    counted = changes.count(NORMAL, 60, 20, np.random.default_rng(1))
    assert changes.misses(document(counted)) == []
    assert counted.stating >= 18
    assert 0.01 < counted.stated < 0.03


@pytest.mark.parametrize("noise", changes.NOISES, ids=lambda noise: noise.name)
def test_each_model_draws_as_many_runs_as_asked(noise: changes.Noise) -> None:
    drawn = noise.draw(np.random.default_rng(1), 30)
    assert drawn.shape == (30,)
    assert 0 < float(np.std(drawn)) < 0.2


def test_neighbours_are_correlated_as_asked() -> None:
    drawn = changes.correlated(0.5)(np.random.default_rng(1), 20000)
    assert np.corrcoef(drawn[1:], drawn[:-1])[0, 1] == pytest.approx(0.5, abs=0.03)
    assert np.std(drawn) == pytest.approx(changes.SPREAD, rel=0.05)


def test_counts_within_the_limits_pass() -> None:
    assert changes.misses(document(row())) == []


@pytest.mark.parametrize(
    "fields", [{"changed": 6}, {"found": 75}, {"steps": 94}, {"small_steps": 94}, {"short": 89}, {"long": 89}]
)
def test_counts_beyond_a_limit_are_told(fields: dict[str, int]) -> None:
    assert len(changes.misses(document(row(**fields)))) == 1


def test_short_histories_and_other_models_have_no_limit() -> None:
    assert changes.misses(document(row(runs=20, changed=50), row(noise="drift of 3 %", changed=50))) == []
