"""A comparison as JUnit XML, one test case a cell: what a CI system shows beside the other tests."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from pyxfer.comparison_documents import cause_text, headline, interval_text, remark_text, signed_change
from pyxfer.model_baselines import CellComparison, Comparison

_SUITE = "pyxfer baseline check"
# Whatever else is in a name, XML 1.0 cannot hold it, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(comparison: Comparison) -> bytes:
    """A confirmed SLOW is a failure; what cannot be told, was not confirmed or not compared is skipped."""
    counts = {"tests": len(comparison.cells), "failures": 0, "errors": 0, "skipped": 0}
    suite = ElementTree.Element("testsuite", name=_SUITE)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(comparison):
        ElementTree.SubElement(properties, "property", name=name, value=_legal(value))
    for row in comparison.cells:
        case = ElementTree.SubElement(suite, "testcase", classname=_class(row), name=_legal(row.text))
        if row.confirmed:
            counts["failures"] += 1
            failure = ElementTree.SubElement(case, "failure", type="SLOW", message=_legal(_message(row)))
            failure.text = _legal("\n".join(map(cause_text, comparison.causes)))
        elif row.verdict in ("SLOW", "AMBIGUOUS"):
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", type=row.verdict, message=_legal(_message(row)))
        ElementTree.SubElement(case, "system-out").text = _legal(_figures(row))
    ElementTree.SubElement(suite, "system-out").text = _legal(headline(comparison))
    whole = ElementTree.Element("testsuites", name=_SUITE)
    for element in (suite, whole):
        for key, count in counts.items():
            element.set(key, str(count))
    whole.append(suite)
    ElementTree.indent(whole)
    text: bytes = ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _properties(comparison: Comparison) -> list[tuple[str, str]]:
    differences = [(f"differs: {each.what}", f"{each.a} -> {each.b}") for each in comparison.differences]
    remarks = [(f"remark: {remark.code}", remark_text(remark)) for remark in comparison.remarks]
    sides = [("a", comparison.a), ("b", comparison.b), ("tolerance", repr(comparison.tolerance))]
    return [*sides, *((_legal(name), value) for name, value in (*differences, *remarks))]


def _class(row: CellComparison) -> str:
    """CI systems group by what stands before the last dot."""
    return _legal(f"pyxfer.{row.cell.direction}.{row.cell.memory}")


def _message(row: CellComparison) -> str:
    unsure = "not confirmed: " if row.verdict == "SLOW" and not row.confirmed else ""
    return f"{unsure}{row.why}"


def _figures(row: CellComparison) -> str:
    if row.ratio.value is None:
        return row.why
    rates = " -> ".join("unknown" if fact.value is None else f"{fact.value:.3f}" for fact in (row.a_gbps, row.b_gbps))
    return f"{row.verdict}: {rates} GB/s, {signed_change(row.ratio.value)} (95 % {interval_text(row)})"


def _legal(text: str) -> str:
    """The same text, with what XML cannot hold written as Python would write it."""
    return _NOT_IN_XML.sub(lambda found: repr(found.group())[1:-1], text)
