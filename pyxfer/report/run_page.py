"""A run as a page: the same from the run just measured as from the file it was saved in."""

from __future__ import annotations

from pyxfer import model

from . import run_sections as sections
from .notes import gather
from .rate_tables import rate_tables
from .terminal import Page


def print_run(run: model.Run, page: Page, sort: str | None = None) -> None:
    """Everything a run says; with `sort`, one row a measurement in that order."""
    marks, notes = gather(run)
    tables = rate_tables(run, marks, page.columns, sort)
    page.hanging(sections.heading_lines(run), style="bold")
    if sections.ending_text(run):
        page.line()
        page.line(sections.ending_text(run), style="bold red")
    if tables:
        page.heading(sections.RATES_HEADING)
    for table in tables:
        page.line()
        page.show(table)
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    _print_fits(run, page)
    for name, lines in (
        ("Page-locking", sections.locking_lines(run)),
        ("Peaks", sections.peak_lines(run.link)),
        ("Checks", [("contents", sections.verified_text(run)), *sections.invalid_lines(run)]),
        ("Remarks", sections.remark_lines(run)),
    ):
        if lines:
            page.heading(name)
            page.hanging(lines)


def _print_fits(run: model.Run, page: Page) -> None:
    if not run.curves:
        return
    page.heading("Fits, t = t0 + n/B")
    table = sections.fits_table(run)
    if table is not None:
        page.show(table)
    page.hanging(sections.fit_reasons(run))
