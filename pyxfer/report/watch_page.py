"""A watch as a page: what the program is bound by, where a step goes, what crossed the link, what would be faster."""

from __future__ import annotations

import io

from pyxfer import model_watch
from pyxfer.errors import UsageError

from . import watch_sections as sections
from .terminal import NARROWEST, Page
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
    _print_copies(watched, page)
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


def watch_text(watched: model_watch.Watched, columns: int) -> str:
    """The page for a terminal of so many columns, at least as many as its tables need.

    Raises:
        UsageError: that is no number of columns.

    """
    if not isinstance(columns, int) or isinstance(columns, bool) or columns < 1:
        raise UsageError(f"columns is how wide the report may be, a whole number such as 120; got {columns!r}.")
    text = io.StringIO()
    print_watch(watched, Page(text, max(NARROWEST, columns)))
    return text.getvalue()


def _print_copies(watched: model_watch.Watched, page: Page) -> None:
    activity, unseen, ceiling = watched.activity.value, sections.unseen_text(watched), sections.ceiling_text(watched)
    if activity is None and unseen:
        page.line()
        page.line(unseen, style="yellow")
    if activity is not None and activity.copies:
        page.heading(COPIES_HEADING)
        page.show(copies_table(activity.copies, page.columns))
    if ceiling:
        page.line(ceiling)


def _calls_heading(watched: model_watch.Watched) -> str:
    inside = "steps" if watched.steps.watched else "the window"
    return f"Calls in {inside} that fetch, wait or ask for memory: time in all"
