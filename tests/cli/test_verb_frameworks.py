"""`pyxfer frameworks` without a framework or a GPU; tests/frameworks/installed has tests with frameworks."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from command_line import pyxfer, shell
from in_process import Command
from marks import slow

from pyxfer._document import codec
from pyxfer._document.runs import Run

FRAMEWORKS = ("torch", "tensorflow", "cupy", "jax")
QUICK = ("frameworks", "--device", "host", "--sizes", "64KiB,1MiB", "--budget", "0.3s")


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all installed frameworks from the command and its workers."""
    folder = tmp_path_factory.mktemp("hidden")
    for name in FRAMEWORKS:
        (folder / f"{name}.py").write_text(f'raise ModuleNotFoundError("No module named {name!r}", name="{name}")\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("torch", "PyTorch is not installed: pip install torch"),
        slow("tensorflow", "TensorFlow is not installed: pip install tensorflow"),
        slow("cupy", "CuPy is not installed: pip install cupy-cuda12x"),
        slow("jax", "JAX is not installed: pip install 'jax[cuda1"),
    ],
)
def test_a_missing_framework_has_install_advice(name: str, advice: str) -> None:
    result = pyxfer(*QUICK, name)
    assert f"1  {name}: not available: {advice}" in result.stdout
    assert "\nNothing was measured\n" in result.stdout
    assert "usual >" not in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_without_any_framework_the_run_is_invalid() -> None:
    result = pyxfer(*QUICK, "--export-json", "-")
    assert result.returncode == 4
    assert result.stderr.splitlines()[-1] == "pyxfer: Nothing was measured, for the reasons above."
    run = codec.decode(Run, result.stdout.encode())
    assert [(worker.framework, worker.ended) for worker in run.workers] == [
        (name, "unavailable") for name in FRAMEWORKS
    ]
    assert {row.worker for row in run.measurements} == set(FRAMEWORKS)
    assert {row.nbytes for row in run.measurements} == {64 << 10, 1 << 20}
    assert all("is not installed" in (row.rate.reason or "") for row in run.measurements)


def test_without_a_gpu_only_ingest_is_timed(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    options = ("--sizes", "64KiB", "--export-json", str(path))
    result = pyxfer("frameworks", "torch", *options, CUDA_VISIBLE_DEVICES="")
    assert result.stderr.startswith("pyxfer: No usable GPU: ")
    assert {row.direction for row in Run.load(path).measurements} == {"ingest"}
    assert "h2d" not in result.stdout


@pytest.mark.slow
def test_progress_goes_to_stderr() -> None:
    result = pyxfer(*QUICK, "torch", "jax")
    assert [line for line in result.stderr.splitlines() if "starting" in line] == [
        "pyxfer: PyTorch: starting",
        "pyxfer: JAX: starting",
    ]
    assert "starting" not in result.stdout


def test_the_options_become_the_parameters_of_the_run() -> None:
    asked = ("--routes", "torch.to, torch.c*", "--directions", "h2d,d2h", "--ingest", "--precision", "2%")
    given = ("--sizes", "1MiB", "--budget", "3s", "--seed", "7", "--export-json", "-")
    result = pyxfer("frameworks", "torch", *asked, *given, CUDA_VISIBLE_DEVICES="")
    run = codec.decode(Run, result.stdout.encode())
    parameters = run.parameters
    assert parameters.frameworks == ("torch",)
    assert parameters.routes == ("torch.to", "torch.c*")
    assert parameters.directions == ("h2d", "d2h", "ingest")
    assert (parameters.precision, parameters.budget_s, parameters.seed) == (0.02, 3.0, 7)
    assert parameters.sizes_bytes == (1 << 20,)
    names = {row.route for row in run.measurements}
    assert {"torch.to", "torch.cpu", "torch.copy-to-pinned"} <= names
    assert all(name == "torch.to" or name.startswith("torch.c") for name in names)


@pytest.mark.slow
def test_batches_have_published_figures() -> None:
    asked = ("--workload", "image-batch", "--batches", "8,512", "--directions", "h2d")
    result = pyxfer("frameworks", "torch", "tf", *asked, "--export-json", "-", CUDA_VISIBLE_DEVICES="")
    run = codec.decode(Run, result.stdout.encode())
    assert run.parameters.batches == (8, 512)
    assert {row.batch for row in run.measurements} == {8, 512}
    assert {published.route.partition(".")[0] for published in run.published} == {"torch", "tf"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mxnet",), "Unknown framework 'mxnet'. Known are torch, tensorflow, cupy, jax"),
        (("--routes", "torch.too"), "fits 'torch.too'. Did you mean torch.to"),
        (("torch", "--routes", "tf.*"), "No route of torch fits 'tf.*'. It belongs to tensorflow, which was not named"),
        (("--routes", "tf.*,"), "--routes 'tf.*,' has an empty item"),
        (("--workload", "training"), "--workload 'training' is unknown: choose one of copy, image-batch"),
        (("--workload", "image-batch"), "sends images to a GPU, and no GPU is usable here; see pyxfer info"),
        (("--workload", "image-batch", "--directions", "h2d", "--sizes", "1MiB"), "give batches, such as 1:512:x2"),
        (("--batches", "8"), "name that workload, or give sizes"),
        (("--workload", "image-batch", "--directions", "h2d", "--batches", "none"), "'none'"),
        (("--workload", "image-batch", "--directions", "h2d", "--batches", "2000000"), "more than any GPU holds"),
        (("--directions", "both"), "--directions 'both' is unknown: choose one of h2d, d2h"),
        (("--directions", "h2d,"), "--directions 'h2d,' has an empty item"),
        (("--sizes", "lots"), "is not a size"),
        (("--precision", "200%"), "is not below 100%"),
        (("--budget", "soon"), "write a duration such as"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_invalid_options_exit_with_2_before_any_worker(
    command: Command, arguments: tuple[str, ...], sentence: str
) -> None:
    result = command("frameworks", "--device", "host", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert "starting" not in result.stderr
    assert "Traceback" not in result.stderr


def test_exports_are_written_and_can_be_shown(tmp_path: Path) -> None:
    names = {"--export-json": "run.json", "--export-csv": "run.csv", "--export-md": "run.md"}
    result = pyxfer(*QUICK, "torch", *(part for pair in names.items() for part in pair), cwd=tmp_path)
    run = Run.load(tmp_path / "run.json")
    assert (tmp_path / "run.csv").read_text() == run.to_csv()
    assert (tmp_path / "run.md").read_text() == run.to_markdown()
    shown = pyxfer("show", "run.json", cwd=tmp_path)
    assert shown.stdout == result.stdout


@pytest.mark.slow
def test_csv_has_a_row_per_route_and_size(tmp_path: Path) -> None:
    pyxfer(*QUICK, "tensorflow", "--export-csv", "run.csv", cwd=tmp_path)
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["route"] for row in rows) == sorted(["tf.ingest", "tf.ingest-dlpack", "tf.ingest-rawop"] * 2)
    assert {row["worker"] for row in rows} == {"tensorflow"}


@pytest.mark.slow
def test_a_closed_pipe_loses_no_export(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = shell(f"pyxfer {' '.join(QUICK)} torch --export-json {path} | true")
    assert "Traceback" not in result.stderr
    assert result.returncode in (4, 141)  # 141 where the page was longer than what a pipe takes
    assert json.loads(path.read_text())["ended"] == "complete"
