"""Tuning over the host runtime, whose link is as fast as the test says."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ring_samples import MIB, make_tuned

from pyxfer.errors import CudaMemoryError, DeviceLostError, UsageError
from pyxfer.machine.engine import HOST_REASON
from pyxfer.native import Engine
from pyxfer.native._host import testing
from pyxfer.sampling import exclusive
from pyxfer.staging import tuning
from pyxfer.staging.settings import default_settings, setup_of
from pyxfer.staging.tuning import Given, Tuned, settings_for, tune, tune_and_keep

KIB = 1024
SIZES = (64 * KIB, 256 * KIB, MIB)
LIMIT_S = 0.5
OUT_OF_MEMORY = 2
LOST = 719


@pytest.fixture(autouse=True)
def meeting_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whoever else tunes on this machine is no company for these tests."""
    monkeypatch.setattr(exclusive, "_shared_folder", lambda: tmp_path / "measuring")
    return tmp_path / "measuring"


@pytest.fixture(autouse=True)
def _nothing_is_kept_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_kept_here", {})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PYXFER_CACHE": str(tmp_path / "kept")}


def quick(engine: Engine, limit_s: float = LIMIT_S) -> Tuned:
    return tune(engine, 0, limit_s=limit_s, sizes=SIZES)


@pytest.fixture
def tunings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Count the tunings, each with its limit, and make them quick."""
    done: list[float] = []

    def counted(engine: Engine, device: int, *, limit_s: float) -> Tuned:
        done.append(limit_s)
        return tune(engine, device, limit_s=limit_s, sizes=SIZES)

    monkeypatch.setattr(tuning, "tune", counted)
    return done


def test_every_candidate_is_timed_at_every_size_beside_plain_copies(engine: Engine) -> None:
    tuned = quick(engine, limit_s=5)
    assert tuned.trials[0].verdict == "first"
    assert len(tuned.timed) > 1
    for trial in tuned.timed:
        assert [rate.nbytes for rate in trial.rates] == list(SIZES)
        assert all(rate.gbps > 0 for rate in trial.rates)
    assert [rate.nbytes for rate in tuned.plain] == list(SIZES)


def test_no_rate_is_above_that_of_the_link(engine: Engine) -> None:
    testing.model_link(0.5e9, 0, 0, 0)
    tuned = quick(engine)
    assert all(rate.gbps <= 0.51 for trial in tuned.timed for rate in trial.rates)
    assert all(rate.gbps <= 0.51 for rate in tuned.plain)


def test_the_ring_that_was_found_is_one_that_was_timed(engine: Engine) -> None:
    tuned = quick(engine)
    assert tuned.ring in [trial.ring for trial in tuned.timed]
    assert tuned.rates


def test_a_slow_link_is_left_after_a_few_trials(engine: Engine) -> None:
    testing.model_link(20e6, 0, 0, 0)
    tuned = quick(engine)
    assert 1 <= len(tuned.timed) <= 2
    assert any("left no time for it" in (trial.reason or "") for trial in tuned.trials)


def test_a_limit_without_time_for_one_trial_gives_the_default(engine: Engine) -> None:
    tuned = quick(engine, limit_s=1e-9)
    assert tuned.trials == ()
    assert tuned.ring == setup_of(default_settings())


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(limit_s: float, engine: Engine) -> None:
    with pytest.raises(UsageError, match="above zero, such as 1s"):
        quick(engine, limit_s)


def test_a_candidate_that_cannot_lock_memory_is_said_and_the_others_go_on(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 2, OUT_OF_MEMORY)
    tuned = quick(engine, limit_s=5)
    assert [trial.verdict for trial in tuned.trials if "cannot be made" in (trial.reason or "")] == ["not tried"]
    assert len(tuned.timed) > 1


def test_a_start_that_cannot_lock_its_memory_is_made_smaller(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, OUT_OF_MEMORY)
    first = quick(engine).trials[0]
    assert first.ring.pinned_bytes <= default_settings().pinned_bytes // 2


def test_memory_that_cannot_be_had_on_the_device_is_an_error_and_leaves_nothing(engine: Engine) -> None:
    testing.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    with pytest.raises(CudaMemoryError):
        quick(engine)


def test_a_lost_device_ends_it(engine: Engine) -> None:
    testing.fail_sticky("cudaMemcpyAsync", 5, LOST)
    with pytest.raises(DeviceLostError):
        quick(engine)
    testing.reset()


def interrupt_when(happened: Callable[[], bool]) -> threading.Thread:
    """Ctrl-C as soon as that is so."""
    main = threading.main_thread().ident or 0
    moment = threading.Event()

    def wait() -> None:
        while not happened():
            moment.wait(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "cudaMemcpy"])
def test_ctrl_c_ends_it_and_stores_nothing(call: str, engine: Engine, environ: dict[str, str]) -> None:
    testing.stall(call, 2, 0.3)
    waiting = interrupt_when(lambda: testing.calls().get(call, 0) >= 2)
    with pytest.raises(KeyboardInterrupt):
        settings_for(engine, 0, on_host=True, environ=environ)
    waiting.join()
    assert not Path(environ["PYXFER_CACHE"]).exists()
    gc.collect()


def test_the_first_use_tunes_and_the_next_reads_it(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    first = settings_for(engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S)
    second = settings_for(engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S)
    assert (first.source, second.source, tunings) == ("tuned", "cached", [LIMIT_S])
    assert second.settings == first.settings
    assert second.evidence == first.evidence
    assert second.reason.startswith("cached on 20")
    assert " trials in " in second.reason or " trial in " in second.reason


def test_another_number_of_processors_is_tuned_anew(
    engine: Engine, environ: dict[str, str], tunings: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_for(engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S)
    monkeypatch.setattr("pyxfer.staging.tuning_key.usable_cpus", lambda: 999)
    settings_for(engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S)
    assert len(tunings) == 2


def test_one_process_tunes_once_even_where_nothing_can_be_kept(engine: Engine, tunings: list[float]) -> None:
    first, second = (
        settings_for(engine, 0, on_host=True, environ={"PYXFER_CACHE": "off"}, limit_s=LIMIT_S) for _ in range(2)
    )
    assert len(tunings) == 1
    assert first.remarks == ("PYXFER_CACHE is off, so nothing is kept; every process tunes for itself",)
    assert second == first


@pytest.mark.threads
def test_threads_tune_once(engine: Engine, environ: dict[str, str], tunings: list[float]) -> None:
    with ThreadPoolExecutor(4) as pool:
        chosen = [
            pool.submit(settings_for, engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S) for _ in range(4)
        ]
    assert len(tunings) == 1
    assert len({each.result().settings for each in chosen}) == 1


def test_over_host_memory_nothing_is_tuned_and_nothing_kept(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    chosen = settings_for(engine, 0, environ=environ)
    assert (chosen.settings, chosen.source) == (default_settings(), "default")
    assert HOST_REASON in chosen.reason
    assert tunings == []
    assert not Path(environ["PYXFER_CACHE"]).exists()


def test_who_only_looks_does_not_tune(engine: Engine, environ: dict[str, str], tunings: list[float]) -> None:
    chosen = settings_for(engine, 0, on_host=True, may_tune=False, environ=environ)
    assert (chosen.source, chosen.reason, tunings) == ("default", "not tuned yet: tuned on first use", [])


def test_what_is_given_goes_over_what_was_found(engine: Engine, environ: dict[str, str], tunings: list[float]) -> None:
    found = settings_for(engine, 0, on_host=True, environ=environ, limit_s=LIMIT_S).settings
    chosen = settings_for(engine, 0, given=Given(slots=7), on_host=True, environ=environ)
    assert chosen.source == "given"
    assert (chosen.settings.slots, chosen.settings.chunk_bytes) == (7, found.chunk_bytes)
    assert chosen.reason.startswith("slots given by hand; the others cached on 20")


def test_the_variable_is_heard_and_arguments_go_over_it(engine: Engine) -> None:
    chosen = settings_for(engine, 0, given=Given(slots=5), environ={"PYXFER_RING": "threads=2,slots=3"})
    assert (chosen.settings.threads, chosen.settings.slots, chosen.source) == (2, 5, "given")
    assert chosen.reason.startswith("slots given by hand; given by PYXFER_RING=threads=2,slots=3; the others default")


def test_nothing_is_tuned_where_all_that_matters_is_given(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    given = Given(threads=2, chunk_bytes=MIB, slots=3)
    assert settings_for(engine, 0, given=given, on_host=True, environ=environ).settings.threads == 2
    assert tunings == []


def test_what_is_no_ring_is_refused_before_anything_is_tuned(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    with pytest.raises(UsageError, match="1 to 64 threads, and not 0"):
        settings_for(engine, 0, given=Given(threads=0), on_host=True, environ=environ)
    assert tunings == []


def test_without_memory_to_tune_with_the_default_is_taken_and_nothing_kept(
    engine: Engine, environ: dict[str, str]
) -> None:
    testing.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    chosen = settings_for(engine, 0, on_host=True, environ=environ)
    assert (chosen.settings, chosen.source) == (default_settings(), "default")
    assert "no memory to tune with: cudaMalloc failed" in chosen.reason
    assert not Path(environ["PYXFER_CACHE"]).exists()


def test_a_tuning_without_trials_is_not_kept(engine: Engine, environ: dict[str, str]) -> None:
    for choose in (settings_for, tune_and_keep):
        chosen = choose(engine, 0, limit_s=1e-9, on_host=True, environ=environ)
        assert chosen.source == "default"
        assert "left no time for a trial" in chosen.reason
        assert not Path(environ["PYXFER_CACHE"]).exists()


def test_tuning_anew_goes_over_what_was_kept(engine: Engine, environ: dict[str, str], tunings: list[float]) -> None:
    for _ in range(2):
        chosen = tune_and_keep(engine, 0, limit_s=LIMIT_S, on_host=True, environ=environ)
    assert len(tunings) == 2
    kept = settings_for(engine, 0, on_host=True, may_tune=False, environ=environ)
    assert (kept.source, kept.evidence) == ("cached", chosen.evidence)


def test_a_file_that_is_no_good_is_remarked_on_and_written_anew(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    path = Path(environ["PYXFER_CACHE"]) / "ring.json"
    path.parent.mkdir()
    path.write_text("{")
    looked = settings_for(engine, 0, on_host=True, may_tune=False, environ=environ)
    assert [remark for remark in looked.remarks if "a tuning writes it anew" in remark]
    settings_for(engine, 0, on_host=True, limit_s=LIMIT_S, environ=environ)
    again = settings_for(engine, 0, on_host=True, environ=environ)
    assert (again.source, again.remarks, len(tunings)) == ("cached", (), 1)


def test_whoever_tuned_at_the_same_time_is_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive.Presence, "look", lambda self: self.met.add(4711))
    assert quick(engine).remarks == (
        "process 4711 tuned at the same time, which takes processors from both; pyxfer tune does it anew",
    )


def test_the_ring_pays_from_where_it_was_measured_or_from_64_kib() -> None:
    settings = default_settings()
    assert tuning.Chosen(settings, "default", "").pays_from_bytes == 64 * KIB
    assert tuning.Chosen(settings, "tuned", "", make_tuned()).pays_from_bytes == 256 * KIB
    never = make_tuned(pays_from_bytes=type(make_tuned().pays_from_bytes)(reason="a plain copy is faster"))
    assert tuning.Chosen(settings, "tuned", "", never).pays_from_bytes is None


def test_the_callers_processors_are_left_as_they_were(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    quick(engine)
    assert os.sched_getaffinity(0) == before
