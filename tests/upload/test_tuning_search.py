"""The search for a ring's settings, over rings whose speed is modelled, on a clock that only they advance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import asdict, replace
from ring_samples import MIB, SIZES
from upload.tunings import FILLS, PLAIN_GBPS, START, ModelledBench, Speed, run_search

from pyxfer._document.tunings import RingFill, Verdict
from pyxfer._upload import tuning_search
from pyxfer._upload.settings import RingSettings, settings_of
from pyxfer._upload.tuning_search import Search, distinct_fills, first_candidate
from pyxfer.errors import CudaMemoryError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
DEMOTING = {2: 7.0, 4: 14.0, 6: 20.0, 8: 27.0, 10: 35.0, 12: 46.0, 15: 49.0}


def by_threads(settings: RingSettings) -> float:
    """The link limits the sum of what the threads fill."""
    return min(5.0 * settings.threads, 50.0)


def flat(settings: RingSettings) -> float:
    return 20.0


def up(settings: RingSettings) -> float:
    """Uploads of an H200 host: demoting is faster with many threads, streaming with few."""
    if settings.fill == "plain":
        return 15.0
    return DEMOTING[settings.threads] if settings.fill == "demoting" else min(10.0 * settings.threads, 40.0)


def down(settings: RingSettings) -> float:
    """Downloads of that host, whose speed depends on the bytes of the ring."""
    return 50.0 if settings.pinned_bytes >= 32 * MIB else 25.0


def rings(found: Search, *verdicts: Verdict) -> list[RingSettings]:
    return [settings_of(trial.ring) for trial in found.trials if trial.verdict in verdicts]


def at(choose: Callable[[RingSettings], bool], chosen: float, other: float) -> Speed:
    return lambda settings: chosen if choose(settings) else other


def is_plain(settings: RingSettings) -> bool:
    return settings.fill == "plain"


def is_smaller(settings: RingSettings) -> bool:
    return settings.slots < START.slots


FASTEST: dict[str, tuple[Speed, Speed | None, dict[str, object]]] = {
    "all threads with demoting": (up, down, asdict(START)),
    "few threads": (at(lambda ring: ring.fill == "streaming", 40.0, 30.0), None, {"fill": "streaming", "threads": 2}),
    "threads that fill the link": (by_threads, None, {"threads": 10}),
    "beyond one that is not faster": (at(lambda ring: ring.threads <= 10, 30.0, 28.0), None, {"threads": 2}),
    "equal weight of downloads": (at(is_plain, 30.0, 20.0), at(is_plain, 10.0, 20.0), {"fill": "demoting"}),
    "equal weight of uploads": (flat, at(is_plain, 30.0, 20.0), {"fill": "plain"}),
    "the smallest of equal ones": (flat, None, asdict(replace(START, threads=2, slots=128))),
    "not slower one way": (at(is_smaller, 21.0, 20.0), at(is_smaller, 18.6, 20.0), {"slots": START.slots}),
    "not larger and hardly faster": (at(lambda ring: ring.slots <= 512, 20.0, 20.58), None, {"slots": 128}),
}


@pytest.mark.parametrize(("gbps", "back", "expected"), FASTEST.values(), ids=FASTEST)
def test_the_best_ring(gbps: Speed, back: Speed | None, expected: dict[str, object]) -> None:
    best = asdict(run_search(ModelledBench(gbps, back), limit_s=3).best)
    assert {name: best[name] for name in expected} == expected


def test_only_the_given_fills_are_tried() -> None:
    found = run_search(ModelledBench(flat), fills=("plain",))
    assert {trial.ring.fill for trial in found.trials} == {"plain"}


@pytest.mark.parametrize(
    ("cpus", "most"), [(1, 1), (2, 1), (3, 2), (8, 7), (16, 15), (24, 23), (32, 31), (64, 32), (256, 32)]
)
def test_a_ring_leaves_one_cpu_and_has_at_most_32_threads(cpus: int, most: int) -> None:
    found = run_search(ModelledBench(flat), cpus=cpus)
    assert max(trial.ring.threads for trial in found.trials) == most


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
    """Each step towards the best value is measurably faster."""
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

    assert getattr(run_search(ModelledBench(gbps)).best, name) == best


def test_rings_with_other_chunks_have_the_same_bytes() -> None:
    found = run_search(ModelledBench(up, down))
    tried = {ring.chunk_bytes: ring.pinned_bytes for ring in rings(found, "not faster") if ring.slots != START.slots}
    assert {tried[chunk] for chunk in (32 * KIB, 128 * KIB, 256 * KIB)} == {START.pinned_bytes}


def test_smaller_rings_together_cost_at_most_three_percent() -> None:
    trials = run_search(ModelledBench(by_memory)).trials
    given_up = [trial.against_best or 0 for trial in trials if trial.verdict == "smaller"]
    assert given_up
    assert math.prod(given_up) >= 1 / 1.03


def by_memory(settings: RingSettings) -> float:
    """A little slower with every halving: one is below the tolerance, two together are above it."""
    return float(20.0 * min(settings.pinned_bytes / START.pinned_bytes, 1.0) ** 0.03)


@pytest.mark.parametrize(("gbps", "verdict", "repeats"), [(17.0, "given up", 1), (18.0, "not faster", 3)])
def test_only_a_far_slower_candidate_is_timed_once(gbps: float, verdict: Verdict, repeats: int) -> None:
    bench = ModelledBench(lambda settings: 20.0 if settings.fill == "demoting" else gbps)
    trial = next(trial for trial in run_search(bench).trials if trial.ring.fill == "streaming")
    assert (trial.verdict, trial.repeats) == (verdict, repeats)
    copied = [nbytes for ring, _, nbytes in bench.copied if ring == settings_of(trial.ring)]
    assert copied == [nbytes for nbytes in SIZES for _ in range(2)] * repeats


def test_plain_copies_of_the_largest_size_are_timed_once_in_each_direction() -> None:
    bench = ModelledBench(up, down)
    run_search(bench)
    assert [way for ring, way, nbytes in bench.copied if ring is None and nbytes == max(SIZES)] == ["h2d", "d2h"]


def test_open_rings_together_stay_within_the_budget() -> None:
    bench = ModelledBench(by_threads)
    found = run_search(bench, budget_bytes=64 * MIB)
    assert bench.most_pinned_bytes <= 64 * MIB
    assert any("above the budget of 64 MiB" in (trial.reason or "") for trial in found.trials)


def test_a_budget_below_the_smallest_ring_is_refused() -> None:
    with pytest.raises(UsageError, match="give at least 32 KiB"):
        run_search(ModelledBench(flat), budget_bytes=32 * KIB - 1)


@pytest.mark.parametrize("limit_s", [0.2, 0.5, 1.0, 60.0])
def test_the_time_limit_is_kept(limit_s: float) -> None:
    bench = ModelledBench(by_threads)
    tried = [trial.ring for trial in run_search(bench, limit_s=limit_s).trials]
    assert bench.now_s <= limit_s
    assert len(tried) == len(set(tried))
    assert bench.open == []


def test_on_a_slow_link_the_limit_leaves_candidates_untried() -> None:
    bench = ModelledBench(lambda settings: by_threads(settings) / 10)
    found = run_search(bench)
    assert bench.now_s <= 1.0
    assert any("the limit of 1.00 s left no time for it" in (trial.reason or "") for trial in found.trials)


@pytest.mark.parametrize("fill", ["demoting", "streaming"])
def test_on_the_reference_machine_750_ms_suffice_for_every_setting(fill: RingFill) -> None:
    """The rest of the second is needed to touch memory."""
    bench = ModelledBench(lambda ring: up(ring) * (1.0 if ring.fill == fill else 0.9), down)
    found = run_search(bench, limit_s=0.75)
    changed = {name for ring in rings(found, "smaller", "faster", "not faster", "given up") for name in _changed(ring)}
    assert changed == {"threads", "chunk_bytes", "slots", "fill"}
    assert rings(found, "not tried") == []


def _changed(settings: RingSettings) -> list[str]:
    return [name for name, value in asdict(settings).items() if value != getattr(START, name)]


def test_a_drift_of_the_machine_makes_no_candidate_faster() -> None:
    bench = ModelledBench(lambda settings: 20.0 / (1 + bench.now_s))
    assert rings(run_search(bench), "faster") == []


def test_a_candidate_without_page_locked_memory_is_not_tried() -> None:
    bench = ModelledBench(by_threads)
    bench.refuses = lambda settings: settings.threads == 12
    found = run_search(bench)
    assert any("this ring cannot be made" in (trial.reason or "") for trial in found.trials)
    assert found.best.threads == 10


def test_the_first_ring_shrinks_to_the_page_locked_memory() -> None:
    bench = ModelledBench(flat)
    bench.refuses = lambda settings: settings.pinned_bytes > 10 * MIB
    found = run_search(bench)
    assert settings_of(found.trials[0].ring).pinned_bytes <= 10 * MIB


def test_a_search_without_page_locked_memory_raises() -> None:
    bench = ModelledBench(flat)
    bench.refuses = lambda _: True
    with pytest.raises(CudaMemoryError):
        run_search(bench)


@pytest.mark.parametrize("back", [flat, lambda _: PLAIN_GBPS / 2])
def test_the_ring_pays_from_the_smallest_size_at_which_its_uploads_are_faster(back: Speed) -> None:
    assert run_search(ModelledBench(flat, back)).pays_from_bytes.value == 64 * KIB


def test_a_ring_that_is_never_faster_pays_at_no_size() -> None:
    found = run_search(ModelledBench(lambda _: PLAIN_GBPS / 2), limit_s=3)
    assert found.pays_from_bytes.reason == "at 96 MiB a plain copy is still faster"


def test_each_trial_has_its_rates_repeats_and_seconds() -> None:
    found = run_search(ModelledBench(by_threads, lambda _: 30.0))
    timed = [trial for trial in found.trials if trial.rates]
    assert len(timed) > 5
    for trial in timed:
        assert [rate.nbytes for rate in trial.rates if rate.direction == "h2d"] == list(SIZES)
        assert 1 <= trial.repeats <= 3
        assert trial.seconds > 0
        up_gbps = by_threads(settings_of(trial.ring))
        assert {(rate.direction, round(rate.gbps, 6)) for rate in trial.rates} == {("h2d", up_gbps), ("d2h", 30.0)}
    assert [(rate.direction, rate.nbytes) for rate in found.plain] == [
        (way, nbytes) for nbytes in SIZES for way in ("h2d", "d2h")
    ]


@dataclass
class OtherRing:
    """A ring on another processor."""

    fill_kernel: str

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kernels", "fills"),
    [
        ({"streaming": "avx512", "demoting": "avx512-demoting"}, ("demoting", "streaming", "plain")),
        ({"streaming": "avx2", "demoting": "avx2"}, ("streaming", "plain")),
        ({}, ("plain",)),
    ],
)
def test_a_fill_with_the_same_kernel_as_another_is_left_out(
    kernels: dict[str, str], fills: tuple[str, ...], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(_: Engine, device: int, settings: RingSettings) -> OtherRing:
        assert device == 0
        return OtherRing(kernels.get(settings.fill, "plain"))

    monkeypatch.setattr(tuning_search, "make_ring", make)
    assert distinct_fills(engine, 0) == fills


@pytest.mark.parametrize(
    ("budget_bytes", "first"),
    [(64 * MIB, START), (16 * MIB, replace(START, slots=128)), (32 * KIB, START.within(32 * KIB))],
)
def test_the_first_candidate_has_half_of_a_small_budget(budget_bytes: int, first: RingSettings) -> None:
    assert first_candidate(FILLS, START.threads, budget_bytes) == first


def test_fills_need_page_locked_memory(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    with pytest.raises(CudaMemoryError):
        distinct_fills(engine, 0)
