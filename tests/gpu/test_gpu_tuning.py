"""The tuning of a ring on a GPU: its duration, and its result beside plain copies."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pyxfer._upload.settings import usable_cpus
from pyxfer._upload.tuning import settings_for, tune
from pyxfer.native import Engine

pytestmark = pytest.mark.gpu

MIB = 1 << 20


def test_the_tuned_ring_beats_plain_copies_in_both_directions(gpu_engine: Engine) -> None:
    if usable_cpus() < 4:
        pytest.skip("a ring of three threads may be slower than plain copies")
    tuned = tune(gpu_engine, 0)
    plain = {(rate.direction, rate.nbytes): rate.gbps for rate in tuned.plain}
    slower = [rate for rate in tuned.rates if rate.gbps < plain[rate.direction, rate.nbytes]]
    assert len(tuned.rates) == 6
    assert slower == []


def test_the_first_use_takes_under_two_seconds_and_the_second_under_100_ms(gpu_engine: Engine, tmp_path: Path) -> None:
    gpu_engine.synchronize(0)
    environ = {"PYXFER_CACHE": str(tmp_path)}
    took_s = []
    for _ in range(2):
        began_s = time.perf_counter()
        chosen = settings_for(gpu_engine, 0, environ=environ)
        took_s.append(time.perf_counter() - began_s)
    assert chosen.source == "cached"
    assert took_s[0] < 2.0
    assert took_s[1] < 0.1


def test_a_tuning_stays_within_a_small_budget(gpu_engine: Engine) -> None:
    tuned = tune(gpu_engine, 0, limit_s=0.5, budget_bytes=16 * MIB)
    assert tuned.timed
    assert all(trial.ring.pinned_bytes <= 8 * MIB for trial in tuned.timed)
