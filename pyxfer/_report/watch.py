"""Watches: the page with what bounds the program and where a step's time goes, the tables, and the charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pyxfer import units
from pyxfer._document import watches
from pyxfer._document.remark_codes import severity_of
from pyxfer._report import grid, watch_words
from pyxfer._report.grid import Cell, Grid, Row, fields, text_grid
from pyxfer._report.layout import Column, Page, fitting_table, percent_cells, rate_cells, time_cells, waterfall
from pyxfer._report.plots import (
    MAX_BARS,
    PARTS,
    Make,
    Spec,
    Values,
    bar,
    bar_figure,
    bar_plot,
    step_plot,
    timeline_plot,
    waterfall_plot,
)
from pyxfer._report.report import Advice, Badge, Caption, Charts, Report, Section
from pyxfer._report.text import clean, remark_text
from pyxfer.units import format_gbps, format_percent, format_seconds

MAX_RANGES = 10
_LONGEST_CELL = 30
_FEW_CALLS = 4


def parts_table(parts: watches.Parts, width: int) -> Table:
    words = watch_words.part_words(parts)
    named = [(words[name], seconds) for name, seconds in parts.named() if seconds > 0]
    return waterfall(named, parts.period_s, width)


def copies_table(copies: Sequence[watches.CopyClass], width: int) -> Table:
    unit, times = time_cells([row.seconds for row in copies])
    return fitting_table(
        [
            Column(("direction",), tuple(row.direction for row in copies), left=True),
            Column(("memory",), tuple(watch_words.shortened(row.memory, _LONGEST_CELL) for row in copies), left=True),
            Column(("size",), tuple(watch_words.size_text(row) for row in copies), left=True),
            Column(("copies",), tuple(str(row.count) for row in copies)),
            Column(("bytes",), tuple(watch_words.sum_text(row.nbytes) for row in copies)),
            Column((unit,), times),
            Column(("GB/s",), rate_cells([row.gbps.value for row in copies], "-", most=3)),
            Column(("of", "ceiling"), percent_cells([row.of_ceiling for row in copies], "-")),
            Column(("under", "kernels"), percent_cells([row.hidden_share.value for row in copies], "-")),
        ],
        width,
    )


def ranges_table(ranges: Sequence[watches.NamedRange], width: int) -> Table:
    shown = ranges[:MAX_RANGES]
    unit, times = time_cells([row.seconds for row in shown])
    columns = [
        Column(("name",), tuple(watch_words.shortened(row.name, _LONGEST_CELL) for row in shown), left=True),
        Column(("count",), tuple(str(row.count) for row in shown)),
        Column((unit,), times),
        Column(("of the", "window"), percent_cells([row.share for row in shown])),
        Column(("device", "busy"), percent_cells([_busy_share(row) for row in shown])),
        Column(("h2d",), tuple(_bytes_cell(row.h2d_bytes) for row in shown)),
        Column(("d2h",), tuple(_bytes_cell(row.d2h_bytes) for row in shown)),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def _busy_share(row: watches.NamedRange) -> float | None:
    return None if row.busy_s is None or row.seconds <= 0 else min(1.0, row.busy_s / row.seconds)


def _bytes_cell(nbytes: int | None) -> str:
    return "" if not nbytes else watch_words.sum_text(nbytes)


COPIES_HEADING = "Copies, by the device's own records (1 GB = 1e9 bytes)"


def print_watch(watched: watches.Watched, page: Page) -> None:
    if watch_words.ending_text(watched):
        page.line(watch_words.ending_text(watched), style="bold red")
    if watch_words.first_steps_text(watched):
        page.line(watch_words.first_steps_text(watched), style="bold yellow")
    page.line(clean(watched.verdict.text), style="bold")
    page.hanging([("-", clean(line)) for line in watched.verdict.evidence])
    page.section("What to do", watch_words.advice_lines(watched, worked_out=page.details))
    if watched.parts.period_s > 0:
        page.heading(watch_words.steps_text(watched))
        page.show(parts_table(watched.parts, page.columns))
        page.hanging(watch_words.beside_lines(watched))
    _print_copies(watched, page)
    if page.details:
        page.section("Overlap", watch_words.overlap_lines(watched))
        page.section("Pageable memory", watch_words.pageable_lines(watched))
    if page.details or watched.verdict.bound_by == "unknown":
        page.section(
            _lines_heading(watched), watch_words.program_lines(watched)[: None if page.details else _FEW_CALLS + 1]
        )
    most = watch_words.MAX_CALLS if page.details else _FEW_CALLS
    page.section(_calls_heading(watched), watch_words.call_lines(watched, most))
    if page.details and watched.ranges:
        page.heading("Ranges")
        page.show(ranges_table(watched.ranges, page.columns))
    if page.details:
        page.section("Memory", watch_words.memory_lines(watched))
    remarks = [remark for remark in watched.remarks if remark.code != watches.FIRST_STEPS]
    shown = [remark for remark in remarks if page.details or severity_of(remark.code) != "info"]
    page.section("Remarks", [("-", remark_text(remark)) for remark in shown])
    page.line()
    page.hanging(watch_words.heading_lines(watched))
    if not page.details:
        page.line("More: --details (overlap, pageable memory, ranges, memory), --report page.html, --trace FILE")


def _print_copies(watched: watches.Watched, page: Page) -> None:
    activity, unseen, ceiling = (
        watched.activity.value,
        watch_words.unseen_text(watched),
        watch_words.ceiling_text(watched),
    )
    if activity is None and unseen:
        page.line()
        page.line(unseen, style="yellow")
    if activity is not None and activity.copies:
        page.heading(COPIES_HEADING)
        page.show(copies_table(activity.copies, page.columns))
        for line in watch_words.no_share_texts(watched):
            page.line(line)
    if ceiling:
        page.line(ceiling)


def _lines_heading(watched: watches.Watched) -> str:
    samples = sum(use.samples for use in watched.lines)
    return f"Lines of {clean(watched.lines[0].thread)} by samples ({samples})" if watched.lines else ""


def _calls_heading(watched: watches.Watched) -> str:
    inside = "steps" if watched.steps.watched else "the window"
    return f"Calls in {inside} that fetch, wait or allocate: total time"


# --- tables ----------------------------------------------------------------------------------------------------------

_NUMBERS = ("period_s", *(f"{name.replace(' ', '_')}_s" for name in watches.STEP_PARTS), "hidden_h2d_s", "hidden_d2h_s")
_STEPS = (
    grid.Column("number", "whole"),
    grid.Column("at_s", "number"),
    grid.Column("thread", "whole"),
    *(grid.Column(name, "number") for name in _NUMBERS),
    grid.Column("slow", "flag"),
)
_COPIES = (
    grid.Column("direction", heading="direction"),
    grid.Column("memory", heading="memory"),
    grid.Column("size", heading="size", saved=False),
    grid.Column("least_bytes", "whole"),
    grid.Column("below_bytes", "whole"),
    grid.Column("count", "whole", "count"),
    grid.Column("nbytes", "whole", "bytes", watch_words.sum_text),
    grid.Column("timed_bytes", "whole"),
    grid.Column("total_s", "number", "time", format_seconds),
    grid.Column("gbps", "number", "bandwidth", format_gbps),
    grid.Column("of_ceiling", "number", "of ceiling", format_percent),
    grid.Column("hidden_share", "number", "hidden", format_percent),
)
_CALLS = (
    grid.Column("what"),
    grid.Column("call", heading="call"),
    grid.Column("where", heading="line", saved=False),
    grid.Column("line"),
    grid.Column("range", heading="range"),
    grid.Column("count", "whole", "count"),
    grid.Column("total_s", "number", "time", format_seconds),
    grid.Column("nbytes", "whole"),
    grid.Column("per_step", "number"),
)
_RANGES = (
    grid.Column("name", heading="name"),
    grid.Column("source"),
    grid.Column("count", "whole", "count"),
    grid.Column("total_s", "number", "time", format_seconds),
    grid.Column("of_window", "number", "of the window", format_percent),
    grid.Column("busy_s", "number"),
    grid.Column("h2d_bytes", "whole"),
    grid.Column("d2h_bytes", "whole"),
)


def _tables(watched: watches.Watched) -> dict[str, Grid]:
    activity = watched.activity.value
    copies = () if activity is None else activity.copies
    calls = () if activity is None else activity.surprises
    return {
        "steps": Grid("Steps", _STEPS, [_step_row(step) for step in watched.steps.each]),
        "copies": Grid(
            "Copies",
            _COPIES,
            [{**_saved(row, _COPIES), **_said(row)} for row in copies],
        ),
        "calls": Grid(
            "Calls inside steps",
            _CALLS,
            [{**_saved(row, _CALLS), "where": row.line.value or row.line.reason} for row in calls],
        ),
        "ranges": Grid("Ranges", _RANGES, [_saved(row, _RANGES) for row in watched.ranges]),
    }


def _table(watched: watches.Watched, name: str) -> Grid:
    tables = _tables(watched)
    return tables[units.word_of(name or "steps", tables, "Table")]


def _said(row: watches.CopyClass) -> Row:
    return {"size": Cell(watch_words.size_text(row), row.least_bytes)}


# The tables have the names of those of runs.
_FIELDS = {"total_s": "seconds", "of_window": "share"}


def _saved(struct: object, columns: Sequence[grid.Column]) -> dict[str, Any]:
    names = {column.name: _FIELDS.get(column.name, column.name) for column in columns if column.saved}
    found = fields(struct, *names.values())
    return {name: found[field] for name, field in names.items()}


def _step_row(step: watches.WatchedStep) -> Row:
    known = {f"{name.replace(' ', '_')}_s": seconds for name, seconds in step.parts.named()}
    own = fields(step, "number", "at_s", "thread", "slow")
    return {**own, **known, **fields(step.parts, "period_s", "hidden_h2d_s", "hidden_d2h_s")}


def _grids(watched: watches.Watched) -> list[Grid]:
    parts, tables = watched.parts, _tables(watched)
    words = watch_words.part_words(parts)
    shares = [(words[name], _time(seconds), _share(parts.share(name))) for name, seconds in parts.named()]
    gains = [(each.text, _time(each.gain_s), _share(each.gain_share), each.worked_out) for each in watched.advice]
    return [
        text_grid("Parts of the period", ("part", "time", "share"), shares),
        text_grid("Timeline, by all records", ("work", "busy", "of the stretch", "spans drawn"), _lanes(watched)),
        *(tables[name] for name in ("copies", "calls", "ranges")),
        text_grid("Next steps (predicted)", ("what", "gain a period", "share", "worked out"), gains),
    ]


def _lanes(watched: watches.Watched) -> list[tuple[str | Cell, ...]]:
    line = None if watched.activity.value is None else watched.activity.value.timeline
    return [
        (lane.what, _time(lane.busy_s), _share(line.share(lane)), Cell(str(len(lane.spans)), len(lane.spans)))
        for lane in (() if line is None else line.lanes)
        if line is not None
    ]


def _time(seconds: float) -> Cell:
    return Cell(format_seconds(seconds), seconds)


def _share(share: float) -> Cell:
    return Cell(format_percent(share), share)


# --- charts ----------------------------------------------------------------------------------------------------------

_MAX_STEPS = 400
_LONGEST_LABEL = 48


def _charts(watched: watches.Watched) -> Charts:
    words = watch_words.part_words(watched.parts)
    parts = [(words[name], seconds) for name, seconds in watched.parts.named() if seconds > 0]
    activity = watched.activity.value
    copies = [row for row in (activity.copies if activity is not None else ()) if _is_drawn(row)]
    title = f"{watch_words.steps_text(watched)}: {clean(watched.verdict.text, 400)}"
    return {
        "parts": (lambda width: waterfall_plot(parts, _colours(words), title, width)) if parts else None,
        "steps": (lambda width: _steps_chart(watched, width)) if watched.steps.each else None,
        "timeline": _timeline(activity) if activity is not None else None,
        "copies": (lambda width: _copies_chart(copies, width)) if copies else None,
    }


def _colours(words: Mapping[watches.StepPartName, str]) -> dict[str, str]:
    return {word: PARTS[name] for name, word in words.items()}


def _steps_chart(watched: watches.Watched, width: int) -> Spec:
    words = watch_words.part_words(watched.parts)
    steps = watched.steps.each[:_MAX_STEPS]
    values = [
        {"step": step.number, "part": words[name], "ms": seconds * 1e3, "order": place}
        for step in steps
        for place, (name, seconds) in enumerate(step.parts.named())
        if seconds > 0
    ]
    median = watched.steps.period.value
    text = "" if median is None else f"{watched.steps.watched} steps, median {units.format_seconds(median.median_s)}"
    text = "; ".join(filter(None, (text, watch_words.slow_text(watched))))
    left = len(watched.steps.each) - len(steps)
    title = f"{text}; the first {len(steps)} are drawn" if left else text
    return step_plot(values, _colours(words), title, width)


def _timeline(activity: watches.Activity) -> Make | None:
    line = activity.timeline
    if line is None or not line.lanes or line.end_s <= line.begin_s:
        return None
    shares = {lane.what: line.share(lane) for lane in line.lanes}
    spans: Values = [
        {"lane": lane.what, "begin": begin * 1e3, "end": end * 1e3, "share": units.format_percent(shares[lane.what])}
        for lane in line.lanes
        for begin, end in lane.spans
    ]
    steps: Values = [
        {
            "lane": "step",
            "begin": step.begin_s * 1e3,
            "end": step.end_s * 1e3,
            "middle": (step.begin_s + step.end_s) * 500,
            "step": str(step.number),
            "text": f"step {step.number}: {units.format_seconds(step.end_s - step.begin_s)}",
        }
        for step in line.steps
    ]
    ends = (line.begin_s * 1e3, line.end_s * 1e3)
    title = _timeline_text(line, shares, activity.overlap)
    return lambda width: timeline_plot(spans, steps, ends, title, width)


def _timeline_text(line: watches.Timeline, shares: Mapping[watches.LaneName, float], overlap: watches.Overlap) -> str:
    numbers = [step.number for step in line.steps]
    what = "The window" if not numbers else f"Steps {numbers[0]} to {numbers[-1]}"
    if len(numbers) == 1:
        what = f"Step {numbers[0]}"
    words = ", ".join(f"{name} {units.format_percent(share)}" for name, share in shares.items())
    gaps = f". Bars also cover gaps up to {units.format_seconds(line.merged_s)}; the shares do not"
    merged = gaps if line.merged_s else ""
    return f"{what}: {words} of the time. All copies of the window: {watch_words.copies_text(overlap)}{merged}"


def _is_drawn(row: watches.CopyClass) -> bool:
    """Whether the link bounds these copies; one inside a command, or within a device, is another order of magnitude."""
    crosses = row.direction in ("h2d", "d2h") and row.least_bytes >= watches.MIN_OF_CEILING
    return crosses and row.gbps.value is not None


def _copies_chart(copies: Sequence[watches.CopyClass], width: int) -> Spec:
    bars: Values = []
    for row in copies[:MAX_BARS]:
        share = "" if row.of_ceiling is None else f", {units.format_percent(row.of_ceiling)}"
        gbps = row.gbps.value or 0.0
        name = f"{row.direction} {clean(row.memory, _LONGEST_LABEL)}, {watch_words.size_text(row)}"
        text = f"{name}: {units.format_gbps(gbps)}{share}"
        bars.append(bar(name, gbps, text, bar_figure(gbps, row.of_ceiling)))
    longest = max(copies, key=lambda row: row.seconds)
    what = f"{longest.direction} of {clean(longest.memory)} memory, {watch_words.size_text(longest)}"
    crossed = f"{watch_words.sum_text(sum(row.nbytes for row in copies))} in {sum(row.count for row in copies)} copies"
    title = f"{crossed}; most of their time: {what}. Bandwidth, and share of the ceiling"
    return bar_plot(bars, title, width, "GB/s")


# --- the report ------------------------------------------------------------------------------------------------------

_LONGEST = 600


def _badge(watched: watches.Watched) -> tuple[Badge, str]:
    bound = watched.verdict.bound_by
    if watched.ended == "failed":
        return "bad", "failed"
    if bound == "unknown":
        return "none", "unknown"
    return ("good" if bound == "device" else "doubtful"), f"bound by {bound}"


def _advice(watched: watches.Watched) -> list[Advice]:
    """Each step, with its prediction in the same item."""
    items: list[Advice] = []
    for label, text in watch_words.advice_lines(watched):
        if label:
            items.append((text, ""))
        else:
            items[-1] = (f"{items[-1][0]} {text}", "")
    return items


def _sections(watched: watches.Watched) -> list[Section]:
    unseen = watch_words.unseen_text(watched)
    return [
        ("Evidence", [("-", clean(text, _LONGEST)) for text in watched.verdict.evidence]),
        ("Device records", [("-", unseen)] if unseen else []),
        ("Steps", watch_words.beside_lines(watched)),
        ("Overlap", watch_words.overlap_lines(watched)),
        ("Pageable memory", watch_words.pageable_lines(watched)),
        ("Memory", watch_words.memory_lines(watched)),
        ("Remarks", [("-", remark_text(remark)) for remark in watched.remarks]),
    ]


REPORT = Report(
    struct=watches.Watched,
    title=lambda _: "pyxfer watch",
    page=print_watch,
    headline=lambda watched: " ".join(
        filter(None, (watch_words.first_steps_text(watched), clean(watched.verdict.text, _LONGEST)))
    ),
    badge=_badge,
    heading=watch_words.heading_lines,
    advice=_advice,
    grids=_grids,
    sections=_sections,
    charts=_charts,
    captions={
        "parts": Caption(
            "Where the time of a step goes",
            "Each part begins where the one before it ends. Copies under kernels are not in the sum.",
        ),
        "steps": Caption("Steps of the window", "The parts of each step, one above the other."),
        "timeline": Caption(
            "Copies and kernels over time",
            "When each kind of work ran in a few steps of median length; the input of a step is made before it. At the "
            "right is the share of the time by all records, also where gaps between spans are too short to be drawn.",
        ),
        "copies": Caption(
            "Copies of the window",
            "Bandwidth of the copies of one direction, memory and range of sizes, and their share of the ceiling. Only "
            "the table has those that have no ceiling: copies below 4 KiB, and within a device.",
        ),
    },
    table=_table,
)
