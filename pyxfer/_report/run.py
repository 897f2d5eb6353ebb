"""Runs: the page, measured now or loaded from a file, the table of measurements, and the first sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from rich.table import Table

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._document.sessions import TestMachine
from pyxfer._report import explain, files, frameworks, rates
from pyxfer._report.explain import find_explained, print_explained
from pyxfer._report.frameworks import print_frameworks, summary_lines, worker_lines
from pyxfer._report.grid import Cell, Column, Grid, fields, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather
from pyxfer._report.overview import BADGES, answer, contents_text, doubts, footer, precision_text, print_overview
from pyxfer._report.report import Advice, Badge, Report, Section
from pyxfer._report.run_charts import CAPTIONS, charts_of_run, reached_text
from pyxfer._report.text import Lines, clean, rate_interval, reason_text, remark_lines, remark_text


def print_run(run: runs.Run, page: Page) -> None:
    if not page.details and _print_first_page(run, page):
        return
    has_times = rates.has_times(run)
    marks, notes = gather(run)
    page.hanging(rates.heading_lines(run), style="bold")
    if rates.ending_text(run):
        page.line()
        page.line(rates.ending_text(run), style="bold red")
    summary = summary_lines(run, marks) if run.kind == "frameworks" and has_times else []
    page.section("Summary", summary)
    if not has_times and notes:
        page.section("Nothing was measured", [("-", note.text) for note in notes], style="yellow")
        notes = ()
    elif run.kind == "explain":
        print_explained(run, page)
        notes = ()  # the page shows the remarks of the explained row and no figures of others
    elif run.kind == "frameworks":
        print_frameworks(run, marks, page)
    else:
        _print_rates(rates.rate_tables(run, marks, page.columns), page, rates.clock_line(run))
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    _print_rest(run, page, has_times=has_times)


def _print_rest(run: runs.Run, page: Page, *, has_times: bool) -> None:
    if has_times and run.curves:
        page.heading("Fits, t = t0 + n/B")
        if (table := rates.fits_table(run)) is not None:
            page.show(table)
        page.hanging(rates.fit_reasons(run))
    left_out = {"Page-locking"} if run.kind == "explain" else set()
    if run.workers and not has_times and all(worker.ended == "unavailable" for worker in run.workers):
        left_out = {"Workers", "Peaks", "Checks", "Page-locking"}  # why nothing was measured stands above
    for name, lines in last_sections(run):
        if name not in left_out:
            page.section(name, lines)


def _print_rates(tables: Sequence[Table], page: Page, clocks: str) -> None:
    if tables:
        page.heading(rates.RATES_HEADING)
    for table in tables:
        page.line()
        page.show(table)
    if clocks:
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


# --- the table -------------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("worker_name", heading="worker", saved=False),
    *(Column(name, heading=name) for name in ("route", "direction", "side", "memory", "mode", "variant")),
    Column("nbytes", "whole", "size", units.format_size),
    Column("gbps", "number", "bandwidth", units.format_gbps),
    *(Column(name, "number") for name in ("low_gbps", "high_gbps")),
    Column("interval", heading="95 % interval", saved=False),
    Column("caller_gbps", "number", "caller gets", units.format_gbps),
    Column("of_ceiling", "number", "of ceiling", units.format_percent),
    Column("of_peak", "number", "of peak", units.format_percent),
    Column("median_s", "number", "median", units.format_seconds),
    *(Column(name, "number") for name in ("low_s", "high_s", "iqr_s", "mad_s", "min_s")),
    Column("n", "whole", "trials"),
    *(Column(name, "number") for name in ("dispatch_s", "wall_s", "first_s")),
    Column("verified", "flag"),
    *(Column(name) for name in ("missing", "remarks")),
    Column("notes", heading="notes", saved=False),
    Column("worker"),
    *(Column(name, heading=name) for name in ("framework", "call")),
    Column("host_copies", "whole", "host copies"),
    *(Column(name, heading=name) for name in ("dma", "returns")),
    Column("batch", "whole", "batch"),
    Column("overhead_s", "number", "overhead", units.format_seconds),
    Column("faults", "number", "faults"),
    Column("dma_s", "number"),
    Column("dma_bytes", "whole"),
    Column("dma_copies", "number"),
    Column("dma_source"),
    Column("dma_gbps", "number"),
    *(Column(name) for name in ("dma_missing", "runtime", "device", "host")),
    Column("taken_at", "moment"),
)


def measurements(run: runs.Run) -> Grid:
    marks, notes = gather(run)
    rows = [
        {**cells_of(m, run), "notes": mark or clean(m.rate.reason or "")}
        for m, mark in zip(run.measurements, marks, strict=True)
    ]
    return Grid("Measurements", COLUMNS, rows, [(note.mark or "-", note.text) for note in notes], largest="nbytes")


def cells_of(m: runs.Measurement, place: runs.Run | TestMachine) -> dict[str, Any]:
    rate, dma = m.rate.value, m.dma.value
    crossed = {f"dma_{name}": value for name, value in fields(dma, "copies", "source", "gbps").items()}
    return {
        **fields(m, "route", "direction", "side", "memory", "mode", "variant", "nbytes"),
        **fields(rate, "gbps", "low_gbps", "high_gbps"),
        "interval": Cell(rate_interval(rate), None if rate is None else rate.low_gbps),
        **fields(m, "caller_gbps", "of_ceiling", "of_peak"),
        **fields(m.summary, "median_s", "low_s", "high_s", "iqr_s", "mad_s", "min_s", "n"),
        **fields(m, "dispatch_s", "wall_s", "first_s", "verified"),
        "missing": m.rate.reason,
        "remarks": "; ".join(map(remark_text, m.remarks)),
        # A raw row of a framework's worker has only the worker's name.
        **fields(m, "worker", "batch", "faults"),
        "worker_name": m.worker,
        **fields(m.route_info, "framework", "call", "host_copies", "dma", "returns"),
        "overhead_s": None if m.route_info is None else m.overhead_s,
        **crossed,
        "dma_s": None if dma is None else dma.seconds.value,
        "dma_bytes": None if dma is None else dma.nbytes,
        "dma_missing": m.dma.reason if dma is None else dma.seconds.reason,
        "runtime": place.runtime,
        "device": place.device.name,
        **fields(place.environment, "host", "taken_at"),
    }


def _parts(run: runs.Run) -> list[Grid]:
    explained = find_explained(run) if run.kind == "explain" else None
    breakdown = None if explained is None or explained.is_wrong else explained.row.breakdown.value
    if breakdown is None:
        return []
    lines = [*((p.name, p.seconds) for p in breakdown.parts), ("one traced transfer", breakdown.elapsed_s)]
    rows = [
        (name, Cell(units.format_seconds(seconds), seconds), units.format_percent(seconds / (lines[-1][1] or 1.0)))
        for name, seconds in lines
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
    grids=lambda run: [measurements(run), *_parts(run)],
    sections=sections,
    charts=charts_of_run,
    captions=CAPTIONS,
)
