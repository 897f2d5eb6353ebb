"""Rows as text, whatever their cells hold."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import FORMULA, MARKUP, SCRIPT

from pyxfer._document import table

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"))


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_csv_has_one_header_line_and_empty_cells_for_what_is_missing() -> None:
    assert table.to_csv(("a", "b"), [(1, None), (None, "x")]) == "a,b\n1,\n,x\n"


def test_csv_keeps_every_digit_of_a_number() -> None:
    value = 0.1 + 0.2
    assert float(read(table.to_csv(("v",), [(value,)]))[1][0]) == value


def test_csv_leaves_negative_numbers_numbers() -> None:
    assert table.to_csv(("v",), [(-1.5,)]) == "v\n-1.5\n"


@pytest.mark.parametrize("text", [FORMULA, "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1+1"])
def test_csv_text_that_a_spreadsheet_would_run_is_made_inert(text: str) -> None:
    assert read(table.to_csv(("v",), [(text,)]))[1][0] == "'" + text


@pytest.mark.parametrize("text", ["two\rlines", "two\r\nlines"])
def test_csv_line_breaks_within_a_cell_do_not_end_its_row(text: str) -> None:
    assert read(table.to_csv(("v",), [(text,)]))[1:] == [["two\nlines"]]


def test_csv_hides_no_formula_behind_a_line_break() -> None:
    assert read(table.to_csv(("v",), [("\r=1",)]))[1] == ["'\n=1"]


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5))
def test_csv_text_reads_back_as_it_was_but_for_the_quote_before_a_formula(rows: list[tuple[str, str]]) -> None:
    back = read(table.to_csv(("a", "b"), rows))[1:]
    assert [tuple(cell.removeprefix("'") for cell in row) for row in back] == [
        tuple(cell.removeprefix("'") for cell in row) for row in rows
    ]


def test_markdown_is_a_pipe_table_with_columns_of_numbers_to_the_right() -> None:
    text = table.to_markdown(
        ("route", "size", "bandwidth", "share"), [("raw", "4 KiB", 1.5, "98.3 %"), ("b", "", -2, None)]
    )
    assert text.splitlines() == [
        "| route | size | bandwidth | share |",
        "| --- | ---: | ---: | ---: |",
        "| raw | 4 KiB | 1.5 | 98.3 % |",
        "| b |  | -2 |  |",
    ]


def test_markdown_without_rows_is_a_header() -> None:
    assert table.to_markdown(("a",), []) == "| a |\n| --- |\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (MARKUP, r"\[red\]x\[/red\]"),
        (SCRIPT, r"\<script\>alert(1)\</script\>"),
        ("a|b", r"a\|b"),
        ("![i](u)", r"\!\[i\](u)"),
        ("back\\slash", r"back\\slash"),
        ("two\r\nlines\u2028more", "two lines more"),
        ("\x1b[2Jgone", r" \[2Jgone"),
    ],
)
def test_markdown_shows_text_as_it_is(text: str, shown: str) -> None:
    assert table.escape_markdown(text) == shown


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_no_text_adds_a_row_or_a_column_to_a_markdown_table(rows: list[tuple[str, str]]) -> None:
    lines = table.to_markdown(("a", "b"), rows).splitlines()
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3
