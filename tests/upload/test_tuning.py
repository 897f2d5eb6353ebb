"""Choosing the settings of a ring, over the host runtime, where a tuning is quick."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from ring_samples import MIB
from upload.feeding import interrupt_when
from upload.tunings import LIMIT_S, QUICK_SIZES

from pyxfer._document.machines import HOST_MEMORY
from pyxfer._document.tunings import CopyDirection, CopyRate, Tuned
from pyxfer._measure import exclusive
from pyxfer._upload import tuning, tuning_search, uploader
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.settings import DEFAULT_BUDGET_BYTES, PartialSettings, default_settings
from pyxfer._upload.targets import Target
from pyxfer._upload.tuning import ChosenSettings, settings_for, tune_and_keep
from pyxfer._upload.tuning_search import (
    Bench,
    Copy,
    Times,
    Transfer,
    rates_of,
    ratios,
    speedup,
    take_turns,
    tune,
)
from pyxfer.errors import CancelledError, DeviceLostError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

OUT_OF_MEMORY = 2
Choose = Callable[..., ChosenSettings]


@pytest.fixture(autouse=True)
def _forget_tunings_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_not_in_file", {})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PYXFER_CACHE": str(tmp_path / "kept")}


@pytest.fixture
def tunings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The limits of all tunings, which are made quick."""
    done: list[float] = []

    def counted(engine: Engine, device: int, *, limit_s: float, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> Tuned:
        done.append(limit_s)
        return tune(engine, device, limit_s=limit_s, budget_bytes=budget_bytes, sizes=QUICK_SIZES)

    monkeypatch.setattr(tuning_search, "tune", counted)
    return done


@pytest.fixture
def choose(engine: Engine, environ: dict[str, str]) -> Choose:
    """`settings_for` the host runtime's device with a separate file."""
    return partial(settings_for, engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S)


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "cudaMemcpy"])
def test_ctrl_c_ends_a_tuning_and_nothing_is_kept(
    choose: Choose, call: str, engine: Engine, environ: dict[str, str]
) -> None:
    testing.stall(call, 2, 0.3)
    waiting = interrupt_when(lambda: testing.calls().get(call, 0) >= 2)
    with pytest.raises(KeyboardInterrupt):
        choose(limit_s=60)  # long enough for a busy machine
    waiting.join()
    assert not Path(environ["PYXFER_CACHE"]).exists()
    gc.collect()
    engine.take_cleanup_failures()  # an abandoned upload leaves one


def test_the_first_use_tunes_and_the_second_reads_the_file(choose: Choose, tunings: list[float]) -> None:
    first = choose()
    second = choose()
    assert (first.source, second.source, tunings) == ("tuned", "cached", [LIMIT_S])
    assert second.settings == first.settings
    assert second.tuning == first.tuning
    assert second.reason.startswith("cached on 20")
    assert " trials in " in second.reason or " trial in " in second.reason


def test_a_process_tunes_once_even_without_a_file(engine: Engine, tunings: list[float]) -> None:
    first, second = (
        settings_for(engine, 0, on_host=True, environ={"PYXFER_CACHE": "off"}, limit_s=LIMIT_S) for _ in range(2)
    )
    assert len(tunings) == 1
    assert first.remarks == ("PYXFER_CACHE is off, so nothing is kept; every process tunes again",)
    assert second == first


@pytest.mark.threads
def test_threads_tune_once(choose: Choose, tunings: list[float]) -> None:
    with ThreadPoolExecutor(4) as pool:
        chosen = [pool.submit(choose) for _ in range(4)]
    assert len(tunings) == 1
    assert len({future.result().settings for future in chosen}) == 1


