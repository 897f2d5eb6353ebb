"""Watches: the page with what bounds the program and where a step's time goes, the tables, and the charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyxfer import units
from pyxfer._document import watches
from pyxfer._document.remark_codes import severity_of
from pyxfer._report import grid, plots, watch_words
from pyxfer._report.grid import Cell, Grid, Row, fields, text_grid
from pyxfer._report.layout import Page, waterfall
from pyxfer._report.report import Advice, Badge, Caption, Charts, Report, Section
from pyxfer._report.text import clean, remark_lines
from pyxfer.units import format_gbps, format_percent, format_seconds

MAX_RANGES = 10
_FEW_CALLS = 4


def print_watch(watched: watches.Watched, page: Page) -> None:
    if watch_words.ending_text(watched):
        page.line(watch_words.ending_text(watched), style="bold red")
    if watch_words.first_steps_text(watched):
        page.line(watch_words.first_steps_text(watched), style="bold yellow")
    page.line(clean(watched.verdict.text), style="bold")
    page.hanging([("-", clean(line)) for line in watched.verdict.evidence])
    page.section("What to do", watch_words.advice_lines(watched, worked_out=page.details))
    if watched.parts.period_s > 0:
        words = watch_words.part_words(watched.parts)
        parts = [(words[name], seconds) for name, seconds in watched.parts.named() if seconds > 0]
        page.heading(watch_words.steps_text(watched))
        page.show(waterfall(parts, watched.parts.period_s, page.columns))
        page.hanging(watch_words.beside_lines(watched))
    _print_copies(watched, page)
    if page.details:
        page.section("Overlap", watch_words.overlap_lines(watched))
        page.section("Pageable memory", watch_words.pageable_lines(watched))
    if watched.lines and (page.details or watched.verdict.bound_by == "unknown"):
        samples = sum(use.samples for use in watched.lines)
        lines = [(format_percent(use.share), clean(use.line)) for use in watched.lines]
        heading = f"Lines of {clean(watched.lines[0].thread)} by samples ({samples})"
        page.section(heading, lines if page.details else lines[: _FEW_CALLS + 1])
    inside = "steps" if watched.steps.watched else "the window"
    calls = watch_words.call_lines(watched, watch_words.MAX_CALLS if page.details else _FEW_CALLS)
    page.section(f"Calls in {inside} that fetch, wait or allocate: total time", calls)
    if page.details:
        ranges = _tables(watched)["ranges"]
        replace(ranges, rows=ranges.rows[:MAX_RANGES]).print_on(page)
        page.section("Memory", watch_words.memory_lines(watched))
    remarks = [remark for remark in watched.remarks if remark.code != watches.FIRST_STEPS]
    shown = [remark for remark in remarks if page.details or severity_of(remark.code) != "info"]
    page.section("Remarks", remark_lines(shown))
    page.line()
    page.hanging(watch_words.heading_lines(watched))
    if not page.details:
        page.line("More: --details (overlap, pageable memory, ranges, memory), --report page.html, --trace FILE")


def _print_copies(watched: watches.Watched, page: Page) -> None:
    activity, unseen = watched.activity.value, watch_words.unseen_text(watched)
    if activity is None and unseen:
        page.line()
        page.line(unseen, style="yellow")
    if activity is not None and activity.copies:
        replace(_tables(watched)["copies"], name="Copies, by the device's own records (1 GB = 1e9 bytes)").print_on(
            page
        )
        for line in watch_words.no_share_texts(watched):
            page.line(line)
    if ceiling := watch_words.ceiling_text(watched):
        page.line(ceiling)


# --- tables ----------------------------------------------------------------------------------------------------------

_TIME = grid.Column("total_s", "number", "time", format_seconds)
_NUMBERS = ("period_s", *(f"{name.replace(' ', '_')}_s" for name in watches.STEP_PARTS), "hidden_h2d_s", "hidden_d2h_s")
_STEPS = (
    grid.Column("number", "whole"),
    grid.Column("at_s", "number"),
    grid.Column("thread", "whole"),
    *(grid.Column(name, "number") for name in _NUMBERS),
    grid.Column("slow", "flag"),
)
_COPIES = (
    grid.Column("direction", heading="way"),
    grid.Column("memory", heading="memory"),
    grid.Column("size", heading="size", saved=False),
    *(grid.Column(name, "whole") for name in ("least_bytes", "below_bytes")),
    grid.Column("count", "whole", "count"),
    grid.Column("nbytes", "whole", "bytes", watch_words.sum_text),
    grid.Column("timed_bytes", "whole"),
    _TIME,
    grid.Column("gbps", "number", "bandwidth", format_gbps),
    grid.Column("of_ceiling", "number", "of ceiling", format_percent),
    grid.Column("hidden_share", "number", "under kernels", format_percent),
)
_CALLS = (
    grid.Column("what"),
    grid.Column("call", heading="call"),
    grid.Column("where", heading="line", saved=False),
    grid.Column("line"),
    grid.Column("range", heading="range"),
    grid.Column("count", "whole", "count"),
    _TIME,
    grid.Column("nbytes", "whole"),
    grid.Column("per_step", "number"),
)

_RANGES = (
    grid.Column("name", heading="name"),
    grid.Column("source"),
    grid.Column("count", "whole", "count"),
    _TIME,
    grid.Column("of_window", "number", "of the window", format_percent),
    grid.Column("busy_s", "number", "device busy", format_seconds),
    *(grid.Column(f"{way}_bytes", "whole", way, watch_words.sum_text) for way in ("h2d", "d2h")),
)


def _tables(watched: watches.Watched) -> dict[str, Grid]:
    activity = watched.activity.value
    copies, calls = ((), ()) if activity is None else (activity.copies, activity.surprises)
    sizes = [{"size": Cell(watch_words.size_text(row), row.least_bytes)} for row in copies]
    of_copies = [{**_saved(row, _COPIES), **size} for row, size in zip(copies, sizes, strict=True)]
    of_calls = [{**_saved(row, _CALLS), "where": row.line.value or row.line.reason} for row in calls]
    return {
        "steps": Grid("Steps", _STEPS, list(map(_step_row, watched.steps.each))),
        "copies": Grid("Copies", _COPIES, of_copies),
        "calls": Grid("Calls inside steps", _CALLS, of_calls),
        "ranges": Grid("Ranges", _RANGES, [_saved(row, _RANGES) for row in watched.ranges]),
    }


def _step_row(step: watches.WatchedStep) -> Row:
    known = {f"{name.replace(' ', '_')}_s": seconds for name, seconds in step.parts.named()}
    own = fields(step, "number", "at_s", "thread", "slow")
    return {**own, **known, **fields(step.parts, "period_s", "hidden_h2d_s", "hidden_d2h_s")}


def _table(watched: watches.Watched, name: str) -> Grid:
    tables = _tables(watched)
    return tables[units.word_of(name or "steps", tables, "Table")]


# The tables have the names of those of runs.
_FIELDS = {"total_s": "seconds", "of_window": "share"}


def _saved(struct: object, columns: Sequence[grid.Column]) -> dict[str, Any]:
    names = {column.name: _FIELDS.get(column.name, column.name) for column in columns if column.saved}
    found = fields(struct, *names.values())
    return {name: found[field] for name, field in names.items()}


def _grids(watched: watches.Watched) -> list[Grid]:
    parts, tables, activity = watched.parts, _tables(watched), watched.activity.value
    words = watch_words.part_words(parts)
    line = None if activity is None else activity.timeline
    shares = [(words[name], seconds, parts.share(name)) for name, seconds in parts.named()]
    lanes = [] if line is None else [(lane.what, lane.busy_s, line.share(lane)) for lane in line.lanes]
    return [
        _times("Parts of the period", "part", shares),
        _times("Timeline, by all records", "work", lanes),
        *(tables[name] for name in ("copies", "calls", "ranges")),
    ]


def _times(name: str, what: str, rows: Sequence[tuple[str, float, float]]) -> Grid:
    cells = [(row, grid.number(time, format_seconds), grid.number(of, format_percent)) for row, time, of in rows]
    return text_grid(name, (what, "time", "share"), cells)


# --- charts ----------------------------------------------------------------------------------------------------------

_MAX_STEPS = 400


def _charts(watched: watches.Watched) -> Charts:
    words = watch_words.part_words(watched.parts)
    colours = {word: plots.PARTS[name] for name, word in words.items()}
    parts = [(words[name], seconds) for name, seconds in watched.parts.named() if seconds > 0]
    activity = watched.activity.value
    # The link bounds these; a copy inside a command, or within a device, is another order of magnitude.
    crossing = [row for row in (activity.copies if activity is not None else ()) if row.direction in ("h2d", "d2h")]
    copies = [row for row in crossing if row.least_bytes >= watches.MIN_OF_CEILING and row.gbps.value is not None]
    title = f"{watch_words.steps_text(watched)}: {clean(watched.verdict.text, 400)}"
    return {
        "parts": (lambda width: plots.waterfall_plot(parts, colours, title, width)) if parts else None,
        "steps": (lambda width: _steps_chart(watched, colours, width)) if watched.steps.each else None,
        "timeline": _timeline(activity) if activity is not None else None,
        "copies": (lambda width: _copies_chart(copies, width)) if copies else None,
    }


def _steps_chart(watched: watches.Watched, colours: Mapping[str, str], width: int) -> plots.Spec:
    steps, words = watched.steps.each[:_MAX_STEPS], watch_words.part_words(watched.parts)
    values = [
        {"step": step.number, "part": words[name], "ms": seconds * 1e3, "order": place}
        for step in steps
        for place, (name, seconds) in enumerate(step.parts.named())
        if seconds > 0
    ]
    median = watched.steps.period.value
    text = "" if median is None else f"{watched.steps.watched} steps, median {format_seconds(median.median_s)}"
    text = "; ".join(filter(None, (text, watch_words.slow_text(watched))))
    title = f"{text}; the first {len(steps)} are drawn" if len(watched.steps.each) > len(steps) else text
    return plots.step_plot(values, colours, title, width)


def _timeline(activity: watches.Activity) -> plots.Make | None:
    line = activity.timeline
    if line is None or not line.lanes or line.end_s <= line.begin_s:
        return None
    shares = {lane.what: format_percent(line.share(lane)) for lane in line.lanes}
    spans: plots.Values = [
        {"lane": lane.what, "begin": begin * 1e3, "end": end * 1e3, "share": shares[lane.what]}
        for lane in line.lanes
        for begin, end in lane.spans
    ]
    steps: plots.Values = [
        {
            "lane": "step",
            "begin": step.begin_s * 1e3,
            "end": step.end_s * 1e3,
            "middle": (step.begin_s + step.end_s) * 500,
            "step": str(step.number),
            "text": f"step {step.number}: {format_seconds(step.end_s - step.begin_s)}",
        }
        for step in line.steps
    ]
    ends = (line.begin_s * 1e3, line.end_s * 1e3)
    title = _timeline_text(line, shares, activity.overlap)
    return lambda width: plots.timeline_plot(spans, steps, ends, title, width)


def _timeline_text(line: watches.Timeline, shares: Mapping[watches.LaneName, str], overlap: watches.Overlap) -> str:
    numbers = list(dict.fromkeys((line.steps[0].number, line.steps[-1].number))) if line.steps else []
    what = f"Step{'s' * (len(numbers) > 1)} {' to '.join(map(str, numbers))}" if numbers else "The window"
    words = ", ".join(f"{name} {share}" for name, share in shares.items())
    gaps = f". Bars also cover gaps up to {format_seconds(line.merged_s)}; the shares do not" if line.merged_s else ""
    return f"{what}: {words} of the time. All copies of the window: {watch_words.copies_text(overlap)}{gaps}"


def _copies_chart(copies: Sequence[watches.CopyClass], width: int) -> plots.Spec:
    bars: plots.Values = []
    for row in copies[: plots.MAX_BARS]:
        share = "" if row.of_ceiling is None else f", {format_percent(row.of_ceiling)}"
        gbps = row.gbps.value or 0.0
        name = f"{row.direction} {clean(row.memory, 48)}, {watch_words.size_text(row)}"
        bars.append(
            plots.bar(name, gbps, f"{name}: {format_gbps(gbps)}{share}", plots.bar_figure(gbps, row.of_ceiling))
        )
    longest = max(copies, key=lambda row: row.seconds)
    what = f"{longest.direction} of {clean(longest.memory)} memory, {watch_words.size_text(longest)}"
    crossed = f"{watch_words.sum_text(sum(row.nbytes for row in copies))} in {sum(row.count for row in copies)} copies"
    title = f"{crossed}; most of their time: {what}. Bandwidth, and share of the ceiling"
    return plots.bar_plot(bars, title, width, "GB/s")


_LONGEST = 600


def _badge(watched: watches.Watched) -> tuple[Badge, str]:
    bound = watched.verdict.bound_by
    if watched.ended == "failed":
        return "bad", "failed"
    if bound == "unknown":
        return "none", "unknown"
    return ("good" if bound == "device" else "doubtful"), f"bound by {bound}"


def _advice(watched: watches.Watched) -> list[Advice]:
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
        ("Remarks", remark_lines(watched.remarks)),
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
