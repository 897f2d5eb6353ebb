"""Cells as text, and the cells that a text matches."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import MIB, make_measurement

from pyxfer._ceiling.plans import MEMORIES, copy_plans
from pyxfer._document.cells import (
    ALL_GPUS,
    Cell,
    CellPattern,
    cell_of,
    cell_of_flow,
    cell_of_total,
    is_of_host,
    parse_cell,
)
from pyxfer._document.links import COPY_ENGINES, HOST_END, FlowPlan, LinkGroup, TrafficPlan
from pyxfer._document.machines import Side
from pyxfer._document.runs import Memory
from pyxfer.errors import UsageError

PINNED = Cell("raw", "raw.pinned-async", "h2d", "h2d", "pinned", 256 * MIB, "async")
BATCH = Cell("route", "torch.to", "h2d", "h2d", "pageable", 77_070_336, "async", "warm", 512)

MODES = ("memcpy", "async", "batch", "streams:4", "staged")
WAYS = st.sampled_from(copy_plans(("h2d", "d2h", "both"), MEMORIES, MODES, fresh=True))
SIDES: tuple[Side, ...] = ("h2d", "d2h", "sum")


SIZES = st.integers(1, 2**40)
NODES = st.none() | st.integers(0, 7)


@st.composite
def raw_cells(draw: st.DrawFn) -> Cell:
    way, gpu = draw(WAYS), draw(st.none() | st.integers(0, 15))
    side = draw(st.sampled_from(SIDES)) if way.direction == "both" else way.direction
    names = {name: getattr(way, name) for name in ("route", "direction", "memory", "mode", "variant")}
    return cell_of(msgspec.structs.replace(make_measurement(), side=side, nbytes=draw(SIZES), **names), gpu)


@st.composite
def link_cells(draw: st.DrawFn) -> Cell:
    groups: tuple[LinkGroup, ...] = ("host", "together", "pairs", "local", "numa")
    group = draw(st.sampled_from(groups))
    case = draw(st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True))
    gpus = draw(st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True))
    if group in ("pairs", "local"):
        flows = [
            FlowPlan(one, other, one, "peer" if group == "pairs" else "local")
            for one, other in zip(gpus, (*gpus[1:], gpus[0]), strict=True)
        ]
    else:
        there = [FlowPlan(HOST_END, gpu, gpu, "h2d") for gpu in gpus]
        back = [FlowPlan(gpu, HOST_END, gpu, "d2h") for gpu in gpus]
        # Only copies in one direction are measured from a NUMA node.
        flows = draw(st.sampled_from((there, back) if group == "numa" else (there, back, there + back)))
    node = draw(NODES) if group == "numa" else None
    engine, nbytes = draw(st.sampled_from(COPY_ENGINES)), draw(SIZES)
    copies = TrafficPlan(group, case, engine, nbytes, tuple(flows), node=node)
    return draw(st.sampled_from([cell_of_total(copies), *(cell_of_flow(copies, flow) for flow in flows)]))


CELLS = raw_cells() | link_cells()


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (PINNED, "h2d:pinned:256MiB"),
        (Cell("raw", "raw.pinned-async", "both", "sum", "pinned", MIB, "async"), "both/sum:pinned:1MiB"),
        (
            Cell("raw", "raw.pageable-memcpy", "d2h", "d2h", "pageable", MIB, "memcpy", "fresh"),
            "d2h:pageable:1MiB:fresh",
        ),
        (Cell("route", "torch.to", "h2d", "h2d", "pageable", 96 * MIB, "async"), "torch.to:96MiB"),
        (BATCH, "torch.to:512"),
    ],
)
def test_the_text_of_a_cell_names_it(cell: Cell, text: str) -> None:
    assert cell.text == text
    assert parse_cell(text).matches(cell)


def test_a_mode_that_auto_selects_is_left_out() -> None:
    for way in copy_plans(("h2d", "d2h", "both"), get_args(Memory), ("auto",), fresh=True):
        side: Side = "sum" if way.direction == "both" else way.direction
        cell = Cell("raw", way.route, way.direction, side, way.memory, MIB, way.mode, way.variant)
        assert f":{way.mode}:" not in cell.text


@given(CELLS)
def test_the_text_of_a_cell_matches_the_cell(cell: Cell) -> None:
    assert parse_cell(cell.text).matches(cell)


@given(CELLS, st.data())
def test_a_text_is_of_one_cell(cell: Cell, data: st.DataObject) -> None:
    other = data.draw(st.just(cell) | CELLS | changed(cell))
    if cell.text == other.text:
        assert cell.mode == other.mode
    elif cell.variant == other.variant and not (cell.is_automatic and cell.mode != other.mode):
        assert not parse_cell(cell.text).matches(other)


def changed(cell: Cell) -> st.SearchStrategy[Cell]:
    """The cell with another size, GPU, node or engine."""
    ends = st.sampled_from(((), (0,), (7,), (HOST_END,), (ALL_GPUS,), (0, 7)))
    changes: dict[str, st.SearchStrategy[Any]] = {"nbytes": SIZES}
    if cell.is_of_links:
        changes |= {"source": ends.filter(bool), "destination": ends, "engine": st.sampled_from(COPY_ENGINES)}
    return st.sampled_from(sorted(changes)).flatmap(
        lambda name: changes[name].map(lambda value: msgspec.structs.replace(cell, **{name: value}))
    )


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
        ("raw",), {"direction": "h2d", "memory": "pinned", "mode": "streams:4", "nbytes": MIB}
    )


def test_a_route_may_contain_colons() -> None:
    assert parse_cell("user.f:x:1MiB") == CellPattern(("raw", "route"), {"case": "user.f:x", "nbytes": MIB})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "write a cell such as h2d:pinned:256MiB") for text in ("", ":", "h2d:", "pinned:256MiB", "h2d/sum")),
        *((text, "write a cell such as") for text in ("h2d:pinned:256MiB:hot", "h2d:256MiB:pinned", "both/x:1MiB")),
        ("both/ingest:1MiB", "write a cell such as"),
        ("h2d:pinned:256M", "ambiguous"),
        ("h2d:" * 100_000, "too long"),
    ],
)
def test_an_invalid_cell_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_cell(text)


@given(link_cells() | raw_cells().filter(lambda cell: bool(cell.source) and cell.variant == "warm"))
def test_a_host_has_every_cell_with_ends_but_totals_of_raw_copies(cell: Cell) -> None:
    assert is_of_host(cell) == (cell.group != "raw" or cell.direction != "both")


@pytest.mark.parametrize(
    "changes",
    [
        {"group": "host"},
        {"group": "route"},
        {"direction": "d2h", "side": "d2h"},
        {"side": "d2h"},
        {"variant": "fresh"},
        {"mode": ""},
        {"source": ()},
        {"source": (1,)},
        {"source": (-9,)},
        {"destination": (HOST_END,)},
    ],
)
def test_a_cell_whose_parts_do_not_fit_is_of_no_host(changes: dict[str, Any]) -> None:
    cell = cell_of(make_measurement(), gpu=0)
    assert is_of_host(cell)
    assert not is_of_host(msgspec.structs.replace(cell, **changes))
