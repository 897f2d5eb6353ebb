"""Cells as text, and the cells that a text matches."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import MIB, make_measurement

from pyxfer._baseline.cells import CellPattern, cell_of, cell_text, parse_cell
from pyxfer._ceiling.ways import MEMORIES, plan_ways
from pyxfer._document.baselines import Cell
from pyxfer._document.runs import Memory, Side
from pyxfer.errors import UsageError

PINNED = Cell("raw.pinned-async", "h2d", "h2d", "pinned", "async", "warm", 256 * MIB)
BATCH = Cell("torch.to", "h2d", "h2d", "pageable", "async", "warm", 77_070_336, 512)

MODES = ("memcpy", "async", "batch", "streams:4", "staged")
WAYS = st.sampled_from(plan_ways(("h2d", "d2h", "both"), MEMORIES, MODES, fresh=True))
SIDES: tuple[Side, ...] = ("h2d", "d2h", "sum")


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    way = draw(WAYS)
    side = draw(st.sampled_from(SIDES)) if way.direction == "both" else way.direction
    return Cell(way.route, way.direction, side, way.memory, way.mode, way.variant, draw(st.integers(1, 2**40)))


def test_a_cell_does_not_depend_on_the_time() -> None:
    assert cell_of(make_measurement(16 * MIB, slower=2.0)) == cell_of(make_measurement(16 * MIB))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (PINNED, "h2d:pinned:256MiB"),
        (Cell("raw.pinned-async", "both", "sum", "pinned", "async", "warm", MIB), "both/sum:pinned:1MiB"),
        (Cell("raw.pageable-memcpy", "d2h", "d2h", "pageable", "memcpy", "fresh", MIB), "d2h:pageable:1MiB:fresh"),
        (Cell("torch.to", "h2d", "h2d", "pageable", "async", "warm", 96 * MIB), "torch.to:96MiB"),
        (BATCH, "torch.to:512"),
    ],
)
def test_the_text_of_a_cell_names_it(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text
    assert parse_cell(text).matches(cell)


def test_the_full_text_of_a_cell_has_its_mode() -> None:
    assert cell_text(PINNED, full=True) == "h2d:pinned:async:256MiB"


def test_a_mode_that_auto_selects_is_left_out() -> None:
    for way in plan_ways(("h2d", "d2h", "both"), get_args(Memory), ("auto",), fresh=True):
        side: Side = "sum" if way.direction == "both" else way.direction
        cell = Cell(way.route, way.direction, side, way.memory, way.mode, way.variant, MIB)
        assert f":{way.mode}:" not in cell_text(cell)


@given(cells())
def test_the_text_of_a_cell_matches_the_cell(cell: Cell) -> None:
    assert parse_cell(cell_text(cell)).matches(cell)
    assert parse_cell(cell_text(cell, full=True)).matches(cell)


@given(cells(), cells())
def test_full_texts_are_unique(one: Cell, other: Cell) -> None:
    assert (cell_text(one, full=True) == cell_text(other, full=True)) == (one == other)


@pytest.mark.parametrize("text", ["h2d", "h2d:pinned", "h2d:256MiB", "h2d:async", "h2d:pinned:warm"])
def test_a_part_that_is_left_out_matches_every_value(text: str) -> None:
    assert parse_cell(text).matches(PINNED)


@pytest.mark.parametrize(
    "text", ["d2h", "both", "h2d:pageable", "h2d:memcpy", "h2d:1MiB", "h2d:fresh", "torch.to", "both/h2d"]
)
def test_a_different_part_does_not_match(text: str) -> None:
    assert not parse_cell(text).matches(PINNED)


def test_a_direction_alone_matches_raw_copies_only() -> None:
    assert not parse_cell("h2d").matches(BATCH)


def test_the_mode_streams_has_a_number() -> None:
    assert parse_cell("h2d:pinned:streams:4:1MiB") == CellPattern(
        "raw", None, "h2d", None, "pinned", "streams:4", None, MIB
    )


def test_a_route_may_contain_colons() -> None:
    assert parse_cell("user.f:x:1MiB") == CellPattern(route="user.f:x", nbytes=MIB)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "h2d:",
        "pinned:256MiB",
        "h2d:pinned:256MiB:hot",
        "h2d:256MiB:pinned",
        "both/ingest:1MiB",
        "both/x:1MiB",
        "h2d/sum",
    ],
)
def test_an_invalid_cell_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="h2d:pinned:256MiB"):
        parse_cell(text)


def test_an_ambiguous_size_is_refused() -> None:
    with pytest.raises(UsageError, match="ambiguous"):
        parse_cell("h2d:pinned:256M")


def test_a_very_long_text_is_refused() -> None:
    with pytest.raises(UsageError, match="too long"):
        parse_cell("h2d:" * 100_000)
