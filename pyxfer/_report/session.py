"""Sessions of pytest: the page, the table of tests, and the chart of their shares of the ceiling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len

from pyxfer._document.machines import HOST_MEMORY
from pyxfer._document.runs import Share
from pyxfer._document.sessions import Tested, TestMachine, XferSession
from pyxfer._report.grid import Column, Grid, fields, text_grid
from pyxfer._report.grid import number as number_cell
from pyxfer._report.layout import NONE, Page
from pyxfer._report.layout import Column as PageColumn
from pyxfer._report.plots import MAX_BARS, bar, bar_plot
from pyxfer._report.prose import folded
from pyxfer._report.rates import COLUMNS, cells_of
from pyxfer._report.report import Badge, Caption, Charts, Report
from pyxfer._report.text import (
    clean,
    counted,
    device_text,
    environment_lines,
    link_text,
    reason_text,
    remark_text,
)
from pyxfer.units import first_of, format_gbps, format_percent, format_size

GAP = "  "
ALWAYS = ("test", "dir", "size", "GB/s", "+-", "of ceiling")
HEADING = (*ALWAYS, "marker", "compared")
LEFT = {"test", "dir", "marker", "compared"}
_WIDE = "precision (+-) not reached; try a longer --xfer-budget, or a larger precision= in the marker"
_COLOURS = {"too slow": "red", "unsure": "yellow", "fine": "green"}


def title(place: TestMachine) -> str:
    if place.runtime == "host":
        return f"pyxfer: {HOST_MEMORY}"
    return f"pyxfer: {device_text(place.device)}, {link_text(place.link)}"


def place_lines(session: XferSession, number: int, words: dict[str, str], width: int) -> list[tuple[str, str]]:
    tests = [test for test in session.tests if test.place == number]
    texts = notes(tests)
    if session.places[number].runtime == "host":
        texts.append("Measured in host memory: the figures and shares are not those of a link.")
    return [*table_lines(tests, words, width), *((folded(text, width), "") for text in texts)]


def table_lines(tests: Sequence[Tested], words: dict[str, str], width: int) -> list[tuple[str, str]]:
    """Heading and rows, with a colour or an empty text; long names are shortened in the middle."""
    names = _names([test.test for test in tests])
    rows = [_row(name, test, words) for name, test in zip(names, tests, strict=True)]
    shown = [place for place, name in enumerate(HEADING) if name in ALWAYS or any(row[place] for row in rows)]
    columns = [[HEADING[place], *(row[place] for row in rows)] for place in shown]
    widths = [max(map(cell_len, column)) for column in columns]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    columns[0] = [_shortened(cell, max(20, width - rest)) for cell in columns[0]]
    padded = [PageColumn((), tuple(cells), left=HEADING[at] in LEFT) for cells, at in zip(columns, shown, strict=True)]
    lines = [GAP.join(column.padded_cell(row).plain for column in padded).rstrip() for row in range(len(rows) + 1)]
    colours = [""]
    for test in tests:
        colour = "yellow" if test.measurement.gbps is None else _COLOURS.get(test.judged.word, "")
        colours.append("red" if test.outcome == "failed" else colour)
    return list(zip(lines, colours, strict=True))


def _shortened(text: str, width: int) -> str:
    """Shortened in the middle, because names differ at their start and parameters at their end."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) > width - 3:
        middle = len(text) // 2
        text = text[:middle] + text[middle + 1 :]
    middle = (len(text) + 1) // 2
    return f"{text[:middle]}...{text[middle:]}"


def notes(tests: Sequence[Tested]) -> list[str]:
    return _shared(tests, lambda test: [*_missing(test), *_remarks(test)])


def _shared(tests: Sequence[Tested], texts: Callable[[Tested], list[str]]) -> list[str]:
    """Tests with the same text share one note."""
    tests_of: dict[str, list[str]] = {}
    for test, name in zip(tests, _names([test.test for test in tests]), strict=True):
        for text in texts(test):
            tests_of.setdefault(text, []).append(name)
    return [f"{first_of(names, 2)}: {text}" for text, names in tests_of.items()]


def _missing(test: Tested) -> list[str]:
    found = test.measurement
    return [] if found.gbps is not None else [f"no bandwidth: {reason_text(found.rate.reason)}"]


def _remarks(test: Tested) -> list[str]:
    found = test.measurement
    wide = [_WIDE for remark in found.remarks if remark.code == "unstable" and found.gbps is not None]
    return [*(remark_text(remark) for remark in found.remarks if remark.code != "unstable"), *wide]


def _why(test: Tested) -> list[str]:
    """The reasons of its verdict, which pytest has printed as a failure or a warning."""
    others = test.outcome == "failed" and test.judged.word != "too slow"
    return [*map(reason_text, test.judged.reasons), *(["failed for a reason other than its speed"] if others else [])]


