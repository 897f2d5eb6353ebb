"""The search over rings whose speed is known, on a clock that only they move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from ring_samples import MIB, SIZES
from staging.tunings import BUDGET, PLAIN_GBPS, START, ModelledBench, search

from pyxfer.errors import CudaMemoryError
from pyxfer.model_tuning import Verdict
from pyxfer.staging.settings import RingSettings, settings_of
from pyxfer.staging.tuning_descent import Found


def by_threads(settings: RingSettings) -> float:
    """Each thread fills so much, and a link has its end."""
    return min(5.0 * settings.threads, 50.0)


def flat(settings: RingSettings) -> float:
    return 20.0


def verdicts(found: Found, wanted: Verdict) -> list[RingSettings]:
    return [settings_of(trial.ring) for trial in found.trials if trial.verdict == wanted]


def test_threads_are_added_as_long_as_it_gets_faster() -> None:
    assert search(ModelledBench(by_threads)).settings.threads == 12


def test_a_processor_is_left_to_the_program() -> None:
    found = search(ModelledBench(by_threads), cpus=8, start=replace(START, threads=4))
    assert found.settings.threads == 7
    assert max(trial.ring.threads for trial in found.trials) == 7


def test_one_processor_has_one_thread() -> None:
    alone = replace(START, threads=1)
    assert {trial.ring.threads for trial in search(ModelledBench(flat), cpus=1, start=alone).trials} == {1}


@pytest.mark.parametrize(
    ("name", "best"), [("chunk_bytes", 32 << 10), ("chunk_bytes", 256 << 10), ("slots", 1024), ("fill", "plain")]
)
def test_every_setting_is_searched(name: str, best: object) -> None:
    found = search(ModelledBench(lambda settings: 30.0 if getattr(settings, name) == best else 20.0))
    assert getattr(found.settings, name) == best


def test_one_step_that_is_no_faster_does_not_end_a_direction() -> None:
    found = search(ModelledBench(lambda settings: 30.0 if settings.threads >= 8 else 20.0))
    assert found.settings.threads == 8


def test_what_is_as_fast_with_less_page_locked_memory_wins() -> None:
    found = search(ModelledBench(flat))
    assert found.settings == replace(START, threads=2, slots=128)


def test_little_faster_is_not_worth_more_memory() -> None:
    found = search(ModelledBench(lambda settings: 20.0 * (1.0 if settings.threads <= 4 else 1.029)))
    assert found.settings.threads <= 4


def test_what_is_given_up_for_less_memory_does_not_add_up() -> None:
    trials = search(ModelledBench(by_memory)).trials
    given_up = [trial.against_best or 0 for trial in trials if trial.verdict == "smaller"]
    assert given_up
    assert math.prod(given_up) >= 1 / 1.03


def by_memory(settings: RingSettings) -> float:
    """A little slower with every halving, so little that one cannot be told, and two can."""
    return float(20.0 * min(settings.pinned_bytes / START.pinned_bytes, 1.0) ** 0.03)


def test_nothing_is_tried_twice() -> None:
    rings = [trial.ring for trial in search(ModelledBench(by_threads), limit_s=60).trials]
    assert len(rings) == len(set(rings))


def test_the_budget_holds_for_all_rings_at_a_time_and_says_what_it_left_out() -> None:
    bench = ModelledBench(by_threads)
    found = search(bench, budget_bytes=64 * MIB)
    assert bench.most_pinned_bytes <= 64 * MIB
    assert any("above the budget of 64 MiB" in (trial.reason or "") for trial in found.trials)


def test_all_rings_are_closed_at_the_end() -> None:
    bench = ModelledBench(by_threads)
    search(bench)
    assert bench.open == []


@pytest.mark.parametrize("limit_s", [0.1, 0.2, 0.5, 1.0])
def test_the_limit_is_kept(limit_s: float) -> None:
    bench = ModelledBench(by_threads)
    search(bench, limit_s=limit_s)
    assert bench.now_s <= limit_s


def test_a_slow_link_leaves_less_tried_and_says_so() -> None:
    bench = ModelledBench(lambda settings: by_threads(settings) / 10)
    found = search(bench)
    assert bench.now_s <= 1.0
    assert any("the limit of 1.00 s left no time for it" in (trial.reason or "") for trial in found.trials)


def test_a_second_is_enough_for_every_setting_of_the_reference_machine() -> None:
    bench = ModelledBench(by_threads)
    found = search(bench)
    assert {name for trial in found.trials if trial.rates for name in _changed(settings_of(trial.ring))} == {
        "threads",
        "chunk_bytes",
        "slots",
        "fill",
    }


def _changed(settings: RingSettings) -> list[str]:
    return [name for name, value in vars(settings).items() if value != vars(START)[name]]


def test_a_drift_of_the_machine_decides_nothing() -> None:
    bench = ModelledBench(lambda settings: 20.0 / (1 + bench.now_s))
    found = search(bench)
    assert verdicts(found, "faster") == []


def test_a_candidate_without_page_locked_memory_is_left_out() -> None:
    bench = ModelledBench(by_threads)
    bench.refuses = lambda settings: settings.threads == 6
    found = search(bench)
    assert any("such a ring cannot be made" in (trial.reason or "") for trial in found.trials)
    assert found.settings.threads == 12


def test_the_start_is_as_large_as_page_locked_memory_allows() -> None:
    bench = ModelledBench(flat)
    bench.refuses = lambda settings: settings.pinned_bytes > 10 * MIB
    found = search(bench)
    assert settings_of(found.trials[0].ring).pinned_bytes <= 10 * MIB


def test_no_page_locked_memory_at_all_is_an_error() -> None:
    bench = ModelledBench(flat)
    bench.refuses = lambda _: True
    with pytest.raises(CudaMemoryError):
        search(bench)


def test_the_ring_pays_from_where_it_is_faster_at_all_larger_sizes() -> None:
    assert search(ModelledBench(flat)).pays_from_bytes.value == 64 << 10


def test_a_ring_that_is_never_faster_pays_nowhere() -> None:
    found = search(ModelledBench(lambda _: PLAIN_GBPS / 2))
    assert found.pays_from_bytes.reason == "at 96 MiB a plain copy is still faster"


def test_every_trial_has_a_bandwidth_for_every_size_and_says_what_it_took() -> None:
    found = search(ModelledBench(by_threads))
    timed = [trial for trial in found.trials if trial.rates]
    assert len(timed) > 5
    for trial in timed:
        assert [rate.nbytes for rate in trial.rates] == list(SIZES)
        assert 3 <= trial.repeats <= 5
        assert trial.seconds > 0
        assert {round(rate.gbps, 6) for rate in trial.rates} == {by_threads(settings_of(trial.ring))}
    assert [rate.nbytes for rate in found.plain] == list(SIZES)


def test_a_larger_budget_than_any_ring_needs_is_not_used() -> None:
    bench = ModelledBench(flat)
    search(bench, budget_bytes=BUDGET * 1024)
    assert bench.most_pinned_bytes < BUDGET
