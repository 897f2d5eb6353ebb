"""Every kind of document that has a report, and what is done with any of them."""

from __future__ import annotations

import io
from html import escape
from textwrap import indent
from typing import Any

from pyxfer._document.printing import VEGA_LITE
from pyxfer._report import baseline, comparison, doctor, fleet, history, links, offload, run, session, watch
from pyxfer._report.grid import Grid, escape_markdown
from pyxfer._report.layout import Page, checked_columns
from pyxfer._report.plots import WIDE, Make, Spec, themed
from pyxfer._report.report import Report
from pyxfer._report.tables import library
from pyxfer.errors import UsageError

REPORTS: tuple[Report[Any], ...] = (
    *(module.REPORT for module in (run, links, watch, doctor, baseline, comparison, history, session, fleet, offload)),
    fleet.HOST_REPORT,
)
_BY_STRUCT = {report.struct: report for report in REPORTS}


def report_of(document: object) -> Report[Any]:
    if type(document) not in _BY_STRUCT:
        raise TypeError(f"{type(document).__name__} has no report")
    return _BY_STRUCT[type(document)]


# --- pages and tables ------------------------------------------------------------------------------------------------


def print_document(document: object, page: Page) -> None:
    report_of(document).page(document, page)


def page_text(document: object, columns: int, *, details: bool = False) -> str:
    stream = io.StringIO()
    print_document(document, Page(stream, checked_columns(columns), details=details))
    return stream.getvalue()


def table_of(document: object, name: str = "") -> Grid:
    report = report_of(document)
    return report.grids(document)[0] if report.table is None else report.table(document, name)


def small_table(document: object) -> str:
    return f"<p>{escape(repr(document))}</p>{report_of(document).grids(document)[0].to_small_html()}"


def to_markdown(document: object) -> str:
    report = report_of(document)
    heading = [f"{label}: {text}" for label, text in report.heading(document)]
    parts = [f"## {escape_markdown(report.title(document))}\n", f"**{escape_markdown(report.headline(document))}**\n"]
    parts += [_listed(heading)] if heading else []
    if advice := report.advice(document):
        # Code is indented, because a fence could end inside it.
        codes = ["\n" + indent(f"{code}\n", "      ") if code else "" for _, code in advice]
        items = [f"- {escape_markdown(text)}\n{code}" for (text, _), code in zip(advice, codes, strict=True)]
        parts.append(f"### What to do\n\n{''.join(items)}")
    for grid in report.grids(document):
        if table := grid.to_markdown():
            parts.append(f"### {escape_markdown(grid.name)}\n\n{table}")
    for name, lines in report.sections(document):
        if lines:
            texts = [text if label in ("-", "") else f"{label}: {text}" for label, text in lines]
            parts.append(f"### {escape_markdown(name)}\n\n{_listed(texts)}")
    return "\n".join(parts).encode(errors="backslashreplace").decode()


def _listed(texts: list[str]) -> str:
    return "".join(f"- {escape_markdown(text)}\n" for text in texts)


def write_report(document: object, path: str) -> None:
    from pyxfer._report import webpage  # it shows documents of all kinds

    webpage.write_report(path, document)


# --- charts ----------------------------------------------------------------------------------------------------------


def charts_of(document: object) -> dict[str, Make]:
    return {name: make for name, make in report_of(document).charts(document).items() if make is not None}


def chart_of(document: object, name: str, width: int = WIDE) -> Spec:
    found = charts_of(document)
    if name not in found:
        remedy = f"choose one of {', '.join(found)}" if found else "it has no figures to draw"
        raise UsageError(f"Chart {name!r:.80} is not one of this document: {remedy}.")
    return themed(found[name](width), width, "white")


def altair_chart(document: object, name: str) -> Any:
    """One chart as an Altair chart, which a notebook shows without a network."""
    spec = chart_of(document, name)
    chart = library("altair", "Charts need Altair").Chart.from_dict(spec)
    shown = type(type(chart).__name__, (type(chart),), {"_repr_mimebundle_": _chart_bundle})
    # A plain assignment would become a part of the specification.
    object.__setattr__(chart, "__class__", shown)
    return chart


def _chart_bundle(chart: Any, include: object = None, exclude: object = None) -> dict[str, object]:
    """The chart for a notebook that draws Vega-Lite, and a picture for the others.

    Altair's own bundle has a page instead, whose program comes from a network.
    """
    from pyxfer._report import webpage  # it shows documents of all kinds

    spec = chart.to_dict()
    return {f"application/vnd.vegalite.v{VEGA_LITE}+json": spec, "image/svg+xml": webpage.svg_of(spec)}
