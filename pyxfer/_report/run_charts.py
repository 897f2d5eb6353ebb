"""Charts of runs. Their titles are findings; their figures are the documents'.

Everything in a document is data here: names are made harmless by `clean`, and are values of a chart, never code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._report import plots
from pyxfer._report.explain import Explained, find_explained, is_staged, part_colours, waterfall_lines
from pyxfer._report.explain import headline as explained_text
from pyxfer._report.files import charts_of_files
from pyxfer._report.frameworks import group_text
from pyxfer._report.notes import label, label_words
from pyxfer._report.report import INTERVALS, Caption, Charts
from pyxfer._report.route_tables import Group, Row, group_rows, rate_unit
from pyxfer._report.text import clean, titled

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
    "waterfall": Caption(
        "Where the time goes",
        "One traced transfer, the one closest to the median. Each part begins where the one before it ends.",
    ),
}

# --- ceiling runs ----------------------------------------------------------------------------------------------------


def charts_of_run(run: runs.Run) -> Charts:
    timed = [m for m in run.measurements if m.gbps is not None and m.verified.value is not False]
    if run.kind == "explain":
        return _charts_of_explained(run, timed)
    if run.kind == "files":
        return charts_of_files(run)
    if run.kind == "frameworks":
        groups = [group for group in group_rows(run, [""] * len(run.measurements)) if _drawn_routes(group)]
        return {"routes": plots.stack(partial(_routes_plot, run, group) for group in groups)}
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


def _charts_of_explained(run: runs.Run, timed: Sequence[runs.Measurement]) -> Charts:
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


def _alternatives_chart(explained: Explained, rows: Sequence[runs.Measurement], title: str, width: int) -> plots.Spec:
    bars = []
    for m in sorted(rows, key=lambda m: -(m.gbps or 0.0))[: plots.MAX_BARS]:
        name = clean(m.route, _LONGEST_LABEL) + (" fresh" if m.variant == "fresh" else "")
        role = "explained" if m is explained.row else "raw" if m.route_info is None else "other"
        bars.append({**_rate_value(name, m), "role": role})
    return plots.bar_plot(bars, title, width, "GB/s")
