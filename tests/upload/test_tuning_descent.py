"""The search over rings whose speed is known, on a clock that only they move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from ring_samples import MIB, SIZES
from upload.tunings import BUDGET, PLAIN_GBPS, START, ModelledBench, search

from pyxfer._document.tunings import RingFill, Verdict
from pyxfer._upload.settings import RingSettings, settings_of
from pyxfer._upload.tuning_search import Found
from pyxfer.errors import CudaMemoryError, UsageError

KIB = 1024
DEMOTING = {2: 7.0, 4: 14.0, 6: 20.0, 8: 27.0, 10: 35.0, 12: 46.0, 15: 49.0}


def by_threads(settings: RingSettings) -> float:
    """Each thread fills so much, and a link has its end."""
    return min(5.0 * settings.threads, 50.0)


def flat(settings: RingSettings) -> float:
    return 20.0


def up(settings: RingSettings) -> float:
    """As an H200 host does: demoting is the faster where there are many threads, streaming where there are few."""
    if settings.fill == "plain":
        return 15.0
    return DEMOTING[settings.threads] if settings.fill == "demoting" else min(10.0 * settings.threads, 40.0)


def down(settings: RingSettings) -> float:
    """There it is the bytes of the ring that matter."""
    return 50.0 if settings.pinned_bytes >= 32 * MIB else 25.0


def rings(found: Found, *verdicts: Verdict) -> list[RingSettings]:
    return [settings_of(trial.ring) for trial in found.trials if trial.verdict in verdicts]


def test_it_begins_with_the_most_threads_and_the_fill_that_needs_them() -> None:
    assert rings(search(ModelledBench(flat)), "first") == [START]


def test_the_pair_of_most_threads_and_demoting_is_found_and_no_thread_of_them_given_up() -> None:
    found = search(ModelledBench(up, down))
    assert found.settings == replace(START, threads=15)


def test_where_streaming_is_the_faster_few_threads_do() -> None:
    found = search(ModelledBench(lambda ring: 40.0 if ring.fill == "streaming" else 30.0))
    assert (found.settings.fill, found.settings.threads) == ("streaming", 2)


@pytest.mark.parametrize(
    ("cpus", "most"), [(1, 1), (2, 1), (3, 2), (8, 7), (16, 15), (24, 23), (32, 31), (64, 32), (256, 32)]
)
def test_a_processor_is_left_to_the_program_and_beyond_32_threads_nothing_is_looked_for(cpus: int, most: int) -> None:
    found = search(ModelledBench(flat), cpus=cpus)
    assert max(trial.ring.threads for trial in found.trials) == most


def test_threads_are_taken_away_as_long_as_it_gets_no_slower() -> None:
    assert search(ModelledBench(by_threads)).settings.threads == 10


def test_what_this_processor_cannot_do_is_not_tried() -> None:
    found = search(ModelledBench(flat), fills=("plain",))
    assert {trial.ring.fill for trial in found.trials} == {"plain"}


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("chunk_bytes", 32 * KIB),
        ("chunk_bytes", 256 * KIB),
        ("slots", 1024),
        ("slots", 256),
        ("fill", "plain"),
        ("fill", "streaming"),
        ("threads", 6),
    ],
)
def test_every_setting_is_searched(name: str, best: object) -> None:
    """Each step towards the best is one that is seen."""
    order: dict[str, list[object]] = {
        "chunk_bytes": [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB],
        "slots": [128, 256, 512, 1024],
        "threads": [2, 4, 6, 8, 10, 12, 15],
    }

    def gbps(settings: RingSettings) -> float:
        value = getattr(settings, name)
        if name == "fill":
            return 30.0 if value == best else 20.0
        values = order[name]
        far = abs(values.index(value) - values.index(best)) if value in values else 9
        return 40.0 * 0.9**far

    assert getattr(search(ModelledBench(gbps)).settings, name) == best


def test_other_chunks_leave_the_ring_its_bytes() -> None:
    found = search(ModelledBench(up, down))
    tried = {ring.chunk_bytes: ring.pinned_bytes for ring in rings(found, "not faster") if ring.slots != START.slots}
    assert {tried[chunk] for chunk in (32 * KIB, 128 * KIB, 256 * KIB)} == {START.pinned_bytes}


def test_one_step_that_is_no_faster_does_not_end_a_direction() -> None:
    found = search(ModelledBench(lambda settings: 30.0 if settings.threads <= 10 else 28.0))
    assert found.settings.threads <= 10


def test_both_directions_count_alike() -> None:
    slow_back = search(
        ModelledBench(
            lambda ring: 30.0 if ring.fill == "plain" else 20.0, lambda ring: 10.0 if ring.fill == "plain" else 20.0
        )
    )
    fast_back = search(ModelledBench(flat, lambda ring: 30.0 if ring.fill == "plain" else 20.0))
    assert (slow_back.settings.fill, fast_back.settings.fill) == ("demoting", "plain")


def test_what_is_as_fast_with_less_page_locked_memory_and_fewer_threads_wins() -> None:
    assert search(ModelledBench(flat), limit_s=3).settings == replace(START, threads=2, slots=128)


def test_little_faster_is_not_worth_more_memory() -> None:
    found = search(ModelledBench(lambda settings: 20.0 * (1.0 if settings.slots <= 512 else 1.029)))
    assert found.settings.slots <= 512


def test_what_is_given_up_for_less_memory_does_not_add_up() -> None:
    trials = search(ModelledBench(by_memory)).trials
    given_up = [trial.against_best or 0 for trial in trials if trial.verdict == "smaller"]
    assert given_up
    assert math.prod(given_up) >= 1 / 1.03


def by_memory(settings: RingSettings) -> float:
    """A little slower with every halving, so little that one cannot be told, and two can."""
    return float(20.0 * min(settings.pinned_bytes / START.pinned_bytes, 1.0) ** 0.03)


def test_what_is_far_slower_is_timed_once() -> None:
    bench = ModelledBench(lambda settings: 20.0 if settings.fill == "demoting" else 17.0)
    found = search(bench)
    trial = next(trial for trial in found.trials if trial.ring.fill == "streaming")
    assert (trial.verdict, trial.repeats) == ("given up", 1)
    assert [nbytes for ring, _, nbytes in bench.copied if ring == settings_of(trial.ring)] == [
        nbytes for nbytes in SIZES for _ in range(2)
    ]


def test_what_is_a_little_slower_is_timed_as_often_as_the_others() -> None:
    found = search(ModelledBench(lambda settings: 20.0 if settings.fill == "demoting" else 18.0))
    trial = next(trial for trial in found.trials if trial.ring.fill == "streaming")
    assert (trial.verdict, trial.repeats) == ("not faster", 3)


def test_plain_copies_of_the_largest_size_are_made_once_each_way() -> None:
    bench = ModelledBench(up, down)
    search(bench)
    assert [way for ring, way, nbytes in bench.copied if ring is None and nbytes == max(SIZES)] == ["h2d", "d2h"]


def test_nothing_is_tried_twice() -> None:
    tried = [trial.ring for trial in search(ModelledBench(by_threads), limit_s=60).trials]
    assert len(tried) == len(set(tried))


def test_the_budget_holds_for_all_rings_at_a_time_and_says_what_it_left_out() -> None:
    bench = ModelledBench(by_threads)
    found = search(bench, budget_bytes=64 * MIB)
    assert bench.most_pinned_bytes <= 64 * MIB
    assert any("above the budget of 64 MiB" in (trial.reason or "") for trial in found.trials)


@pytest.mark.parametrize("budget_bytes", [32 * KIB, 100_000, MIB, 16 * MIB, 100 * MIB])
def test_a_small_budget_holds_too(budget_bytes: int) -> None:
    bench = ModelledBench(by_threads)
    found = search(bench, budget_bytes=budget_bytes)
    assert found.settings.pinned_bytes <= bench.most_pinned_bytes <= budget_bytes


def test_a_small_budget_has_room_for_two_rings_to_compare() -> None:
    found = search(ModelledBench(by_threads), budget_bytes=16 * MIB)
    assert rings(found, "first") == [replace(START, slots=128)]
    assert found.settings.threads == 10


def test_a_budget_for_no_ring_is_refused() -> None:
    with pytest.raises(UsageError, match="give at least 32 KiB"):
        search(ModelledBench(flat), budget_bytes=32 * KIB - 1)


def test_all_rings_are_closed_at_the_end() -> None:
    bench = ModelledBench(by_threads)
    search(bench)
    assert bench.open == []


@pytest.mark.parametrize("limit_s", [0.2, 0.5, 1.0])
def test_the_limit_is_kept(limit_s: float) -> None:
    bench = ModelledBench(by_threads)
    search(bench, limit_s=limit_s)
    assert bench.now_s <= limit_s


def test_a_slow_link_leaves_less_tried_and_says_so() -> None:
    bench = ModelledBench(lambda settings: by_threads(settings) / 10)
    found = search(bench)
    assert bench.now_s <= 1.0
    assert any("the limit of 1.00 s left no time for it" in (trial.reason or "") for trial in found.trials)


@pytest.mark.parametrize("fill", ["demoting", "streaming"])
def test_three_quarters_of_a_second_are_enough_for_every_setting_of_the_reference_machine(fill: RingFill) -> None:
    """The rest of the second goes into touching memory."""
    bench = ModelledBench(lambda ring: up(ring) * (1.0 if ring.fill == fill else 0.9), down)
    found = search(bench, limit_s=0.75)
    changed = {name for ring in rings(found, "smaller", "faster", "not faster", "given up") for name in _changed(ring)}
    assert changed == {"threads", "chunk_bytes", "slots", "fill"}
    assert rings(found, "not tried") == []


def _changed(settings: RingSettings) -> list[str]:
    return [name for name, value in vars(settings).items() if value != vars(START)[name]]


def test_a_drift_of_the_machine_decides_nothing() -> None:
    bench = ModelledBench(lambda settings: 20.0 / (1 + bench.now_s))
    assert rings(search(bench), "faster") == []


def test_a_candidate_without_page_locked_memory_is_left_out() -> None:
    bench = ModelledBench(by_threads)
    bench.refuses = lambda settings: settings.threads == 12
    found = search(bench)
    assert any("such a ring cannot be made" in (trial.reason or "") for trial in found.trials)
    assert found.settings.threads == 10


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
    assert search(ModelledBench(flat)).pays_from_bytes.value == 64 * KIB


def test_only_uploads_say_where_the_ring_pays() -> None:
    assert search(ModelledBench(flat, lambda _: PLAIN_GBPS / 2)).pays_from_bytes.value == 64 * KIB


def test_a_ring_that_is_never_faster_pays_nowhere() -> None:
    found = search(ModelledBench(lambda _: PLAIN_GBPS / 2), limit_s=3)
    assert found.pays_from_bytes.reason == "at 96 MiB a plain copy is still faster"


def test_every_trial_has_a_bandwidth_each_way_for_every_size_and_says_what_it_took() -> None:
    found = search(ModelledBench(by_threads, lambda _: 30.0))
    timed = [trial for trial in found.trials if trial.rates]
    assert len(timed) > 5
    for trial in timed:
        assert [rate.nbytes for rate in trial.rates if rate.direction == "h2d"] == list(SIZES)
        assert 1 <= trial.repeats <= 5
        assert trial.seconds > 0
        up_gbps = by_threads(settings_of(trial.ring))
        assert {(rate.direction, round(rate.gbps, 6)) for rate in trial.rates} == {("h2d", up_gbps), ("d2h", 30.0)}
    assert [(rate.direction, rate.nbytes) for rate in found.plain] == [
        (way, nbytes) for nbytes in SIZES for way in ("h2d", "d2h")
    ]


def test_a_larger_budget_than_any_ring_needs_is_not_used() -> None:
    bench = ModelledBench(flat)
    search(bench, budget_bytes=BUDGET * 1024)
    assert bench.most_pinned_bytes < BUDGET


def test_less_memory_does_not_win_where_one_direction_pays_for_it() -> None:
    bench = ModelledBench(
        lambda ring: 21.0 if ring.slots < START.slots else 20.0, lambda ring: 18.6 if ring.slots < START.slots else 20.0
    )
    assert search(bench).settings.slots == START.slots
