"""Failing, hanging and lost devices, and Ctrl-C: a run ends, reports the fault, keeps its results and leaks nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ceiling.troubles import BRIEF_S, interrupted, once_measuring, run_into
from marks import slow
from measure.test_exclusive import another_process

from pyxfer import Run, ceiling
from pyxfer.errors import CudaMemoryError, DeviceLostError, DeviceTimeoutError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
# Every call that such a run makes and that can fail, and how often it is made at least.
OFTEN = {
    1: (
        "cuDeviceGet cuDeviceGetName cuDeviceGetUuid cuDeviceTotalMem cudaDeviceGetPCIBusId "
        "cuStreamQuery cudaGetDeviceCount cudaHostRegister cudaHostUnregister cudaStreamQuery"
    ),
    2: "cudaFree cudaMalloc",
    3: "cudaDeviceGetAttribute cudaFreeHost cudaHostAlloc cudaStreamCreateWithFlags cudaStreamDestroy",
    8: "cuCtxSynchronize cudaMemset cudaPointerGetAttributes",
    50: (
        "cuCtxGetCurrent cuCtxSetCurrent cuEventCreate cuEventDestroy cuEventElapsedTime cuEventQuery "
        "cuEventRecord cuStreamWaitEvent cuThreadExchangeStreamCaptureMode cudaDeviceSynchronize "
        "cudaLaunchHostFunc cudaMemcpy cudaMemcpyAsync cudaSetDevice"
    ),
}
CALLS = {call: least for least, calls in OFTEN.items() for call in calls.split()}
TIMES = [
    (call, nth) if nth == 1 else slow(call, nth)
    for call, least in CALLS.items()
    for nth in (1, 2, 3, 8, 50)
    if nth <= least
]


# Smaller staged copies go past the slots of the ring.
STAGED: dict[str, Any] = {"mode": ("auto", "staged"), "size": (64 * KIB,), "direction": ("h2d", "d2h", "both")}


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of two threads on every machine."""
    monkeypatch.setenv("PYXFER_RING", "threads=2,chunk=128KiB,slots=2,fill=plain")


@pytest.mark.slow
def test_the_list_of_calls_is_complete(engine: Engine) -> None:
    cannot_fail = {"cudaGetLastError", "cudaDriverGetVersion", "cudaGetDriverEntryPointByVersion"}
    assert run_into(**STAGED, budget=BRIEF_S).error is None
    made = testing.calls()
    assert set(made) - cannot_fail == set(CALLS)
    assert {call: made[call] for call, least in CALLS.items() if made[call] < least} == {}


@pytest.mark.parametrize(("call", "nth"), TIMES)
def test_one_failing_call_is_reported_and_leaves_nothing(nothing_left: Engine, call: str, nth: int) -> None:
    testing.fail(call, nth, 1)
    ended = run_into(**STAGED, budget=BRIEF_S)
    assert ended.says(f"{call} failed with "), (ended.run and ended.run.ended, ended.error)


@pytest.mark.parametrize(("call", "nth"), TIMES)
def test_a_device_that_is_lost_ends_the_run_and_leaves_nothing(nothing_left: Engine, call: str, nth: int) -> None:
    testing.fail_sticky(call, nth, 719)
    ended = run_into(**STAGED, budget=BRIEF_S)
    assert ended.says("LAUNCH_FAILED (719)") or ended.says("cudaErrorLaunchFailure (719)")
    assert ended.error is None or type(ended.error) is DeviceLostError


def test_results_before_the_loss_of_the_device_are_kept(nothing_left: Engine) -> None:
    saved: list[Run] = []
    ended = run_into(
        precision=1e-9,
        save_to=saved.append,
        on_progress=once_measuring(lambda: testing.fail_sticky("cudaMemcpy", 1, 999)),
    )
    assert ended.run.ended == "failed"
    assert "cudaMemcpy failed with cudaErrorUnknown (999)" in (ended.run.failure or "")
    assert "look for Xid in dmesg" in (ended.run.failure or "")
    assert any(row.trials for row in ended.run.measurements)
    assert saved == [ended.run]


@pytest.mark.parametrize(("call", "nth"), [("cudaMalloc", 1), ("cudaHostAlloc", 1), ("cudaHostRegister", 1)])
def test_too_little_memory_before_the_first_trial_is_an_error(nothing_left: Engine, call: str, nth: int) -> None:
    testing.fail(call, nth, 2)
    ended = run_into()
    assert type(ended.error) is CudaMemoryError
    assert ended.error.call == call
    assert "ask for smaller sizes" in str(ended.error)


@pytest.mark.slow
def test_too_little_memory_for_timing_page_locking_leaves_the_copies(nothing_left: Engine) -> None:
    testing.fail("cudaHostAlloc", 3, 2)
    ended = run_into()
    assert ended.run.ended == "complete"
    assert [remark.code for remark in ended.run.remarks] == ["locking"]
    assert "cudaHostAlloc failed with cudaErrorMemoryAllocation" in ended.run.remarks[0].text


def test_a_way_that_fails_in_its_preparation_is_a_row_with_the_error(nothing_left: Engine) -> None:
    testing.fail("cudaMemset", 1, 1)
    ended = run_into(direction=("h2d",))
    reasons = [row.rate.reason for row in ended.run.measurements if row.gbps is None]
    assert len(reasons) == 1
    assert "cudaMemset failed with cudaErrorInvalidValue (1)" in (reasons[0] or "")
    assert len([row for row in ended.run.measurements if row.gbps is not None]) == 2


