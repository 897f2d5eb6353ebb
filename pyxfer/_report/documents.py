"""The page of any document as text, and its small table for a notebook."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape

from pyxfer import units
from pyxfer._document.baselines import Comparison
from pyxfer._document.examinations import Examination
from pyxfer._document.links import Links, end_name
from pyxfer._document.runs import Run
from pyxfer._document.watches import Watched
from pyxfer._document.wording import signed_change
from pyxfer._report.baseline import print_comparison
from pyxfer._report.doctor import print_examination
from pyxfer._report.layout import Page, checked_columns
from pyxfer._report.links import print_links
from pyxfer._report.run import print_run
from pyxfer._report.text import clean
from pyxfer._report.watch import watch_text

_MOST_ROWS = 20
Cells = tuple[str, ...]


def page_text(document: object, columns: int) -> str:
    """The page of a run, links, a comparison, an examination or a watch."""
    if isinstance(document, Watched):
        return watch_text(document, columns)
    stream = io.StringIO()
    page = Page(stream, checked_columns(columns))
    if isinstance(document, Run):
        print_run(document, page)
    elif isinstance(document, Comparison):
        print_comparison(document, page)
    elif isinstance(document, Examination):
        print_examination(document, page)
    elif isinstance(document, Links):
        print_links(document, page)
    else:
        raise TypeError(f"{type(document).__name__} has no page")
    return stream.getvalue()


def small_table(document: object) -> str:
    """The rows that matter most as an HTML table, below the document in one line."""
    head, rows = _table(document)
    shown = [_row("th", head), *(_row("td", row) for row in rows[:_MOST_ROWS])]
    left = len(rows) - _MOST_ROWS
    more = f"<p>{left} more rows: print() shows them all</p>" if left > 0 else ""
    return f"<p>{escape(repr(document))}</p><table>{''.join(shown)}</table>{more}"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(clean(cell))}</{tag}>' for cell in cells)}</tr>"


def _table(document: object) -> tuple[Cells, list[Cells]]:
    if isinstance(document, Run):
        return ("route", "side", "size", "GB/s", "of the ceiling"), _rates(document)
    if isinstance(document, Comparison):
        cells: list[Cells] = [(row.text, row.verdict, signed_change(row.ratio.value)) for row in document.cells]
        return ("cell", "verdict", "change"), cells
    if isinstance(document, Examination):
        ordered = [finding for status in ("wrong", "suspicious", "unknown", "fine") for finding in document.of(status)]
        return ("status", "what", "seen", "to do"), [(f.status, f.subject, f.seen, f.do or "") for f in ordered]
    if isinstance(document, Links):
        return ("case", "from", "to", "GB/s", "of alone"), _link_rates(document)
    if isinstance(document, Watched):
        parts: list[Cells] = [
            (name, units.format_seconds(seconds)) for name, seconds in document.parts.named() if seconds > 0
        ]
        return ("part of a step", "time"), parts
    raise TypeError(f"{type(document).__name__} has no table")


def _link_rates(run: Links) -> list[Cells]:
    return [
        (
            f"{row.group} {row.case} {row.engine}",
            end_name(flow.source),
            end_name(flow.destination),
            "" if flow.gbps is None else f"{flow.gbps:.2f}",
            "" if flow.alone_share.value is None else units.format_percent(flow.alone_share.value.value),
        )
        for row in run.traffics
        for flow in row.flows
    ]


def _rates(run: Run) -> list[Cells]:
    return [
        (
            m.route,
            m.side,
            units.format_size(m.nbytes),
            "" if m.gbps is None else f"{m.gbps:.2f}",
            "" if m.of_ceiling is None else units.format_percent(m.of_ceiling),
        )
        for m in run.measurements
        if m.variant == "warm"
    ]
