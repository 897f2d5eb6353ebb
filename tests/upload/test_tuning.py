"""Which settings a ring gets: over the host runtime, where a tuning is quick."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ring_samples import MIB
from upload.tunings import LIMIT_S, QUICK_SIZES

from pyxfer._machine.engine import HOST_REASON
from pyxfer._upload import tuning, uploader
from pyxfer._upload.settings import DEFAULT_BUDGET_BYTES, default_settings
from pyxfer._upload.targets import Target
from pyxfer._upload.tuning import Chosen, Given, Tuned, settings_for, tune, tune_and_keep
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
OUT_OF_MEMORY = 2


@pytest.fixture(autouse=True)
def _nothing_is_kept_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_kept_here", {})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PYXFER_CACHE": str(tmp_path / "kept")}


@pytest.fixture
def tunings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Count the tunings, each with its limit, and make them quick."""
    done: list[float] = []

    def counted(engine: Engine, device: int, *, limit_s: float, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> Tuned:
        done.append(limit_s)
        return tune(engine, device, limit_s=limit_s, budget_bytes=budget_bytes, sizes=QUICK_SIZES)

    monkeypatch.setattr(tuning, "tune", counted)
    return done


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
        settings_for(engine, 0, on_host=True, environ=environ, limit_s=60)  # so that a busy machine comes so far
    waiting.join()
    assert not Path(environ["PYXFER_CACHE"]).exists()
    gc.collect()
    engine.take_cleanup_failures()  # an upload that was given up leaves one


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
    monkeypatch.setattr("pyxfer._upload.settings.usable_cpus", lambda: 999)
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


def test_a_budget_is_held_by_tuning_and_settings(engine: Engine, environ: dict[str, str], tunings: list[float]) -> None:
    chosen = settings_for(engine, 0, budget_bytes=MIB, on_host=True, limit_s=LIMIT_S, environ=environ)
    assert chosen.settings.pinned_bytes <= MIB
    assert chosen.evidence is not None
    assert chosen.evidence.budget_bytes == MIB
    assert len(tunings) == 1


def test_what_was_found_within_a_larger_budget_is_made_to_fit(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    whole = settings_for(engine, 0, on_host=True, limit_s=LIMIT_S, environ=environ).settings
    chosen = settings_for(engine, 0, budget_bytes=MIB, on_host=True, limit_s=LIMIT_S, environ=environ)
    assert chosen.settings == whole.within(MIB)
    assert chosen.reason.endswith("; made smaller for a budget of 1 MiB")
    assert len(tunings) == 1


def test_what_was_found_within_a_smaller_budget_is_found_anew_and_kept(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    for budget_bytes in (MIB, DEFAULT_BUDGET_BYTES, MIB, 1 << 40):
        chosen = settings_for(engine, 0, budget_bytes=budget_bytes, on_host=True, limit_s=LIMIT_S, environ=environ)
    assert len(tunings) == 2
    assert chosen.evidence is not None
    assert chosen.evidence.budget_bytes == DEFAULT_BUDGET_BYTES


def test_where_that_finds_no_memory_the_smaller_is_good_enough(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    small = settings_for(engine, 0, budget_bytes=MIB, on_host=True, limit_s=LIMIT_S, environ=environ)
    testing.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    chosen = settings_for(engine, 0, on_host=True, limit_s=LIMIT_S, environ=environ)
    assert (chosen.source, chosen.settings) == ("cached", small.settings)


def test_a_budget_for_no_ring_is_refused_before_anything_is_tuned(
    engine: Engine, environ: dict[str, str], tunings: list[float]
) -> None:
    with pytest.raises(UsageError, match="a budget of 1 KiB is too small for any ring"):
        settings_for(engine, 0, budget_bytes=1 * KIB, on_host=True, environ=environ)
    assert tunings == []


def test_an_uploader_tunes_within_its_budget(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def record(_: Engine, device: int, **kwargs: Any) -> Chosen:
        asked.append({"device": device, **kwargs})
        return Chosen(default_settings().within(MIB), "tuned", "by a test")

    monkeypatch.setattr(uploader, "settings_for", record)
    with uploader.Uploader("host", threads=2, budget=MIB) as up:
        up.upload(np.ones(1), Target(engine))
    assert asked == [{"device": 0, "given": Given(threads=2), "budget_bytes": MIB}]


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


@pytest.mark.parametrize("text", ["threads=65", "slots=1", "spin=2s"])
def test_a_ring_that_the_environment_makes_impossible_is_blamed_on_it(engine: Engine, text: str) -> None:
    with pytest.raises(UsageError, match=f"^PYXFER_RING is '{text}': a ring has "):
        settings_for(engine, 0, given=Given(slots=64), environ={"PYXFER_RING": text})
