"""A watch as a page: what the program is bound by, where a step goes, what crossed the link, what would be faster."""

from __future__ import annotations

from pyxfer import model_watch

from . import watch_sections as sections
from .terminal import Page
from .text import clean, remark_text
from .watch_tables import copies_table, parts_table, ranges_table

COPIES_HEADING = "Copies, by the device's own records (1 GB = 1e9 bytes)"


def print_watch(watched: model_watch.Watched, page: Page) -> None:
    """Everything a watch says, the verdict first."""
    page.hanging(sections.heading_lines(watched), style="bold")
    if sections.ending_text(watched):
        page.line()
        page.line(sections.ending_text(watched), style="bold red")
    page.line()
    page.line(clean(watched.verdict.text), style="bold")
    page.hanging([("-", clean(line)) for line in watched.verdict.evidence])
    if watched.parts.period_s > 0:
        page.heading(sections.steps_text(watched))
        page.show(parts_table(watched.parts, page.columns))
        page.hanging(sections.beside_lines(watched))
    activity = watched.activity.value
    if activity is None:
        page.line()
        reason = clean(watched.activity.reason or "no reason given")
        page.line(f"What the device did was not recorded: {reason}", style="yellow")
    elif activity.copies:
        page.heading(COPIES_HEADING)
        page.show(copies_table(activity.copies, page.columns))
    for name, lines in (
        ("Overlap", sections.overlap_lines(watched)),
        ("Pageable memory", sections.pageable_lines(watched)),
        (_calls_heading(watched), sections.call_lines(watched)),
    ):
        if lines:
            page.heading(name)
            page.hanging(lines)
    if watched.ranges:
        page.heading("Ranges")
        page.show(ranges_table(watched.ranges, page.columns))
    for name, lines in (
        ("Memory", sections.memory_lines(watched)),
        ("Next steps", sections.advice_lines(watched)),
        ("Remarks", [("-", remark_text(remark)) for remark in watched.remarks]),
    ):
        if lines:
            page.heading(name)
            page.hanging(lines)


def _calls_heading(watched: model_watch.Watched) -> str:
    inside = "steps" if watched.steps.watched else "the window"
    return f"Calls in {inside} that fetch, wait or ask for memory: time in all"
