"""Cells as text; the rules of all structs, and the codes of remarks as a closed set."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import samples
from doctor.cases import h200
from hypothesis import given
from hypothesis import strategies as st
from samples import MIB, make_link, make_measurement, make_run
from xfer_samples import row_of, session

import pyxfer
from pyxfer._ceiling.plans import MEMORIES, copy_plans
from pyxfer._doctor.examine import examine_run
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
from pyxfer._document.machines import Fact, Side, unknown
from pyxfer._document.remark_codes import REMARKS, Severity, severity_of
from pyxfer._document.runs import INFLATED, Memory
from pyxfer._document.sessions import runs_of
from pyxfer._document.watches import FIRST_STEPS
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


def blocks_cell(mode: str, **fields: Any) -> Cell:
    cell = Cell("blocks", f"blocks.pinned-{mode}", "h2d", "h2d", "pinned", 64 * 16384, mode, "random", 64)
    return msgspec.structs.replace(cell, **fields)


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
        (
            msgspec.structs.replace(BATCH, case="torch.cast-on-host", variant="nchw-float32"),
            "torch.cast-on-host:512:nchw-float32",
        ),
        (blocks_cell("kernel"), "blocks.kernel:h2d:pinned:16KiBx64"),
        (blocks_cell("loop", variant="runs"), "blocks.loop:h2d:pinned:16KiBx64:runs"),
        (blocks_cell("batch", direction="both", side="sum"), "blocks.batch:both/sum:pinned:16KiBx64"),
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


@pytest.mark.parametrize("value", [0, False, "", (), 0.0])
def test_a_fact_may_have_any_value_but_none(value: object) -> None:
    assert Fact(value).value == value


@pytest.mark.parametrize("arguments", [{}, {"value": 1, "reason": "why"}, {"value": None, "reason": None}])
def test_a_fact_has_a_value_or_a_reason_and_not_both(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a fact has a value, or a reason why it has none, and not both"):
        Fact(**arguments)


@pytest.mark.parametrize("change", [{"mode": "staged"}, {"variant": "fresh"}])
def test_a_ceiling_is_neither_staged_nor_fresh(change: dict[str, str]) -> None:
    slow, quick = make_measurement(slower=1.2), make_measurement()
    run = make_run(measurements=(slow, msgspec.structs.replace(quick, **change)))
    assert make_run(measurements=(slow, quick)).ceiling("h2d", samples.SIZES[1]) == quick
    assert run.ceiling("h2d", samples.SIZES[1]) == run.ceiling("h2d", f"{samples.SIZES[1]} B") == slow


def test_a_ceiling_is_of_the_largest_size_by_default() -> None:
    small, large = (make_measurement(nbytes=nbytes) for nbytes in (samples.SIZES[0], samples.SIZES[1]))
    assert samples.SIZES[0] < samples.SIZES[1]
    assert make_run(measurements=(large, small)).ceiling("h2d") == large
    with pytest.raises(UsageError, match="no ceiling for h2d; it has none"):
        make_run(measurements=()).ceiling("h2d")


def test_the_peak_of_the_sum_adds_both_sides() -> None:
    link = make_link(h2d_peak_gbps=Fact(58.0), d2h_peak_gbps=Fact(57.0))
    assert link.peak_gbps("h2d").value == 58.0
    assert link.peak_gbps("d2h").value == 57.0
    assert link.peak_gbps("sum").value == 115.0


@pytest.mark.parametrize("side", ["h2d", "d2h"])
def test_the_peak_of_the_sum_has_the_reason_of_the_missing_side(side: str) -> None:
    link = make_link(**{f"{side}_peak_gbps": unknown("no PCIe link")})
    assert link.peak_gbps("sum").reason == "no PCIe link"


def test_every_place_of_a_session_is_a_run() -> None:
    sample = session(row_of(), row_of("tests/test_b.py::test_\udc80[<b>&]", None))
    (run,) = runs_of(sample)
    assert (run.kind, run.runtime, run.ended) == ("measure", "host", "complete")
    assert [row.route for row in run.measurements] == [test.test for test in sample.tests]
    assert (run.parameters.sizes_bytes, run.parameters.directions) == ((1 << 20,), ("h2d",))


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (("fine", "unknown"), "fine"),
        (("fine", "suspicious", "unknown"), "suspicious"),
        (("suspicious", "wrong"), "wrong"),
    ],
)
def test_the_worst_status_is_that_of_the_examination(statuses: tuple[Any, ...], worst: str) -> None:
    sample = examine_run(h200())
    findings = tuple(msgspec.structs.replace(sample.findings[0], status=status) for status in statuses)
    assert msgspec.structs.replace(sample, findings=findings).worst == worst


# --- codes of remarks ------------------------------------------------------------------------------------------------


SOURCES = sorted(Path(pyxfer.__file__).parent.rglob("*.py"))
NAMED = {"INFLATED": INFLATED, "FIRST_STEPS": FIRST_STEPS}


def codes_in(path: Path) -> set[str]:
    """The code of each remark that a source makes."""
    text = path.read_text(encoding="utf-8")
    if "Remark(" not in text:
        return set()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    made = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "Remark"]
    found = set()
    for call in made:
        code = call.args[0] if call.args else next(each.value for each in call.keywords if each.arg == "code")
        found.add(str(code.value) if isinstance(code, ast.Constant) else NAMED[ast.unparse(code).rpartition(".")[2]])
    return found


def test_the_set_has_the_codes_of_the_sources_and_no_others() -> None:
    assert set().union(*map(codes_in, SOURCES)) == set(REMARKS)


@pytest.mark.parametrize("code", REMARKS)
def test_a_code_has_a_severity_and_a_meaning_in_one_sentence(code: str) -> None:
    assert REMARKS[code].severity in get_args(Severity)
    assert REMARKS[code].meaning.endswith(".")
    assert code == code.lower().replace(" ", "-")


def test_a_code_of_a_later_pyxfer_is_a_doubt() -> None:
    assert severity_of("later") == "doubt"


@pytest.mark.parametrize("text", ["blocks", "blocks.kernel", "blocks:h2d", "blocks:h2d:pinned", "blocks:16KiBx64"])
def test_parts_of_a_cell_of_blocks_match_all_others(text: str) -> None:
    assert parse_cell(text).matches(blocks_cell("kernel"))
    assert not parse_cell(text).matches(PINNED)


@pytest.mark.parametrize(
    "text", ["blocks.loop", "blocks:d2h", "blocks:pageable", "blocks:4KiBx64", "blocks:16KiBx64:runs", "torch.to:64"]
)
def test_another_cell_of_blocks_does_not_match(text: str) -> None:
    assert not parse_cell(text).matches(blocks_cell("kernel"))


@pytest.mark.parametrize("text", ["blocks:16KiB", "blocks:h2d:x64", "blocks.kernel:16KiBx64:warm", "blocks:16KiBx0"])
def test_no_cell_of_blocks(text: str) -> None:
    with pytest.raises(UsageError, match="is not a cell of blocks"):
        parse_cell(text)
