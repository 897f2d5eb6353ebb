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


def test_a_terminal_is_given_colour() -> None:
    stream = Terminal()
    Page(stream).line("bold", style="bold")
    assert stream.getvalue() == "\x1b[1mbold\x1b[0m\n"


def test_a_pipe_is_given_plain_text() -> None:
    stream = io.StringIO()
    Page(stream).line("bold", style="bold")
    assert stream.getvalue() == "bold\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("NO_COLOR", "false"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colour_is_given_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    stream = Terminal()
    Page(stream).line("bold", style="bold red")
    assert stream.getvalue() == "bold\n"


def test_an_empty_no_color_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert not is_plain(Terminal())


def test_prose_wraps_at_words_on_a_terminal_and_stays_beside_its_name() -> None:
    stream = Terminal()
    Page(stream).hanging([("a", "word " * 30)])
    lines = stream.getvalue().splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 80 and line.startswith(("a  word", "   word")) for line in lines)


def test_prose_is_one_line_in_a_pipe_however_long() -> None:
    stream = io.StringIO()
    Page(stream).hanging([("a", "word " * 1000)])
    assert stream.getvalue().count("\n") == 1


def test_a_wide_terminal_gives_a_layout_its_width_and_a_narrow_one_no_less_than_80(
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
