"""Tuning over the host runtime, whose link has a modelled speed."""

from __future__ import annotations

import os

import pytest
from ring_samples import MIB
from upload.tunings import LIMIT_S, QUICK_SIZES

from pyxfer._document.tunings import Tuned
from pyxfer._measure import exclusive
from pyxfer._upload.settings import default_settings, setup_of
from pyxfer._upload.tuning import tune
from pyxfer.errors import CudaMemoryError, DeviceLostError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

EACH_WAY = [(way, nbytes) for nbytes in QUICK_SIZES for way in ("h2d", "d2h")]
# Rings made to find the distinct fills, before any ring is timed.
RINGS_OF_FILLS = 3
OUT_OF_MEMORY = 2
# A search ends by itself long before, also on a busy machine.
UNHURRIED_S = 600.0
LOST = 719


def quick(engine: Engine, limit_s: float = LIMIT_S) -> Tuned:
    return tune(engine, 0, limit_s=limit_s, sizes=QUICK_SIZES)


def test_each_trial_has_rates_of_every_size_and_direction(engine: Engine) -> None:
    tuned = quick(engine, limit_s=UNHURRIED_S)
    assert tuned.trials[0].verdict == "first"
    assert len(tuned.timed) > 1
    for trial in tuned.timed:
        assert [(rate.direction, rate.nbytes) for rate in trial.rates] == EACH_WAY
        assert all(rate.gbps > 0 for rate in trial.rates)
    assert [(rate.direction, rate.nbytes) for rate in tuned.plain] == EACH_WAY


def test_no_rate_exceeds_the_link(engine: Engine) -> None:
    testing.model_link(0.5e9, 0, 0.4e9, 0)
    tuned = quick(engine)
    most = {"h2d": 0.51, "d2h": 0.41}
    rates = [*(rate for trial in tuned.timed for rate in trial.rates), *tuned.plain]
    assert all(rate.gbps <= most[rate.direction] for rate in rates)


def test_the_found_ring_is_one_of_the_trials(engine: Engine) -> None:
    tuned = quick(engine)
    assert tuned.ring in [trial.ring for trial in tuned.timed]
    assert tuned.rates


def test_on_a_slow_link_only_a_few_trials_fit_the_limit(engine: Engine) -> None:
    testing.model_link(20e6, 0, 0, 0)
    tuned = quick(engine)
    assert 1 <= len(tuned.timed) <= 2
    assert any("left no time for it" in (trial.reason or "") for trial in tuned.trials)


def test_a_limit_without_time_for_a_trial_gives_the_default(engine: Engine) -> None:
    tuned = quick(engine, limit_s=1e-9)
    assert tuned.trials == ()
    assert tuned.ring == setup_of(default_settings())


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_limit_is_refused(limit_s: float, engine: Engine) -> None:
    with pytest.raises(UsageError, match="above zero"):
        quick(engine, limit_s)


def test_a_candidate_that_cannot_lock_memory_is_noted_and_the_others_are_timed(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", RINGS_OF_FILLS + 2, OUT_OF_MEMORY)
    tuned = quick(engine, limit_s=UNHURRIED_S)
    assert [trial.verdict for trial in tuned.trials if "cannot be made" in (trial.reason or "")] == ["not tried"]
    assert len(tuned.timed) > 1


def test_a_first_ring_that_cannot_lock_its_memory_is_made_smaller(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", RINGS_OF_FILLS + 1, OUT_OF_MEMORY)
    first = quick(engine).trials[0]
    assert first.ring.pinned_bytes <= default_settings().pinned_bytes // 2


def test_two_rings_share_the_budget(engine: Engine) -> None:
    tuned = tune(engine, 0, limit_s=LIMIT_S, budget_bytes=MIB, sizes=QUICK_SIZES)
    assert tuned.budget_bytes == MIB
    assert {trial.ring.pinned_bytes for trial in tuned.timed} == {MIB // 2}


def test_without_device_memory_a_tuning_raises(engine: Engine) -> None:
    testing.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    with pytest.raises(CudaMemoryError):
        quick(engine)


def test_a_lost_device_ends_a_tuning(engine: Engine) -> None:
    testing.fail_sticky("cudaMemcpyAsync", 5, LOST)
    with pytest.raises(DeviceLostError):
        quick(engine)
    testing.reset()
    engine.take_cleanup_failures()


def test_a_process_that_tuned_at_the_same_time_is_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive.Presence, "look", lambda self: self.met.add(4711))
    assert quick(engine).remarks == (
        "process 4711 tuned at the same time and competed for processors; `pyxfer tune` repeats the tuning",
    )


def test_the_affinity_of_the_caller_does_not_change(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    quick(engine)
    assert os.sched_getaffinity(0) == before
