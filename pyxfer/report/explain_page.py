"""An explain run: where the time of a route goes, which clock sees what of it, and what is faster here."""

from __future__ import annotations

from pyxfer import model

from . import explain_words as words
from .explain_waterfall import traced_text, waterfall
from .explained import Explained, better_routes, find_explained
from .terminal import Page
from .text import clean, remark_text

MOST_ADVICE = 3
_NOTHING_BETTER = "No other route measured in these rounds is faster beyond doubt."


def print_explained(run: model.Run, page: Page) -> None:
    """The route in question, from its headline to what to use in its place."""
    explained = find_explained(run)
    page.line()
    if explained is None:
        page.line(f"{clean(run.parameters.explained)}: the run ended before there was anything to say of it.")
        return
    page.line(words.headline(explained), style="bold")
    if words.no_link_text(explained):
        page.line(words.no_link_text(explained))
    _print_parts(explained, page)
    _print_crossing(explained, page)
    if words.clock_lines(explained.row):
        page.heading("Clocks")
        page.hanging(words.clock_lines(explained.row))
        page.hanging([("-", sentence) for sentence in words.clock_sentences(explained.row)])
    _print_advice(explained, page)
    if explained.row.remarks:
        page.heading("Mind")
        page.hanging([("-", remark_text(remark)) for remark in explained.row.remarks], style="yellow")


def _print_parts(explained: Explained, page: Page) -> None:
    if explained.row.breakdown.reason is not None and explained.row.breakdown.reason == explained.row.rate.reason:
        return  # the headline has said it
    page.heading("Where the time goes")
    page.line(f"{traced_text(explained).rstrip('.')}.")
    table = waterfall(explained, page.columns)
    if table is not None:
        page.show(table)


def _print_crossing(explained: Explained, page: Page) -> None:
    lines = []
    row = explained.row
    if row.direction != "ingest" and (row.dma.value is not None or row.dma.reason != row.breakdown.reason):
        lines.append(("crossed" if not explained.on_host else "copied", words.crossing_text(explained)))
    if words.host_text(explained.row):
        lines.append(("on the host", words.host_text(explained.row)))
    if lines:
        page.line()
        page.hanging(lines)


def _print_advice(explained: Explained, page: Page) -> None:
    if explained.row.summary is None:
        return
    page.heading("Faster here, measured in the same rounds")
    found = better_routes(explained, MOST_ADVICE)
    if not found:
        page.line(_NOTHING_BETTER)
    page.hanging([(f"{number}.", words.better_text(explained, each)) for number, each in enumerate(found, start=1)])
