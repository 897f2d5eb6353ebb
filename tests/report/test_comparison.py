"""Comparisons: sentences, the page, and JUnit XML, read with junitparser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import junitparser
import msgspec
import pytest
from baseline_samples import Slower, all_slow, make_processes, make_sample, slow_pinned
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import printed

import pyxfer
from pyxfer._baseline.check import check, make_baseline
from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Comparison
from pyxfer._report.comparison import headline, print_comparison, remedies, signed_change, to_junit
from pyxfer._report.layout import Page

RESULTS = Path(__file__).parents[2] / "bench" / "results"
PARTLY = compare_samples(make_sample("A"), Sample("B", make_processes(3, 2, memories=("pinned",))))


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(2.0, "-50.0 %"), (1.0, "0.0 %"), (0.5, "+100.0 %"), (1.00001, "0.0 %"), (1e-6, "over +1000 %"), (None, "")],
)
def test_signed_change_is_of_bandwidth(ratio: float | None, text: str) -> None:
    assert signed_change(ratio) == text


def test_the_headline_counts_cells() -> None:
    cell: dict[str, Any] = {"memories": ("pinned",), "directions": ("h2d",), "sizes": (2**24,)}
    one = compare_samples(make_sample("A", **cell), make_sample("B", seed=2, **cell))
    assert headline(one) == "SAME: 1 cell of B is within 3 % of A."
    assert headline(PARTLY) == "SAME: 6 cells of B are within 3 % of A. 6 more could not be compared."
    assert "and 2 more: B did not measure it" in page(PARTLY)


def page(comparison: Comparison, columns: int | None = None) -> str:
    if columns is None:
        return printed(lambda made: print_comparison(comparison, made), details=True)
    return printed(lambda made: print_comparison(comparison, Page(made._stream, columns)))


def test_what_is_sure_and_what_is_not_is_said_by_direction_and_memory() -> None:
    saved = Comparison.load(RESULTS / "compare_one_three.json.gz")
    assert "As before: h2d pinned, d2h pinned (6 cells, within 1.4 %). Undecided: h2d pageable, d2h" in headline(saved)
    assert [text.partition(",")[0] for text in remedies(saved)] == ["To decide"]
    text = page(saved, 80)
    assert "A is baseline 'one', B is baseline 'three'." in text
    assert "baseline  baseline" not in text


def test_what_is_undecided_between_two_hosts_is_decided_by_a_baseline_of_each() -> None:
    known, other = (pyxfer.Run.load(RESULTS / f"{name}.json.gz") for name in ("known_h200", "ceiling"))
    (to_do,) = remedies(pyxfer.compare(known, other))
    assert "baseline export" in to_do
    assert "baseline check" not in to_do


def test_undecided_cells_are_listed_with_their_reason() -> None:
    noisy = compare_samples(make_sample("A", between=0.03), make_sample("B", seed=2, between=0.03))
    text = page(noisy)
    assert (noisy.verdict, text.partition(":")[0]) == ("AMBIGUOUS", "AMBIGUOUS")
    assert noisy.cells[0].why in text


MADE_AT = "2025-11-21T08:30:00+00:00"
ILLEGAL = "a\x00\x1b[31m<&\"'>]]>\ud800\ufffe"


def checked(slower: Slower) -> Comparison:
    runs = iter(make_processes(3, 7, slower=slower))
    return check(make_baseline("default", {}, make_processes(), MADE_AT), lambda: next(runs), retries=2).comparison


def read(comparison: Comparison, folder: Path) -> junitparser.TestSuite:
    path = folder / "check.xml"
    path.write_bytes(to_junit(comparison))
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    return suite


def test_every_cell_is_a_test_case_and_a_confirmed_loss_a_failure(tmp_path: Path) -> None:
    for slower, failures in ((all_slow(1.0), 0), (slow_pinned(1.3), 6)):
        suite = read(checked(slower), tmp_path)
        counts = (suite.tests, suite.failures, suite.errors, suite.skipped)
        assert (suite.name, *counts) == ("pyxfer baseline check", 12, failures, 0, 0)
        suite.update_statistics()  # type: ignore[no-untyped-call]
        assert (suite.tests, suite.failures, suite.errors, suite.skipped) == counts
    assert {case.classname for case in suite} >= {"pyxfer.h2d.pinned", "pyxfer.d2h.pageable"}
    case = next(case for case in suite if case.name == "h2d:pinned:1MiB")
    assert case.result[0].type == "SLOW"
    assert "3 %" in case.result[0].message
    assert case.result[0].text


def test_an_undecided_an_unconfirmed_and_an_uncompared_cell_are_skipped_with_the_reason(tmp_path: Path) -> None:
    noisy = compare_samples(make_sample("A", between=0.05), make_sample("B", seed=2, between=0.05))
    once = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=all_slow(1.3)))
    suites = [read(comparison, tmp_path) for comparison in (noisy, once, PARTLY)]
    assert [(suite.failures, suite.skipped) for suite in suites] == [(0, 12), (0, 12), (0, 6)]
    assert [case.result[0].message for case in suites[0]] == [row.why for row in noisy.cells]
    assert next(iter(suites[1])).result[0].message.startswith("not confirmed: at least")


def test_illegal_characters_of_xml_are_escaped(tmp_path: Path) -> None:
    hostile = msgspec.structs.replace(checked(slow_pinned(1.3)), a=ILLEGAL, b="<script>")
    suite = read(hostile, tmp_path)
    values = {each.name: each.value for each in suite.properties()}  # type: ignore[no-untyped-call]
    assert values["a"] == "a\\x00\\x1b[31m<&\"'>]]>\\ud800\\ufffe"
    assert values["b"] == "<script>"


@settings(max_examples=40)
@given(name=st.text(max_size=40), text=st.text(max_size=40))
def test_any_text_is_well_formed_xml(name: str, text: str) -> None:
    row = msgspec.structs.replace(SAMPLE.cells[0], text=text, why=name, confirmed=True)
    ElementTree.fromstring(to_junit(msgspec.structs.replace(SAMPLE, a=name, b=text, cells=(row,))))


SAMPLE = checked(all_slow(1.0))
