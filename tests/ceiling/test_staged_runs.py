"""Runs with staged copies: their rows, their ceiling, and the faults of a ring."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ceiling.troubles import BRIEF_S, TIMES, Ended, interrupted, once_measuring, run_into
from marks import slow

from pyxfer import Measurement, Run, ceiling
from pyxfer.errors import DeviceLostError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1024, 1024**2
STAGED = "raw.pageable-staged"
RING = "threads=2,chunk=128KiB,slots=2,fill=plain"


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of two threads on every machine."""
    monkeypatch.setenv("PYXFER_RING", RING)


def quick(**changes: Any) -> Run:
    settings: dict[str, Any] = {
        "directions": ("h2d", "d2h"),
        "memories": ("pageable", "pinned"),
        "modes": ("auto", "staged"),
        "sizes": (MIB,),
        "precision": 0.1,
        "budget_s": 1.0,
        "seed": 1,
    }
    return ceiling("host", **{**settings, **changes})


def into_trouble(**changes: Any) -> Ended:
    """A small run of plain and staged copies of pageable memory; the first page-locked memory is the ring's."""
    settings: dict[str, Any] = {
        "memories": ("pageable",),
        "modes": ("memcpy", "staged"),
        "directions": ("h2d", "d2h"),
        "sizes": (64 * KIB,),  # less goes past the ring's slots
    }
    return run_into(**{**settings, **changes})


def rows(run: Run | None, route: str = STAGED) -> list[Measurement]:
    assert run is not None
    return [each for each in run.measurements if each.route == route]


@pytest.fixture(scope="module")
def whole() -> Iterator[Run]:
    """Staged copies both ways, warm and fresh, beside plain and pinned ones, traced; over a link of known speed."""
    testing.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYXFER_RING", RING)
        testing.model_link(2e9, 0, 1e9, 0)
        yield quick(fresh=True, budget_s=3.0)
    testing.reset()


@pytest.mark.slow
def test_staged_copies_are_measured_each_way_warm_and_fresh(whole: Run) -> None:
    measured = rows(whole)
    assert [(each.direction, each.variant) for each in measured] == [("h2d", "warm"), ("d2h", "warm"), ("d2h", "fresh")]
    assert all(each.gbps is not None and each.verified.value is True for each in measured)
    assert {each.bracket for each in measured} == {"drained"}
    assert all(each.dispatch_s and each.wall_s and each.first_s.value for each in measured)


def test_staged_copies_do_not_exceed_the_link(whole: Run) -> None:
    most_gbps = {"h2d": 2.02, "d2h": 1.01}
    for each in rows(whole):
        assert each.gbps is not None
        assert each.gbps <= most_gbps[each.direction]


def test_staged_copies_are_several_copies_from_the_slots(whole: Run) -> None:
    for each in rows(whole):
        dma = each.dma.value
        assert dma is not None, each.dma.reason
        assert (dma.nbytes, dma.source) == (MIB, "pinned")
        assert dma.copies >= MIB / (128 * KIB)
        assert not {remark.code for remark in each.remarks} & {"inflated", "wrong-memory", "outside"}


def test_staged_breakdowns_sum_to_the_trial_and_include_staging(whole: Run) -> None:
    for each in rows(whole):
        breakdown = each.breakdown.value
        assert breakdown is not None, each.breakdown.reason
        assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
        assert breakdown.seconds("staging") > 0
        assert breakdown.seconds("gaps") == 0


def test_the_document_has_the_ring_and_the_source_of_its_settings(whole: Run) -> None:
    made = whole.ring.value
    assert made is not None
    assert (made.threads, made.chunk_bytes, made.slots, made.fill) == (2, 128 * KIB, 2, "plain")
    assert made.pinned_bytes == 256 * KIB
    assert (made.source, made.reason) == ("given", f"given by PYXFER_RING={RING}")
    assert whole.parameters.modes == ("memcpy", "staged", "async")


def test_a_run_with_a_ring_survives_saving_and_loading(whole: Run, tmp_path: Path) -> None:
    whole.save(tmp_path / "run.json")
    assert Run.load(tmp_path / "run.json") == whole