def test_over_host_memory_the_default_is_used_without_tuning(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    chosen = settings_for(engine, 0, environ=environ)
    assert (chosen.settings, chosen.source) == (default_settings(), "default")
    assert HOST_MEMORY in chosen.reason
    assert tunings == []
    assert not Path(environ["PYXFER_CACHE"]).exists()


def test_without_may_tune_the_default_is_used(choose: Choose, tunings: list[float]) -> None:
    chosen = choose(may_tune=False)
    assert (chosen.source, chosen.reason, tunings) == ("default", "not tuned yet: tuned on first use", [])


def test_given_settings_replace_tuned_ones(choose: Choose, tunings: list[float]) -> None:
    found = choose().settings
    chosen = choose(given=PartialSettings(slots=7))
    assert chosen.source == "given"
    assert (chosen.settings.slots, chosen.settings.chunk_bytes) == (7, found.chunk_bytes)
    assert chosen.reason.startswith("slots given by hand; the others cached on 20")


def test_arguments_replace_settings_of_the_variable(engine: Engine) -> None:
    chosen = settings_for(engine, 0, given=PartialSettings(slots=5), environ={"PYXFER_RING": "threads=2,slots=3"})
    assert (chosen.settings.threads, chosen.settings.slots, chosen.source) == (2, 5, "given")
    assert chosen.reason.startswith("slots given by hand; given by PYXFER_RING=threads=2,slots=3; the others default")


def test_tuning_and_settings_stay_within_the_budget(choose: Choose, tunings: list[float]) -> None:
    chosen = choose(budget_bytes=MIB)
    assert chosen.settings.pinned_bytes <= MIB
    assert chosen.tuning is not None
    assert chosen.tuning.budget_bytes == MIB
    assert len(tunings) == 1


def test_a_tuning_of_a_larger_budget_is_made_smaller(choose: Choose, tunings: list[float]) -> None:
    whole = choose().settings
    chosen = choose(budget_bytes=MIB)
    assert chosen.settings == whole.within(MIB)
    assert chosen.reason.endswith("; made smaller for a limit of 1 MiB")
    assert len(tunings) == 1


def test_a_tuning_of_a_smaller_budget_is_repeated(choose: Choose, tunings: list[float]) -> None:
    for budget_bytes in (MIB, DEFAULT_BUDGET_BYTES, MIB, 1 << 40):
        chosen = choose(budget_bytes=budget_bytes)
    assert len(tunings) == 2
    assert chosen.tuning is not None
    assert chosen.tuning.budget_bytes == DEFAULT_BUDGET_BYTES


def test_a_tuning_of_a_smaller_budget_is_used_if_there_is_no_memory_for_another(
    choose: Choose, tunings: list[float]
) -> None:
    small = choose(budget_bytes=MIB)
    testing.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    chosen = choose()
    assert (chosen.source, chosen.settings) == ("cached", small.settings)


def test_an_uploader_tunes_within_its_budget(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def record(_: Engine, device: int, **kwargs: Any) -> ChosenSettings:
        calls.append({"device": device, **kwargs})
        return ChosenSettings(default_settings().within(MIB), "tuned", "by a test")

    monkeypatch.setattr(uploader, "settings_for", record)
    with uploader.Uploader("host", threads=2, max_pinned=MIB) as up:
        up.upload(np.ones(1), Target(DevicePool(engine, 0, 0)))
    assert calls == [{"device": 0, "given": PartialSettings(threads=2), "budget_bytes": MIB}]


def test_no_tuning_is_needed_if_threads_chunk_and_slots_are_given(choose: Choose, tunings: list[float]) -> None:
    given = PartialSettings(threads=2, chunk_bytes=MIB, slots=3)
    assert choose(given=given).settings.threads == 2
    assert tunings == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"given": PartialSettings(threads=0)}, "threads"), ({"budget_bytes": 1 << 10}, "max_pinned")],
)
def test_invalid_arguments_are_refused_before_tuning(
    choose: Choose, arguments: dict[str, Any], why: str, tunings: list[float]
) -> None:
    with pytest.raises(UsageError, match=why):
        choose(**arguments)
    assert tunings == []


def test_without_memory_for_a_tuning_the_default_is_used(choose: Choose, environ: dict[str, str]) -> None:
    testing.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    chosen = choose()
    assert (chosen.settings, chosen.source) == (default_settings(), "default")
    assert "cudaMalloc failed" in chosen.reason
    assert not Path(environ["PYXFER_CACHE"]).exists()


