"""Crashed, killed and interrupted workers of installed frameworks: the others are still measured."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import COMMAND, environment, interrupt_when, pyxfer
from frameworks import own_routes
from frameworks.installed.available import PATIENCE_S, SLOW, needs
from frameworks.installed.misaligned import Misaligned

import pyxfer as px
from pyxfer._document import codec
from pyxfer._document.runs import Run
from pyxfer._frameworks import registry

pytestmark = SLOW


@pytest.fixture(scope="module")
def aborted_run(meeting_place: Path) -> px.Run:
    """A run in which TensorFlow gets unaligned memory during its trials, and JAX follows."""
    del meeting_place
    px.register_route(own_routes.make_route("tf.misaligned", Misaligned))
    try:
        return px.frameworks(
            ["tensorflow", "jax"],
            route=["tf.misaligned", "tf.ingest", "jax.ingest"],
            device="host",
            size="64KiB",
            budget=1.0,
            seed=1,
            patience=PATIENCE_S,
        )
    finally:
        registry.unregister_route("tf.misaligned")


@needs("tensorflow", "jax")
def test_unaligned_memory_aborts_tensorflow_and_the_log_is_kept(aborted_run: px.Run) -> None:
    worker = aborted_run.workers[0]
    assert (worker.framework, worker.ended) == ("tensorflow", "crashed")
    assert worker.reason == "it crashed (SIGABRT), while tf.misaligned at 64 KiB was being timed"
    assert any("Check failed: IsAligned()" in line for line in worker.log), worker.log


@needs("tensorflow", "jax")
def test_the_route_that_aborted_has_the_reason_and_the_others_are_measured(aborted_run: px.Run) -> None:
    rows = {row.route: row for row in aborted_run.measurements if row.route_info is not None}
    assert rows["tf.misaligned"].rate.reason == aborted_run.workers[0].reason
    assert rows["tf.ingest"].gbps is not None
    assert rows["jax.ingest"].gbps is not None
    assert [worker.ended for worker in aborted_run.workers[1:]] == ["complete", "complete"]
    assert aborted_run.ended == "complete"


@needs("torch", "jax")
def test_a_worker_that_is_killed_from_outside_is_recorded_and_the_next_framework_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ("frameworks", "torch", "jax", "--device", "host", "--size", "1MiB,64MiB", "--budget", "3s")
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--precision", "0.0001%", "--export-json", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    output = ""
    while "PyTorch: measuring" not in output:
        line = process.stderr.readline()
        assert line, output
        output += line
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    out, _ = process.communicate(timeout=300)
    run = Run.load(path)
    killed = run.workers[0]
    assert (killed.framework, killed.ended) == ("torch", "crashed")
    assert (killed.reason or "").startswith("it was killed (SIGKILL; possibly out of memory)")
    assert "it was killed (SIGKILL; possibly out of memory)" in out
    assert run.workers[-1].framework == "jax"
    assert run.workers[-1].ended == run.ended == "complete"
    assert process.returncode == 0


@pytest.mark.parametrize("name", [pytest.param("torch", marks=needs("torch")), pytest.param("jax", marks=needs("jax"))])
def test_over_the_link_every_route_says_that_no_gpu_is_usable(name: str) -> None:
    result = pyxfer(
        "frameworks", name, "--direction", "h2d", "--size", "64KiB", "--export-json", "-", CUDA_VISIBLE_DEVICES=""
    )
    assert result.returncode == 4
    run = codec.decode(Run, result.stdout.encode())
    assert [row.route for row in run.measurements if row.direction != "h2d"] == []
    assert run.measurements
    reasons = {row.rate.reason for row in run.measurements}
    assert all((reason or "").startswith("No usable GPU: ") for reason in reasons), reasons
    assert {worker.ended for worker in run.workers} == {"complete"}


@needs("torch", "tensorflow")
def test_ctrl_c_keeps_the_results_and_starts_no_other_framework(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ("frameworks", "torch", "tensorflow", "--device", "host", "--size", "1MiB,64MiB", "--budget", "60s")
    result = interrupt_when("PyTorch: measuring", *arguments, "--precision", "0.0001%", "--export-json", str(path))
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    run = Run.load(path)
    assert run.ended == "interrupted"
    assert [worker.ended for worker in run.workers] == ["interrupted"]
    assert "TensorFlow: starting" not in result.stderr
