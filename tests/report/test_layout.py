"""Text made harmless, pages on terminals and in pipes, and the tables, cells and bars on them."""

from __future__ import annotations

import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import Terminal
from samples import make_device, make_link

from pyxfer._document.machines import Fact, LinkState, Remark, unknown
from pyxfer._report.layout import (
    Column,
    Page,
    bars,
    grid_width,
    percent_cells,
    precision_cells,
    rate_cells,
    spread,
    time_cells,
    to_table,
)
from pyxfer._report.text import (
    capitalised,
    clean,
    device_text,
    link_text,
    reason_text,
    remark_text,
    sentence,
)


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;new title\x07name", "name"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("one\ntwo\rthree\tfour", "one two three four"),
        ("right\u202eleft", "right left"),
        ("bell\x07 null\x00 delete\x7f", "bell null delete"),
        ("[red]markup stays[/red] :smile:", "[red]markup stays[/red] :smile:"),
    ],
)
def test_clean_removes_control_sequences(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


@given(st.text(alphabet=st.characters(), max_size=400))
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()


def test_a_long_name_is_cut() -> None:
    assert clean("x" * 10_000_000, longest=20) == "x" * 17 + "..."


IDLE = Fact(LinkState(generation=1, width=16))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (link_text(make_link(now=IDLE)), "PCIe 5.0 x16, 256 B payload"),
        (
            link_text(make_link(now=IDLE, under_load=unknown("not asked"))),
            "PCIe 1.0 x16, 256 B payload, not seen under load",
        ),
        (link_text(make_link(kind="c2c", raw_peak_gbps=unknown("joined chip to chip"))), "joined chip to chip"),
        (device_text(make_device(mig=Fact(True))), "NVIDIA H200, GPU 0, 0000:19:00.0, MIG instance"),
        (device_text(make_device(runtime="host", name="NVIDIA H200")), "host memory, not a PCIe link"),
    ],
)
def test_a_link_has_its_state_and_a_device_its_sharing(text: str, words: str) -> None:
    assert text == words


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        (Remark("a", "It varies.", "--budget 60s"), "It varies; try --budget 60s"),
        (Remark("a", "It is narrow.", "reseat the card."), "It is narrow. Reseat the card."),
        (Remark("a", "It is so."), "It is so."),
    ],
)
def test_a_remark_has_its_fix(remark: Remark, text: str) -> None:
    assert remark_text(remark) == text


def test_a_long_reason_is_not_cut() -> None:
    reason = f"the tracer was refused {'by the driver ' * 40}: run it as root"
    assert reason_text(reason) == reason
    assert reason_text(None) == "no reason given"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("the run ended", "The run ended."),
        ("trace: unavailable.", "Trace: unavailable."),
        ("was it cut off...", "Was it cut off..."),
        ("libcupti.so is not there", "libcupti.so is not there."),
        ("cudaMalloc failed", "cudaMalloc failed."),
    ],
)
def test_a_sentence_is_capitalised_except_names(text: str, line: str) -> None:
    assert sentence(text) == line
    assert capitalised(text) == line[: len(text)]


@pytest.mark.parametrize(
    ("shares", "room", "drawn"),
    [
        ([0.25, 0.5, 0.25], 8, ["##", "  ####", "      ##"]),
        ([1e-9, 0.0, 1.0], 4, ["#", "", "####"]),
        *(([share, share], 4, ["####", "   #"]) for share in (1e19, 1e308, math.inf)),
        *(([share, 0.5], 4, ["", "##"]) for share in (-1e19, -math.inf, math.nan)),
    ],
)
def test_bars_are_consecutive_and_within_the_room(shares: list[float], room: int, drawn: list[str]) -> None:
    assert bars(shares, room) == drawn


