"""The findings about a row: elision, remarks, and reasons."""

from __future__ import annotations

from typing import Any

import pytest
from samples import known
from tracing.captures import MIB, copy, traced

from pyxfer._document.machines import Remark
from pyxfer._trace.collector import Traced
from pyxfer._trace.findings import Evidence, Expected, Findings
from pyxfer._trace.records import MemoryKind

PINNED = MemoryKind.PINNED


def evidence_of(*trials: Traced) -> Evidence:
    evidence = Evidence()
    for trial in trials:
        evidence.add(trial, 50e-6, MIB)
    return evidence


def findings(*sent: Any, expected: Expected | None = None, median_s: float | None = None) -> Findings:
    """The findings of one traced trial with each of these records or tuples of records."""
    evidence = evidence_of(*(traced(*(each if isinstance(each, tuple) else (each,))) for each in sent))
    return evidence.findings(expected or Expected(MIB, memory="pageable", verified=True), median_s)


def remark(found: Findings, code: str) -> Remark:
    (one,) = [remark for remark in found.remarks if remark.code == code]
    return one


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([copy(0, 900), copy(0, 900)], None),
        ([copy(0, 900)], Expected(MIB, inflation=4.0)),
        ([copy(0, 900, MIB // 2)], Expected(MIB, inflation=0.5)),  # a route may declare to send less
        ([(copy(0, 900), copy(900, 901, 64))], None),
        ([(copy(0, 900, 1024), copy(900, 901, 256))], Expected(1024, memory="pageable")),
    ],
)
def test_a_row_as_expected_has_no_remarks(sent: list[Any], expected: Expected | None) -> None:
    found = findings(*sent, expected=expected)
    assert (found.elided, found.remarks, found.measured) == (None, (), True)


CONVERTED = "only {} KiB of 1 MiB crossed the link: a conversion on the host {} before the copy"


@pytest.mark.parametrize(
    ("sent", "expected", "elided"),
    [
        ([0, 0], None, "nothing crossed the link instead of 1 MiB"),
        ([MIB, 0, 0], None, "in 2 of 3 traced trials nothing crossed the link instead of 1 MiB"),
        ([3 << 18], None, "only 768 KiB of 1 MiB crossed the link"),
        ([5_000_000], Expected(5_000_001), "only 5000000 of 5000001 bytes crossed the link"),
        ([MIB // 2] * 2, None, CONVERTED.format(512, "halved it")),
        ([MIB // 2], Expected(MIB), "only 512 KiB of 1 MiB crossed the link"),
        ([MIB // 4], None, CONVERTED.format(256, "made it a quarter")),
        ([MIB // 8], None, CONVERTED.format(128, "made it an eighth")),
        # A conversion would have the same effect in each trial.
        ([MIB, MIB // 4, MIB // 4], None, "in 2 of 3 traced trials only 256 KiB of 1 MiB crossed the link"),
        ([MIB // 2, MIB // 4, MIB // 4], None, "only 256 KiB of 1 MiB crossed the link"),
        ([MIB // 4], Expected(MIB, inflation=0.5), "only 256 KiB of 512 KiB crossed the link"),
    ],
)
def test_a_row_that_sent_too_few_bytes_is_elided(sent: list[int], expected: Expected | None, elided: str) -> None:
    trials = [copy(0, 900, nbytes) if nbytes else () for nbytes in sent]
    assert findings(*trials, expected=expected).elided == f"elided: {elided}"


def test_an_inflated_row_has_the_measured_factor() -> None:
    found = findings(copy(0, 900, 7 * MIB // 2), expected=Expected(MIB, inflation=2.0))
    assert remark(found, "inflated").text == (
        "3.5 times the bytes cross the link, by the device's records; the bandwidth counts each byte once"
    )


CONVERT = "convert on the GPU, after the copy, as pyxfer.upload with a dtype does"
ONCE = f"send them once, or {CONVERT}"


@pytest.mark.parametrize(
    ("sizes", "nbytes", "inflation", "fix"),
    [
        ((MIB, MIB, MIB), MIB, 1.0, ONCE),
        ((MIB, MIB, MIB, MIB - 4096), MIB, 1.0, ONCE),
        ((1024, 1024, 1024, 256), 1024, 1.0, ONCE),
        ((MIB, MIB, MIB), MIB, 3.0, CONVERT),
        ((3 * MIB,), MIB, 1.0, CONVERT),
        ((MIB, MIB // 2), MIB, 1.0, CONVERT),
        ((1024, 257), 1024, 1.0, CONVERT),
    ],
)
def test_a_multiple_of_the_bytes_has_a_fix(sizes: tuple[int, ...], nbytes: int, inflation: float, fix: str) -> None:
    sent = tuple(copy(100 * number, 100 * number + 100, size) for number, size in enumerate(sizes))
    assert remark(findings(sent, expected=Expected(nbytes, inflation=inflation)), "inflated").fix == fix


AHEAD = copy(-200, -100)


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        ([copy(-98, 2)], ["outside"]),
        ([copy(-97, 3)], []),
        ([AHEAD, AHEAD, copy(0, 900)], ["outside"]),
        ([AHEAD, AHEAD, *[copy(0, 900)] * 3], []),
    ],
)
def test_copies_that_are_98_percent_outside_of_most_trials_are_a_remark(sent: list[Any], codes: list[str]) -> None:
    assert [each.code for each in findings(*sent).remarks] == codes


def test_unexpected_memory_is_a_remark() -> None:
    expected = Expected(MIB, memory="pinned")
    assert remark(findings(copy(0, 900), expected=expected), "wrong-memory") == Remark(
        "wrong-memory",
        "its copies used pageable memory on the host, by the device's records, and not pinned memory",
        "make sure that the memory is page-locked when the copy is made",
    )
    both = findings((copy(0, 400), copy(400, 900, memory=PINNED)))
    assert "used pageable and pinned memory" in remark(both, "wrong-memory").text


@pytest.mark.parametrize(
    ("median_s", "words"),
    [
        *((median_s, None) for median_s in (950e-6, 1000e-6, None)),
        *[(800e-6, "25.0 % more than"), (1.3e-3, "23.1 % less than"), (510e-6, "96.1 % more than")],
        *[(500e-6, "2.0 times as long as"), (101e-6, "9.9 times as long as"), (100e-6, "10 times as long as")],
        (1.631e-6, "610 times as long as"),
    ],
)
def test_the_cost_of_tracing_is_a_remark_from_ten_percent_on(median_s: float | None, words: str | None) -> None:
    said = [each.text for each in findings(copy(0, 900), median_s=median_s).remarks]
    text = f"traced it takes 1.00 ms, {words} the median of the trials without tracing"
    assert said == ([] if words is None else [text])


@pytest.mark.parametrize(("elapsed_us", "codes"), [(109, []), (111, ["traced"])])
def test_a_cost_of_tracing_up_to_100_us_is_not_a_remark(elapsed_us: float, codes: list[str]) -> None:
    evidence = evidence_of(traced(copy(0, 9), elapsed_us=elapsed_us))
    assert [each.code for each in evidence.findings(Expected(MIB), 10e-6).remarks] == codes


@pytest.mark.parametrize(
    ("median_s", "near"),
    [(None, True), (100e-6, True), (100.9e-6, True), (99.1e-6, True), (101.1e-6, False), (98.9e-6, False)],
)
def test_a_traced_trial_is_near_the_median_within_one_percent(median_s: float | None, near: bool) -> None:
    evidence = evidence_of(traced(copy(0, 100), elapsed_us=300), traced(copy(0, 50), elapsed_us=100))
    assert evidence.is_near(median_s) == near


def test_without_traced_trials_findings_have_the_reason_and_none_is_far_from_the_median() -> None:
    why = "the budget was spent"
    found = Evidence(missing=why).findings(Expected(MIB), None)
    assert (found.dma.reason, found.breakdown.reason, found.measured) == (why, why, False)
    assert Evidence().is_near(1.0)


def test_a_failure_after_traced_trials_is_a_remark() -> None:
    evidence = evidence_of(traced(copy(0, 900)))
    evidence.missing, evidence.failed = "its traced trial failed: no more", True
    found = evidence.findings(Expected(MIB), None)
    assert found.dma.value is not None
    assert remark(found, "untraced").text == "its traced trial failed: no more"


def test_lost_records_of_all_trials_are_added_and_those_of_one_leave_the_breakdown_of_another() -> None:
    found = evidence_of(*[traced(dropped={"unknown": 5})] * 3).findings(Expected(MIB), None)
    assert (found.elided, found.measured) == (None, False)
    lost = "15 of the device's records were lost, so"
    assert (found.dma.reason or "").startswith(lost)
    assert (found.breakdown.reason or "").startswith(lost)
    whole = evidence_of(traced(copy(0, 900)), traced(dropped={"calls": 1})).findings(Expected(MIB), None)
    assert known(whole.breakdown).left_out == 1


def test_a_host_route_has_parts_and_no_copies() -> None:
    found = evidence_of(traced(kind=None)).findings(Expected(MIB), None)
    assert found.dma.reason == "nothing crosses the link"
    assert found.breakdown.value is not None
