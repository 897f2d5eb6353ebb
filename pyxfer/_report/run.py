"""Runs: the page, measured now or loaded from a file, the table of measurements, and the first sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from rich.table import Table

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.sessions import TestMachine
from pyxfer._report import explain, frameworks, rates
from pyxfer._report.explain import find_explained, print_explained
from pyxfer._report.frameworks import print_frameworks, summary_lines, worker_lines
from pyxfer._report.grid import Cell, Column, Grid, fields, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather
from pyxfer._report.overview import BADGES, answer, contents_text, doubts, footer, precision_text, print_overview
from pyxfer._report.report import Advice, Badge, Report, Section
from pyxfer._report.run_charts import CAPTIONS, charts_of_measurement, charts_of_run, reached_text
from pyxfer._report.text import HOST_MEMORY, Lines, clean, rate_interval, reason_text, remark_text


def print_run(run: runs.Run, page: Page, sort: str | None = None) -> None:
    """The page; with `sort`, the rates are one row per measurement in that order."""
    if sort is None and not page.details and _print_first_page(run, page):
        return
    explaining = run.kind == "explain" and sort is None
    marks, notes = gather(run)
    page.hanging(rates.heading_lines(run), style="bold")
    if rates.ending_text(run):
        page.line()
        page.line(rates.ending_text(run), style="bold red")
    summary = summary_lines(run, marks) if run.kind == "frameworks" and sort is None and rates.has_times(run) else []
    page.section("Summary", summary)
    if not rates.has_times(run) and notes:
        page.section("Nothing was measured", [("-", note.text) for note in notes], style="yellow")
        notes = ()
    elif explaining:
        print_explained(run, page)
        notes = ()  # the page shows the remarks of the explained row and no figures of others
    elif run.kind == "frameworks" and sort is None:
        print_frameworks(run, marks, page)
    else:
        _print_rates(rates.rate_tables(run, marks, page.columns, sort), page, rates.clock_line(run))
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    if rates.has_times(run):
        _print_fits(run, page)
    left_out = _sections_that_say_nothing(run)
    for name, lines in last_sections(run):
        if name not in left_out:
            page.section(name, lines)


def _sections_that_say_nothing(run: runs.Run) -> set[str]:
    if run.workers and not rates.has_times(run) and all(worker.ended == "unavailable" for worker in run.workers):
        return {"Workers", "Peaks", "Checks", "Page-locking"}  # why nothing was measured stands above
    return {"Page-locking"} if run.kind == "explain" else set()


def _print_first_page(run: runs.Run, page: Page) -> bool:
    """The answer and what to do next. False, with nothing printed, if the run has no such page."""
    if not rates.has_times(run):
        return False
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
    """What follows the figures: each section's name and lines, which may be none."""
    return [
        ("Page-locking", rates.locking_lines(run)),
        ("Ring", rates.ring_lines(run)),
        ("Workers", worker_lines(run)),
        ("Peaks", rates.peak_lines(run.link)),
        ("Checks", [("contents", rates.verified_text(run)), *_precision_lines(run), *rates.invalid_lines(run)]),
        ("Remarks", rates.remark_lines(run)),
    ]


def _precision_lines(run: runs.Run) -> Lines:
    text = precision_text(run) if run.kind == "ceiling" else ""
    return [("precision", text.rstrip("."))] if text else []


def _print_rates(tables: Sequence[Table], page: Page, clocks: str) -> None:
    if tables:
        page.heading(rates.RATES_HEADING)
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
    table = rates.fits_table(run)
    if table is not None:
        page.show(table)
    page.hanging(rates.fit_reasons(run))


# --- the table -------------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("worker_name", heading="worker", saved=False),
    *(Column(name, heading=name) for name in ("route", "direction", "side", "memory", "mode", "variant")),
    Column("nbytes", "whole", "size", units.format_size),
    Column("gbps", "number", "bandwidth", units.format_gbps),
    Column("low_gbps", "number"),
    Column("high_gbps", "number"),
    Column("interval", heading="95 % interval", saved=False),
    Column("caller_gbps", "number", "caller gets", units.format_gbps),
    Column("of_ceiling", "number", "of ceiling", units.format_percent),
    Column("of_peak", "number", "of peak", units.format_percent),
    Column("median_s", "number", "median", units.format_seconds),
    *(Column(name, "number") for name in ("low_s", "high_s", "iqr_s", "mad_s", "min_s")),
    Column("n", "whole", "trials"),
    *(Column(name, "number") for name in ("dispatch_s", "wall_s", "first_s")),
    Column("verified", "flag"),
    Column("missing"),
    Column("remarks"),
    Column("notes", heading="notes", saved=False),
    Column("worker"),
    Column("framework", heading="framework"),
    Column("call", heading="call"),
    Column("host_copies", "whole", "host copies"),
    Column("dma", heading="dma"),
    Column("returns", heading="returns"),
    Column("batch", "whole", "batch"),
    Column("overhead_s", "number", "overhead", units.format_seconds),
    Column("faults", "number", "faults"),
    Column("dma_s", "number"),
    Column("dma_bytes", "whole"),
    Column("dma_copies", "number"),
    Column("dma_source"),
    Column("dma_gbps", "number"),
    Column("dma_missing"),
    *(Column(name) for name in ("runtime", "device", "host")),
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
    """The cells of a row by column; an empty cell may be left out."""
    rate = m.rate.value
    low = None if rate is None else rate.low_gbps
    return {
        **fields(m, "route", "direction", "side", "memory", "mode", "variant", "nbytes"),
        **fields(rate, "gbps", "low_gbps", "high_gbps"),
        "interval": Cell(rate_interval(rate), low),
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
        **_dma_cells(m),
        "runtime": place.runtime,
        "device": place.device.name,
        **fields(place.environment, "host", "taken_at"),
    }


