"""`pyxfer fleet host`: its document, its labels, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import COMMAND, TIMEOUT_S, environment, pyxfer
from in_process import Command

from pyxfer._document import codec
from pyxfer._document.fleets import HostReport

LINK = "link=2e9:1e-6:1e9:1e-6"
STALL = "stall=cudaMemcpyAsync:9:1000"
JOB = ("fleet", "host", "--devices", "host", "--export-json")


@pytest.mark.slow
def test_stdout_is_the_document_and_nothing_else() -> None:
    named = ("--label", "rack=r7", "--name", "node-7")
    ended = pyxfer(*JOB, "-", "--budget", "60s", *named, PYXFER_HOSTRT=LINK, PYXFER_LABELS="switch=s2")
    assert ended.returncode == 0, ended.stderr
    report = codec.decode(HostReport, ended.stdout.encode())
    assert report.labels == {"switch": "s2", "rack": "r7"}
    assert report.host == "node-7"
    assert (report.runtime, report.runtime_reason, report.ended) == ("host", "", "complete")
    figures = {cell.cell.text: cell.value.value for cell in report.cells}
    assert figures["h2d:gpu0:pinned:16MiB"] == pytest.approx(2, rel=0.02)
    assert figures["d2h:gpu0:pinned:16MiB"] == pytest.approx(1, rel=0.02)


@pytest.mark.slow
def test_a_host_without_a_gpu_says_so_in_its_document(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    ended = pyxfer(
        "fleet", "host", "--budget", "2min", "--export-json", str(file), CUDA_VISIBLE_DEVICES="", PYXFER_HOSTRT=LINK
    )
    assert ended.returncode == 0, ended.stderr
    assert HostReport.load(file).runtime_reason.startswith("No usable GPU")
    assert "Figures" in ended.stdout


def test_sigterm_leaves_a_document(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    with subprocess.Popen(
        [*COMMAND, *JOB, str(file), "--budget", "60s"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment(PYXFER_HOSTRT=STALL),
    ) as process:
        assert process.stderr is not None
        while "preparing" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 130
    assert HostReport.load(file).ended == "interrupted"


@pytest.mark.slow
def test_a_device_that_hangs_ends_the_job_in_time_with_a_document(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    ended = pyxfer(*JOB, str(file), "--budget", "6s", PYXFER_HOSTRT=STALL)
    assert ended.returncode == 4
    report = HostReport.load(file)
    assert report.ended in ("interrupted", "failed")
    assert "the budget of 6 s" in (report.failure or "")


@pytest.mark.slow
def test_a_driver_that_hangs_at_once_ends_the_job_in_time() -> None:
    ended = pyxfer(*JOB, "-", "--budget", "6s", PYXFER_HOSTRT="stall=cudaMalloc:1:1000")
    assert ended.returncode == 4
    assert codec.decode(HostReport, ended.stdout.encode()).failure is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "1s"), "at least 5 s"),
        (("--label", "rack"), "rack=r7"),
        (("--name", ""), "--name"),
        (("--devices", "host", "--require-gpu"), "leave out one"),
    ],
)
def test_invalid_options_are_refused(command: Command, arguments: tuple[str, ...], words: str) -> None:
    ended = command("fleet", "host", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_an_invalid_label_of_the_environment_names_its_variable(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "PYXFER_LABELS", "rack")
    ended = command("fleet", "host")
    assert ended.returncode == 2
    assert "PYXFER_LABELS" in ended.stderr
