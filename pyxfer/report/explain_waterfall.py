"""From the ceiling's time to the route's: a line a part, with its time, its share, and a bar begun where it begins."""

from __future__ import annotations

from rich.table import Table

from pyxfer import model, units
from pyxfer.model_trace import PARTS

from .bars import BAR, bars
from .explained import Explained
from .grid import Column, fitting_table, grid_width, percent_cells, time_cells
from .text import clean

_WIDEST_BAR = 40
_LONGEST_NAME = 40
_WORDS: dict[model.PartName, str] = {
    "preparing": "preparing on the host",
    "waiting": "waiting for the copy to begin",
    "copying": "the copy, at the ceiling's speed",
    "gaps": "gaps in the device's work",
    "kernels": "kernels",
    "other copies": "copies in other directions",
    "returning": "the call returning afterwards",
    "finishing": "seeing that it is done",
}
_STAGING = "staging of pageable memory"
_SLOWER = "copying slower than the ceiling"
_Line = tuple[str, float]


def waterfall(explained: Explained, width: int) -> Table | None:
    """None where no trial was traced."""
    breakdown = explained.row.breakdown.value
    if breakdown is None:
        return None
    lines = [*_lines(explained, breakdown), (clean(explained.row.route, longest=_LONGEST_NAME), breakdown.elapsed_s)]
    unit, times = time_cells([seconds for _, seconds in lines])
    whole = breakdown.elapsed_s or 1.0
    columns = [
        Column(("",), tuple(words for words, _ in lines), left=True),
        Column((unit,), times),
        Column(("of it",), percent_cells([seconds / whole for _, seconds in lines])),
    ]
    room = min(_WIDEST_BAR, width - grid_width(columns, 2) - 2)
    drawn = bars([seconds / whole for _, seconds in lines[:-1]], room)
    return fitting_table([*columns, Column(("",), (*drawn, BAR * room), left=True)], width)


def traced_text(explained: Explained) -> str:
    """Which trial the parts are of, or why there is none."""
    row, breakdown = explained.row, explained.row.breakdown
    if breakdown.value is None:
        return clean(breakdown.reason or "no reason given")
    text = f"One transfer, the middle one of {breakdown.value.trials} that were traced"
    if row.summary is None:
        return text
    return f"{text}; the median of {row.summary.n} that were only timed is {units.format_seconds(row.summary.median_s)}"


def _lines(explained: Explained, breakdown: model.Breakdown) -> list[_Line]:
    """What the ceiling takes too, and then everything else in the order in which it comes about."""
    if explained.row.direction == "ingest":
        return _host_lines(explained, breakdown)
    order: list[model.PartName] = ["copying", *(name for name in PARTS if name != "copying")]
    known = [(name, breakdown.seconds(name)) for name in order]
    return [(_words(explained.row, name), seconds) for name, seconds in known if seconds > 0]


def _host_lines(explained: Explained, breakdown: model.Breakdown) -> list[_Line]:
    """What stays in host memory has no copy of a device, and is held against one copy there."""
    call_s = breakdown.seconds("preparing")
    copy_s = min(call_s, (explained.ceiling.elapsed_s or 0.0) if explained.ceiling is not None else 0.0)
    lines = [("what one copy in host memory takes", copy_s), ("everything else in the call", call_s - copy_s)]
    rest = breakdown.elapsed_s - call_s
    return [(words, seconds) for words, seconds in (*lines, (_WORDS["finishing"], rest)) if seconds > 0]


def _words(row: model.Measurement, name: model.PartName) -> str:
    if name != "staging":
        return _WORDS[name]
    return _STAGING if row.dma.value is not None and "pageable" in row.dma.value.source else _SLOWER
