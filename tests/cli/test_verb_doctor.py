"""`pyxfer doctor`: this host, or a saved run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import in_terminal, pyxfer
from doctor.cases import copies, copy, h200, h200_link
from in_process import Command

from pyxfer._document.examinations import Examination
from pyxfer._document.runs import LinkState


def test_a_host_without_a_gpu_is_examined() -> None:
    result = pyxfer("doctor", "--budget", "0.5s", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert "No link was examined" in result.stdout or "suspicious" in result.stdout
    assert "No usable GPU" in result.stderr
    for subject in ("link", "huge pages", "lock limit", "container", "shared memory", "virtual machine"):
        assert f"\n  {subject} " in result.stdout


def test_json_can_be_shown_again(tmp_path: Path) -> None:
    result = pyxfer("doctor", "--budget", "0.5s", "--export-json", "-", CUDA_VISIBLE_DEVICES="")
    file = tmp_path / "host.json"
    file.write_text(result.stdout)
    assert {finding.status for finding in Examination.load(file).findings} <= {"fine", "suspicious", "unknown"}
    shown, again = pyxfer("show", str(file)), pyxfer("doctor", str(file))
    assert shown.stdout == again.stdout != ""
    assert pyxfer("show", str(file), "--sort", "gbps").returncode == 2


def test_findings_do_not_change_the_exit_code(command: Command, tmp_path: Path) -> None:
    link = h200_link(LinkState(5, 8))
    h200(link=link, measurements=copies(0.3, link=link)).save(tmp_path / "run.json")
    result = command("doctor", str(tmp_path / "run.json"))
    assert result.returncode == 0
    assert "Something is wrong with this host: ceiling h2d, " in " ".join(result.stdout.split())


def test_a_saved_run_can_be_examined_as_json(command: Command, tmp_path: Path) -> None:
    h200(measurements=(copy("h2d", 50.0),)).save(tmp_path / "run.json")
    result = command("doctor", str(tmp_path / "run.json"), "--export-json", "-")
    statuses = {finding["subject"]: finding["status"] for finding in json.loads(result.stdout)["findings"]}
    assert statuses["ceiling h2d"] == "suspicious"
    assert statuses["health"] == "unknown"


@pytest.mark.slow
def test_the_page_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    link = h200_link(LinkState(4, 8))
    h200(link=link, measurements=copies(0.1, link=link)).save(tmp_path / "run.json")
    code, text = in_terminal("doctor", str(tmp_path / "run.json"), NO_COLOR="1")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("option", [("--require-gpu",), ("--budget", "2s"), ("--device", "1")])
def test_a_saved_run_is_not_measured_again(command: Command, option: tuple[str, ...], tmp_path: Path) -> None:
    h200().save(tmp_path / "run.json")
    result = command("doctor", str(tmp_path / "run.json"), *option)
    assert result.returncode == 2
    assert "is not measured again" in result.stderr


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", '{"kind": "examination", "schema_version": 1}'])
def test_an_unknown_document_is_refused(command: Command, text: str, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text(text)
    result = command("doctor", str(tmp_path / "it.json"))
    assert result.returncode == 2
    assert result.stderr.startswith("pyxfer: ")
    assert "Traceback" not in result.stderr
