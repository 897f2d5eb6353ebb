from __future__ import annotations

import sys

import pytest
from pages import Terminal

from pyxfer._cli.output import ProgressReport
from pyxfer._measure.sampler import Progress

STEPS = (
    Progress("waking the link", 0.0, ""),
    Progress("measuring", 0.1, "4 KiB"),
    Progress("measuring", 0.5, "1 MiB"),
    Progress("page-locking", 1.0, ""),
)


def reported(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    stream = Terminal()
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressReport() as report:
        for step in STEPS:
            report(step)
    return stream.getvalue()


def test_a_log_has_one_line_per_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressReport() as report:
        for step in STEPS:
            report(step)
    assert capsys.readouterr().err == "pyxfer: waking the link\npyxfer: measuring\npyxfer: page-locking\n"


def test_a_terminal_has_a_bar_that_disappears_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = reported(monkeypatch)
    assert "page-locking" in text
    assert "100%" in text
    assert text.endswith("\x1b[2K")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_has_lines(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    text = reported(monkeypatch, **variables)
    assert text == "pyxfer: waking the link\npyxfer: measuring\npyxfer: page-locking\n"


def test_a_closed_stderr_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Gone())
    with ProgressReport() as report:
        report(STEPS[0])