def _dma_cells(m: runs.Measurement) -> dict[str, Any]:
    dma = m.dma.value
    if dma is None:
        return {"dma_missing": m.dma.reason}
    return {
        "dma_s": dma.seconds.value,
        "dma_bytes": dma.nbytes,
        "dma_copies": dma.copies,
        "dma_source": dma.source,
        "dma_gbps": dma.gbps,
        "dma_missing": dma.seconds.reason,
    }


def _grids(run: runs.Run) -> list[Grid]:
    return [measurements(run), *_parts(run)]


def _parts(run: runs.Run) -> list[Grid]:
    explained = find_explained(run) if run.kind == "explain" else None
    breakdown = None if explained is None or explained.is_wrong else explained.row.breakdown.value
    if breakdown is None:
        return []
    whole_s = breakdown.elapsed_s
    lines = [*((part.name, part.seconds) for part in breakdown.parts), ("one traced transfer", whole_s)]
    rows = [
        (name, Cell(units.format_seconds(seconds), seconds), units.format_percent(seconds / (whole_s or 1.0)))
        for name, seconds in lines
    ]
    return [
        text_grid(f"Where the time of {clean(run.parameters.explained or '')} goes", ("part", "time", "of it"), rows)
    ]


def sections(run: runs.Run) -> list[Section]:
    reason = clean(run.runtime_reason) if run.runtime == "host" else ""
    unknown = [("-", text) for text in (_unknown_parts(run),) if text]
    return [("Runtime", [("-", reason)] if reason else []), ("Where the time goes", unknown), *last_sections(run)]


def _unknown_parts(run: runs.Run) -> str:
    """Why an explained route has no breakdown."""
    explained = find_explained(run) if run.kind == "explain" else None
    if explained is None:
        return ""
    if explained.is_wrong:
        return "Its contents were wrong, so its times mean nothing."
    breakdown = explained.row.breakdown
    return "" if breakdown.value is not None else f"Not known: {reason_text(breakdown.reason)}"


# --- the report ------------------------------------------------------------------------------------------------------


def _headline(run: runs.Run) -> str:
    if not rates.has_times(run):
        return rates.ending_text(run) or "Nothing was measured."
    if run.kind == "ceiling":
        return f"{rates.ending_text(run)} {answer(run).text}".lstrip()
    where = f" These figures are of {HOST_MEMORY}." if run.runtime == "host" else ""
    ending = f"{rates.ending_text(run)} " if rates.ending_text(run) else ""
    return f"{ending}{_figures_text(run)}{where}"


def _figures_text(run: runs.Run) -> str:
    if run.kind == "explain":
        explained = find_explained(run)
        return "" if explained is None else explain.answer(explained)
    if run.kind == "frameworks":
        return frameworks.answer(run)
    texts = [text for side in get_args(machines.Side) if (text := reached_text(run, side))]
    return f"{'; '.join(texts)}." if texts else "No bandwidth is known."


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
    return explain.advice(run) if run.kind == "explain" else frameworks.advice(run) if run.kind == "frameworks" else []


REPORT = Report(
    struct=runs.Run,
    title=lambda run: f"pyxfer {run.kind}",
    page=print_run,
    headline=_headline,
    badge=_badge,
    heading=rates.heading_lines,
    advice=_advice,
    grids=_grids,
    sections=sections,
    charts=charts_of_run,
    captions=CAPTIONS,
)


# --- one measurement -------------------------------------------------------------------------------------------------


def _figures(m: runs.Measurement) -> Lines:
    rate, counted = m.rate.value, sum(trial.invalid is None for trial in m.trials)
    known = {
        "bandwidth": units.format_gbps(rate.gbps) if rate is not None else m.rate.reason or "",
        "95 % interval": rate_interval(rate),
        "of the ceiling": "" if m.of_ceiling is None else units.format_percent(m.of_ceiling),
        "of the peak": "" if m.of_peak is None else units.format_percent(m.of_peak),
        "median": "" if m.elapsed_s is None else units.format_seconds(m.elapsed_s),
        "trials": str(counted) if counted else "",
    }
    return [(name, text) for name, text in known.items() if text]


MEASUREMENT = Report(
    struct=runs.Measurement,
    title=lambda m: clean(m.route),
    page=lambda m, page: page.hanging(_figures(m)),
    headline=repr,
    badge=lambda _: ("none", "measurement"),
    grids=lambda m: [text_grid("Figures", ("figure", "value"), _figures(m))],
    charts=charts_of_measurement,
    captions=CAPTIONS,
)