def test_the_first_staged_copy_includes_the_creation_of_the_ring(whole: Run) -> None:
    first, *_ = rows(whole)
    made = whole.ring.value
    assert made is not None
    assert first.first_s.value is not None
    assert first.first_s.value > made.made_s


@pytest.mark.unsanitized(reason="compares modelled times, which a sanitizer makes longer")
def test_staged_copies_have_page_locked_memory_as_ceiling_and_are_not_one(whole: Run) -> None:
    for each in rows(whole):
        assert each.of_ceiling is not None
        assert 0 < each.of_ceiling < 1.1
    assert {whole.ceiling(direction, MIB).memory for direction in ("h2d", "d2h")} == {"pinned"}


def test_staged_copies_without_page_locked_memory_have_no_share(nothing_left: Engine) -> None:
    run = quick(memories=("pageable",), trace=False)
    for each in rows(run):
        assert each.gbps is not None
        assert each.ceiling_share.reason == (
            "the ceiling of a staged copy is page-locked memory, which was not measured: measure pinned memory too"
        )
    assert {each.of_ceiling for each in rows(run, "raw.pageable-memcpy")} == {1.0}
    assert run.ceiling("h2d", MIB).route == "raw.pageable-memcpy"


def test_without_staged_copies_no_ring_is_created(nothing_left: Engine) -> None:
    run = quick(modes=("auto",), memories=("pageable",), trace=False)
    assert run.ring.reason == "nothing was staged"
    assert "cudaHostAlloc" not in testing.calls()
    assert not rows(run)


def test_staged_copies_both_ways_are_refused_and_create_no_ring(nothing_left: Engine) -> None:
    run = quick(modes=("staged",), memories=("pageable",), directions=("both",), trace=False)
    assert {each.rate.reason for each in rows(run)} == {
        "a ring serves one transfer at a time, so two directions would take turns: use the mode async"
    }
    assert run.ring.reason == "nothing was staged"


