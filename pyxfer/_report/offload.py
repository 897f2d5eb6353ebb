"""Plans of offloading: the page with the verdict and the predicted moves."""

from __future__ import annotations

from pyxfer._document.offloads import OffloadPlan
from pyxfer._report.layout import Page, rate_cells, time_cells
from pyxfer._report.text import clean

_WAYS = {"d2h": "store (d2h)", "h2d": "load (h2d)"}


def print_plan(plan: OffloadPlan, page: Page) -> None:
    source = plan.source
    page.line(f"{clean(source.device)}, from blocks measured on {clean(source.host)} on {source.taken_at[:10]}", "bold")
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
        heading=f"Predicted moves of {plan.memory} memory, blocks in {plan.order} order",
    )
