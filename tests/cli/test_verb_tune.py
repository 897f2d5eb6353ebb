from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from command_line import pyxfer
from typer.testing import CliRunner

from pyxfer._cli.main import app
from pyxfer._document.tunings import RingState
from pyxfer._upload import tuning
from pyxfer.units import parse_size


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small sizes, so that a busy machine has time for them."""
    monkeypatch.setattr(tuning, "tune", functools.partial(tuning.tune, sizes=tuple(map(parse_size, ("64KiB", "1MiB")))))
    monkeypatch.setenv("PYXFER_CACHE", str(tmp_path))


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["tune", "--device", "host", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_page_tells_settings_and_trials() -> None:
    text = printed()
    for words in ("host memory, not a PCIe link", "settings ", "tuned on 20", "Trials: GB/s", "first", "plain copy"):
        assert words in text


def test_a_tuning_writes_its_report(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    printed("--report", str(tmp_path / "tune.html"))
    page = (tmp_path / "tune.html").read_text(encoding="utf-8")
    assert "Candidates of the tuning" in page
    assert "host memory, not a PCIe link" in page


def test_over_host_memory_nothing_is_kept(tmp_path: Path) -> None:
    state = msgspec.json.decode(printed("--export-json", "-"), type=RingState)
    assert state.remarks[-1] == "the tuning is not kept: this is host memory, not a PCIe link"
    assert list(tmp_path.iterdir()) == []


def test_json_holds_every_trial_with_what_it_took(tmp_path: Path) -> None:
    text = printed("--export-json", "-", "--budget", "500ms")
    state = msgspec.json.decode(text, type=RingState)
    assert state.source == "tuned"
    assert state.path.value == str(tmp_path / "ring.json")
    tuned = state.tuning.value
    assert tuned is not None
    assert tuned.limit_s == 0.5
    assert tuned.timed
    assert all(trial.repeats and trial.seconds for trial in tuned.timed)
    assert json.loads(text)["ring"]["threads"] == tuned.ring.threads


def test_a_limit_too_short_for_a_trial_exits_with_4() -> None:
    result = pyxfer("tune", "--budget", "1us", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 4
    assert "No usable GPU" in result.stderr
    assert "try --budget 1s" in result.stderr


def test_a_longer_limit_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "tune_and_keep", lambda *_, **__: SimpleNamespace(source="default"))
    ended = CliRunner().invoke(app, ["tune", "--device", "host", "--budget", "2s"])
    assert ended.exit_code == 4
    assert ended.output.endswith(": try --budget 6s.\n")


def test_an_invalid_limit_is_refused() -> None:
    result = pyxfer("tune", "--budget", "soon", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2
    assert "'soon' is not a duration" in result.stderr