def test_invalid_ring_settings_end_the_run_before_its_start(
    nothing_left: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYXFER_RING", "threads=100000")
    with pytest.raises(UsageError, match="64"):
        quick()
    assert testing.allocated() == []


def test_too_little_memory_for_the_ring_affects_only_staged_rows(nothing_left: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    ended = into_trouble(trace=False)
    assert ended.run is not None
    assert ended.run.ended == "complete"
    reasons = {each.rate.reason for each in rows(ended.run)}
    assert len(reasons) == 1
    assert "cudaHostAlloc failed with cudaErrorMemoryAllocation" in str(reasons)
    assert ended.run.ring.reason in reasons
    assert all(each.gbps for each in rows(ended.run, "raw.pageable-memcpy"))
    assert testing.calls()["cudaHostAlloc"] == 1  # and was not tried again for each row


def test_a_failed_thread_start_affects_only_staged_rows(nothing_left: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("pyxfer._ceiling.resources.make_ring", refuse)
    ended = into_trouble()
    assert ended.run is not None
    assert ended.run.ended == "complete"
    assert all("ulimit -u" in (each.rate.reason or "") for each in rows(ended.run))
    assert all(each.gbps for each in rows(ended.run, "raw.pageable-memcpy"))


CALLS = (
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventQuery",
    "cuEventRecord",
    "cudaFreeHost",
    "cudaHostAlloc",
    "cudaMemcpyAsync",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
)


@TIMES
@pytest.mark.parametrize("call", CALLS)
def test_one_failing_call_is_reported_and_leaves_nothing(nothing_left: Engine, call: str, nth: int) -> None:
    testing.fail(call, nth, 1)
    ended = into_trouble(budget_s=BRIEF_S)
    if nth == 1 or testing.calls()[call] >= nth:
        assert ended.says(f"{call} failed with "), (ended.run and ended.run.ended, ended.error)


@TIMES
@pytest.mark.parametrize("call", CALLS)
def test_a_device_that_is_lost_ends_the_run_and_leaves_nothing(nothing_left: Engine, call: str, nth: int) -> None:
    testing.fail_sticky(call, nth, 719)
    ended = into_trouble(budget_s=BRIEF_S)
    if nth == 1 or testing.calls()[call] >= nth:
        assert ended.says("LAUNCH_FAILED (719)") or ended.says("cudaErrorLaunchFailure (719)")
        assert ended.error is None or type(ended.error) is DeviceLostError


def test_a_staged_copy_that_fails_in_a_trial_keeps_its_trials(nothing_left: Engine) -> None:
    fail = once_measuring(lambda: testing.fail("cudaMemcpyAsync", 1, 1))
    ended = into_trouble(directions=("h2d",), precision=1e-9, budget_s=0.5, on_progress=fail)
    assert ended.run is not None
    assert ended.run.ended == "complete"
    (failed,), (other,) = rows(ended.run), rows(ended.run, "raw.pageable-memcpy")
    assert "failed" in {remark.code for remark in failed.remarks}
    assert failed.trials
    assert len(other.trials) > len(failed.trials)


def test_a_device_that_stops_answering_ends_the_run_with_its_results(hung: None) -> None:
    stall = once_measuring(lambda: testing.stall("cudaMemcpyAsync", 1, 60))
    ended = into_trouble(modes=("staged",), directions=("h2d",), precision=1e-9, on_progress=stall)
    assert ended.run is not None
    assert ended.run.ended == "failed"
    assert "did not finish a staged copy within 0.2 s" in (ended.run.failure or "")
    assert "stuck" in {remark.code for remark in ended.run.remarks}
    assert ended.run.measurements[0].trials


NEVER_ANSWERED = """
import os, pyxfer
from pyxfer.native import load
from pyxfer._ceiling import session
session.PATIENCE_S = 0.2
testing = load("host").testing

def hang(progress):
    if progress.text.startswith("verifying raw.pageable-staged"):
        testing.stall("cudaMemcpyAsync", 1, 60)

try:
    pyxfer.ceiling("host", memories="pageable", modes="staged", directions="h2d", sizes=(65536,), on_progress=hang)
except pyxfer.PyxferError as error:
    print(type(error).__name__, "staged copy" in str(error), flush=True)
os._exit(0)
"""


def test_a_device_that_never_answers_is_an_error() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NEVER_ANSWERED], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "DeviceTimeoutError True\n", ended.stderr


SLOW = "link=1e8:1e-3:1e8:1e-3"
RUN = """
import sys, pyxfer, pyxfer.native
ceiling = pyxfer.ceiling
from functools import partial
from pyxfer._ceiling import session
session.run_interruptible = partial(session.run_interruptible, grace_s=GRACE_S)
def act(progress):
    if progress.phase == "PHASE":
        ACTION
        print("started", flush=True)

copies = dict(modes=("auto", "staged"), directions=("h2d", "d2h"), sizes="4KiB:1MiB:x4", on_progress=act)
run = ceiling("host", **copies, precision=1e-6, budget_s=60.0, seed=1, save_to=lambda run: run.save(sys.argv[1]))
print(run.ended, sorted({remark.code for remark in run.remarks}), flush=True)
from pyxfer.native import load
print(load("host").testing.allocated(), flush=True)
"""
# A longer grace period, because a busy machine may need it.
PATIENT = RUN.replace("GRACE_S", "30.0").replace("PHASE", "preparing").replace("ACTION", "")


@pytest.mark.parametrize("after_s", [0.5, slow(0.2), slow(1.0)])
def test_ctrl_c_ends_a_run_with_its_results_and_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    assert interrupted(PATIENT, after_s, tmp_path, SLOW) == ["interrupted []", "[]"]
    assert Run.load(tmp_path / "run.json").ended == "interrupted"


HUNG = (
    RUN.replace("GRACE_S", "0.7")
    .replace("PHASE", "measuring")
    .replace("ACTION", 'pyxfer.native.load("host").testing.stall("cudaMemcpyAsync", 1, 60)')
)


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, slow(1)])
def test_ctrl_c_does_not_wait_for_a_ring_whose_device_does_not_answer(tmp_path: Path, times: int) -> None:
    script = HUNG.replace('("auto", "staged")', '("staged",), memories=("pageable",)')
    ended, left = interrupted(script, 1.0, tmp_path, "", times)
    assert ended.startswith("interrupted ['")  # with a remark on the memory that stays allocated
    assert left != "[]"
    assert Run.load(tmp_path / "run.json").ended == "interrupted"
