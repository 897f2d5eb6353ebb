"""Tuning over the host runtime, its timed copies, and how their times are compared."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from upload.tunings import LIMIT_S, QUICK_SIZES

from pyxfer._document.tunings import CopyDirection, CopyRate, Tuned
from pyxfer._measure import exclusive
from pyxfer._upload.settings import default_settings
from pyxfer._upload.tuning import Bench, Copy, Times, Transfer, rates_of, ratios, speedup, take_turns, tune
from pyxfer.errors import CancelledError, DeviceLostError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

EACH_WAY = [(way, nbytes) for nbytes in QUICK_SIZES for way in ("h2d", "d2h")]
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


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_limit_is_refused(limit_s: float, engine: Engine) -> None:
    with pytest.raises(UsageError, match="above zero"):
        quick(engine, limit_s)


def test_a_lost_device_ends_a_tuning(engine: Engine) -> None:
    testing.fail_sticky("cudaMemcpyAsync", 5, LOST)
    with pytest.raises(DeviceLostError):
        quick(engine)
    testing.reset()
    engine.take_cleanup_failures()


def test_a_process_that_tuned_at_the_same_time_is_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive.Presence, "look", lambda self: self.other_processes.add(4711))
    assert quick(engine).remarks == (
        "process 4711 tuned at the same time and competed for processors; `pyxfer tune` repeats the tuning",
    )


def test_the_affinity_of_the_caller_does_not_change(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    quick(engine)
    assert os.sched_getaffinity(0) == before


KIB = 1024
MOST = 64 * KIB
DIRECTIONS = get_args(CopyDirection)


def test_successive_copies_use_different_bytes(engine: Engine) -> None:
    with Bench(engine, 0, MOST) as bench:
        places = [(bench._next_bytes(nbytes), nbytes) for nbytes in (4 * KIB, MOST, 24 * KIB, MOST, MOST) * 3]
    for (at, nbytes), (later, _) in itertools.pairwise(places):
        assert not at <= later < at + nbytes


def test_copies_stay_within_the_memory(engine: Engine) -> None:
    with Bench(engine, 0, MOST) as bench:
        first = bench._next_bytes(4 * KIB)
        for nbytes in (MOST, 20 * KIB, 60 * KIB, MOST, 4 * KIB) * 3:
            assert first <= bench._next_bytes(nbytes) <= first + 2 * MOST - nbytes


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rings_and_plain_copies_return_seconds(engine: Engine, direction: CopyDirection) -> None:
    with Bench(engine, 0, MOST) as bench, bench.ring(default_settings()) as copy:
        assert copy(direction, MOST) > 0
        assert bench.plain(direction, MOST) > 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rings_and_plain_copies_copy_in_the_given_direction(engine: Engine, direction: CopyDirection) -> None:
    """The host runtime's device memory is filled by an upload, and left as it is by a download."""
    with Bench(engine, 0, MOST) as bench, bench.ring(default_settings()) as copy:
        on_device = np.ctypeslib.as_array((ctypes.c_uint8 * MOST).from_address(bench._on_device.address))
        for timed_copy in (copy, bench.plain):
            on_device[:], bench._on_host[:] = 2, 1
            timed_copy(direction, MOST)
            assert set(on_device) == ({1} if direction == "h2d" else {2})
            assert set(bench._on_host) == ({1} if direction == "h2d" else {1, 2})


def test_a_cancelled_bench_copies_nothing(engine: Engine) -> None:
    with Bench(engine, 0, MOST) as bench:
        bench.cancel()
        with pytest.raises(CancelledError):
            bench.plain("h2d", MOST)


def turns(repeats: int, goes_on: Callable[[list[Times]], bool] = lambda _: True) -> list[tuple[str, int]]:
    """The copies in order: the name of the copier, and bytes."""
    done: list[tuple[str, int]] = []

    def copier(name: str) -> Copy:
        def copy(_: CopyDirection, nbytes: int) -> float:
            done.append((name, nbytes))
            return 1.0

        return copy

    take_turns([copier("a"), copier("b")], [Transfer("h2d", 1), Transfer("h2d", 2)], repeats, goes_on)
    return done


def test_copies_take_turns_and_begin_equally_often() -> None:
    assert turns(2) == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 1), ("a", 1), ("b", 2), ("a", 2)]


@pytest.mark.parametrize(("rounds", "copies"), [(0, 4), (2, 8)])
def test_the_first_round_is_complete_and_later_ones_need_goes_on(rounds: int, copies: int) -> None:
    assert len(turns(5, lambda times: len(times[0][Transfer("h2d", 1)]) < rounds)) == copies


def test_rates_are_medians() -> None:
    times = {Transfer("h2d", 10**9): [1.0, 0.5, 9.0], Transfer("d2h", 2 * 10**9): [1.0, 1.0]}
    assert rates_of(times) == (CopyRate("h2d", 10**9, 1.0), CopyRate("d2h", 2 * 10**9, 2.0))


@pytest.mark.parametrize("other", [Transfer("h2d", 2), Transfer("d2h", 1)])
def test_a_speedup_weighs_sizes_and_directions_equally(other: Transfer) -> None:
    slow, fast = {Transfer("h2d", 1): [4.0], other: [1.0]}, {Transfer("h2d", 1): [1.0], other: [1.0]}
    assert speedup(fast, slow) == pytest.approx(2.0)
    assert speedup(slow, fast) == pytest.approx(0.5)
    assert ratios(fast, slow) == [4.0, 1.0]


def test_a_speedup_accepts_times_of_zero() -> None:
    times = {Transfer("h2d", 1): [0.0]}
    assert speedup(times, times) == 1.0