def _row(name: str, test: Tested, words: dict[str, str]) -> tuple[str, ...]:
    found = test.measurement
    half = None if found.summary is None else found.summary.relative_half_width
    return (
        name,
        found.direction,
        format_size(found.nbytes),
        NONE if found.gbps is None else format_gbps(found.gbps).removesuffix(" GB/s"),
        NONE if half is None or found.gbps is None else "> 100 %" if half > 1 else format_percent(half),
        NONE if found.of_ceiling is None else format_percent(found.of_ceiling),
        _verdict(test),
        words.get(test.test, ""),
    )


def _verdict(test: Tested) -> str:
    return "" if test.judged.word == "not asked" else test.judged.word


def _names(tests: Sequence[str]) -> list[str]:
    """Names without the file if all tests are in one file, else without its folder."""
    parts = [test.partition("::") for test in tests]
    if len({file for file, _, _ in parts}) == 1:
        return [clean(name or file) for file, _, name in parts]
    return [clean(f"{file.rpartition('/')[2]}::{name}") for file, _, name in parts]


def print_session(session: XferSession, page: Page) -> None:
    for number, place in enumerate(session.places):
        page.line(title(place), style="bold")
        for line, colour in place_lines(session, number, {}, page.columns):
            page.line(line, style=colour)
        for text in _shared([test for test in session.tests if test.place == number], _why):
            page.line(folded(text, page.columns))
    if session.ended == "interrupted":
        page.line("Interrupted: not all tests have run.")


def _headline(session: XferSession) -> str:
    failed = sum(test.outcome == "failed" for test in session.tests)
    words = Counter(filter(None, map(_verdict, session.tests)))
    verdicts = ", ".join(f"{count} {word}" for word, count in words.items())
    by_marker = f" By their markers: {verdicts}." if verdicts else ""
    return f"{counted(len(session.tests), 'test')} measured transfers; {failed} failed.{by_marker}"


def _badge(session: XferSession) -> tuple[Badge, str]:
    failed = any(test.outcome == "failed" for test in session.tests)
    return ("bad", "failed") if failed else ("good", "passed")


def _grids(session: XferSession) -> list[Grid]:
    rows = [
        (
            test.test,
            test.outcome,
            test.measurement.direction,
            number_cell(test.measurement.nbytes, format_size),
            number_cell(test.measurement.gbps, format_gbps),
            number_cell(test.measurement.of_ceiling, format_percent),
            _verdict(test),
            # The reason why there is no share is in the verdict on it.
            "; ".join([*_why(test), *(_missing(test) if test.expected.min_of_ceiling is None else [])]),
        )
        for test in session.tests
    ]
    headings = ("test", "outcome", "direction", "size", "bandwidth", "of ceiling", "marker", "why")
    remarks = [("-", text) for text in _shared(session.tests, _remarks)]
    return [replace(text_grid("Tests", headings, rows), notes=remarks)]


def _table(session: XferSession) -> Grid:
    rows = [
        {**fields(test, "test", "outcome"), **cells_of(test.measurement, session.places[test.place])}
        for test in session.tests
    ]
    return Grid("Tests", (Column("test"), Column("outcome"), *COLUMNS), rows)


def _charts(session: XferSession) -> Charts:
    tests = [test for test in session.tests if test.measurement.of_ceiling is not None]
    bars = list(map(_bar, tests[:MAX_BARS]))
    words = list(filter(None, map(_verdict, session.tests)))
    title = counted(len(session.tests), "test")
    if words:
        title = f"{counted(len(words), 'test')} with a marker, {words.count('too slow') or 'none'} too slow"
    without = len(session.tests) - len(tests)
    title = f"{title}; {without} without a share" if without else title
    line = (100.0, "the ceiling")
    return {"tests": (lambda width: bar_plot(bars, title, width, "% of the ceiling", line=line)) if bars else None}


def _bar(test: Tested) -> dict[str, Any]:
    share, least = test.measurement.ceiling_share.value or Share(0.0, None, None), test.expected.min_of_ceiling
    words = f"{share.value * 100:.1f} %" + ("" if least is None else f", marker {least * 100:g} %")
    name = clean(test.test.partition("::")[2] or test.test, 48)
    low, high = (None if end is None else end * 100 for end in (share.low, share.high))
    return bar(name, share.value * 100, f"{name}: {words}", words, low=low, high=high)


REPORT = Report(
    struct=XferSession,
    title=lambda _: "pytest",
    page=print_session,
    headline=_headline,
    badge=_badge,
    heading=lambda session: [("began", clean(session.began_at)), ("pytest", clean(session.pytest))],
    grids=_grids,
    table=lambda session, _: _table(session),
    sections=lambda session: [
        (f"Environment: {title(place)}", environment_lines(place.environment)) for place in session.places
    ],
    charts=_charts,
    captions={
        "tests": Caption(
            "Share of the ceiling that each test reached",
            "A thin line is the 95 % interval; an arrow marks one that goes beyond the plot.",
        )
    },
)
