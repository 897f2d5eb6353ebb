"""An explain run: where the time of a route goes, which clock sees what of it, and what is faster here."""

from __future__ import annotations

from pyxfer import model

from . import explain_words as words
from .explain_waterfall import apart_text, host_copy_text, traced_text, waterfall
from .explained import Explained, better_routes, find_explained
from .terminal import Page
from .text import capitalised, clean, remark_text

MOST_ADVICE = 3
# The waterfall has said it, and by how much, also where it is less than what a remark is made for.
_SAID_ELSEWHERE = "traced"
_WRONG = "It was traced, but what arrived was not what was sent: where its time goes would say nothing."


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
    remarks = [remark for remark in explained.row.remarks if remark.code != _SAID_ELSEWHERE]
    if remarks:
        page.heading("Mind")
        page.hanging([("-", capitalised(remark_text(remark))) for remark in remarks], style="yellow")


def _print_parts(explained: Explained, page: Page) -> None:
    row = explained.row
    if explained.is_wrong and row.breakdown.value is not None:
        page.line()
        page.line(_WRONG)
    if explained.is_wrong or (row.breakdown.reason is not None and row.breakdown.reason == row.rate.reason):
        return  # the headline has said it
    page.heading("Where the time goes")
    page.line(traced_text(explained))
    table = waterfall(explained, page.columns)
    if table is not None:
        page.show(table)
    for text in filter(None, (apart_text(row), host_copy_text(explained))):
        page.line(text)


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
    page.heading("Faster here, measured in the same run")
    found = better_routes(explained, MOST_ADVICE)
    if not found:
        kind = "raw route" if explained.row.nature is None else "route of this framework"
        page.line(f"No other {kind} measured here is faster beyond doubt.")
    page.hanging([(f"{number}.", words.better_text(explained, each)) for number, each in enumerate(found, start=1)])
