"""Comparisons: what was found in words, the page, exports for CI, and the chart of changes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree import ElementTree

from pyxfer._document.baselines import Cause, CellComparison, Comparison, Difference, Verdict
from pyxfer._report.grid import CONTROL, Cell, Column, Grid, Row, fields, number, picked, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.plots import MAX_BARS, change_plot
from pyxfer._report.report import Badge, Caption, Charts, Report, Section
from pyxfer._report.tables import Value
from pyxfer._report.text import (
    NANO,
    clean,
    counted,
    escaped,
    format_latency,
    remark_text,
    sentence,
)
from pyxfer.units import first_of, format_gbps, format_percent

_MAX_CHANGE = 10.0


def signed_change(ratio: float | None) -> str:
    """The change of bandwidth that a ratio of times means, e.g. `-4.8 %`; empty for None."""
    if not ratio:
        return ""
    share = 1 / ratio - 1
    if share > _MAX_CHANGE:
        return f"over +{_MAX_CHANGE * 100:.0f} %"
    return f"{share * 100:+.1f} %".replace("-0.0 ", "0.0 ").replace("+0.0 ", "0.0 ")


def _ends_text(low: float | None, high: float | None) -> str:
    """`-5.1 to -4.4 %`; empty if an end is not known."""
    return f"{signed_change(high).removesuffix(' %')} to {signed_change(low)}" if low and high else ""


def interval_text(row: CellComparison) -> str:
    return _ends_text(row.low.value, row.high.value)


def overall_text(comparison: Comparison) -> str:
    mean, low, high = comparison.overall.value, comparison.overall_low.value, comparison.overall_high.value
    if not mean or not low or not high:
        return f"not known: {comparison.overall.reason or 'no reason given'}"
    measured = not any(row.assumed for row in comparison.cells)
    beyond = measured and comparison.verdict == "AMBIGUOUS" and 1 - 1 / low > comparison.tolerance
    together = ": together they have lost more than the tolerance, though no cell has for certain" if beyond else ""
    return f"{signed_change(mean)} ({_ends_text(low, high)}), the geometric mean of all cells{together}"


def compared(comparison: Comparison) -> list[CellComparison]:
    return [row for row in comparison.cells if row.ratio.value is not None]


MAX_ROWS = 60


def shown(comparison: Comparison) -> tuple[list[CellComparison], str]:
    rows = compared(comparison)
    if len(rows) <= MAX_ROWS:
        return rows, ""
    others = [row for row in rows if row.verdict != "SAME"]
    most = sorted(others, key=lambda row: (row.verdict == "AMBIGUOUS", -_size(row)))[:MAX_ROWS]
    same, rest = len(rows) - len(others), len(others) - len(most)
    parts = [f"{same} cells that are SAME"] * bool(same) + [f"{rest} others with smaller changes"] * bool(rest)
    return [row for row in others if row in most], f"Not shown: {' and '.join(parts)}."


def _size(row: CellComparison) -> float:
    """How large a change is: the same for twice as much and for half."""
    return abs(math.log(row.ratio.value or 1.0))


def left_out(comparison: Comparison) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for row in comparison.cells:
        if row.ratio.value is None:
            reasons.setdefault(row.why.removeprefix("not compared: "), []).append(row.text)
    return reasons


def doubts(comparison: Comparison) -> list[str]:
    return [f"{row.text}: {row.why}" for row in compared(comparison) if row.verdict == "AMBIGUOUS"]


def headline(comparison: Comparison) -> str:
    missing = len(comparison.cells) - len(compared(comparison))
    texts = [_verdict_text(comparison), *([f"{missing} more could not be compared."] if missing else [])]
    return " ".join([*texts, *_sure_texts(comparison)])


def _sure_texts(comparison: Comparison) -> Iterator[str]:
    """Of a comparison with several verdicts: the directions and memories that are as before, and those undecided."""
    of_kind: dict[Verdict, dict[str, list[CellComparison]]] = {"SAME": {}, "AMBIGUOUS": {}}
    for row in compared(comparison):
        if row.verdict in of_kind:
            kind = row.cell.group if row.cell.is_of_links else f"{row.cell.direction} {row.cell.memory}"
            of_kind[row.verdict].setdefault(clean(kind), []).append(row)
    same, unsure = of_kind["SAME"], of_kind["AMBIGUOUS"]
    whole = {kind: rows for kind, rows in same.items() if kind not in unsure}
    if comparison.verdict != "SAME" and whole:
        found = [end.value for rows in whole.values() for row in rows for end in (row.low, row.high) if end.value]
        within = f", within {format_percent(max(abs(1 / end - 1) for end in found))}" if found else ""
        yield f"As before: {', '.join(whole)} ({counted(sum(map(len, whole.values())), 'cell')}{within})."
    if unsure:
        yield f"Undecided: {', '.join(unsure)}."


def remedies(comparison: Comparison) -> list[str]:
    texts = [f"{sentence(cause.text)} {sentence(cause.fix)}" for cause in comparison.causes if cause.fix]
    unsure = [row for row in compared(comparison) if row.verdict == "AMBIGUOUS"]
    if unsure and any(remark.code == "other-gpu" for remark in comparison.remarks):
        texts.append(
            "To decide, measure several processes on each host: pyxfer baseline save, then pyxfer baseline export "
            "default FILE, and compare the two files."
        )
    elif any(row.assumed for row in unsure):
        texts.append("To decide, measure several processes on each side: pyxfer baseline save, then baseline check.")
    elif unsure:
        texts.append(
            "To decide, measure again on an idle machine, or with more processes: pyxfer baseline save --processes 20."
        )
    return texts


def _verdict_text(comparison: Comparison) -> str:
    rows, limit = compared(comparison), format_percent(comparison.tolerance)
    verdict, cells = comparison.verdict, counted(len(rows), "cell")
    those = [row for row in rows if row.verdict == verdict]
    is_one = len(those) == 1
    if verdict == "SAME":
        return f"SAME: {cells} of {comparison.b} {'is' if len(rows) == 1 else 'are'} within {limit} of {comparison.a}."
    if verdict == "AMBIGUOUS":
        fast = sum(row.verdict == "FAST" for row in rows)
        same = len(rows) - len(those) - fast
        others = ", ".join(f"{count} {word}" for count, word in ((same, "SAME"), (fast, "FAST")) if count)
        may_lose = all((row.high.value or 1.0) * (1 - comparison.tolerance) > 1 for row in those)
        which = f"{len(those)} of {cells} {'has' if is_one else 'have'}"
        doubt = f"it is uncertain whether {which} {'lost' if may_lose else 'changed by'} {limit}"
        if any(row.assumed for row in those):
            doubt = f"one process on each side cannot show whether {which} changed by {limit}"
        return f"AMBIGUOUS: {doubt}{'; ' * bool(others)}{others}."
    word = "slower" if verdict == "SLOW" else "faster"
    most = max(those, key=_size)
    worst = f"{most.text} by {signed_change(most.ratio.value).lstrip('+-')}"
    sure = [row.b_processes for row in those if row.confirmed]
    by = "1 process confirms" if sure and max(sure) == 1 else f"{max(sure, default=0)} processes confirm"
    confirmed = f" {by} {len(sure)} of them." if sure else ""
    return (
        f"{verdict}: {len(those)} of {cells} of {comparison.b} {'is' if is_one else 'are'} {word} than {comparison.a} "
        f"by more than {limit}, most of all {worst}.{confirmed}"
    )


def cause_text(cause: Cause) -> str:
    fix = f" To do: {cause.fix}." if cause.fix else ""
    return f"{cause.text} Seen: {cause.evidence}.{fix}"


# --- the page --------------------------------------------------------------------------------------------------------

_STYLES = {"SLOW": "bold red", "FAST": "bold green", "SAME": "bold green", "AMBIGUOUS": "bold yellow"}
_MAX_CELLS = 4
_WHOLE = 2000


def print_comparison(comparison: Comparison, page: Page) -> None:
    page.line(clean(headline(comparison), longest=_WHOLE), style=_STYLES[comparison.verdict])
    page.line(f"Overall {clean(overall_text(comparison))}.")
    sections = dict(_sections(comparison))
    if page.details:
        page.section("Likely causes, the most certain first", sections["Likely causes"])
    else:
        page.section("To do", [("-", clean(text, _WHOLE)) for text in remedies(comparison)])
    matter = [_difference(each) for each in comparison.differences if each.matters]
    others = [_difference(each) for each in comparison.differences if not each.matters]
    page.section("Differences that may cost bandwidth", matter)
    page.section("Other differences" if matter else "Differences that cost no bandwidth", others)
    _cells(comparison, page)
    if page.details:
        page.section("Undecided", sections["Undecided"])
    for name in ("Not compared", "Remarks"):
        page.section(name, sections[name])
    if not page.details and (comparison.causes or doubts(comparison)):
        page.line()
        page.line("More: --details (what was seen, why cells are undecided); --report page.html draws the changes")


def _difference(difference: Difference) -> tuple[str, str]:
    a, b = escaped(difference.a) or "nothing", escaped(difference.b) or "nothing"
    return f"  {clean(difference.what)}", f"{a} -> {b}"


def _cells(comparison: Comparison, page: Page) -> None:
    cells, others = shown(comparison)
    rows = [_row(comparison, row) for row in sorted(cells, key=_order)]
    page.line()
    page.line(f"A is {clean(comparison.a)}, B is {clean(comparison.b)}.")
    picked("", _COLUMNS, _READ, rows).print_on(page)
    if others:
        page.line(f"{others} --export-json has all.")


def _order(row: CellComparison) -> tuple[str | int, ...]:
    cell = row.cell
    if cell.is_of_links:
        return ()  # as measured, because numbers of GPUs do not sort as text
    return cell.direction, cell.side, cell.memory, f"{cell.case} {cell.mode} {cell.variant}", cell.nbytes


# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Suite:
    def __init__(self, name: str, properties: Iterable[tuple[str, str]] = ()) -> None:
        self._suite = ElementTree.Element("testsuite", name=name)
        self._counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        if pairs := list(properties):
            group = ElementTree.SubElement(self._suite, "properties")
            for key, value in pairs:
                ElementTree.SubElement(group, "property", name=_legal(key), value=_legal(value))

    def add_case(self, of: str, name: str) -> ElementTree.Element:
        self._counts["tests"] += 1
        return ElementTree.SubElement(self._suite, "testcase", classname=_legal(of), name=_legal(name))

    def fail(self, case: ElementTree.Element, kind: str, message: str, lines: Iterable[str]) -> None:
        self._counts["failures"] += 1
        failure = ElementTree.SubElement(case, "failure", type=kind, message=_legal(message))
        failure.text = _legal("\n".join(lines))

    def skip(self, case: ElementTree.Element, kind: str, message: str) -> None:
        self._counts["skipped"] += 1
        ElementTree.SubElement(case, "skipped", type=kind, message=_legal(message))

    def to_xml(self, text: str) -> bytes:
        add_output(self._suite, text)
        whole = ElementTree.Element("testsuites", name=self._suite.get("name", ""))
        for element in (self._suite, whole):
            for key, count in self._counts.items():
                element.set(key, str(count))
        whole.append(self._suite)
        ElementTree.indent(whole)
        data: bytes = ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True)
        return data + b"\n"


def add_output(element: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(element, "system-out").text = _legal(text)


def _legal(text: str) -> str:
    """The text with the characters that XML cannot hold as Python escapes."""
    return _NOT_IN_XML.sub(lambda found: repr(found.group())[1:-1], text)


def to_junit(comparison: Comparison) -> bytes:
    """A confirmed SLOW is a failure; an undecided, unconfirmed or uncompared cell is skipped."""
    sides = [("a", comparison.a), ("b", comparison.b), ("tolerance", repr(comparison.tolerance))]
    differences = [(f"differs: {found.what}", f"{found.a} -> {found.b}") for found in comparison.differences]
    remarks = [(f"remark: {remark.code}", remark_text(remark)) for remark in comparison.remarks]
    suite = Suite("pyxfer baseline check", [*sides, *differences, *remarks])
    for row in comparison.cells:
        # CI systems group test cases by the text before the last dot.
        case = suite.add_case(f"pyxfer.{row.cell.direction}.{row.cell.memory}", row.text)
        if row.confirmed:
            suite.fail(case, "SLOW", row.why, map(cause_text, comparison.causes))
        elif row.verdict in ("SLOW", "AMBIGUOUS"):
            suite.skip(case, row.verdict, f"{'not confirmed: ' * (row.verdict == 'SLOW')}{row.why}")
        add_output(case, _figures(row))
    return suite.to_xml(headline(comparison))


def _figures(row: CellComparison) -> str:
    if row.ratio.value is None:
        return row.why
    facts, unit = ((row.a_s, row.b_s), "ns") if row.cell.is_latency else ((row.a_gbps, row.b_gbps), "GB/s")
    factor = NANO if row.cell.is_latency else 1
    rates = " -> ".join("unknown" if fact.value is None else f"{fact.value * factor:.3f}" for fact in facts)
    return f"{row.verdict}: {rates} {unit}, {signed_change(row.ratio.value)} (95 % {interval_text(row)})"


# --- exports and the chart -------------------------------------------------------------------------------------------


def benchmarks(comparison: Comparison) -> list[dict[str, Value]]:
    """The bandwidth of B in each cell as github-action-benchmark reads it, with `tool: customBiggerIsBetter`.

    Of a latency the loads per second, because a larger number has to be better.
    """
    found: list[dict[str, Value]] = []
    for row in comparison.cells:
        if row.b_gbps.value is not None:
            value, unit = row.b_gbps.value, "GB/s"
            if row.cell.is_latency and row.b_s.value:
                value, unit = 1e-6 / row.b_s.value, "million loads/s"
            found.append({"name": row.text, "unit": unit, "value": value, "extra": _beside_a(comparison, row)})
    return found


def _beside_a(comparison: Comparison, row: CellComparison) -> str:
    """`SAME, -0.5 % (-1.2 to +0.2 %) against monday`."""
    interval = interval_text(row)
    words = [row.verdict, f"{signed_change(row.ratio.value)}{f' ({interval})' if interval else ''}"]
    return f"{', '.join(filter(None, words))} against {CONTROL.sub(' ', comparison.a)}"


def metrics(comparison: Comparison) -> dict[str, dict[str, dict[str, float]]]:
    """The bandwidth of B in each cell in Bencher's metric format, in bytes per second; latencies in nanoseconds."""
    found = {}
    for row in comparison.cells:
        if row.b_gbps.value is not None:
            metric = ("bandwidth", row.b_gbps.value * 1e9)
            name, value = ("latency", (row.b_s.value or 0.0) * NANO) if row.cell.is_latency else metric
            found[row.text] = {name: {"value": value}}
    return found


