"""Quantiles of launches of dependent loads, alone and beside a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pyxfer._document.links import HOST_END, LatencyTrial
from pyxfer._links.chases import LEAST_FOR_P99, LatencySubject, latency_trial
from pyxfer._links.plan import LatencyPlan
from pyxfer._links.rows import Assembler

HOPS = 16


@dataclass
class Chase:
    """Stamps of launches, one after the other, as the engine returns them."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kernel_ns: NDArray[np.float64]
    cycles: NDArray[np.int64]
    multiprocessor: NDArray[np.int32]
    clock_error_ns: float = 0.0
    late: bool = False


def chase(launch_ns: Any, tick_ns: float = 1.0, start_ns: int = 0, late: bool = False) -> Any:
    """Launches of these lengths on a clock that ticks each `tick_ns`; two cycles are a nanosecond."""
    exact = np.asarray(launch_ns, dtype=np.float64)
    ends = start_ns + np.cumsum(exact).astype(np.int64)
    begins = ends - exact.astype(np.int64)
    shown = np.floor(ends / tick_ns) * tick_ns - np.floor(begins / tick_ns) * tick_ns
    return Chase(begins, ends, shown, (2 * exact).astype(np.int64), np.zeros(exact.size, dtype=np.int32), late=late)


def load(start_ns: int, each_ns: int, count: int) -> Any:
    begins = start_ns + each_ns * np.arange(count, dtype=np.int64)
    return Chase(begins, begins + each_ns, np.empty(0), np.empty(0, np.int64), np.empty(0, np.int32))


def test_the_quantiles_are_of_launches_divided_by_their_loads() -> None:
    lengths = np.concatenate((np.full(980, 16_000.0), np.full(20, 48_000.0)))
    trial = latency_trial(4, [chase(lengths)], HOPS, 0)
    assert (trial.round, trial.launches, trial.invalid, trial.load_gbps) == (4, 1000, None, None)
    assert trial.p50_ns == pytest.approx(1000)
    assert trial.p99_ns == pytest.approx(3000)


def test_a_coarse_clock_of_nanoseconds_makes_no_steps() -> None:
    lengths = np.random.default_rng(1).normal(18_900.0, 300.0, 2000)
    trial = latency_trial(0, [chase(lengths, tick_ns=1024.0)], HOPS, 0)
    assert trial.p50_ns == pytest.approx(18_900 / HOPS, rel=2e-3)
    assert trial.p99_ns == pytest.approx((18_900 + 2.33 * 300) / HOPS, rel=5e-3)


def ramp(launches: int, hz: tuple[float, float], seed: int = 2) -> Any:
    """Launches of 19 us on a clock of cycles that ramps while they run."""
    found = chase(np.random.default_rng(seed).normal(19_000.0, 50.0, launches), tick_ns=1024.0)
    found.cycles = (19_000.0 * np.linspace(*hz, launches) / 1e9).astype(np.int64)
    return found


def test_a_ramp_of_the_clock_is_no_p99() -> None:
    slow = latency_trial(0, [ramp(1300, (1.96e9, 1.98e9))], HOPS, 0)
    assert slow.invalid is None
    assert slow.p99_ns == pytest.approx(slow.p50_ns, rel=0.005)
    quick = latency_trial(0, [ramp(1300, (1.2e9, 1.98e9))], HOPS, 0)
    assert quick.p99_ns == pytest.approx(quick.p50_ns, rel=0.03)
    assert "clock" in (quick.invalid or "")


def test_long_launches_need_no_cycles() -> None:
    long = chase([3_000_000.0] * 9, tick_ns=1024.0)
    long.cycles = np.linspace(1, 2, 9) * 4_000_000
    trial = latency_trial(0, [long], 4096, 0)
    assert trial.invalid is None
    assert trial.p50_ns == pytest.approx(3_000_000 / 4096, rel=1e-3)


def test_a_p99_of_some_trials_only_is_not_given_beside_a_p50_of_all() -> None:
    plan = LatencyPlan(0, HOST_END, large=False, quick=True, load=0.0)
    subject = LatencySubject(plan, None, 1, lambda _: None, 0)  # type: ignore[arg-type]
    subject.trials = [LatencyTrial(0, 300, 10.0, 12.0, None), LatencyTrial(1, 40, 32.0, None, None)]
    (row,) = Assembler((), (), 0.005, 30.0, None).latencies([subject], {})
    assert row.ns == 21.0
    assert row.p99.value is None
    assert "too few launches" in (row.p99.reason or "")


def test_few_launches_have_no_p99() -> None:
    assert latency_trial(0, [chase([16_000.0] * (LEAST_FOR_P99 - 1))], HOPS, 0).p99_ns is None


def test_only_launches_while_the_link_is_busy_count() -> None:
    lengths = [16_000.0] * 500 + [80_000.0] * 100
    trial = latency_trial(0, [chase(lengths), load(8_000_000, 20_000, 400)], HOPS, 1 << 20)
    assert trial.launches == 100
    assert trial.p50_ns == pytest.approx(5000)
    assert trial.load_gbps == pytest.approx((1 << 20) / 20_000)


def test_trials_that_do_not_count_have_the_reason() -> None:
    assert latency_trial(0, [chase([16_000.0] * 9, late=True)], HOPS, 0).invalid is not None
    assert latency_trial(0, [chase([16_000.0] * 9), load(10**9, 1000, 5)], HOPS, 1).invalid is not None
    nowhere = chase([16_000.0] * 9)
    nowhere.multiprocessor -= 1
    assert latency_trial(0, [nowhere], HOPS, 0).launches == 0
