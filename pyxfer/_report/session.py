"""Sessions of pytest: the page, the table of tests, and the chart of their shares of the ceiling."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyxfer._document.runs import Measurement
from pyxfer._document.sessions import Tested, TestMachine, XferSession
from pyxfer._report.grid import Grid, text_grid
from pyxfer._report.grid import number as number_cell
from pyxfer._report.plots import MAX_BARS, Spec, Values, bar, bar_plot
from pyxfer._report.prose import folded
from pyxfer._report.report import Badge, Caption, Charts, Report
from pyxfer._report.text import HOST_MEMORY, clean, device_text, environment_lines, link_text, reason_text, remark_text
from pyxfer.units import format_gbps, format_percent, format_size

if TYPE_CHECKING:
    from pyxfer._report.layout import Page


NARROWEST_TEST = 20
GAP = "  "
HEADING = ("test", "dir", "size", "GB/s", "+-", "of ceiling", "verdict")
LEFT = {"test", "dir", "verdict"}
_NOT_KNOWN = "-"
_WIDE = "precision (+-) not reached; try a longer --xfer-budget, more rounds, or a larger precision= in the marker"
_COLOURS = {"too slow": "red", "failed": "red", "unsure": "yellow", "no result": "yellow", "fine": "green"}


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
    shown = [place for place, _ in enumerate(HEADING) if place < len(HEADING) - 1 or any(row[place] for row in rows)]
    columns = [[HEADING[place], *(row[place] for row in rows)] for place in shown]
    widths = [max(map(_width, column)) for column in columns]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = min(widths[0], max(NARROWEST_TEST, width - rest))
    colours = ["", *(_COLOURS.get(_verdict(test), "") for test in tests)]
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
    tests_of: dict[str, list[str]] = {}
    for test, name in zip(tests, _names([test.test for test in tests]), strict=True):
        for text in _texts(test):
            tests_of.setdefault(text, []).append(name)
    return [f"{_first(names)}: {text}" for text, names in tests_of.items()]


def _texts(test: Tested) -> list[str]:
    found = test.measurement
    missing = [] if found.gbps is not None else [f"no bandwidth: {reason_text(found.rate.reason)}"]
    wide = [_WIDE for remark in found.remarks if remark.code == "unstable" and found.gbps is not None]
    others = [remark_text(remark) for remark in found.remarks if remark.code != "unstable"]
    return [*missing, *others, *wide]


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(names[:2])
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else shown  # noqa: PLR2004 - the two that are shown


def _row(name: str, test: Tested, words: dict[str, str]) -> tuple[str, ...]:
    found = test.measurement
    half = None if found.summary is None else found.summary.relative_half_width
    verdicts = [_verdict(test), words.get(test.test, "")]
    return (
        name,
        found.direction,
        format_size(found.nbytes),
        _NOT_KNOWN if found.gbps is None else format_gbps(found.gbps).removesuffix(" GB/s"),
        _NOT_KNOWN if half is None or found.gbps is None else format_percent(half),
        _NOT_KNOWN if found.of_ceiling is None else format_percent(found.of_ceiling),
        ", ".join(word for word in verdicts if word),
    )


def _verdict(test: Tested) -> str:
    """The verdict on the marker's limits; `failed` if the test failed for another reason."""
    if test.judged.word == "too slow":
        return "too slow"
    if test.outcome == "failed":
        return "failed"
    if test.judged.word != "not asked":
        return test.judged.word
    return "no result" if test.measurement.gbps is None else ""


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
    if session.ended == "interrupted":
        page.line("Interrupted: not all tests have run.")


# --- the report ------------------------------------------------------------------------------------------------------

_LONGEST_LABEL = 48


def _headline(session: XferSession) -> str:
    failed = sum(test.outcome == "failed" for test in session.tests)
    return f"{len(session.tests)} tests measured transfers; {failed} of them failed."


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
            test.judged.word,
            "; ".join(test.judged.reasons) or _missing_text(test.measurement),
        )
        for test in session.tests
    ]
    headings = ("test", "outcome", "way", "size", "bandwidth", "of ceiling", "limit", "why")
    return [text_grid("Tests", headings, rows)]


def _charts(session: XferSession) -> Charts:
    tests = [test for test in session.tests if test.measurement.of_ceiling is not None]
    return {"tests": (lambda width: _tests_chart(tests, session.tests, width)) if tests else None}


def _tests_chart(tests: Sequence[Tested], of_tests: Sequence[Tested], width: int) -> Spec:
    """The tests that have a share, of all the tests of a session."""
    bars: Values = []
    for test in tests[:MAX_BARS]:
        share, least = test.measurement.ceiling_share.value, test.expected.min_of_ceiling
        value, low, high = (0.0, None, None) if share is None else (share.value, share.low, share.high)
        words = f"{value * 100:.1f} %" + ("" if least is None else f", at least {format_percent(least)}")
        name = clean(test.test.partition("::")[2] or test.test, _LONGEST_LABEL)
        low, high = (None if end is None else end * 100 for end in (low, high))
        bars.append(bar(name, value * 100, f"{name}: {words}", words, low=low, high=high))
    slow, count = sum(test.judged.word == "too slow" for test in of_tests), len(of_tests)
    title = f"{slow} of {count} tests are below their limit" if slow else f"{count} tests, none too slow"
    if len(bars) < count:
        title = f"{title}; {count - len(bars)} without a bar, as the table explains"
    return bar_plot(bars, title, width, "% of the ceiling", line=(100.0, "the ceiling"))


REPORT = Report(
    struct=XferSession,
    title=lambda _: "pytest",
    page=print_session,
    headline=_headline,
    badge=_badge,
    heading=lambda session: [("began", clean(session.began_at)), ("pytest", clean(session.pytest))],
    grids=_grids,
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
