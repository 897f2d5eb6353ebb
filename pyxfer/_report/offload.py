"""Plans of offloading: the verdict and the predicted moves."""

from __future__ import annotations

from pyxfer._document.offloads import OffloadPlan, PlanSource
from pyxfer._report.grid import Column, Grid
from pyxfer._report.layout import Page, rate_cells, time_cells
from pyxfer._report.report import Badge, Report
from pyxfer._report.text import clean
from pyxfer.units import format_gbps, format_seconds

_WAYS = {"d2h": "store (d2h)", "h2d": "load (h2d)"}
_BADGES: dict[str, Badge] = {"moving pays": "good", "computing pays": "bad", "too close to say": "doubtful"}
_COLUMNS = (
    Column("direction", heading="way", say=lambda way: _WAYS[way]),
    Column("method", heading="method"),
    Column("seconds", "number", "time", format_seconds),
    Column("low_s", "number", "from", format_seconds),
    Column("high_s", "number", "to", format_seconds),
    Column("gbps", "number", "rate", format_gbps),
)


def print_plan(plan: OffloadPlan, page: Page) -> None:
    page.line(_source_text(plan.source), "bold")
    page.hanging([("-", clean(text)) for text in plan.sentences()])
    moves = plan.moves
    both = len(moves) > 1
    whole = (plan.seconds, plan.low_s, plan.high_s)
    rows = [(each.seconds, each.low_s, each.high_s) for each in moves] + ([whole] if both else [])
    unit, cells = time_cells([seconds for row in rows for seconds in row])
    rates = rate_cells([*(each.gbps for each in moves), *([None] if both else [])])
    page.table(
        [
            ("", [*(_WAYS[each.direction] for each in moves), *(["both"] if both else [])]),
            ("method", [*(clean(each.method) for each in moves), *([""] if both else [])]),
            (unit, cells[::3]),
            ("from", cells[1::3]),
            ("to", cells[2::3]),
            ("GB/s", rates),
        ],
        left=("", "method"),
        heading=_moves_name(plan),
    )


def _source_text(source: PlanSource) -> str:
    found = {"given": "", "kept": ", kept on this host", "store": ", from the store"}[source.origin]
    by = "blocks measured" if source.made_by == "run" else "the quick calibration of copy_blocks"
    return f"{clean(source.device)}, from {by} on {clean(source.host)} on {source.taken_at[:10]}{found}"


def _moves_name(plan: OffloadPlan) -> str:
    return f"Predicted moves of {plan.memory} memory, blocks in {plan.order} order"


def _grids(plan: OffloadPlan) -> list[Grid]:
    rows = [{column.name: getattr(move, column.name) for column in _COLUMNS} for move in plan.moves]
    return [Grid(_moves_name(plan), _COLUMNS, rows)]


REPORT = Report(
    struct=OffloadPlan,
    title=lambda _: "pyxfer plan",
    page=print_plan,
    headline=lambda plan: clean(plan.verdict_sentence()),
    badge=lambda plan: (_BADGES[plan.verdict], plan.verdict),
    heading=lambda plan: [("from", _source_text(plan.source))],
    grids=_grids,
    sections=lambda plan: [("What the plan says", [("-", clean(text)) for text in plan.sentences()])],
    charts=lambda _: {},
    captions={},
)
