"""The checks of a run that lost workers, and real workers that abort or are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
import worker_trouble
from framework_samples import make_nature, make_refused, make_route_row, make_worker
from samples import make_run

import pyxfer
from pyxfer._document.runs import Measurement, Run, Worker
from pyxfer._frameworks.registry import registered_routes
from pyxfer._measure import exclusive
from pyxfer._measure.sampler import Progress

KIB = 1024
ABORTED = f"it crashed (SIGABRT), while {worker_trouble.ABORTING.name} at 64 KiB was being timed"
KILLED = "it was killed (SIGKILL; possibly out of memory), while torch.to at 64 KiB was being timed"
Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start sleeping processes with a given word in their command line."""
    started: list[subprocess.Popen[bytes]] = []

    def start(word: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", word]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


WORKER = worker_trouble.WORKER_MODULE.decode()


def is_seen(process: subprocess.Popen[bytes], word: bytes) -> bool:
    """Wait until the command line of the process contains the word."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if word in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            return True
        time.sleep(0.01)
    return False


# --- killing a worker ------------------------------------------------------------------------------------------------


def test_workers_are_the_children_with_the_worker_module_in_their_command(start: Start) -> None:
    worker, other = start(WORKER), start("something.else")
    assert is_seen(worker, WORKER.encode())
    assert is_seen(other, b"something.else")
    assert worker_trouble.worker_processes(os.getpid()) == [worker.pid]


def test_workers_of_another_process_are_not_found(start: Start) -> None:
    worker = start(WORKER)
    assert is_seen(worker, WORKER.encode())
    assert worker_trouble.worker_processes(worker.pid) == []


def test_a_worker_is_killed_some_time_after_it_starts_to_measure(start: Start) -> None:
    worker = start(WORKER)
    assert is_seen(worker, WORKER.encode())
    with closing(worker_trouble.Killer("X: measuring", 0.05)) as killer:
        for _ in range(2):
            killer(Progress("X: measuring", 0.5, ""))
        assert worker.wait(60) == -9
    assert killer.killed == [worker.pid]


def test_a_worker_is_not_killed_while_it_prepares(start: Start) -> None:
    worker = start(WORKER)
    assert is_seen(worker, WORKER.encode())
    with closing(worker_trouble.Killer("X: measuring", 0.0)) as killer:
        killer(Progress("X: preparing", 0.1, ""))
        time.sleep(0.1)
    assert worker.poll() is None
    assert killer.killed == []


def test_closing_the_killer_cancels_the_kill(start: Start) -> None:
    worker = start(WORKER)
    assert is_seen(worker, WORKER.encode())
    with closing(worker_trouble.Killer("X: measuring", 60.0)) as killer:
        killer(Progress("X: measuring", 0.5, ""))
    assert worker.poll() is None
    assert killer.killed == []


# --- checking the run ------------------------------------------------------------------------------------------------


def lost(worker: str, route: str, reason: str) -> Measurement:
    row = make_refused(worker, route, 64 * KIB, reason)
    return msgspec.structs.replace(row, nature=make_nature(route, framework=worker), summary=None, trials=())


def row(worker: str, route: str) -> Measurement:
    return make_route_row(worker, route, "h2d", 64 * KIB, (1e-5, 10.0))


def crashed(name: str, reason: str) -> Worker:
    return make_worker(name, ended="crashed", reason=reason, log=("\x1b[31mF tensor.cc:899\x1b[0m",))


def make_survived(**overrides: Any) -> Run:
    """A run that recorded both losses and measured everything else."""
    fields: dict[str, Any] = {
        "kind": "frameworks",
        "workers": (
            crashed("tensorflow", ABORTED),
            make_worker("tensorflow"),
            crashed("torch", KILLED),
            make_worker("torch"),
        ),
        "measurements": (
            row("tensorflow", "tf.constant"),
            lost("tensorflow", worker_trouble.ABORTING.name, ABORTED),
            row("torch", "torch.pinned-nonblocking"),
            lost("torch", "torch.to", KILLED),
        ),
    }
    return make_run(**{**fields, **overrides})


def failed_checks(run: Run, killed: tuple[int, ...] = (1,)) -> list[str]:
    return [finding.code for finding in worker_trouble.judge(run, killed) if not finding.shown]


def test_a_run_that_recorded_both_losses_and_measured_the_rest_passes() -> None:
    assert failed_checks(make_survived()) == []


def test_a_worker_that_was_not_killed_fails() -> None:
    assert failed_checks(make_survived(), ()) == ["killed"]


@pytest.mark.parametrize(
    ("framework", "code"),
    [
        ("tensorflow", "abort"),
        ("torch", "kill"),
    ],
)
def test_a_loss_that_is_not_recorded_fails(framework: str, code: str) -> None:
    run = make_survived()
    kept = tuple(worker for worker in run.workers if (worker.framework, worker.ended) != (framework, "crashed"))
    assert failed_checks(msgspec.structs.replace(run, workers=kept)) == [code]


def test_an_abort_that_is_not_the_reason_of_its_row_fails() -> None:
    run = make_survived()
    rows = tuple(row for row in run.measurements if row.route != worker_trouble.ABORTING.name)
    assert failed_checks(msgspec.structs.replace(run, measurements=rows)) == ["reason"]


def test_another_route_without_a_result_fails() -> None:
    run = make_survived()
    rows = (*run.measurements, lost("tensorflow", "tf.function", ABORTED))
    assert failed_checks(msgspec.structs.replace(run, measurements=rows)) == ["others"]


def test_a_framework_without_results_fails() -> None:
    run = make_survived()
    rows = tuple(row for row in run.measurements if row.summary is None or row.worker != "torch")
    assert failed_checks(msgspec.structs.replace(run, measurements=rows)) == ["frameworks"]


def test_an_interrupted_run_fails() -> None:
    assert failed_checks(make_survived(ended="interrupted")) == ["complete"]


# --- the printing ----------------------------------------------------------------------------------------------------


def test_the_end_of_each_worker_is_printed_with_reason_and_log(capsys: pytest.CaptureFixture[str]) -> None:
    run = make_survived()
    worker_trouble.show(run, worker_trouble.judge(run, (1,)))
    shown = capsys.readouterr().out
    assert f"crashed after 41.5 s: {ABORTED}" in shown
    assert "F tensor.cc:899\n" in shown
    assert "\x1b" not in shown
    assert f"\ntorch.to: {KILLED}\n" in shown
    assert shown.endswith("both frameworks have results: yes\n")


def test_every_route_has_a_row_with_its_trials() -> None:
    lines = worker_trouble.table(make_survived()).splitlines()
    assert lines[2].split()[:4] == ["tf.constant", "64", "KiB", "8"]
    assert lines[-1].split() == ["torch.to", "64", "KiB", "0", "-"]


# --- real workers ----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for other measuring processes on this machine."""
    monkeypatch.setattr(exclusive, "_shared_folder", lambda: tmp_path)


@pytest.mark.skipif(
    find_spec("tensorflow") is not None or find_spec("torch") is not None, reason="a framework is installed here"
)
def test_without_the_frameworks_the_status_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert worker_trouble.main(["--device", "host"]) == 1
    shown = capsys.readouterr().out
    assert "not available: TensorFlow is not installed: pip install tensorflow" in shown
    assert "both frameworks have results: no" in shown


@pytest.mark.skipif(
    find_spec("tensorflow") is None or find_spec("torch") is None, reason="needs TensorFlow and PyTorch"
)
def test_a_run_survives_an_aborted_and_a_killed_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "worker_trouble.json"
    assert worker_trouble.main(["--device", "host", "--export-json", str(file)]) == 0, capsys.readouterr().out
    run = pyxfer.Run.load(file)
    assert [worker.ended for worker in run.workers][:2] == ["crashed", "complete"]
    assert all(worker.reason is None or "SIG" in worker.reason for worker in run.workers)
    assert registered_routes("tensorflow") == ()
