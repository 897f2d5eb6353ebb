"""Histories: the page with a strip of changes for each machine, the table of all points, and the chart over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyxfer import units
from pyxfer._document.baselines import Fingerprint, History, HistoryChange, HistoryGroup, HistoryPoint
from pyxfer._document.links import LOAD_BYTES
from pyxfer._report.grid import Cell, Column, Grid, Row, fields, number
from pyxfer._report.layout import Column as PageColumn
from pyxfer._report.layout import Page, fitting_table, rate_cells
from pyxfer._report.plots import Make, Spec, Values, history_plot, stacked
from pyxfer._report.report import Badge, Caption, Report, Section
from pyxfer._report.text import (
    HOST_MEMORY,
    NANO,
    clean,
    counted,
    escaped,
    format_latency,
    moment_text,
    nanoseconds_text,
    remark_text,
    sentence,
)

MAX_TABLES = 6
MAX_ROWS = 100
_STRIP = 11
# On most hosts a smaller change is noise, which must not fill the strip.
_MIN_SCALE = 0.05
LONGEST_HOST = 24
_GPU_CHARACTERS = 12


def print_history(history: History, page: Page) -> None:
    for remark in history.remarks:
        page.line(sentence(remark_text(remark)))
    if len(history.groups) > MAX_TABLES:
        _print_lines(history.groups, page)
        return
    for group in history.groups:
        _print_group(group, page)


def _print_group(group: HistoryGroup, page: Page) -> None:
    worker = f", worker {escaped(group.worker)}" if group.worker else ""
    page.heading(f"{clean(group.cell_text)} on {escaped(group.host)}, {_device_text(group)}{worker}")
    for remark in group.remarks:
        page.line(sentence(remark_text(remark)))
    page.line(f"points: {len(group.points)}, median {_figure(group.median_gbps, group)}")
    for change in group.changes:
        page.line(f"{change_text(change, group)} since {moment_text(change.taken_at)[:16]}, run {clean(change.run_id)}")
    if not group.changes:
        page.line(without_change(group))
    points = group.points[-MAX_ROWS:]
    if len(points) < len(group.points):
        page.line(f"Only the newest {len(points)} are shown; --export-csv has all.")
    scale = _scale([point.change for point in points])
    columns = [
        PageColumn(("time (UTC)",), tuple(moment_text(point.taken_at)[:16] for point in points), left=True),
        PageColumn(("ns" if group.cell.is_latency else "GB/s",), _figures_of(points, group)),
        PageColumn(("95 % interval",), _intervals(points, group)),
        PageColumn(("to median",), tuple(_change(point.change) for point in points)),
        PageColumn((_strip_heading(scale),), tuple(_strip(point.change, scale) for point in points), left=True),
        PageColumn(("run",), tuple(clean(point.run_id) for point in points), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def _figure(gbps: float, group: HistoryGroup | None) -> str:
    """`55.01 GB/s`, or of a latency `1180.2 ns`."""
    if group is not None and group.cell.is_latency:
        return format_latency(LOAD_BYTES / gbps / NANO)
    return units.format_gbps(gbps)


def _figures_of(points: Sequence[HistoryPoint], group: HistoryGroup) -> tuple[str, ...]:
    if group.cell.is_latency:
        return tuple(nanoseconds_text(point.median_s) for point in points)
    return rate_cells([point.gbps for point in points])


def change_text(change: HistoryChange, group: HistoryGroup | None = None) -> str:
    """`3.0 % slower, 53.36 GB/s instead of 55.01 GB/s`; of a latency, whose `group` tells it, in nanoseconds."""
    word = "slower" if change.share < 0 else "faster"
    rates = f"{_figure(change.after_gbps, group)} instead of {_figure(change.before_gbps, group)}"
    return f"{units.format_percent(abs(change.share))} {word}, {rates}"


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
        word = "slower" if group.drift < 0 else "faster"
        return f"a drift, no step: {units.format_percent(abs(group.drift))} {word} over {count}"
    limit = group.limit.value
    if limit is None:
        return f"whether it changed is not known from {count}: {clean(group.limit.reason or '')}"
    loss = f"a loss of {units.format_percent(limit.loss)} for {limit.runs} runs or longer"
    return f"no change in {count}; {loss} would have been found"


def _device_text(group: HistoryGroup) -> str:
    if group.runtime == "host":
        return HOST_MEMORY
    gpu = group.gpu.value
    return escaped(group.device if gpu is None or ", " in gpu else gpu)


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


def _print_lines(groups: Sequence[HistoryGroup], page: Page) -> None:
    """The newest point of each group beside the group's median, the largest loss first."""
    ordered = sorted(groups, key=lambda group: group.points[-1].change)
    newest = [group.points[-1] for group in ordered]
    scale = _scale([point.change for point in newest])
    texts = {group.cell_text for group in groups}
    of_cell = f" of {clean(groups[0].cell_text)}" if len(texts) == 1 else ""
    page.heading(f"Newest of {len(groups)} histories{of_cell} and its change to their median; --host shows one")
    columns = [
        PageColumn(("host",), tuple(escaped(group.host, LONGEST_HOST) for group in ordered), left=True),
        PageColumn(("GPU",), tuple(gpu_text(group) for group in ordered), left=True),
        *(_cell_column(ordered) if len(texts) > 1 else []),
        PageColumn(("points",), tuple(str(len(group.points)) for group in ordered)),
        PageColumn(("GB/s",), rate_cells([point.gbps for point in newest])),
        PageColumn(("to median",), tuple(_change(point.change) for point in newest)),
        PageColumn((_strip_heading(scale),), tuple(_strip(point.change, scale) for point in newest), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def _cell_column(groups: Sequence[HistoryGroup]) -> list[PageColumn]:
    return [PageColumn(("cell",), tuple(clean(group.cell_text) for group in groups), left=True)]


_FARTHEST = 10
"""An interval that ends beyond so many times the value is cut off there."""


def _intervals(points: Sequence[HistoryPoint], group: HistoryGroup) -> tuple[str, ...]:
    if group.cell.is_latency:
        ends = [(point.high_gbps, point.low_gbps) for point in points]
        return tuple(f"{LOAD_BYTES / high:.1f} to {LOAD_BYTES / low:.1f}" if low and high else "" for high, low in ends)
    texts = []
    for point in points:
        # A run of few trials has an interval whose lower end is near 0; its decimals would say nothing.
        low, high = (rate_cells([end], most=2)[0] for end in (point.low_gbps, point.high_gbps))
        far = point.high_gbps is not None and point.high_gbps > _FARTHEST * point.gbps
        texts.append(f"{low} to {f'over {_FARTHEST * point.gbps:.0f}' if far else high}" if low and high else "")
    return tuple(texts)


def _change(change: float) -> str:
    return f"{(change - 1) * 100:+.1f} %"


def _scale(changes: Sequence[float]) -> float:
    """The change at the ends of the strip: the largest of these, rounded up to 5 %, at most 100 %."""
    furthest = max((abs(change - 1) for change in changes), default=0.0)
    steps = max(1, -(-furthest // _MIN_SCALE))
    return min(steps * _MIN_SCALE, 1.0)


def _strip(change: float, scale: float) -> str:
    """A star between both ends, left of the middle for a loss."""
    middle = _STRIP // 2
    place = middle + round(max(-1.0, min((change - 1) / scale, 1.0)) * middle)
    return "".join("*" if at == place else "|" if at == middle else "." for at in range(_STRIP))


def _strip_heading(scale: float) -> str:
    end = f"{scale * 100:.0f} %"
    return f"-{end}".ljust(_STRIP - len(end) - 1) + f"+{end}"


# --- the report ------------------------------------------------------------------------------------------------------

_MAX_POINTS = 2000
_MAX_CHARTS = 12


def _headline(history: History) -> str:
    """The history whose last change lost most, or that none has changed."""
    changed = [group for group in history.groups if group.changes]
    if not changed:
        searched = list(filter(_is_searched, history.groups))
        unknown = f"; {len(history.groups) - len(searched)} histories cannot show one"
        drifting = f"; {count} of them drift" if (count := sum(group.drift is not None for group in searched)) else ""
        if not searched:
            return f"Whether any of {len(history.groups)} histories has changed is not known."
        rest = unknown if len(searched) < len(history.groups) else ""
        return f"No change in {len(searched)} histories{drifting}{rest}."
    worst = min(changed, key=lambda group: group.changes[-1].share)
    return f"{len(changed)} of {len(history.groups)} histories have changed; {group_text(worst)}."


def _badge(history: History) -> tuple[Badge, str]:
    last = [group.changes[-1].share if group.changes else group.drift or 0.0 for group in history.groups]
    slower = sum(share < 0 for share in last)
    if slower:
        return "doubtful", f"{slower} slower"
    return "none", "no loss" if any(map(_is_searched, history.groups)) else "not known"


def _is_searched(group: HistoryGroup) -> bool:
    """Whether the group has runs enough to show a change, or has shown one."""
    return bool(group.changes) or group.drift is not None or group.limit.value is not None


_COLUMNS = (
    Column("host", heading="host"),
    Column("runtime"),
    Column("device", heading="device"),
    Column("gpu", heading="GPU"),
    Column("cell", heading="cell"),
    Column("worker", heading="worker"),
    Column("taken_at", "moment", "time"),
    Column("run", heading="run"),
    Column("bandwidth", heading="bandwidth", saved=False),
    Column("change", heading="to median", saved=False),
    *(Column(name, "number") for name in ("gbps", "low_gbps", "high_gbps", "median_s", "to_median", "level_gbps")),
)


def _rows(history: History) -> list[Row]:
    rows: list[Row] = []
    for group in history.groups:
        of_group = {**fields(group, "host", "runtime", "device", "gpu", "worker"), "cell": group.cell_text}
        level, later = group.median_gbps, {change.run_id: change.after_gbps for change in group.changes}
        if group.changes:
            level = group.changes[0].before_gbps
        for point in group.points:
            level = later.get(point.run_id, level)
            figures = {"run": point.run_id, "to_median": point.change, "level_gbps": level}
            own = fields(point, "taken_at", "gbps", "low_gbps", "high_gbps", "median_s")
            rows.append({**of_group, **own, **figures, **_cells(point, group)})
    return rows


def _cells(point: HistoryPoint, group: HistoryGroup) -> Row:
    bandwidth = (
        number(point.median_s, format_latency) if group.cell.is_latency else number(point.gbps, units.format_gbps)
    )
    return {"bandwidth": bandwidth, "change": Cell(_change(point.change), point.change - 1)}


def _grids(history: History) -> list[Grid]:
    rows = _rows(history)
    name = "Points" if len(rows) <= _MAX_POINTS else f"The last {_MAX_POINTS} of {len(rows)} points"
    return [Grid(name, _COLUMNS, rows[-_MAX_POINTS:])]


def _sections(history: History) -> list[Section]:
    changes = [
        (clean(group.cell_text), f"{change_text(change, group)} since {clean(change.taken_at)}, {clean(group.host)}")
        for group in history.groups
        for change in group.changes
    ]
    changes += [
        (clean(group.cell_text), f"{without_change(group)}, {clean(group.host)}")
        for group in history.groups
        if not group.changes
    ]
    of_groups = [remark for group in history.groups for remark in group.remarks]
    remarks = [("-", remark_text(remark)) for remark in (*history.remarks, *of_groups)]
    return [("Changes", changes), ("Remarks", remarks)]


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


def _charts(history: History) -> Mapping[str, Make | None]:
    groups = [group for group in history.groups if group.points][:_MAX_CHARTS]
    return {"history": (lambda width: stacked([_history_plot(group, width) for group in groups])) if groups else None}


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
    table=lambda history, _: Grid("Points", _COLUMNS, _rows(history)),
)
