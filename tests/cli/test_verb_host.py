"""The bare command, the verbs that describe this host, and those that measure it without a GPU."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from command_line import shell
from doctor.cases import copies, h200, h200_link
from in_process import Command
from typer.testing import CliRunner

from pyxfer._cli.main import app
from pyxfer._document import codec, machines
from pyxfer._document.examinations import Examination
from pyxfer._document.machines import LinkState
from pyxfer._document.runs import NOT_ASKED, Run
from pyxfer._document.tunings import RingState
from pyxfer._frameworks.registry import FRAMEWORKS
from pyxfer._measure.sampler import FEWEST_ROUNDS
from pyxfer._upload import tuning_search
from pyxfer.native import Engine
from pyxfer.native._host import testing
from pyxfer.units import parse_size

pytestmark = pytest.mark.usefixtures("no_gpu")


def test_bare_pyxfer_tells_what_this_host_does_and_what_to_try_next(command: Command) -> None:
    result = command("--budget", "1s")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Host memory, not a PCIe link: ")
    assert "\n64 MiB" in result.stdout
    assert "pyxfer list" in result.stdout.split("\nNext\n")[1]
    assert "peak" not in result.stdout


def test_bare_pyxfer_takes_the_options_that_its_advice_names(engine: Engine, command: Command, tmp_path: Path) -> None:
    testing.model_link(2e9, 20e-6, 1e9, 20e-6)
    path = tmp_path / "run.json"
    options = ("--device", "host", "--size", "4KiB,64KiB", "--budget", "1us", "--precision", "2%")
    result = command(*options, "--export-json", str(path))
    assert result.returncode == 0, result.stderr
    run = Run.load(path)
    assert (run.parameters.sizes_bytes, run.parameters.precision, run.parameters.budget_s) == (
        (4096, 65536),
        0.02,
        1e-6,
    )
    assert min(len(row.trials) for row in run.measurements) >= FEWEST_ROUNDS
    card = result.stdout.split("\nNext\n")[0]
    assert "64 KiB" in card
    assert "a budget of " in card
    assert set(re.findall(r"--[a-z-]+", card)) <= {"--budget", "--precision", "--size", "--export-json"}


def test_json_holds_the_same_documents_as_a_run(command: Command) -> None:
    result = command("info", "--export-json", "-")
    assert "No usable GPU" in result.stderr
    whole = json.loads(result.stdout)
    assert msgspec.convert(whole["devices"], list[machines.Device])[0].runtime == "host"
    assert msgspec.convert(whole["links"], list[machines.Link])[0].kind == "none"
    assert msgspec.convert(whole["placements"], list[machines.Placement])
    assert msgspec.convert(whole["rings"], list[RingState])[0].source == "default"
    assert msgspec.convert(whole["environment"], machines.Environment).cpus_usable > 0


def test_a_ring_that_was_given_is_told_with_where_from(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYXFER_RING", "threads=2,chunk=1MiB")
    result = command("info")
    assert "2 threads, 256 slots of 1 MiB" in result.stdout
    assert "given by PYXFER_RING=threads=2,chunk=1MiB; the others default" in result.stdout
    assert "made smaller for a limit of 256 MiB" in result.stdout  # as upload makes it


def test_a_ring_that_cannot_be_is_refused_with_one_that_can(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYXFER_RING", "threads=many")
    result = command("info")
    assert result.returncode == 2
    assert 'PYXFER_RING="threads=8,chunk=64KiB,slots=512,fill=streaming"' in result.stderr


def test_json_holds_every_route_with_its_reason(command: Command) -> None:
    whole = json.loads(command("list", "--export-json", "-").stdout)
    assert {"devices", "routes", "modes"} == set(whole)
    assert all(route["available"] or route["reason"] for route in whole["routes"])


def test_json_of_routes_holds_the_raw_ones_and_every_frameworks(command: Command) -> None:
    routes = json.loads(command("list", "routes", "--export-json", "-").stdout)
    assert list(dict.fromkeys(route["framework"] for route in routes)) == ["raw", *FRAMEWORKS]
    assert all(bool(route["reason"]) != route["available"] for route in routes)
    (found,) = [route for route in routes if route["name"] == "tf.dlpack-pinned"]
    assert (found["direction"], found["memory"], found["host_copies"], found["usual"]) == (["h2d"], "pinned", 0, False)


def test_json_can_be_shown_again(command: Command, tmp_path: Path) -> None:
    result = command("doctor", "--budget", "0.2s", "--export-json", "-")
    file = tmp_path / "host.json"
    file.write_text(result.stdout)
    assert {finding.status for finding in Examination.load(file).findings} <= {"fine", "suspicious", "unknown"}
    shown, again = command("show", str(file)), command("doctor", str(file))
    assert shown.stdout == again.stdout != ""


def test_findings_do_not_change_the_exit_code(command: Command, tmp_path: Path) -> None:
    link = h200_link(LinkState(5, 8))
    h200(link=link, measurements=copies(0.3, link=link)).save(tmp_path / "run.json")
    result = command("doctor", str(tmp_path / "run.json"))
    assert result.returncode == 0
    assert "something is wrong with ceiling h2d, " in " ".join(result.stdout.split())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small sizes, so that a busy machine has time for them."""
    sizes = tuple(map(parse_size, ("64KiB", "1MiB")))
    monkeypatch.setattr(tuning_search, "tune", functools.partial(tuning_search.tune, sizes=sizes))
    monkeypatch.setenv("PYXFER_CACHE", str(tmp_path))


def tuned_page(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["tune", "--device", "host", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("quick")
def test_the_page_tells_settings_and_trials() -> None:
    text = tuned_page()
    for words in ("host memory, not a PCIe link", "settings ", "tuned on 20", "Trials: GB/s", "first", "plain copy"):
        assert words in text


@pytest.mark.usefixtures("quick")
def test_over_host_memory_nothing_is_kept(tmp_path: Path) -> None:
    state = msgspec.json.decode(tuned_page("--export-json", "-"), type=RingState)
    assert state.remarks[-1] == "the tuning is not kept: this is host memory, not a PCIe link"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_json_holds_every_trial_with_what_it_took(tmp_path: Path) -> None:
    text = tuned_page("--export-json", "-", "--budget", "500ms")
    state = msgspec.json.decode(text, type=RingState)
    assert state.source == "tuned"
    assert state.path.value == str(tmp_path / "ring.json")
    tuned = state.tuning.value
    assert tuned is not None
    assert tuned.limit_s == 0.5
    assert tuned.timed
    assert all(trial.repeats and trial.seconds for trial in tuned.timed)
    assert json.loads(text)["ring"]["threads"] == tuned.ring.threads


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
