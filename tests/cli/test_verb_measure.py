"""`pyxfer ceiling`, `frameworks`, `explain` and `links` without a GPU; tests/frameworks/installed has frameworks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import shell
from in_process import Command

from pyxfer._document import codec
from pyxfer._document.runs import NOT_ASKED, Run
from pyxfer.native import Engine
from pyxfer.native._host import testing

QUICK = ("--device", "host", "--direction", "h2d", "--size", "64KiB,1MiB,4MiB", "--budget", "0.2s")
# A link so slow that a run is still under way when something happens to it.
SLOW = "link=1e7:5e-3:1e7:5e-3"
LONG = (*QUICK[:4], "--size", "16KiB:64KiB:x1.2", "--precision", "0.0001%", "--budget", "10s")


@pytest.fixture
def link(engine: Engine) -> None:
    """A modelled link makes figures that repeat."""
    testing.model_link(2e9, 20e-6, 1e9, 20e-6)


@pytest.mark.usefixtures("no_gpu")
def test_progress_and_the_missing_gpu_go_to_stderr(command: Command) -> None:
    result = command("ceiling", *QUICK[2:])
    assert "No usable GPU" in result.stderr.splitlines()[0]
    assert "pyxfer: measuring" in result.stderr
    assert "No usable GPU" not in result.stdout
    assert "pyxfer: " not in result.stdout


def test_an_export_to_stdout_moves_the_page_to_stderr(command: Command) -> None:
    result = command("ceiling", *QUICK, "--export-json", "-")
    assert json.loads(result.stdout)["kind"] == "ceiling"
    assert "Host memory, not a PCIe link: " in result.stderr


@pytest.mark.usefixtures("link")
def test_a_budget_spent_on_preparation_is_reported(command: Command) -> None:
    result = command("ceiling", *QUICK[:4], "--size", "64KiB", "--budget", "1us")
    assert result.returncode == 0, result.stderr
    assert "Preparation took " in result.stdout
    assert "give a budget of " in result.stdout
    said = [line.removeprefix("pyxfer: ") for line in result.stderr.splitlines()][-3:]
    assert [line.partition(",")[0] for line in said] == ["preparing", "measuring", "tracing"]


def test_a_closed_pipe_loses_no_export(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = shell(f"pyxfer ceiling {' '.join(QUICK)} --export-json {path} | true")
    assert "Traceback" not in result.stderr
    assert result.returncode == 141
    assert Run.load(path).ended == "complete"


def test_no_trace_skips_the_traced_trials(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = command("ceiling", *QUICK, "--no-trace", "--export-json", str(path))
    assert result.returncode == 0
    assert "tracing" not in result.stderr
    assert {each.dma.reason for each in Run.load(path).measurements} == {NOT_ASKED}


FRAMEWORKS = ("torch", "tensorflow", "cupy", "jax")
OF_FRAMEWORKS = ("frameworks", "--device", "host", "--size", "64KiB,1MiB", "--budget", "0.3s")


@pytest.fixture
def nothing_installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all installed frameworks from the command and its workers."""
    folder = tmp_path_factory.mktemp("hidden")
    for name in FRAMEWORKS:
        (folder / f"{name}.py").write_text(f'raise ModuleNotFoundError("No module named {name!r}", name="{name}")\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_framework_the_run_is_invalid(command: Command) -> None:
    result = command(*OF_FRAMEWORKS, "--export-json", "-")
    assert result.returncode == 4
    last = result.stderr.splitlines()[-1]
    assert last.startswith("pyxfer: Nothing was measured: ")
    assert "is not installed" in last
    run = codec.decode(Run, result.stdout.encode())
    assert [(worker.framework, worker.ended) for worker in run.workers] == [
        (name, "unavailable") for name in FRAMEWORKS
    ]
    assert {row.worker for row in run.measurements} == set(FRAMEWORKS)
    assert {row.nbytes for row in run.measurements} == {64 << 10, 1 << 20}
    assert all("is not installed" in (row.rate.reason or "") for row in run.measurements)


@pytest.mark.usefixtures("nothing_installed", "no_gpu")
def test_without_a_gpu_only_ingest_is_timed(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    options = ("--size", "64KiB", "--export-json", str(path))
    result = command("frameworks", "torch", *options)
    assert result.stderr.startswith("pyxfer: No usable GPU: ")
    assert {row.direction for row in Run.load(path).measurements} == {"ingest"}
    assert "h2d" not in result.stdout


@pytest.mark.usefixtures("nothing_installed", "no_gpu")
def test_the_options_become_the_parameters_of_the_run(command: Command) -> None:
    asked = ("--route", "torch.to, torch.c*", "--direction", "h2d,d2h", "--ingest", "--precision", "2%")
    given = ("--size", "1MiB", "--budget", "3s", "--export-json", "-")
    result = command("frameworks", "torch", *asked, *given)
    run = codec.decode(Run, result.stdout.encode())
    parameters = run.parameters
    assert parameters.frameworks == ("torch",)
    assert parameters.routes == ("torch.to", "torch.c*")
    assert parameters.directions == ("h2d", "d2h", "ingest")
    assert (parameters.precision, parameters.budget_s) == (0.02, 3.0)
    assert parameters.sizes_bytes == (1 << 20,)
    names = {row.route for row in run.measurements}
    assert {"torch.to", "torch.cpu", "torch.copy-to-pinned"} <= names
    assert all(name == "torch.to" or name.startswith("torch.c") for name in names)


@pytest.mark.usefixtures("nothing_installed", "no_gpu")
def test_batches_have_published_figures(command: Command) -> None:
    asked = ("--workload", "image-batch", "--batch", "8,512", "--direction", "h2d")
    result = command("frameworks", "torch", "tf", *asked, "--export-json", "-")
    run = codec.decode(Run, result.stdout.encode())
    assert run.parameters.batches == (8, 512)
    assert {row.batch for row in run.measurements} == {8, 512}
    assert {published.route.partition(".")[0] for published in run.published} == {"torch", "tf"}


def test_the_message_about_the_page_comes_after_it() -> None:
    asked = "pyxfer explain torch.to --size 64KiB --budget 1s 2>&1 | cat"
    lines = shell(asked, CUDA_VISIBLE_DEVICES="").stdout.splitlines()
    assert lines[-1].startswith("pyxfer: Nothing was measured: ")
