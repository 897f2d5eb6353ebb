"""From the ceiling's time to the route's: a line a part, with its time, its share, and a bar begun where it begins."""

from __future__ import annotations

from rich.table import Table

from pyxfer import model, units
from pyxfer.model_trace import PARTS

from .bars import BAR, bars
from .explained import Explained, copies_nothing, is_staged
from .grid import Column, fitting_table, grid_width, percent_cells, time_cells
from .text import clean, reason_text, sentence

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
_RING = "staging through the ring's slots"
# Within this much of the median a traced trial is like those that were only timed.
_ALIKE = 0.03
_TIMES_FROM, _WHOLE_FROM = 2, 10
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
        return sentence(reason_text(breakdown.reason))
    trials, left_out = breakdown.value.trials, breakdown.value.left_out
    which = f"that {'was' if trials == 1 else 'were'} traced"
    if left_out:
        which = f"that could be broken down, of {trials + left_out} that were traced"
    one = f"the one {which}" if trials == 1 else f"the middle one of {trials} {which}"
    if row.summary is None:
        return f"One transfer, {one}."
    timed, median = f"{row.summary.n} that were only timed", units.format_seconds(row.summary.median_s)
    if trials == 1:
        return f"One transfer, {one}; the median of {timed} is {median}."
    of_them = f"of {trials} {which}{',' if left_out else ''}"
    return f"One transfer: {of_them} the one nearest to the median of {timed}, {median}."


def apart_text(row: model.Measurement) -> str:
    """That the traced trial is not like those that were timed: the tracer has a part in its parts."""
    breakdown = row.breakdown.value
    if breakdown is None or not row.elapsed_s:
        return ""
    times = breakdown.elapsed_s / row.elapsed_s
    if abs(times - 1) <= _ALIKE:
        return ""
    if times >= _TIMES_FROM:
        rounded = float(f"{times:.2g}")
        longer = f"{rounded:.0f}" if rounded >= _WHOLE_FROM else f"{rounded:.1f}"
        return f"Traced it takes {longer} times as long: read the shares with care."
    word = "longer" if times > 1 else "less"
    return f"Traced it takes {units.format_percent(abs(times - 1))} {word}: read the shares with care."


def host_copy_text(explained: Explained) -> str:
    """What one copy in host memory takes, where the call is not made of one and something else."""
    copy_s = _host_copy_s(explained)
    breakdown = explained.row.breakdown.value
    if explained.row.direction != "ingest" or breakdown is None or copy_s is None or _holds_a_copy(explained, copy_s):
        return ""
    took = units.format_seconds(copy_s)
    if copies_nothing(explained.row):
        return f"It copies nothing; what one copy in host memory takes is {took} here."
    return f"The call is shorter than what one copy in host memory takes, {took} here."


def _lines(explained: Explained, breakdown: model.Breakdown) -> list[_Line]:
    """What the ceiling takes too, and then everything else in the order in which it comes about."""
    if explained.row.direction == "ingest":
        return _host_lines(explained, breakdown)
    order: list[model.PartName] = ["copying", *(name for name in PARTS if name != "copying")]
    known = [(name, breakdown.seconds(name)) for name in order]
    return [(_words(explained.row, name), seconds) for name, seconds in known if seconds > 0]


def _host_lines(explained: Explained, breakdown: model.Breakdown) -> list[_Line]:
    """What stays in host memory has no copy of a device, and is held against one copy there."""
    call_s, copy_s = breakdown.seconds("preparing"), _host_copy_s(explained)
    lines = [("the call", call_s)]
    if copy_s is not None and _holds_a_copy(explained, copy_s):
        lines = [("what one copy in host memory takes", copy_s), ("everything else in the call", call_s - copy_s)]
    rest = breakdown.elapsed_s - call_s
    return [(words, seconds) for words, seconds in (*lines, (_WORDS["finishing"], rest)) if seconds > 0]


def _host_copy_s(explained: Explained) -> float | None:
    """The time of the row's ceiling, unless it is the row itself."""
    ceiling = explained.ceiling
    return None if ceiling is None or ceiling is explained.row else ceiling.elapsed_s


def _holds_a_copy(explained: Explained, copy_s: float) -> bool:
    breakdown = explained.row.breakdown.value
    return breakdown is not None and breakdown.seconds("preparing") > copy_s and not copies_nothing(explained.row)


def _words(row: model.Measurement, name: model.PartName) -> str:
    if name != "staging":
        return _WORDS[name]
    if is_staged(row):
        return _RING
    return _STAGING if row.dma.value is not None and "pageable" in row.dma.value.source else _SLOWER
