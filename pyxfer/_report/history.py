"""Histories: the page of each machine, the table of all points, and the chart over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pyxfer import units
from pyxfer._document.baselines import Fingerprint, History, HistoryChange, HistoryGroup, HistoryPoint
from pyxfer._document.links import LOAD_BYTES
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._document.runs import Rate
from pyxfer._report.grid import Cell, Column, Grid, Row, fields, number, picked
from pyxfer._report.layout import Page
from pyxfer._report.plots import Spec, Values, history_plot, stack
from pyxfer._report.report import Badge, Caption, Charts, Report, Section
from pyxfer._report.text import (
    NANO,
    clean,
    counted,
    escaped,
    format_latency,
    moment_text,
    rate_interval,
    remark_lines,
    remark_text,
    sentence,
)

MAX_TABLES = 6
MAX_ROWS = 100
LONGEST_HOST = 24
_GPU_CHARACTERS = 12


def print_history(history: History, page: Page) -> None:
    for remark in history.remarks:
        page.line(sentence(remark_text(remark)))
    if len(history.groups) > MAX_TABLES:
        _print_newest(history.groups, page)
        return
    for group in history.groups:
        _print_group(group, page)


def _print_group(group: HistoryGroup, page: Page) -> None:
    gpu = group.gpu.value
    device = HOST_MEMORY if group.runtime == "host" else escaped(group.device if gpu is None or ", " in gpu else gpu)
    worker = f", worker {escaped(group.worker)}" if group.worker else ""
    page.heading(f"{clean(group.cell_text)} on {escaped(group.host)}, {device}{worker}")
    for remark in group.remarks:
        page.line(sentence(remark_text(remark)))
    page.line(f"points: {len(group.points)}, median {_figure(group.median_gbps, group)}")
    for change in group.changes:
        page.line(f"{change_text(change, group)} since {moment_text(change.taken_at)[:16]}, run {clean(change.run_id)}")
    if not group.changes:
        page.line(without_change(group))
    rows = _rows([group])
    if len(rows) > MAX_ROWS:
        page.line(f"Only the newest {MAX_ROWS} are shown; --export-csv has all.")
    picked("", _COLUMNS, _READ, rows[-MAX_ROWS:]).print_on(page)


def _figure(gbps: float, group: HistoryGroup | None) -> str:
    """`55.01 GB/s`, or of a latency `1180.2 ns`."""
    if group is not None and group.cell.is_latency:
        return format_latency(LOAD_BYTES / gbps / NANO)
    return units.format_gbps(gbps)


def change_text(change: HistoryChange, group: HistoryGroup | None = None) -> str:
    """`3.0 % slower, 53.36 GB/s instead of 55.01 GB/s`; of a latency, whose `group` tells it, in nanoseconds."""
    rates = f"{_figure(change.after_gbps, group)} instead of {_figure(change.before_gbps, group)}"
    return f"{_speed(change.share)}, {rates}"


def _speed(share: float) -> str:
    return f"{units.format_percent(abs(share))} {'slower' if share < 0 else 'faster'}"


def group_text(group: HistoryGroup) -> str:
    name = f"{clean(group.cell_text)} on {escaped(group.host)}"
    if not group.changes:
        return f"{name}: {without_change(group)}, median {_figure(group.median_gbps, group)}"
    last, count = group.changes[-1], len(group.changes)
    which = f"{count} changes, the last " if count > 1 else ""
    return f"{name}: {which}{change_text(last, group)} since {moment_text(last.taken_at)[:16]}"


def without_change(group: HistoryGroup) -> str:
    count = counted(len(group.points), "run")
    if group.drift is not None:
        return f"a drift, no step: {_speed(group.drift)} over {count}"
    limit = group.limit.value
    if limit is None:
        return f"whether it changed is not known from {count}: {clean(group.limit.reason or '')}"
    loss = f"a loss of {units.format_percent(limit.loss)} for {limit.runs} runs or longer"
    return f"no change in {count}; {loss} would have been found"


def gpu_text(machine: Fingerprint | HistoryGroup) -> str:
    """The end of the GPU's UUID, which identifies it in a narrow column; of several GPUs their number."""
    if machine.runtime == "host":
        return "host memory"
    if machine.gpu.value is not None and ", " in machine.gpu.value:
        return f"{machine.gpu.value.count(', ') + 1} GPUs"
    if machine.gpu.value is None:
        return escaped(machine.device, _GPU_CHARACTERS + 3)
    uuid = escaped(machine.gpu.value)
    return uuid if len(uuid) <= _GPU_CHARACTERS else f"...{uuid[-_GPU_CHARACTERS:]}"


def _print_newest(groups: Sequence[HistoryGroup], page: Page) -> None:
    ordered = sorted(groups, key=lambda group: group.points[-1].change)
    texts = {group.cell_text for group in groups}
    of_cell = f" of {clean(groups[0].cell_text)}" if len(texts) == 1 else ""
    heading = f"Newest of {len(groups)} histories{of_cell} and its change to their median; --host shows one"
    rows = [{**_rows([each])[-1], "gpu": gpu_text(each), "host": escaped(each.host, LONGEST_HOST)} for each in ordered]
    names = ("host", "gpu", *(() if of_cell else ("cell",)), "bandwidth", "change")
    picked(heading, _COLUMNS, names, rows).print_on(page)


