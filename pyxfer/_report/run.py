"""Runs: the page, measured now or loaded from a file, the table of measurements, and the first sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._report import blocks, explain, files, frameworks, orders, plots, rates
from pyxfer._report.explain import Explained, find_explained, is_staged, part_colours, print_explained, waterfall_lines
from pyxfer._report.explain import headline as explained_text
from pyxfer._report.files import charts_of_files
from pyxfer._report.frameworks import group_text, print_frameworks, worker_lines
from pyxfer._report.grid import Cell, Grid, picked, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather, label, label_words
from pyxfer._report.overview import BADGES, answer, contents_text, doubts, footer, precision_text, print_overview
from pyxfer._report.report import INTERVALS, Advice, Badge, Caption, Charts, Report, Section
from pyxfer._report.route_tables import Group, Row, group_rows, order_groups, rate_unit
from pyxfer._report.text import Lines, clean, reason_text, remark_lines, titled


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
    if run.kind in ("files", "blocks"):
        (files.print_files if run.kind == "files" else blocks.print_blocks)(run, page)
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
    of_blocks = blocks.sections(run) if run.kind == "blocks" else []
    return [*((name, [("-", text)] if text else []) for name, text in texts.items()), *of_blocks, *last_sections(run)]


_LONGEST_LABEL = 48

CAPTIONS = {
    "sizes": Caption(
        "Bandwidth by size",
        f"{INTERVALS} The dashed line is the peak of the link after its packet headers.",
    ),
    "routes": Caption(
        "Routes beside the ceiling",
        f"{INTERVALS} A dashed line is the ceiling, in the same rounds where there is one.",
    ),
    "blocks": Caption(
        "Blocks by size and count",
        "Each method's share of page-locked copies in the same rounds, in per cent, by the caller's clock.",
    ),
    "waterfall": Caption(
        "Where the time goes",
        "One traced transfer, the one closest to the median. Each part begins where the one before it ends.",
    ),
}

# --- ceiling runs ----------------------------------------------------------------------------------------------------


def charts_of_run(run: runs.Run) -> Charts:
    timed = [m for m in run.measurements if m.gbps is not None and m.verified.value is not False]
    if run.kind == "explain":
        explained = find_explained(run)
        if explained is None:
            return {}
        lines = [] if explained.is_wrong else waterfall_lines(explained)
        rows = [m for m in (explained.row, *explained.others) if m in timed]
        title = titled(run.runtime, explained_text(explained))
        return {
            "waterfall": (lambda width: plots.waterfall_plot(lines, part_colours(explained), title, width))
            if lines
            else None,
            "routes": (lambda width: _alternatives_chart(explained, rows, title, width)) if rows else None,
        }
    if run.kind == "files":
        return charts_of_files(run)
    if run.kind == "blocks":
        return blocks.charts_of_blocks(run)
    if run.kind == "frameworks":
        marks = [""] * len(run.measurements)
        groups = [group for group in (*group_rows(run, marks), *order_groups(run, marks)) if _drawn_routes(group)]
        charts: Charts = {"routes": plots.stack(partial(_routes_plot, run, group) for group in groups)}
        return {**charts, "waterfall": orders.waterfalls(run)} if run.parameters.forms else charts
    return {"sizes": (lambda width: _sizes_chart(run, timed, width)) if timed else None}


def _sizes_chart(run: runs.Run, timed: Sequence[runs.Measurement], width: int) -> plots.Spec:
    sides: tuple[machines.Side, ...] = ("h2d", "d2h", "sum", "ingest")
    names = list(dict.fromkeys(_series(run, m) for m in timed))
    colours = dict(zip(names, plots.COLOURS, strict=False))
    by_side = {side: [(_series(run, m), m) for m in timed if is_alone(m, side)] for side in sides}
    drawn = [side for side, named in by_side.items() if any(name in colours for name, _ in named)]
    return plots.stacked([_size_plot(run, by_side[side], side, colours, width) for side in drawn])


def _series(run: runs.Run, m: runs.Measurement) -> str:
    return label(m, run) if run.kind == "measure" else " ".join(label_words(m, run))


def _size_plot(
    run: runs.Run,
    named: Sequence[tuple[str, runs.Measurement]],
    side: machines.Side,
    colours: Mapping[str, str],
    width: int,
) -> plots.Spec:
    values = [_rate_value(name, m) for name, m in named if name in colours]
    left_out = {name for name, _ in named} - colours.keys()
    more = f"; {len(left_out)} more series are in the table" if left_out else ""
    title = titled(run.runtime, f"{reached_text(run, side)}{more}")
    return plots.rate_plot(values, title, width, colours, peak=run.link.peak_gbps(side).value)


def _rate_value(name: str, m: runs.Measurement, factor: float = 1.0) -> dict[str, Any]:
    rate = m.rate.value or runs.Rate(0.0, None, None)
    share = "" if m.of_ceiling is None else f", {units.format_percent(m.of_ceiling)}"
    low, high = (None if end is None else end * factor for end in (rate.low_gbps, rate.high_gbps))
    text = f"{units.format_size(m.nbytes)}: {units.format_gbps(rate.gbps)}{share}"
    figure = plots.bar_figure(rate.gbps * factor, m.of_ceiling)
    return {"nbytes": m.nbytes, **plots.bar(name, rate.gbps * factor, text, figure, low=low, high=high)}


def reached_text(run: runs.Run, side: machines.Side) -> str:
    """`h2d: 55.31 GB/s at 256 MiB from pinned memory, 97.9 % of the peak`; empty without a figure."""
    rows = [m for m in run.measurements if is_alone(m, side) and m.gbps is not None and m.verified.value is not False]
    best = max(rows, key=lambda m: m.gbps or 0.0, default=None)
    if best is None or best.gbps is None:
        return ""
    name = "both ways" if side == "sum" else side
    staged = ", staged" if best.mode == machines.STAGED else ""
    peak = "" if best.of_peak is None else f", {units.format_percent(best.of_peak)} of the peak"
    figure = f"{units.format_gbps(best.gbps)} at {units.format_size(best.nbytes)}"
    return f"{name}: {figure} with {clean(best.memory)} memory{staged}{peak}"


def is_alone(m: runs.Measurement, side: machines.Side) -> bool:
    return m.side == side and side in (m.direction, "sum")


# --- routes of frameworks --------------------------------------------------------------------------------------------


def _drawn_routes(group: Group) -> list[Row]:
    known = [row for row in group.routes if row.gbps(group.largest) is not None]
    right = [row for row in known if row.at[group.largest].verified.value is not False]
    return sorted(right, key=lambda row: -(row.gbps(group.largest) or 0.0))[: plots.MAX_BARS]


def _routes_plot(run: runs.Run, group: Group, width: int) -> plots.Spec:
    unit, factor = rate_unit(run)
    bars = []
    for row in _drawn_routes(group):
        role = "pyxfer" if is_staged(row.any) else "usual" if row.usual else "other"
        bars.append({**_rate_value(row.name, row.at[group.largest], factor), "role": role})
    ceiling = group.ceiling.gbps(group.largest) if group.ceiling is not None else None
    whole = "one copy in host memory" if group.direction == "ingest" else "ceiling"
    line = None if ceiling is None else (ceiling * factor, f"{whole}, {plots.bar_figure(ceiling * factor)} {unit}")
    return plots.bar_plot(bars, titled(run.runtime, group_text(run, group)), width, unit, line=line)


# --- explained routes ------------------------------------------------------------------------------------------------


def _alternatives_chart(explained: Explained, rows: Sequence[runs.Measurement], title: str, width: int) -> plots.Spec:
    bars = []
    for m in sorted(rows, key=lambda m: -(m.gbps or 0.0))[: plots.MAX_BARS]:
        name = clean(m.route, _LONGEST_LABEL) + (" fresh" if m.variant == "fresh" else "")
        role = "explained" if m is explained.row else "raw" if m.route_info is None else "other"
        bars.append({**_rate_value(name, m), "role": role})
    return plots.bar_plot(bars, title, width, "GB/s")


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
    if run.kind in ("files", "blocks"):
        figures = (files if run.kind == "files" else blocks).answer(run)
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
    of_kinds = {"explain": explain, "frameworks": frameworks, "files": files, "blocks": blocks}
    by_kind = {kind: module.advice for kind, module in of_kinds.items()}
    return by_kind[run.kind](run) if run.kind in by_kind else []


REPORT = Report(
    struct=runs.Run,
    title=lambda run: f"pyxfer {run.kind}",
    page=print_run,
    headline=_headline,
    badge=_badge,
    heading=rates.heading_lines,
    advice=_advice,
    grids=lambda run: [*blocks.grids(run), rates.measurements(run), *orders.grids(run), *_parts(run), *rates.fits(run)],
    table=lambda run, _: rates.measurements(run),
    sections=sections,
    charts=charts_of_run,
    captions=CAPTIONS,
)
