"""Counting how often a check is right, and single checks on simulated hosts."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import verdicts
from baseline_samples import make_processes
from samples import make_device, make_environment

from pyxfer.errors import UsageError

QUIET = "0.1 % normal"


def row(lost: float, noise: str = QUIET, **outcomes: int) -> verdicts.Row:
    return msgspec.convert(
        {
            "what": "check",
            "noise": noise,
            "sittings": (5,),
            "lost": lost,
            "repeats": sum(outcomes.values()),
            "outcomes": outcomes,
            "runs": 300,
        },
        verdicts.Row,
    )


def document(*rows: verdicts.Row) -> verdicts.Verdicts:
    return verdicts.Verdicts(make_device(), make_environment(), 1, 6, 11, 0.03, rows)


def host(noise: verdicts.Noise, seed: int = 1) -> verdicts.Host:
    (run,) = make_processes(1, memories=("pinned",))
    return verdicts.Host(run, noise, np.random.default_rng(seed))


def test_the_table_has_a_row_for_each_noise_baseline_and_loss() -> None:
    text = verdicts.table(document(row(0.0, SAME=198, AMBIGUOUS=2), row(0.05, confirmed=200)))
    assert f"| {QUIET} | check | 5 | nothing | 200 | 198 | 0 | 2 | 0 | 0 | 1.5 |" in text
    assert f"| {QUIET} | check | 5 | 5 % | 200 | 0 | 0 | 0 | 0 | 200 | 1.5 |" in text


def test_counts_within_the_limits_pass() -> None:
    rows = (
        row(0.0, SAME=80, AMBIGUOUS=19, confirmed=1),
        row(0.05, confirmed=95, AMBIGUOUS=5),
        row(0.05, "two modes 8 % apart", AMBIGUOUS=100),
    )
    assert verdicts.misses(document(*rows)) == []


@pytest.mark.parametrize(
    ("missed", "words"),
    [
        (row(0.0, SAME=98, confirmed=2), ("2 %", "of 100", " 0 % lost", "SLOW")),
        (row(0.0, "two modes 8 % apart", SAME=98, confirmed=2), ("2 %", "of 100", " 0 % lost", "SLOW")),
        (row(0.0, SAME=79, AMBIGUOUS=21), ("79", "of 100", " 0 % lost", "SAME")),
        (row(0.05, confirmed=94, AMBIGUOUS=6), ("94", "of 100", " 5 % lost", "SLOW")),
    ],
)
def test_a_missed_limit_is_reported_with_its_counts(missed: verdicts.Row, words: tuple[str, ...]) -> None:
    (miss,) = verdicts.misses(document(missed))
    assert all(word in miss for word in words)


def test_a_document_survives_json() -> None:
    before = document(row(0.0, SAME=198, AMBIGUOUS=2))
    assert msgspec.json.decode(msgspec.json.encode(before), type=verdicts.Verdicts) == before


def test_at_least_one_repeat_is_required() -> None:
    with pytest.raises(UsageError, match="--repeats"):
        verdicts.collect(0, 1)


@pytest.mark.parametrize(("lost", "outcome"), [(0.0, "SAME"), (0.05, "confirmed"), (0.5, "confirmed")])
def test_a_quiet_host_is_checked_rightly(lost: float, outcome: str) -> None:
    found = verdicts.check_once(host(verdicts.NOISES[0]), (5,), lost)
    assert verdicts.outcome_of(found) == outcome


@pytest.mark.slow
def test_a_baseline_of_sittings_knows_the_level_of_the_day() -> None:
    noise = next(noise for noise in verdicts.NOISES if noise.level == 0.02)
    found = verdicts.count_checks(host(noise), noise, (3,) * 5, 0.0, 20)
    assert found.outcomes.get("confirmed", 0) == 0
    assert found.processes == "5 x 3"


@pytest.mark.parametrize("noise", verdicts.NOISES, ids=lambda noise: noise.name)
def test_one_run_against_one_run_never_fails(noise: verdicts.Noise) -> None:
    found = verdicts.count_comparisons(host(noise), noise, 10)
    assert set(found.outcomes) <= {"SAME", "AMBIGUOUS"}


def test_a_seed_gives_the_same_counts_again() -> None:
    noise = next(noise for noise in verdicts.NOISES if noise.name == "1 % normal")
    first, again, other = (verdicts.check_once(host(noise, seed), (5,), 0.0).comparison for seed in (1, 1, 2))
    assert first == again
    assert first != other