def test_a_way_that_fails_in_a_trial_keeps_its_trials(nothing_left: Engine) -> None:
    fail = once_measuring(lambda: testing.fail("cudaMemcpy", 1, 1))
    ended = run_into(direction=("h2d",), precision=1e-9, budget=0.5, on_progress=fail)
    assert ended.run.ended == "complete"
    pageable, *others = ended.run.measurements
    assert [remark.code for remark in pageable.remarks if remark.code == "failed"] == ["failed"]
    assert pageable.trials
    assert all(len(other.trials) > len(pageable.trials) for other in others)


@pytest.mark.slow
def test_a_failed_release_is_a_warning_and_a_remark(nothing_left: Engine) -> None:
    testing.fail("cudaStreamDestroy", 1, 700)
    ended = run_into()
    assert ended.run.ended == "complete"
    (remark,) = ended.run.remarks
    assert remark.code == "cleanup"
    assert remark.text.startswith("Something could not be released: cudaStreamDestroy failed with cudaErrorIllegalAdd")
    assert [text.partition(" ")[0] for text in ended.warned] == ["cudaStreamDestroy"]


def test_a_device_that_stops_answering_ends_the_run_with_its_results(hung: None) -> None:
    ended = run_into(
        direction=("h2d",),
        memory=("pinned",),
        precision=1e-9,
        on_progress=once_measuring(lambda: testing.stall("cudaMemcpyAsync", 1, 60)),
    )
    assert ended.run.ended == "failed"
    assert "did not finish a copy within 0.2 s" in (ended.run.failure or "")
    assert "stuck" in {remark.code for remark in ended.run.remarks}
    assert ended.run.measurements[0].trials


def test_a_device_that_never_answers_is_an_error(hung: None) -> None:
    testing.stall("cudaMemcpyAsync", 1, 60)
    ended = run_into(direction=("h2d",), memory=("pinned",))
    assert type(ended.error) is DeviceTimeoutError
    assert "look at nvidia-smi and for Xid in dmesg" in str(ended.error)


def test_an_error_of_save_to_is_raised_and_leaves_nothing(nothing_left: Engine) -> None:
    def save(_: Run) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        ceiling("host", size=(4 * KIB,), direction=("h2d",), memory=("pinned",), budget=0.2, save_to=save)


@pytest.mark.slow
def test_another_process_on_the_device_is_named_in_the_run(nothing_left: Engine) -> None:
    with another_process("host memory, not a PCIe link") as other:
        ended = run_into()
    assert [remark.code for remark in ended.run.remarks] == ["contended"]
    assert f"(process {other.pid})" in ended.run.remarks[0].text
    assert ended.run.remarks[0].fix == "measure again when it has ended"


SLOW = "link=1e8:1e-3:1e8:1e-3"
HUNG = "stall=cudaMemcpyAsync:200:60"

RUN = """
import sys, pyxfer
ceiling = pyxfer.ceiling
print("started", flush=True)
save = lambda run: run.save(sys.argv[1])
run = ceiling("host", size="4KiB:1MiB:x4", mode=("auto", "staged"), precision=1e-6, budget=60.0, save_to=save)
print(run.ended, sorted({remark.code for remark in run.remarks}), flush=True)
from pyxfer.native import load
print(load("host").testing.allocated(), flush=True)
"""
# A longer grace period, because a busy machine may need it.
PATIENT = RUN.replace(
    "ceiling = pyxfer.ceiling",
    """
from functools import partial
from pyxfer._ceiling import session
session.run_interruptible = partial(session.run_interruptible, grace_s=30.0)
ceiling = pyxfer.ceiling
""",
)
# These report their start in the preparation, or after the first trials.
STARTED = 'print("started", flush=True)\n'
PREPARING = PATIENT.replace(STARTED, "").replace(
    "save_to=save",
    """save_to=save, on_progress=lambda progress: progress.phase == "preparing" and print("started", flush=True)""",
)
HUNG_MEASURING = (
    RUN.replace(
        STARTED,
        """
from pyxfer.native import load
def hang(progress):
    if progress.phase == "measuring":
        load("host").testing.stall("cudaMemcpyAsync", 1, 60)
        print("started", flush=True)
""",
    )
    .replace("save_to=save", "save_to=save, on_progress=hang")
    .replace(', mode=("auto", "staged")', "")
)
MEASURE = """
import time, pyxfer
from pyxfer.native import load
measure = pyxfer.measure
load("host")
try:
    print("started", flush=True)
    measure(lambda: time.sleep(0.001), nbytes=1 << 20, direction="h2d", device="host", precision=1e-6, budget=60.0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(load("host").testing.allocated(), flush=True)
"""


@pytest.mark.parametrize("after_s", [0.2, slow(0.8)])
def test_an_interrupted_run_keeps_its_results_and_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    assert interrupted(PREPARING, after_s, tmp_path, SLOW) == ["interrupted []", "[]"]
    assert Run.load(tmp_path / "run.json").ended == "interrupted"


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_device_that_does_not_answer(tmp_path: Path) -> None:
    ended, _ = interrupted(HUNG_MEASURING, 0.5, tmp_path)
    assert ended == "interrupted ['stuck']"
    assert Run.load(tmp_path / "run.json").ended == "interrupted"


def test_measuring_a_callable_ends_with_the_interrupt_and_leaves_nothing(tmp_path: Path) -> None:
    assert interrupted(MEASURE, 0.1, tmp_path, SLOW) == ["interrupted", "[]"]


@pytest.mark.slow
def test_measuring_a_callable_beside_a_device_that_does_not_answer_can_be_interrupted(tmp_path: Path) -> None:
    assert interrupted(MEASURE, 1.0, tmp_path, HUNG)[0] == "interrupted"


def test_a_device_lost_before_the_first_trial_is_an_error(nothing_left: Engine) -> None:
    testing.fail_sticky("cudaMemset", 1, 999)
    ended = run_into()
    assert type(ended.error) is DeviceLostError
    assert ended.run is None