def _interval(point: HistoryPoint, group: HistoryGroup) -> str:
    if not point.low_gbps or not point.high_gbps:
        return ""
    if group.cell.is_latency:
        return f"{LOAD_BYTES / point.high_gbps:.1f} to {LOAD_BYTES / point.low_gbps:.1f} ns"
    return rate_interval(Rate(point.gbps, point.low_gbps, point.high_gbps))


_MAX_POINTS = 2000


def _headline(history: History) -> str:
    changed = [group for group in history.groups if group.changes]
    if changed:
        worst = min(changed, key=lambda group: group.changes[-1].share)
        return f"{len(changed)} of {len(history.groups)} histories have changed; {group_text(worst)}."
    searched = list(filter(_is_searched, history.groups))
    if not searched:
        return f"Whether any of {len(history.groups)} histories has changed is not known."
    drifting = f"; {count} of them drift" if (count := sum(group.drift is not None for group in searched)) else ""
    unknown = len(history.groups) - len(searched)
    rest = f"; {unknown} histories cannot show one" if unknown else ""
    return f"No change in {len(searched)} histories{drifting}{rest}."


def _badge(history: History) -> tuple[Badge, str]:
    last = [group.changes[-1].share if group.changes else group.drift or 0.0 for group in history.groups]
    slower = sum(share < 0 for share in last)
    if slower:
        return "doubtful", f"{slower} slower"
    return "none", "no loss" if any(map(_is_searched, history.groups)) else "not known"


def _is_searched(group: HistoryGroup) -> bool:
    return bool(group.changes) or group.drift is not None or group.limit.value is not None


_READ = ("taken_at", "bandwidth", "interval", "change", "run")
_COLUMNS = (
    Column("host", heading="host"),
    Column("runtime"),
    Column("device", heading="device"),
    Column("gpu", heading="GPU"),
    *(Column(name, heading=name) for name in ("cell", "worker")),
    Column("taken_at", "moment", "time (UTC)", lambda moment: moment_text(moment)[:16]),
    Column("bandwidth", heading="bandwidth", saved=False),
    Column("interval", heading="95 % interval", saved=False),
    Column("change", heading="to median", saved=False),
    Column("run", heading="run"),
    *(Column(name, "number") for name in ("gbps", "low_gbps", "high_gbps", "median_s", "to_median", "level_gbps")),
)


def _rows(groups: Iterable[HistoryGroup]) -> list[Row]:
    rows: list[Row] = []
    for group in groups:
        of_group = {**fields(group, "host", "runtime", "device", "gpu", "worker"), "cell": group.cell_text}
        level, later = group.median_gbps, {change.run_id: change.after_gbps for change in group.changes}
        if group.changes:
            level = group.changes[0].before_gbps
        for point in group.points:
            level = later.get(point.run_id, level)
            rate = number(point.gbps, units.format_gbps)
            own = {
                "run": point.run_id,
                "bandwidth": number(point.median_s, format_latency) if group.cell.is_latency else rate,
                "interval": _interval(point, group),
                "change": Cell(f"{(point.change - 1) * 100:+.1f} %", point.change - 1),
                "to_median": point.change,
                "level_gbps": level,
            }
            rows.append({**of_group, **fields(point, "taken_at", "gbps", "low_gbps", "high_gbps", "median_s"), **own})
    return rows


def _grids(history: History) -> list[Grid]:
    rows = _rows(history.groups)
    name = "Points" if len(rows) <= _MAX_POINTS else f"The last {_MAX_POINTS} of {len(rows)} points"
    return [Grid(name, _COLUMNS, rows[-_MAX_POINTS:])]


def _sections(history: History) -> list[Section]:
    lines = [
        (group, f"{change_text(change, group)} since {clean(change.taken_at)}")
        for group in history.groups
        for change in group.changes
    ]
    lines += [(group, without_change(group)) for group in history.groups if not group.changes]
    changes = [(clean(group.cell_text), f"{text}, {clean(group.host)}") for group, text in lines]
    of_groups = [remark for group in history.groups for remark in group.remarks]
    return [("Changes", changes), ("Remarks", remark_lines([*history.remarks, *of_groups]))]


def _history_plot(group: HistoryGroup, width: int) -> Spec:
    values: Values = [
        {
            "run": number,
            "gbps": point.gbps,
            "low": point.gbps if point.low_gbps is None else point.low_gbps,
            "high": point.gbps if point.high_gbps is None else point.high_gbps,
            "text": f"{clean(point.taken_at)}: {units.format_gbps(point.gbps)}",
        }
        for number, point in enumerate(group.points, start=1)
    ]
    number_of = {point.run_id: number for number, point in enumerate(group.points, start=1)}
    changes: Values = [
        {
            "run": number_of[change.run_id] - 0.5,
            "before": change.before_gbps,
            "after": change.after_gbps,
            "text": change_text(change),
        }
        for change in group.changes
    ]
    return history_plot(values, changes, group_text(group), width)


def _charts(history: History) -> Charts:
    groups = [group for group in history.groups if group.points][:12]
    return {"history": stack(partial(_history_plot, group) for group in groups)}


REPORT = Report(
    struct=History,
    title=lambda _: "pyxfer history",
    page=print_history,
    headline=_headline,
    badge=_badge,
    grids=_grids,
    sections=_sections,
    charts=_charts,
    captions={
        "history": Caption(
            "Bandwidth over time",
            "A thin line is the 95 % interval of a run; an arrow marks what goes beyond the plot. A dashed line is a "
            "change that chance does not explain; the lines between are medians. The axis does not begin at 0.",
        )
    },
    table=lambda history, _: Grid("Points", _COLUMNS, _rows(history.groups)),
)
