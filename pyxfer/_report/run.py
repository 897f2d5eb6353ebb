"""The page of a run, measured now or loaded from a file."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pyxfer._document import runs
from pyxfer._report import rates as sections
from pyxfer._report.explain import print_explained
from pyxfer._report.frameworks import print_frameworks, summary_lines, worker_lines
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather
from pyxfer._report.rates import rate_tables
from pyxfer._report.text import Lines


def print_run(run: runs.Run, page: Page, sort: str | None = None) -> None:
    """All sections of the page; with `sort`, the rates are one row per measurement in that order."""
    explaining = run.kind == "explain" and sort is None
    marks, notes = gather(run)
    page.hanging(sections.heading_lines(run), style="bold")
    if sections.ending_text(run):
        page.line()
        page.line(sections.ending_text(run), style="bold red")
    summary = summary_lines(run, marks) if run.kind == "frameworks" and sort is None and sections.has_times(run) else []
    if summary:
        page.heading("Summary")
        page.hanging(summary)
    if not sections.has_times(run) and notes:
        page.heading("Nothing was measured")
        page.hanging([("-", note.text) for note in notes], style="yellow")
        notes = ()
    elif explaining:
        print_explained(run, page)
        notes = ()  # the page shows the remarks of the explained row and no figures of others
    elif run.kind == "frameworks" and sort is None:
        print_frameworks(run, marks, page)
    else:
        _print_rates(rate_tables(run, marks, page.columns, sort), page, sections.clock_line(run))
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    if sections.has_times(run):
        _print_fits(run, page)
    for name, lines in last_sections(run):
        if lines and not (explaining and name == "Page-locking"):
            page.heading(name)
            page.hanging(lines)


def last_sections(run: runs.Run) -> list[tuple[str, Lines]]:
    """What follows the figures: each section's name and lines, which may be none."""
    return [
        ("Page-locking", sections.locking_lines(run)),
        ("Ring", sections.ring_lines(run)),
        ("Workers", worker_lines(run)),
        ("Peaks", sections.peak_lines(run.link)),
        ("Checks", [("contents", sections.verified_text(run)), *sections.invalid_lines(run)]),
        ("Remarks", sections.remark_lines(run)),
    ]


def _print_rates(tables: Sequence[Table], page: Page, clocks: str) -> None:
    if tables:
        page.heading(sections.RATES_HEADING)
    for table in tables:
        page.line()
        page.show(table)
    if clocks:
        page.line()
        page.line(clocks)


def _print_fits(run: runs.Run, page: Page) -> None:
    if not run.curves:
        return
    page.heading("Fits, t = t0 + n/B")
    table = sections.fits_table(run)
    if table is not None:
        page.show(table)
    page.hanging(sections.fit_reasons(run))