def _change_value(row: CellComparison) -> dict[str, Any]:
    """Ratios of times as changes of bandwidth in per cent; without an interval, its ends are the change itself."""

    def change(ratio: float | None) -> float | None:
        return None if not ratio else (1 / ratio - 1) * 100

    middle = change(row.ratio.value)
    low, high = (middle if end is None else end for end in (change(row.high.value), change(row.low.value)))
    cell = clean(row.text, _LONGEST_LABEL)
    words = f"{cell}: {signed_change(row.ratio.value)}, {interval_text(row) or 'interval not known'}"
    return {"cell": cell, "verdict": row.verdict, "change": middle, "low": low, "high": high, "text": words}


_LONGEST, _LONGEST_LABEL = 600, 48
_BADGES: dict[Verdict, Badge] = {"SAME": "good", "FAST": "good", "AMBIGUOUS": "doubtful", "SLOW": "bad"}
_READ = ("cell", "A", "B", "change", "interval", "judged")
_COLUMNS = (
    Column("cell", heading="cell"),
    *(Column(name, heading=name, saved=False) for name in ("A", "B", "change")),
    Column("interval", heading="95 % interval", saved=False),
    Column("judged", heading="verdict", saved=False),
    Column("verdict"),
    *(Column(name, "number") for name in ("ratio", "low", "high", "a_gbps", "b_gbps", "a_s", "b_s")),
    *(Column(name, "whole") for name in ("a_processes", "b_processes")),
    *(Column(name, "flag") for name in ("confirmed", "assumed")),
    Column("why", heading="why"),
    *(Column(name) for name in ("a", "b")),
)


