"""Runs: the page, measured now or loaded from a file, the table of measurements, and the first sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._report import explain, files, frameworks, rates
from pyxfer._report.explain import find_explained, print_explained, waterfall_lines
from pyxfer._report.frameworks import print_frameworks, worker_lines
from pyxfer._report.grid import Cell, Grid, picked, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather
from pyxfer._report.overview import BADGES, answer, contents_text, doubts, footer, precision_text, print_overview
from pyxfer._report.report import Advice, Badge, Report, Section
from pyxfer._report.run_charts import CAPTIONS, charts_of_run, reached_text
from pyxfer._report.text import Lines, clean, reason_text, remark_lines


def print_run(run: runs.Run, page: Page) -> None:
    if not page.details and _print_first_page(run, page):
        return
    has_times = rates.has_times(run)
    marks, notes = gather(run)
    page.hanging(rates.heading_lines(run), style="bold")
    if rates.ending_text(run):
        page.line()
        page.line(rates.ending_text(run), style="bold red")
    if not has_times and notes:
        page.section("Nothing was measured", [("-", note.text) for note in notes], style="yellow")
        notes = ()
    elif run.kind == "explain":
        print_explained(run, page)
        notes = ()  # the page shows the remarks of the explained row and no figures of others
    elif run.kind == "frameworks":
        print_frameworks(run, marks, page)
    else:
        _print_rates(run, marks, page)
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    _print_rest(run, page, has_times=has_times)


def _print_rest(run: runs.Run, page: Page, *, has_times: bool) -> None:
    for grid in rates.fits(run) if has_times else ():
        picked(grid.name, grid.columns, rates.FITTED, grid.rows).print_on(page)
    left_out = {"Page-locking"} if run.kind == "explain" else set()
    if run.workers and not has_times and all(worker.ended == "unavailable" for worker in run.workers):
        left_out = {"Workers", "Peaks", "Checks", "Page-locking"}  # why nothing was measured stands above
    for name, lines in last_sections(run):
        if name not in left_out:
            page.section(name, lines)


def _print_rates(run: runs.Run, marks: Sequence[str], page: Page) -> None:
    if run.measurements:
        page.heading(rates.RATES_HEADING)
        page.line()
        page.show(rates.rate_table(run, marks, page.columns))
    if clocks := rates.clock_line(run):
        page.line()
        page.line(clocks)


def _print_first_page(run: runs.Run, page: Page) -> bool:
    """The answer and what to do next. False, with nothing printed, if the run has no such page."""
    if not rates.has_times(run):
        return False
    if run.kind == "files":
        files.print_files(run, page)
        return True
    if run.kind == "ceiling":
        print_overview(run, page)
        return True
    if run.kind == "explain":
        print_explained(run, page)
    elif run.kind != "frameworks" or not frameworks.print_summary(run, page):
        return False
    page.section("Not measured", frameworks.unmeasured_lines(run), style="yellow")
    page.section("Checks", [("-", text) for text in (rates.ending_text(run), contents_text(run), *doubts(run)) if text])
    if run.kind == "frameworks":
        page.section("Next", frameworks.next_steps(run))
    page.line()
    page.line(footer(run))
    return True


def last_sections(run: runs.Run) -> list[tuple[str, Lines]]:
    precision = precision_text(run).rstrip(".") if run.kind == "ceiling" else ""
    checks = [("contents", rates.verified_text(run)), *([("precision", precision)] if precision else [])]
    return [
        ("Page-locking", rates.locking_lines(run)),
        ("Ring", rates.ring_lines(run)),
        ("Workers", worker_lines(run)),
        ("Peaks", rates.peak_lines(run.link)),
        ("Checks", [*checks, *rates.invalid_lines(run)]),
        ("Remarks", remark_lines((*run.link.remarks, *run.remarks))),
    ]


def _parts(run: runs.Run) -> list[Grid]:
    explained = find_explained(run) if run.kind == "explain" else None
    lines = [] if explained is None or explained.is_wrong else waterfall_lines(explained)
    if not lines:
        return []
    whole_s = sum(seconds for _, seconds in lines)
    rows = [
        (name, Cell(units.format_seconds(seconds), seconds), units.format_percent(seconds / whole_s))
        for name, seconds in [*lines, ("one traced transfer", whole_s)]
    ]
    name = f"Where the time of {clean(run.parameters.explained or '')} goes"
    return [text_grid(name, ("part", "time", "of it"), rows)]


def sections(run: runs.Run) -> list[Section]:
    reason = clean(run.runtime_reason) if run.runtime == "host" else ""
    explained = find_explained(run) if run.kind == "explain" else None
    unknown = ""
    if explained is not None and explained.row.breakdown.value is None:
        unknown = f"Not known: {reason_text(explained.row.breakdown.reason)}"
    if explained is not None and explained.is_wrong:
        unknown = "Its contents were wrong, so its times mean nothing."
    texts = {"Runtime": reason, "Where the time goes": unknown}
    return [*((name, [("-", text)] if text else []) for name, text in texts.items()), *last_sections(run)]


def _headline(run: runs.Run) -> str:
    ending, explained = rates.ending_text(run), find_explained(run)
    if not rates.has_times(run):
        return ending or "Nothing was measured."
    if run.kind == "ceiling":
        return f"{ending} {answer(run).text}".lstrip()
    reached = [text for side in get_args(machines.Side) if (text := reached_text(run, side))]
    figures = f"{'; '.join(reached)}." if reached else "No bandwidth is known."
    if run.kind == "explain":
        figures = "" if explained is None else explain.answer(explained)
    if run.kind == "frameworks":
        figures = frameworks.answer(run)
    if run.kind == "files":
        figures = files.answer(run)
    where = f" These figures are of {HOST_MEMORY}." if run.runtime == "host" else ""
    return f"{ending}{' ' * bool(ending)}{figures}{where}"


def _badge(run: runs.Run) -> tuple[Badge, str]:
    if any(m.verified.value is False for m in run.measurements):
        return "bad", "wrong contents"
    if run.ended != "complete":
        return ("bad" if run.ended == "failed" else "doubtful"), run.ended
    missing = sum(m.rate.value is None and m.direction != "ingest" for m in run.measurements)
    if missing or not run.measurements:
        return "doubtful", f"{missing} of {len(run.measurements)} figures missing"
    if run.runtime == "host":
        return "none", "host memory"
    if run.kind == "ceiling":
        return BADGES[answer(run).status]
    return "good", "complete"


def _advice(run: runs.Run) -> list[Advice]:
    by_kind = {"explain": explain.advice, "frameworks": frameworks.advice, "files": files.advice}
    return by_kind[run.kind](run) if run.kind in by_kind else []


REPORT = Report(
    struct=runs.Run,
    title=lambda run: f"pyxfer {run.kind}",
    page=print_run,
    headline=_headline,
    badge=_badge,
    heading=rates.heading_lines,
    advice=_advice,
    grids=lambda run: [rates.measurements(run), *_parts(run), *rates.fits(run)],
    sections=sections,
    charts=charts_of_run,
    captions=CAPTIONS,
)