@pytest.mark.parametrize("choose", [settings_for, tune_and_keep])
def test_a_limit_too_short_for_a_trial_takes_one(
    choose: Callable[..., ChosenSettings], engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    chosen = choose(engine, 0, limit_s=1e-9, on_host=True, environ=environ)
    assert (chosen.source, tunings) == ("tuned", [1e-9])
    assert chosen.tuning is not None
    assert {trial.verdict for trial in chosen.tuning.trials} == {"first", "not tried"}
    assert len(chosen.tuning.timed) == 1
    assert Path(environ["PYXFER_CACHE"], "ring.json").exists()


def test_tune_and_keep_replaces_the_kept_tuning(
    choose: Choose, engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    for _ in range(2):
        chosen = tune_and_keep(engine, 0, limit_s=LIMIT_S, on_host=True, environ=environ)
    assert len(tunings) == 2
    kept = choose(may_tune=False)
    assert (kept.source, kept.tuning) == ("cached", chosen.tuning)


def test_a_broken_file_gives_a_remark_and_is_overwritten(
    choose: Choose, environ: dict[str, str], tunings: list[float]
) -> None:
    path = Path(environ["PYXFER_CACHE"]) / "ring.json"
    path.parent.mkdir()
    path.write_text("{")
    looked = choose(may_tune=False)
    assert [remark for remark in looked.remarks if str(path) in remark]
    choose()
    again = choose()
    assert (again.source, again.remarks, len(tunings)) == ("cached", (), 1)


# --- one tuning -------------------------------------------------------------------------------------------------------

EACH_WAY = [(way, nbytes) for nbytes in QUICK_SIZES for way in ("h2d", "d2h")]
# A search ends by itself long before, also on a busy machine.
UNHURRIED_S = 600.0
LOST = 719


def quick(engine: Engine, limit_s: float = LIMIT_S) -> Tuned:
    return tune(engine, 0, limit_s=limit_s, sizes=QUICK_SIZES)


def test_each_trial_has_rates_of_every_size_and_direction_and_none_exceeds_the_link(engine: Engine) -> None:
    testing.model_link(0.5e9, 0, 0.4e9, 0)
    tuned = quick(engine, limit_s=UNHURRIED_S)
    most = {"h2d": 0.51, "d2h": 0.41}
    assert tuned.trials[0].verdict == "first"
    assert len(tuned.timed) > 1
    for rates in (*(trial.rates for trial in tuned.timed), tuned.plain):
        assert [(rate.direction, rate.nbytes) for rate in rates] == EACH_WAY
        assert all(0 < rate.gbps <= most[rate.direction] for rate in rates)


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
    before = os.sched_getaffinity(0)
    (remark,) = quick(engine).remarks
    assert "process 4711" in remark
    assert os.sched_getaffinity(0) == before


KIB = 1024
MAX_BYTES = 64 * KIB
DIRECTIONS = get_args(CopyDirection)


def test_successive_copies_use_different_bytes_within_the_memory(engine: Engine) -> None:
    with Bench(engine, 0, MAX_BYTES) as bench:
        places = [
            (bench._next_bytes(nbytes), nbytes) for nbytes in (4 * KIB, MAX_BYTES, 24 * KIB, 60 * KIB, MAX_BYTES) * 3
        ]
    for (at, nbytes), (later, _) in itertools.pairwise(places):
        assert not at <= later < at + nbytes
    assert all(0 <= at - places[0][0] <= 2 * MAX_BYTES - nbytes for at, nbytes in places)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rings_and_plain_copies_copy_in_the_given_direction_and_return_seconds(
    engine: Engine, direction: CopyDirection
) -> None:
    """The host runtime's device memory is filled by an upload, and left as it is by a download."""
    with Bench(engine, 0, MAX_BYTES) as bench, bench.ring(default_settings()) as copy:
        on_device = np.ctypeslib.as_array((ctypes.c_uint8 * MAX_BYTES).from_address(bench._on_device.address))
        for timed_copy in (copy, bench.plain):
            on_device[:], bench._on_host[:] = 2, 1
            assert timed_copy(direction, MAX_BYTES) > 0
            assert set(on_device) == ({1} if direction == "h2d" else {2})
            assert set(bench._on_host) == ({1} if direction == "h2d" else {1, 2})


def test_a_cancelled_bench_copies_nothing(engine: Engine) -> None:
    with Bench(engine, 0, MAX_BYTES) as bench:
        bench.cancel()
        with pytest.raises(CancelledError):
            bench.plain("h2d", MAX_BYTES)


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
