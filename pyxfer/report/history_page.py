"""What a store has of some cells over time: a table for each, or a line where they are many."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer import units
from pyxfer.model_store import History, HistoryGroup, HistoryPoint

from .baseline_page import gpu_text, moment_text
from .grid import Column, fitting_table, rate_cells
from .terminal import Page
from .text import HOST_MEMORY, clean, escaped, remark_text, sentence

MOST_TABLES = 6
MOST_ROWS = 100
_STRIP = 11
# Less than this is the noise of most hosts, and not to fill the strip.
_LEAST_SCALE = 0.05
_LONGEST_HOST = 24


def print_history(history: History, page: Page) -> None:
    """All groups, the remarks about them first."""
    for remark in history.remarks:
        page.line(sentence(remark_text(remark)))
    if len(history.groups) > MOST_TABLES:
        _print_lines(history.groups, page)
        return
    for group in history.groups:
        _print_group(group, page)


def _print_group(group: HistoryGroup, page: Page) -> None:
    worker = f", in the worker {escaped(group.worker)}" if group.worker else ""
    page.heading(f"{clean(group.cell_text)} on {escaped(group.host)}, {_device_text(group)}{worker}")
    for remark in group.remarks:
        page.line(sentence(remark_text(remark)))
    page.line(f"{len(group.points)} measured, median {units.format_gbps(group.median_gbps)}")
    points = group.points[-MOST_ROWS:]
    if len(points) < len(group.points):
        page.line(f"The newest {len(points)} are shown; --format csv has all.")
    scale = _scale([point.change for point in points])
    columns = [
        Column(("time (UTC)",), tuple(moment_text(point.taken_at)[:16] for point in points), left=True),
        Column(("GB/s",), rate_cells([point.gbps for point in points], [""] * len(points))),
        Column(("95 % interval",), _intervals(points)),
        Column(("to median",), tuple(_change(point.change) for point in points)),
        Column((_strip_heading(scale),), tuple(_strip(point.change, scale) for point in points), left=True),
        Column(("run",), tuple(clean(point.run_id) for point in points), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def _device_text(group: HistoryGroup) -> str:
    return HOST_MEMORY if group.runtime == "host" else escaped(group.gpu.value or group.device)


def _print_lines(groups: Sequence[HistoryGroup], page: Page) -> None:
    """The newest of each against the median of its own, the one that lost most first."""
    ordered = sorted(groups, key=lambda group: group.points[-1].change)
    newest = [group.points[-1] for group in ordered]
    scale = _scale([point.change for point in newest])
    texts = {group.cell_text for group in groups}
    of_cell = f" of {clean(groups[0].cell_text)}" if len(texts) == 1 else ""
    page.heading(f"{len(groups)} histories{of_cell}, the newest of each against their own median; --host shows one")
    columns = [
        Column(("host",), tuple(escaped(group.host, _LONGEST_HOST) for group in ordered), left=True),
        Column(("GPU",), tuple(gpu_text(group) for group in ordered), left=True),
        *(_cell_column(ordered) if len(texts) > 1 else []),
        Column(("points",), tuple(str(len(group.points)) for group in ordered)),
        Column(("GB/s",), rate_cells([point.gbps for point in newest], [""] * len(newest))),
        Column(("to median",), tuple(_change(point.change) for point in newest)),
        Column((_strip_heading(scale),), tuple(_strip(point.change, scale) for point in newest), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def _cell_column(groups: Sequence[HistoryGroup]) -> list[Column]:
    return [Column(("cell",), tuple(clean(group.cell_text) for group in groups), left=True)]


def _intervals(points: Sequence[HistoryPoint]) -> tuple[str, ...]:
    missing = [""] * len(points)
    lows = rate_cells([point.low_gbps for point in points], missing)
    highs = rate_cells([point.high_gbps for point in points], missing)
    return tuple(f"{low} to {high}" if low and high else "" for low, high in zip(lows, highs, strict=True))


def _change(change: float) -> str:
    return f"{(change - 1) * 100:+.1f} %"


def _scale(changes: Sequence[float]) -> float:
    """How far the ends of the strip are from the median: the furthest of these, in whole steps of five per cent."""
    furthest = max((abs(change - 1) for change in changes), default=0.0)
    steps = max(1, -(-furthest // _LEAST_SCALE))
    return min(steps * _LEAST_SCALE, 1.0)


def _strip(change: float, scale: float) -> str:
    """A star between the ends, left of the middle where it is slower."""
    middle = _STRIP // 2
    place = middle + round(max(-1.0, min((change - 1) / scale, 1.0)) * middle)
    return "".join("*" if at == place else "|" if at == middle else "." for at in range(_STRIP))


def _strip_heading(scale: float) -> str:
    end = f"{scale * 100:.0f} %"
    return f"-{end}".ljust(_STRIP - len(end) - 1) + f"+{end}"
