from __future__ import annotations

import io
import re

import pytest
from pages import Terminal

from pyxfer._report.layout import Page, is_plain


@pytest.fixture(autouse=True)
def colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def test_a_terminal_has_colour() -> None:
    stream = Terminal()
    Page(stream).line("bold", style="bold")
    assert stream.getvalue() == "\x1b[1mbold\x1b[0m\n"


def test_a_pipe_has_plain_text() -> None:
    stream = io.StringIO()
    Page(stream).line("bold", style="bold")
    assert stream.getvalue() == "bold\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("NO_COLOR", "false"), ("TERM", "dumb")])
def test_no_color_and_dumb_terminals_have_no_colour(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    stream = Terminal()
    Page(stream).line("bold", style="bold red")
    assert stream.getvalue() == "bold\n"


def test_an_empty_no_color_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert not is_plain(Terminal())


def test_text_wraps_beside_its_label_on_a_terminal() -> None:
    stream = Terminal()
    Page(stream).hanging([("a", "word " * 30)])
    lines = stream.getvalue().splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 80 and line.startswith(("a  word", "   word")) for line in lines)


def test_text_is_not_wrapped_in_a_pipe() -> None:
    stream = io.StringIO()
    Page(stream).hanging([("a", "word " * 1000)])
    assert stream.getvalue().count("\n") == 1


def test_pages_have_at_least_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert Page(Terminal()).columns == 120
    monkeypatch.setenv("COLUMNS", "60")
    assert Page(Terminal()).columns == 80


@pytest.mark.parametrize("text", ["[red]x[/red]", ":smile:", "[link=http://evil]x[/link]", "\\[bold]"])
def test_markup_is_text(text: str) -> None:
    stream = Terminal()
    Page(stream).line(text)
    assert re.sub(r"\x1b\[\d*m", "", stream.getvalue()) == f"{text}\n"