def _grids(comparison: Comparison) -> list[Grid]:
    differences = [(d.what, d.a, d.b, "yes" if d.matters else "no") for d in comparison.differences]
    few, others = shown(comparison)
    rows = {id(row): _row(comparison, row) for row in comparison.cells}
    return [
        Grid("Cells", _COLUMNS, list(rows.values()), few=([rows[id(row)] for row in few], others)),
        text_grid("Differences", ("what", "A", "B", "may cost bandwidth"), differences),
    ]


def _row(comparison: Comparison, row: CellComparison) -> Row:
    facts = (row.a_s, row.b_s) if row.cell.is_latency else (row.a_gbps, row.b_gbps)
    a, b = (number(fact.value, format_latency if row.cell.is_latency else format_gbps) for fact in facts)
    texts = ("verdict", "ratio", "low", "high", "a_gbps", "b_gbps", "a_s", "b_s", "a_processes", "b_processes")
    return {
        "cell": row.text,
        "A": a,
        "B": b,
        "change": Cell(signed_change(row.ratio.value), None if not row.ratio.value else 1 / row.ratio.value - 1),
        "interval": Cell(interval_text(row)),
        "judged": f"{row.verdict}, confirmed" if row.confirmed else row.verdict,
        **fields(row, *texts, "confirmed", "assumed", "why"),
        "a": comparison.a,
        "b": comparison.b,
    }


