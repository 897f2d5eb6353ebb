from __future__ import annotations

import io

import pytest

from pyxfer._report.layout import Column, Page, grid_width, percent_cells, rate_cells, spread, time_cells, to_table


def shown(columns: list[Column], gap: int = 2) -> list[str]:
    stream = io.StringIO()
    Page(stream).show(to_table(columns, gap))
    return stream.getvalue().splitlines()


def test_marks_do_not_move_numbers() -> None:
    column = Column(("GB/s",), ("1.62", "55.10", "-"), ("", "ab", "c"))
    assert shown([column, Column(("n",), ("1", "2", "3"))]) == [
        " GB/s     n",
        " 1.62     1",
        "55.10 ab  2",
        "    - c   3",
    ]


def test_headings_are_aligned_at_the_bottom() -> None:
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


def test_columns_that_fit_are_one_table() -> None:
    assert len(spread([Column(("name",), ("x",))], figures(5), [], 80)) == 1


def test_columns_are_spread_evenly_over_tables() -> None:
    tables = spread([Column(("name",), ("x" * 20,))], figures(12), [], 80)
    assert [len(table.columns) for table in tables] == [7, 7]


def test_the_tail_follows_the_last_table() -> None:
    tables = spread([Column(("name",), ("x" * 20,))], figures(12), [Column(("note",), ("a",))], 80)
    assert [len(table.columns) for table in tables] == [7, 8]


def test_a_column_wider_than_the_page_is_still_a_table() -> None:
    assert len(spread([], figures(2, digits=100), [], 80)) == 2


def test_times_share_the_unit_of_the_longest() -> None:
    assert time_cells([8e-6, None, 73.84e-3]) == ("ms", ("0.008", "", "73.840"))


def test_long_times_have_fewer_decimals() -> None:
    assert time_cells([8e-6, 126.588e-3]) == ("ms", ("0.01", "126.59"))