@pytest.fixture(autouse=True)
def colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize(
    ("stream", "setting", "written"),
    [
        (Terminal(), {}, "\x1b[1mbold\x1b[0m\n"),
        (Terminal(), {"NO_COLOR": ""}, "\x1b[1mbold\x1b[0m\n"),
        (Terminal(), {"NO_COLOR": "1"}, "bold\n"),
        (Terminal(), {"NO_COLOR": "false"}, "bold\n"),
        (Terminal(), {"TERM": "dumb"}, "bold\n"),
        (io.StringIO(), {}, "bold\n"),
    ],
)
def test_only_a_terminal_that_wants_colour_has_it(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, setting: dict[str, str], written: str
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    Page(stream).line("bold", style="bold")
    assert stream.getvalue() == written


def test_text_wraps_beside_its_label_on_a_terminal_and_not_in_a_pipe() -> None:
    for stream, is_wrapped in ((Terminal(), True), (io.StringIO(), False)):
        Page(stream).hanging([("a", "word " * 100)])
        lines = stream.getvalue().splitlines()
        assert (len(lines) > 1) is is_wrapped
        assert not is_wrapped or all(len(line) <= 80 and line.startswith(("a  word", "   word")) for line in lines)


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


def shown(columns: list[Column], gap: int = 2) -> list[str]:
    stream = io.StringIO()
    Page(stream).show(to_table(columns, gap))
    return stream.getvalue().splitlines()


def test_marks_do_not_move_numbers_and_headings_are_aligned_at_the_bottom() -> None:
    column = Column(("GB/s",), ("1.62", "55.10", "-"), ("", "ab", "c"))
    assert shown([column, Column(("n",), ("1", "2", "3"))]) == [
        " GB/s     n",
        " 1.62     1",
        "55.10 ab  2",
        "    - c   3",
    ]
    columns = [Column(("size",), ("4 KiB",)), Column(("h2d", "pinned"), ("1.62",))]
    assert shown(columns) == ["          h2d", " size  pinned", "4 KiB    1.62"]


def test_grid_width_is_the_printed_width() -> None:
    columns = [Column(("route",), ("raw.pinned-async",), left=True), Column(("GB/s",), ("1.62",), ("a",))]
    assert grid_width(columns, gap=2) == max(len(line) for line in shown(columns))


def test_wide_characters_take_two_cells() -> None:
    assert Column(("x",), ("速い",)).width == 4


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ((1.6234, 55.1), ("1.62", "55.10")),
        ((0.0312, 55.1), ("0.031", "55.100")),
        ((None, 3.0), ("-", "3.00")),
        ((0.0, 2.0), ("0.00", "2.00")),
        ((1e-12,), ("0.00000",)),
    ],
)
def test_rates_of_a_column_have_the_same_number_of_decimals(values: tuple[float], cells: tuple[str]) -> None:
    assert rate_cells(values, ["-"] * len(values)) == cells


def test_a_share_that_is_missing_leaves_its_cell_empty() -> None:
    assert percent_cells([0.9491, None]) == ("94.9 %", "")


def figures(count: int, digits: int = 5) -> list[Column]:
    return [Column((f"{number}",), ("9" * digits,)) for number in range(count)]


NAME, WIDE_NAME = (Column(("name",), ("x" * width,)) for width in (1, 20))


@pytest.mark.parametrize(
    ("head", "columns", "tail", "counts"),
    [
        ([NAME], figures(5), [], [6]),
        ([WIDE_NAME], figures(12), [], [7, 7]),
        ([WIDE_NAME], figures(12), [Column(("note",), ("a",))], [7, 8]),
        ([], figures(2, digits=100), [], [1, 1]),
    ],
)
def test_columns_are_spread_evenly_over_as_few_tables_as_fit(
    head: list[Column], columns: list[Column], tail: list[Column], counts: list[int]
) -> None:
    assert [len(table.columns) for table in spread(head, columns, tail, 80)] == counts


def test_times_share_the_unit_of_the_longest_and_long_ones_have_fewer_decimals() -> None:
    assert time_cells([8e-6, None, 73.84e-3]) == ("ms", ("0.008", "", "73.840"))
    assert time_cells([8e-6, 126.588e-3]) == ("ms", ("0.01", "126.59"))


def test_a_half_width_above_the_figure_itself_is_no_number() -> None:
    assert precision_cells([0.02, 1.0, 4.5e12, None], "-") == ("2.0 %", "100.0 %", "> 100 %", "-")
