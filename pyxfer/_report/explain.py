"""An explain run: where the time of a route goes, which clock sees what of it, and what is faster here."""

from __future__ import annotations

from rich.table import Table

from pyxfer import units
from pyxfer._document import runs
from pyxfer._document.runs import PARTS
from pyxfer._report import explain_words as words
from pyxfer._report.explain_words import Explained, better_routes, copies_nothing, find_explained, is_staged
from pyxfer._report.layout import BAR, Column, Page, bars, fitting_table, grid_width, percent_cells, time_cells
from pyxfer._report.text import capitalised, clean, reason_text, remark_text, sentence

_WIDEST_BAR = 40
_LONGEST_NAME = 40
_WORDS: dict[runs.PartName, str] = {
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


def apart_text(row: runs.Measurement) -> str:
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


def _lines(explained: Explained, breakdown: runs.Breakdown) -> list[_Line]:
    """What the ceiling takes too, and then everything else in the order in which it comes about."""
    if explained.row.direction == "ingest":
        return _host_lines(explained, breakdown)
    order: list[runs.PartName] = ["copying", *(name for name in PARTS if name != "copying")]
    known = [(name, breakdown.seconds(name)) for name in order]
    return [(_words(explained.row, name), seconds) for name, seconds in known if seconds > 0]


def _host_lines(explained: Explained, breakdown: runs.Breakdown) -> list[_Line]:
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


def _words(row: runs.Measurement, name: runs.PartName) -> str:
    if name != "staging":
        return _WORDS[name]
    if is_staged(row):
        return _RING
    return _STAGING if row.dma.value is not None and "pageable" in row.dma.value.source else _SLOWER


MOST_ADVICE = 3
# The waterfall has said it, and by how much, also where it is less than what a remark is made for.
_SAID_ELSEWHERE = "traced"
_WRONG = "It was traced, but what arrived was not what was sent: where its time goes would say nothing."


def print_explained(run: runs.Run, page: Page) -> None:
    """The route in question, from its headline to what to use in its place."""
    explained = find_explained(run)
    page.line()
    if explained is None:
        page.line(f"{clean(run.parameters.explained)}: the run ended before there was anything to say of it.")
        return
    page.line(words.headline(explained), style="bold")
    if words.no_link_text(explained):
        page.line(words.no_link_text(explained))
    _print_parts(explained, page)
    _print_crossing(explained, page)
    if words.clock_lines(explained.row):
        page.heading("Clocks")
        page.hanging(words.clock_lines(explained.row))
        page.hanging([("-", sentence) for sentence in words.clock_sentences(explained.row)])
    _print_advice(explained, page)
    remarks = [remark for remark in explained.row.remarks if remark.code != _SAID_ELSEWHERE]
    if remarks:
        page.heading("Mind")
        page.hanging([("-", capitalised(remark_text(remark))) for remark in remarks], style="yellow")


def _print_parts(explained: Explained, page: Page) -> None:
    row = explained.row
    if explained.is_wrong and row.breakdown.value is not None:
        page.line()
        page.line(_WRONG)
    if explained.is_wrong or (row.breakdown.reason is not None and row.breakdown.reason == row.rate.reason):
        return  # the headline has said it
    page.heading("Where the time goes")
    page.line(traced_text(explained))
    table = waterfall(explained, page.columns)
    if table is not None:
        page.show(table)
    for text in filter(None, (apart_text(row), host_copy_text(explained))):
        page.line(text)


def _print_crossing(explained: Explained, page: Page) -> None:
    lines = []
    row = explained.row
    if row.direction != "ingest" and (row.dma.value is not None or row.dma.reason != row.breakdown.reason):
        lines.append(("crossed" if not explained.on_host else "copied", words.crossing_text(explained)))
    if words.host_text(explained.row):
        lines.append(("on the host", words.host_text(explained.row)))
    if lines:
        page.line()
        page.hanging(lines)


def _print_advice(explained: Explained, page: Page) -> None:
    if explained.row.summary is None:
        return
    page.heading("Faster here, measured in the same run")
    found = better_routes(explained, MOST_ADVICE)
    if not found:
        kind = "raw route" if explained.row.nature is None else "route of this framework"
        page.line(f"No other {kind} measured here is faster beyond doubt.")
    page.hanging([(f"{number}.", words.better_text(explained, each)) for number, each in enumerate(found, start=1)])
