"""The examples run as they are: over host memory, with the frameworks that are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import environment

import pyxfer
from pyxfer._baseline.store import open_store

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
if not EXAMPLES.exists():
    pytest.skip("the examples are not beside the tests", allow_module_level=True)

MAX_LINES = 40
# The options whose defaults take seconds, and a tolerance that no other load on the machine exceeds.
DEFAULTS = "[tool.pyxfer]\ndevice = 'host'\nsize = '1MiB'\nbudget = '0.1s'\ntolerance = '99%'\n"

# Each imports a framework or starts several processes.
pytestmark = pytest.mark.timeout(300)


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with this Python and pyxfer, and without a GPU."""
    (folder / "pyproject.toml").write_text(DEFAULTS)
    (folder / "pyxfer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pyxfer "$@"\n')
    (folder / "pyxfer").chmod(0o755)
    variables = {
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **variables,
    }
    return subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.[psy]*")), ids=lambda example: example.name)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_a_training_loop_learns(framework: str, tmp_path: Path) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    ended = run(tmp_path, sys.executable, str(EXAMPLES / f"train_{framework}.py"))
    assert ended.returncode == 0, ended.stderr
    first, last = map(float, re.findall(r"\d\.\d+", ended.stdout))
    assert last < first


@pytest.mark.gpu
def test_a_model_is_fitted_with_cupy(tmp_path: Path) -> None:
    if find_spec("cupy") is None:
        pytest.skip("cupy is not installed")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    ended = run(tmp_path, sys.executable, str(EXAMPLES / "train_cupy.py"), CUDA_VISIBLE_DEVICES=visible)
    assert ended.returncode == 0, ended.stderr
    first, last, error = map(float, re.findall(r"\d+\.\d+", ended.stdout))
    assert last < first
    assert error < 0.1


def test_the_tests_of_transfers_pass(tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    tests = tmp_path / "test_transfers.py"
    tests.write_text((EXAMPLES / tests.name).read_text(encoding="utf-8"))
    # A single round has no interval, and so no verdict that another load on the machine could change.
    options = ("-p", "no:cacheprovider", "--xfer-device=host", "--xfer-budget=1ms", "--xfer-json=session.json")
    ended = run(tmp_path, sys.executable, "-m", "pytest", *options, str(tests))
    assert ended.returncode == 0, ended.stdout
    session = pyxfer.load(tmp_path / "session.json")
    assert len(session.tests) == 2


@pytest.mark.slow
def test_the_check_of_a_host_keeps_a_baseline_and_is_silent_later(tmp_path: Path) -> None:
    store, script = tmp_path / "store.db", str(EXAMPLES / "check_host.sh")
    first = run(tmp_path, script, PYXFER_STORE=str(store))
    assert first.returncode == 0, first.stderr
    with open_store(store) as opened:
        assert [kept.name for kept in opened.baselines()] == ["nightly"]
    second = run(tmp_path, script, PYXFER_STORE=str(store))
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "gpus", "status"),
    [((), "0,1", 1), ((), "", 0), (("host",), "", 0)],
    ids=["GPUs that are not there", "a job without GPUs", "host memory"],
)
def test_the_prolog_fails_where_a_job_cannot_run(
    arguments: tuple[str, ...], gpus: str, status: int, tmp_path: Path
) -> None:
    prolog = str(EXAMPLES / "slurm_prolog.py")
    ended = run(tmp_path, sys.executable, prolog, *arguments, SLURM_JOB_GPUS=gpus)
    assert (ended.returncode, bool(ended.stderr)) == (status, status == 1)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient: Any = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(EXAMPLES / "first_look.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert all(cell.outputs[-1].data for cell in notebook.cells if cell.cell_type == "code")


def container_of(name: str) -> tuple[Any, Any]:
    """The spec of a manifest and its only container, whose last words are the host job."""
    spec = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"][:4] == ["pyxfer", "fleet", "host", "--name=$(NODE_NAME)"]
    (node,) = (each for each in container["env"] if each["name"] == "NODE_NAME")
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    return spec, container


def run_container(container: Any, place: Path, words: str) -> subprocess.Popen[str]:
    """The command of a container on this machine, with `words` as the script of the host job."""
    (place / "job").write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
    (place / "job").chmod(0o755)
    command = [*container["command"], str(place / "job")]
    here = [word.replace("$$(", "$(").replace("/dev/termination-log", str(place / "said")) for word in command]
    return subprocess.Popen(here, stdout=subprocess.PIPE, text=True, env={"PATH": "/bin:/usr/bin", "PAUSE_S": "0"})


def test_a_job_of_kubernetes_has_a_pod_on_each_host_whose_log_is_the_document_also_if_the_job_fails(
    tmp_path: Path,
) -> None:
    spec, container = container_of("kubernetes_job.yaml")
    assert (spec["completions"], spec["backoffLimit"]) == (spec["parallelism"], 0)
    (rule,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert container["args"][-1] == "--export-json=-"
    with run_container(container, tmp_path, "echo said >&2; echo document; exit 4") as pod:
        log, _ = pod.communicate(timeout=60)
    assert (log, pod.returncode) == ("document\n", 0)
    assert (tmp_path / "said").read_text(encoding="utf-8") == "said\n"


def test_a_pod_of_the_daemon_set_goes_on_after_a_failure_and_ends_when_asked_to(tmp_path: Path) -> None:
    spec, container = container_of("kubernetes_daemonset.yaml")
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (volume,), (mount,) = spec["template"]["spec"]["volumes"], container["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert container["args"][-1] == f"--export-json={mount['mountPath']}/$(NODE_NAME).json"
    with run_container(container, tmp_path, "echo turn; exit 4") as pod:
        assert pod.stdout is not None
        assert [pod.stdout.readline() for _ in range(3)] == ["turn\n"] * 3
        pod.terminate()
        pod.stdout.read()
    assert pod.returncode == 0