def _sections(comparison: Comparison) -> list[Section]:
    named = {
        "Likely causes": [cause_text(cause) for cause in comparison.causes],
        "Undecided": doubts(comparison),
        "Not compared": [f"{first_of(cells, _MAX_CELLS)}: {why}" for why, cells in left_out(comparison).items()],
        "Remarks": [remark_text(remark) for remark in comparison.remarks],
    }
    return [(name, [("-", clean(text, _WHOLE)) for text in texts]) for name, texts in named.items()]


def _charts(comparison: Comparison) -> Charts:
    rows = compared(comparison)
    values = [_change_value(row) for row in rows[:MAX_BARS]]
    more = f" The first {len(values)} of {len(rows)} cells are drawn." if len(rows) > len(values) else ""
    shaded = f"Shaded: the tolerance of {format_percent(comparison.tolerance)}."
    title = f"{clean(headline(comparison), _LONGEST)} {shaded}{more}"
    return {"cells": (lambda width: change_plot(values, comparison.tolerance, title, width)) if rows else None}


REPORT = Report(
    struct=Comparison,
    title=lambda _: "pyxfer compare",
    page=print_comparison,
    headline=lambda comparison: clean(headline(comparison), _LONGEST),
    badge=lambda comparison: (_BADGES[comparison.verdict], comparison.verdict),
    heading=lambda each: [("A", clean(each.a)), ("B", clean(each.b)), ("overall", overall_text(each))],
    advice=lambda comparison: [(clean(text, _LONGEST), "") for text in remedies(comparison)],
    grids=_grids,
    sections=_sections,
    charts=_charts,
    captions={
        "cells": Caption(
            "Change of each cell",
            "A line is the 95 % interval of the change between processes; an arrow marks what goes beyond the plot.",
        )
    },
)
