"""The page of a comparison: the verdict, what differs, the cells, and what is likely to have made it slow."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer.comparison_documents import (
    compared,
    doubts,
    headline,
    interval_text,
    left_out,
    overall_text,
    remark_text,
    signed_change,
)
from pyxfer.model_baselines import CellComparison, Comparison, Difference

from .grid import Column, fitting_table, rate_cells
from .terminal import Page
from .text import clean, escaped, sentence

_STYLES = {"SLOW": "bold red", "FAST": "bold green", "SAME": "bold green", "AMBIGUOUS": "bold yellow"}
_MOST_DOUBTS = 4
_WHOLE = 2000


def print_comparison(comparison: Comparison, page: Page) -> None:
    """All of it, the verdict first."""
    page.line(clean(headline(comparison), longest=_WHOLE), style=_STYLES[comparison.verdict])
    page.line(f"Overall {clean(overall_text(comparison))}.")
    _differences(comparison, page)
    _cells(comparison, page)
    _causes(comparison, page)
    _notes(comparison, page)


def _differences(comparison: Comparison, page: Page) -> None:
    matter = [each for each in comparison.differences if each.matters]
    others = [each for each in comparison.differences if not each.matters]
    if matter:
        page.heading("What differs and may cost bandwidth")
        page.hanging(_difference(each) for each in matter)
    if others:
        page.heading("What differs besides" if matter else "What differs, and costs none")
        page.hanging(_difference(each) for each in others)


def _difference(difference: Difference) -> tuple[str, str]:
    a, b = escaped(difference.a) or "nothing", escaped(difference.b) or "nothing"
    return f"  {clean(difference.what)}", f"{a} -> {b}"


def _cells(comparison: Comparison, page: Page) -> None:
    rows = sorted(compared(comparison), key=_order)
    a, b = _short(comparison.a, "A"), _short(comparison.b, "B")
    missing = [""] * len(rows)
    columns = [
        Column(("cell",), tuple(escaped(row.text) for row in rows), left=True),
        Column((a, "GB/s"), rate_cells([row.a_gbps.value for row in rows], missing)),
        Column((b, "GB/s"), rate_cells([row.b_gbps.value for row in rows], missing)),
        Column(("change",), tuple(signed_change(row.ratio.value) for row in rows)),
        Column(("interval",), tuple(interval_text(row) for row in rows)),
        Column(("verdict",), tuple(_verdict(row) for row in rows), left=True),
    ]
    page.line()
    names = [f"{letter} is {clean(name)}" for letter, name in (("A", comparison.a), ("B", comparison.b))]
    if (a, b) != (comparison.a, comparison.b) and "A" in (a, b):
        page.line(f"{', '.join(names)}.")
    page.show(fitting_table(columns, page.columns))


def _verdict(row: CellComparison) -> str:
    return f"{row.verdict}, confirmed" if row.confirmed else row.verdict


def _order(row: CellComparison) -> tuple[str, str, str, str, int]:
    cell = row.cell
    return cell.direction, cell.side, cell.memory, f"{cell.route} {cell.mode} {cell.variant}", cell.nbytes


def _short(name: str, letter: str) -> str:
    """A heading that leaves room for the figures."""
    first = clean(name).partition(" ")[0]
    return first if first in ("baseline", "now") else letter


def _causes(comparison: Comparison, page: Page) -> None:
    if not comparison.causes:
        return
    page.heading("What is likely to have made it slow, the surest first")
    for cause in comparison.causes:
        lines = [("  -", sentence(clean(cause.text))), ("", f"Seen: {clean(cause.evidence)}.")]
        if cause.fix:
            lines.append(("", f"To do: {clean(cause.fix)}."))
        page.hanging(lines)


def _notes(comparison: Comparison, page: Page) -> None:
    doubtful = doubts(comparison)
    if doubtful:
        page.heading("What cannot be told, and why")
        _list(doubtful[:_MOST_DOUBTS], page)
        if len(doubtful) > _MOST_DOUBTS:
            page.line(f"  and {len(doubtful) - _MOST_DOUBTS} more in the same way (--format json has all)")
    missing = left_out(comparison)
    if missing:
        page.heading("Not compared")
        _list([f"{_some(cells)}: {why}" for why, cells in missing.items()], page)
    if comparison.remarks:
        page.heading("To know")
        _list([remark_text(remark) for remark in comparison.remarks], page)


def _some(cells: Sequence[str]) -> str:
    rest = len(cells) - _MOST_DOUBTS
    return ", ".join(cells[:_MOST_DOUBTS]) + (f" and {rest} more" if rest > 0 else "")


def _list(lines: Sequence[str], page: Page) -> None:
    page.hanging(("  -", clean(line, longest=_WHOLE)) for line in lines)
