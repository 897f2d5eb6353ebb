"""JUnit XML: one suite of cases that pass, fail or are skipped. Texts may have any characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

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
