"""`pyxfer watch`: an unchanged script in a separate process, and its report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cli.watched_scripts import COMMAND, COPYING, Script, copied
from watch.programs import TIMEOUT_S

from pyxfer._document.watches import Watched


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A folder for a script."""
    return Script(tmp_path)


def test_the_copies_of_an_unchanged_script_are_reported(script: Script) -> None:
    watched = script.watched(COPYING)
    assert copied(watched) == {"h2d": 64 << 10, "d2h": 64 << 10}
    assert watched.ended == "complete"


def test_the_report_goes_to_stderr(script: Script) -> None:
    result = script.run("print('its own')")
    assert result.stdout == "its own\n"
    assert len(result.stderr.splitlines()) > 3
    assert "Traceback" not in result.stderr


def test_every_export_is_written(script: Script) -> None:
    names = {"--trace": "t.json", "--export-json": "w.json", "--export-csv": "w.csv", "--export-md": "w.md"}
    result = script.run(COPYING, *(word for pair in names.items() for word in pair))
    assert result.returncode == 0, result.stderr
    assert {path.name for path in script.folder.iterdir()} == {"script.py", *names.values()}
    assert json.loads((script.folder / "t.json").read_text())


def test_the_report_of_a_window_is_written_when_it_ends(script: Script) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    result = script.run(COPYING, "--report", "w.html")
    assert result.returncode == 0, result.stderr
    assert "<article" in (script.folder / "w.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_time_before_the_window_is_left_out(script: Script) -> None:
    text = """
        import time
        from pyxfer._watch import marks
        from watch.copying import copies
        with copies() as made:
            made.send()
            while not marks._recorder:
                time.sleep(0.01)
            made.fetch()
    """
    assert copied(script.watched(text, "--skip", "5s")) == {"d2h": 64 << 10}


@pytest.mark.slow
def test_time_after_the_window_is_left_out(script: Script) -> None:
    text = """
        import time
        from pyxfer._watch import marks
        from watch.copying import copies
        with copies() as made:
            made.send()
            while marks._recorder:
                time.sleep(0.01)
            made.fetch()
    """
    watched = script.watched(text, "--for", "5s")
    assert copied(watched) == {"h2d": 64 << 10}
    assert watched.window_s >= 5.0


def test_a_script_that_ends_before_its_window_is_reported(script: Script) -> None:
    result = script.run("pass", "--skip", "1min")
    assert result.returncode == 0
    words = " ".join(result.stderr.split())
    assert "nothing was watched: the script ended within the 60.0 s that were to be skipped" in words


@pytest.mark.slow
@pytest.mark.parametrize("lasts_s", [0.1 + 0.002 * number for number in range(5)])
def test_a_script_that_ends_as_its_window_opens_keeps_its_code(script: Script, lasts_s: float) -> None:
    result = script.run(f"import sys, time\ntime.sleep({lasts_s})\nsys.exit(3)", "--skip", "100ms")
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr


def test_a_script_without_steps_is_reported(script: Script) -> None:
    result = script.run("pass", "--skip", "5", "--steps", "3")
    assert result.returncode == 0
    words = " ".join(result.stderr.split())
    assert "the window never opened: 0 steps were taken, and 5 were to be skipped" in words
    assert "name the function that is called for each input, --step module:function, or skip a time" in words


def test_a_script_may_watch_itself(script: Script) -> None:
    text = """
        import pyxfer
        from watch.copying import copies
        with copies() as made:
            made.fetch()
            with pyxfer.watch(device="host", ceilings=None) as w:
                made.send()
            print([row.way for row in w.result.activity.value.copies])
    """
    result = script.run(text, "--export-json", script.report.name)
    assert (result.returncode, result.stdout) == (0, "['h2d']\n"), result.stderr
    watched = Watched.load(script.report)
    assert (copied(watched), watched.ended) == ({"d2h": 64 << 10}, "ended")
    assert "gave-way" in {remark.code for remark in watched.remarks}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--trace", "none/trace.json"), "make the folder first"),
        (("--export-json", "-"), "--export-json cannot be stdout, which belongs to the script"),
        (("--trace", "one", "--export-csv", "./one"), "Two options name the file"),
        (("--export-md", "./script.py"), "--export-md './script.py' is the script"),
        (("--signal", "--skip", "60s"), "--signal starts the window"),
        (("--skip", "soon"), "a number of steps such as 10"),
        (("--skip", "-1"), "--skip"),
        (("--for", "0s"), "is not above zero"),
        (("--steps", "0"), "--steps 0 is not a whole number"),
        (("--capacity", "1KiB"), "--capacity '1KiB' is too little memory for records: give 1 MiB or more"),
        (("--ceilings", "none.json"), "none.json"),
        (("--device", "garbage"), "is none of the devices"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_options_exit_with_2_before_the_script_starts(
    script: Script, options: tuple[str, ...], sentence: str
) -> None:
    result = script.run("print('started')", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_without_a_script_it_exits_with_2(script: Script) -> None:
    result = subprocess.run(COMMAND, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=script.folder)
    assert result.returncode == 2
    assert "SCRIPT" in result.stderr
