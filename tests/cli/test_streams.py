from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from command_line import pyxfer, shell
from marks import slow
from samples import make_run

from pyxfer._cli.failures import ExitingOutput, NotKeptError
from pyxfer._document.runs import Run


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    make_run().save(path)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        slow("--version"),
        slow("ceiling --help"),
    ],
)
def test_a_pipe_closed_at_the_start_exits_quietly(arguments: str) -> None:
    result = shell(f"(sleep 0.5; exec '{sys.executable}' -m pyxfer {arguments}) | true")
    assert (result.returncode, result.stdout, result.stderr) == (141, "", "")


def test_a_pipe_closed_after_one_line_exits_quietly(saved: Path) -> None:
    result = shell(f"pyxfer show {saved} --sort gbps | head -1")
    assert result.stdout == "device  NVIDIA H200, GPU 0, 0000:19:00.0\n"
    assert result.stderr == ""
    assert result.returncode in (0, 141)


def test_a_full_disk_is_reported_in_one_line(saved: Path) -> None:
    result = shell(f"pyxfer show {saved} > /dev/full")
    assert result.stderr == "pyxfer: No space left on device (standard output).\n"
    assert result.returncode == 4


def test_an_error_of_stdout_that_a_library_ignores_is_raised_by_the_flush() -> None:
    with open("/dev/full", "wb") as full:
        stream = ExitingOutput(full)
        with contextlib.suppress(NotKeptError):
            stream.write("x" * 100_000)
        with pytest.raises(NotKeptError, match="No space left on device"):
            stream.flush()
        stream.detach()


@pytest.mark.parametrize("command", ["--help", "ceiling --help", "--version"])
def test_help_that_cannot_be_written_is_an_error(command: str) -> None:
    result = shell(f"pyxfer {command} > /dev/full")
    assert (result.returncode, result.stderr) == (4, "pyxfer: No space left on device (standard output).\n")


def test_a_full_stdout_loses_no_export(tmp_path: Path) -> None:
    options = "--device host --directions h2d --sizes 4KiB --budget 100ms --no-trace"
    result = shell(f"pyxfer ceiling {options} --export-json {tmp_path}/run.json --export-md >(cat >&2) > /dev/full")
    assert result.returncode == 4
    assert Run.load(tmp_path / "run.json").ended == "complete"
    assert "| 4 KiB |" in result.stderr


@pytest.mark.parametrize(
    "arguments", ["ceiling --device host --export-json run.json", slow("watch --device host script.py")]
)
def test_a_deleted_current_folder_is_named(tmp_path: Path, arguments: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    result = shell(f"cd {gone} && rmdir {gone} && pyxfer {arguments}", PYTHONPATH=os.pathsep.join(sys.path))
    assert result.returncode == 2
    assert "The current folder has been deleted: change to another one (cd)" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("lost", ["2> >(true)", slow("2>/dev/full")])
def test_an_unwritable_stderr_keeps_the_exit_code(tmp_path: Path, lost: str) -> None:
    result = shell(f"(sleep 0.5; exec '{sys.executable}' -m pyxfer show {tmp_path / 'none.json'}) {lost}")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "")


@pytest.mark.parametrize("closed", [slow(">&-"), slow("2>&-"), ">&- 2>&-"])
def test_closed_streams_are_ignored(saved: Path, closed: str) -> None:
    result = shell(f"pyxfer show {saved} {closed}")
    assert (result.returncode, result.stderr) == (0, "")


def test_unencodable_names_are_escaped(tmp_path: Path) -> None:
    run = make_run(failure="caf\u00e9", ended="failed")
    run.save(tmp_path / "run.json")
    result = pyxfer("show", str(tmp_path / "run.json"), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0
    assert "Failed: caf\\xe9" in result.stdout
