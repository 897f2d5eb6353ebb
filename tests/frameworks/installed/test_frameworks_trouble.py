"""Crashed, killed and interrupted workers of installed frameworks: the others are still measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import interrupt_when, pyxfer
from frameworks import own_routes
from frameworks.installed.conftest import PATIENCE_S, SLOW, needs

import pyxfer as px
from pyxfer._document import codec
from pyxfer._document.runs import Run

pytestmark = SLOW


@needs("tensorflow", "jax")
def test_unaligned_memory_aborts_tensorflow_and_all_else_is_measured(meeting_place: Path) -> None:
    del meeting_place
    px.register_route(own_routes.make_route("tf.misaligned", own_routes.Misaligned))
    run = px.frameworks(
        ["tensorflow", "jax"],
        route=["tf.misaligned", "tf.ingest", "jax.ingest"],
        device="host",
        size="64KiB",
        budget=1.0,
        seed=1,
        patience=PATIENCE_S,
    )
    worker = run.workers[0]
    assert (worker.framework, worker.ended) == ("tensorflow", "crashed")
    assert worker.reason == "it crashed (SIGABRT), while tf.misaligned at 64 KiB was being timed"
    assert any("Check failed: IsAligned()" in line for line in worker.log), worker.log
    rows = {row.route: row for row in run.measurements if row.route_info is not None}
    assert rows["tf.misaligned"].rate.reason == worker.reason
    assert rows["tf.ingest"].gbps is not None
    assert rows["jax.ingest"].gbps is not None
    assert [each.ended for each in run.workers[1:]] == ["complete", "complete"]
    assert run.ended == "complete"


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
