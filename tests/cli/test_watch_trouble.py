"""`pyxfer watch`: failed writes change neither the script's exit code nor the other files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cli.watched_scripts import COPYING, Script, copied
from marks import slow
from watch.programs import TIMEOUT_S, environment

from pyxfer._document.watches import Watched

ENDS_WITH_7 = f"{COPYING}\nsys.exit(7)"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A folder for a script."""
    return Script(tmp_path)


@pytest.mark.parametrize("redirection", ["2>/dev/full", slow("2>&-")])
def test_a_closed_stderr_keeps_the_exit_code_and_the_export(script: Script, redirection: str) -> None:
    arguments = script.arguments(ENDS_WITH_7, ("--export-json", script.report.name))
    shell = ["sh", "-c", f'"$@" {redirection}', "sh", *arguments]
    result = subprocess.run(shell, check=False, timeout=TIMEOUT_S, cwd=script.folder, env=environment())
    assert result.returncode == 7
    assert Watched.load(script.report).ended == "complete"


def test_a_failed_export_does_not_stop_the_others(script: Script) -> None:
    text = f"import shutil\nshutil.rmtree('gone')\n{ENDS_WITH_7}"
    (script.folder / "gone").mkdir()
    exports = ("--trace", "gone/t.json", "--export-json", script.report.name, "--export-md", "w.md")
    result = script.run(text, *exports)
    assert result.returncode == 7
    assert Watched.load(script.report).ended == "complete"
    assert (script.folder / "w.md").exists()
    words = " ".join(result.stderr.split())
    assert "--trace: " in words
    assert "gone/t.json" in words
    assert "window " in words


def test_a_lost_export_is_no_success(script: Script) -> None:
    result = script.run(COPYING, "--trace", "/dev/full", "--export-json", script.report.name)
    assert result.returncode == 4
    assert "--trace: '/dev/full' cannot be written" in " ".join(result.stderr.split())
    assert Watched.load(script.report).ended == "complete"


@pytest.mark.parametrize("option", ["--trace", slow("--export-json")])
def test_an_empty_name_is_refused_before_the_script_runs(script: Script, option: str) -> None:
    result = script.run("open('ran', 'w')", option, "")
    assert result.returncode == 2
    assert "the name is empty" in result.stderr
    assert not (script.folder / "ran").exists()


def test_a_script_with_an_undecodable_name_is_reported(script: Script) -> None:
    arguments = script.arguments(COPYING + "time.sleep(0.1)", ("--export-json", script.report.name))
    name = os.fsdecode(b"caf\xe9.py")
    (script.folder / "script.py").rename(script.folder / name)
    result = script.call([*arguments[:-1], name])
    assert result.returncode == 0, result.stderr
    assert copied(Watched.load(script.report))["h2d"] == 64 << 10


def test_a_missing_gpu_is_reported_once(script: Script) -> None:
    arguments = [word for word in script.arguments("pass", ()) if word not in ("--device", "host")]
    result = script.call(arguments, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0
    assert result.stderr.count("No usable GPU") == 1
