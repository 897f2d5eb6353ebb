"""Sessions of pytest: the page, the table of tests, and the chart of their shares of the ceiling."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyxfer._document.runs import Measurement
from pyxfer._document.sessions import Tested, TestMachine, XferSession
from pyxfer._report.grid import Column, Grid, fields, text_grid
from pyxfer._report.grid import number as number_cell
from pyxfer._report.plots import MAX_BARS, Spec, Values, bar, bar_plot
from pyxfer._report.prose import folded
from pyxfer._report.report import Badge, Caption, Charts, Report
from pyxfer._report.run import COLUMNS, cells_of
from pyxfer._report.text import (
    HOST_MEMORY,
    clean,
    counted,
    device_text,
    environment_lines,
    link_text,
    reason_text,
    remark_text,
)
from pyxfer.units import format_gbps, format_percent, format_size

if TYPE_CHECKING:
    from pyxfer._report.layout import Page


NARROWEST_TEST = 20
GAP = "  "
ALWAYS = ("test", "dir", "size", "GB/s", "+-", "of ceiling")
HEADING = (*ALWAYS, "marker", "compared")
LEFT = {"test", "dir", "marker", "compared"}
_NOT_KNOWN = "-"
_WIDE = "precision (+-) not reached; try a longer --xfer-budget, more rounds, or a larger precision= in the marker"
_COLOURS = {"too slow": "red", "unsure": "yellow", "fine": "green"}


def title(place: TestMachine) -> str:
    if place.runtime == "host":
        return f"pyxfer: {HOST_MEMORY}"
    return f"pyxfer: {device_text(place.device)}, {link_text(place.link)}"


def place_lines(session: XferSession, number: int, words: dict[str, str], width: int) -> list[tuple[str, str]]:
    """The table of one place and the notes below it; every line has a colour or an empty text."""
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
    widths = [max(map(_width, column)) for column in columns]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = min(widths[0], max(NARROWEST_TEST, width - rest))
    colours = ["", *map(_colour, tests)]
    lines = []
    for cells, colour in zip(zip(*columns, strict=True), colours, strict=True):
        padded = [
            _padded(_shortened(cell, size), size, left=HEADING[place] in LEFT)
            for cell, size, place in zip(cells, widths, shown, strict=True)
        ]
        lines.append((GAP.join(padded).rstrip(), colour))
    return lines


def notes(tests: Sequence[Tested]) -> list[str]:
    """Missing figures and remarks; tests with the same text share one note."""
    return _shared(tests, lambda test: [*_missing(test), *_remarks(test)])


def _shared(tests: Sequence[Tested], texts: Callable[[Tested], list[str]]) -> list[str]:
    tests_of: dict[str, list[str]] = {}
    for test, name in zip(tests, _names([test.test for test in tests]), strict=True):
        for text in texts(test):
            tests_of.setdefault(text, []).append(name)
    return [f"{_first(names)}: {text}" for text, names in tests_of.items()]


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


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(names[:2])
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else shown  # noqa: PLR2004 - the two that are shown


def _row(name: str, test: Tested, words: dict[str, str]) -> tuple[str, ...]:
    found = test.measurement
    half = None if found.summary is None else found.summary.relative_half_width
    return (
        name,
        found.direction,
        format_size(found.nbytes),
        _NOT_KNOWN if found.gbps is None else format_gbps(found.gbps).removesuffix(" GB/s"),
        _NOT_KNOWN if half is None or found.gbps is None else "> 100 %" if half > 1 else format_percent(half),
        _NOT_KNOWN if found.of_ceiling is None else format_percent(found.of_ceiling),
        _verdict(test),
        words.get(test.test, ""),
    )


def _verdict(test: Tested) -> str:
    """The document's word for the limits of the marker, or an empty text without limits."""
    return "" if test.judged.word == "not asked" else test.judged.word


def _colour(test: Tested) -> str:
    if test.outcome == "failed":
        return "red"
    return "yellow" if test.measurement.gbps is None else _COLOURS.get(test.judged.word, "")


def _names(tests: Sequence[str]) -> list[str]:
    """Names without the file if all tests are in one file, else without its folder."""
    files = {test.partition("::")[0] for test in tests}
    if len(files) == 1:
        return [clean(test.partition("::")[2] or test) for test in tests]
    return [clean(f"{test.partition('::')[0].rpartition('/')[2]}::{test.partition('::')[2]}") for test in tests]


def _shortened(text: str, width: int) -> str:
    """Shortened in the middle, because names differ at their start and parameters at their end."""
    if _width(text) <= width:
        return text
    while _width(text) > width - 3:
        middle = len(text) // 2
        text = text[:middle] + text[middle + 1 :]
    middle = (len(text) + 1) // 2
    return f"{text[:middle]}...{text[middle:]}"


def _padded(text: str, width: int, *, left: bool) -> str:
    spaces = " " * max(0, width - _width(text))
    return text + spaces if left else spaces + text


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def print_session(session: XferSession, page: Page) -> None:
    for number, place in enumerate(session.places):
        page.line(title(place), style="bold")
        for line, colour in place_lines(session, number, {}, page.columns):
            page.line(line, style=colour)
        for text in _shared([test for test in session.tests if test.place == number], _why):
            page.line(folded(text, page.columns))
    if session.ended == "interrupted":
        page.line("Interrupted: not all tests have run.")


# --- the report ------------------------------------------------------------------------------------------------------

_LONGEST_LABEL = 48


def _headline(session: XferSession) -> str:
    failed = sum(test.outcome == "failed" for test in session.tests)
    words = Counter(filter(None, map(_verdict, session.tests)))
    verdicts = ", ".join(f"{count} {word}" for word, count in words.items())
    by_marker = f" By their markers: {verdicts}." if verdicts else ""
    return f"{counted(len(session.tests), 'test')} measured transfers; {failed} failed.{by_marker}"


def _badge(session: XferSession) -> tuple[Badge, str]:
    failed = any(test.outcome == "failed" for test in session.tests)
    return ("bad", "failed") if failed else ("good", "passed")


def _missing_text(m: Measurement) -> str:
    """Why a figure is missing; empty if none is."""
    reason = m.rate.reason or m.ceiling_share.reason
    return reason_text(reason) if reason else ""


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
    return {"tests": (lambda width: _chart(tests, _chart_title(session), width)) if tests else None}


def _chart(tests: Sequence[Tested], title: str, width: int) -> Spec:
    bars: Values = []
    for test in tests[:MAX_BARS]:
        share, least = test.measurement.ceiling_share.value, test.expected.min_of_ceiling
        value, low, high = (0.0, None, None) if share is None else (share.value, share.low, share.high)
        words = f"{value * 100:.1f} %" + ("" if least is None else f", marker {least * 100:g} %")
        name = clean(test.test.partition("::")[2] or test.test, _LONGEST_LABEL)
        low, high = (None if end is None else end * 100 for end in (low, high))
        bars.append(bar(name, value * 100, f"{name}: {words}", words, low=low, high=high))
    return bar_plot(bars, title, width, "% of the ceiling", line=(100.0, "the ceiling"))


def _chart_title(session: XferSession) -> str:
    words = list(filter(None, map(_verdict, session.tests)))
    slow = words.count("too slow")
    without = sum(test.measurement.of_ceiling is None for test in session.tests)
    title = counted(len(session.tests), "test")
    if words:
        title = f"{counted(len(words), 'test')} with a marker, {slow or 'none'} too slow"
    return f"{title}; {without} without a share" if without else title


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
