"""The findings about a row: elision, remarks, and reasons."""

from __future__ import annotations

from typing import Any

import pytest
from tracing.captures import MIB, copy, traced

from pyxfer._document.machines import Remark
from pyxfer._trace.findings import Evidence, Expected, Findings
from pyxfer._trace.records import MemoryKind

PINNED = MemoryKind.PINNED


def findings(*sent: Any, expected: Expected | None = None, median_s: float | None = None) -> Findings:
    """The findings of one traced trial with each of these records or tuples of records."""
    evidence = Evidence()
    for records in sent:
        evidence.add(traced(*(records if isinstance(records, tuple) else (records,))), 50e-6, MIB)
    return evidence.findings(expected or Expected(MIB, memory="pageable", verified=True), median_s)


def remark(found: Findings, code: str) -> Remark:
    (one,) = [remark for remark in found.remarks if remark.code == code]
    return one


def test_a_row_as_expected_has_no_remarks() -> None:
    found = findings(copy(0, 900), copy(0, 900))
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
    ],
)
def test_a_row_that_sent_too_few_bytes_is_elided(sent: list[int], expected: Expected | None, elided: str) -> None:
    trials = [copy(0, 900, nbytes) if nbytes else () for nbytes in sent]
    assert findings(*trials, expected=expected).elided == f"elided: {elided}"


def test_a_route_may_declare_to_send_less() -> None:
    half = Expected(MIB, inflation=0.5)
    assert findings(copy(0, 900, MIB // 2), expected=half).elided is None
    assert findings(copy(0, 900, MIB // 4), expected=half).elided is not None


def test_a_row_that_sent_all_bytes_is_not_elided() -> None:
    found = findings(copy(0, 900), expected=Expected(MIB, inflation=4.0))
    assert (found.elided, found.remarks) == (None, ())


def test_an_inflated_row_has_the_measured_factor() -> None:
    found = findings(copy(0, 900, 7 * MIB // 2), expected=Expected(MIB, inflation=2.0))
    assert remark(found, "inflated").text == (
        "3.5 times the bytes cross the link, by the device's records; the bandwidth counts each byte once"
    )


def test_a_multiple_of_the_bytes_may_have_a_few_further_ones() -> None:
    sent = (*(copy(100 * number, 100 * number + 100, 1024) for number in range(3)), copy(300, 400, 256))
    assert remark(findings(sent, expected=Expected(1024)), "inflated").fix == ONCE


CONVERT, ONCE = "convert on the GPU, after the copy", "send them once, or convert on the GPU, after the copy"


@pytest.mark.parametrize(
    ("sizes", "inflation", "fix"),
    [
        ((MIB, MIB, MIB), 1.0, ONCE),
        ((MIB, MIB, MIB, MIB - 4096), 1.0, ONCE),
        ((MIB, MIB, MIB), 3.0, CONVERT),
        ((3 * MIB,), 1.0, CONVERT),
        ((MIB, MIB // 2), 1.0, CONVERT),
    ],
)
def test_a_multiple_of_the_bytes_has_a_fix(sizes: tuple[int, ...], inflation: float, fix: str) -> None:
    sent = tuple(copy(100 * number, 100 * number + 100, nbytes) for number, nbytes in enumerate(sizes))
    assert remark(findings(sent, expected=Expected(MIB, inflation=inflation)), "inflated").fix == fix


AHEAD = copy(-200, -100)


@pytest.mark.parametrize(("inside_us", "codes"), [(2, ["outside"]), (3, [])])
def test_a_copy_that_is_98_percent_outside_counts_as_outside(inside_us: int, codes: list[str]) -> None:
    assert [each.code for each in findings(copy(inside_us - 100, inside_us)).remarks] == codes


def test_copies_outside_of_most_trials_are_a_remark() -> None:
    found = findings(AHEAD, AHEAD, copy(0, 900))
    assert remark(found, "outside").text == (
        "its copies ran outside of the trial: it copies ahead or later, or the clocks of host and device disagree"
    )


def test_a_few_further_bytes_are_not_inflation() -> None:
    assert findings((copy(0, 900), copy(900, 901, 64))).remarks == ()
    small = Expected(1024, memory="pageable")
    assert findings((copy(0, 900, 1024), copy(900, 901, 256)), expected=small).remarks == ()
    assert remark(findings((copy(0, 900, 1024), copy(900, 901, 257)), expected=small), "inflated")


def test_unexpected_memory_is_a_remark() -> None:
    expected = Expected(MIB, memory="pinned")
    assert remark(findings(copy(0, 900), expected=expected), "wrong-memory") == Remark(
        "wrong-memory",
        "its copies used pageable memory on the host, by the device's records, and not pinned memory",
        "make sure that the memory is page-locked when the copy is made",
    )
    both = findings((copy(0, 400), copy(400, 900, memory=PINNED)))
    assert "used pageable and pinned memory" in remark(both, "wrong-memory").text


def test_the_cost_of_tracing_is_a_remark() -> None:
    found = findings(copy(0, 900), median_s=800e-6)
    assert remark(found, "traced").text == (
        "traced it takes 1.00 ms, 25.0 % more than the median of the trials without tracing"
    )
    assert "less than" in remark(findings(copy(0, 900), median_s=1.3e-3), "traced").text


@pytest.mark.parametrize(
    ("median_s", "words"),
    [(510e-6, "96.1 % more than"), (500e-6, "2.0 times as long as"), (101e-6, "9.9 times as long as"),
     (100e-6, "10 times as long as"), (1.631e-6, "610 times as long as")],
)  # fmt: skip
def test_a_large_cost_of_tracing_is_given_as_a_factor(median_s: float, words: str) -> None:
    assert words in remark(findings(copy(0, 900), median_s=median_s), "traced").text


@pytest.mark.parametrize("median_s", [950e-6, 1000e-6, None])
def test_a_small_cost_of_tracing_is_not_a_remark(median_s: float | None) -> None:
    assert findings(copy(0, 900), median_s=median_s).remarks == ()


@pytest.mark.parametrize(("elapsed_us", "codes"), [(109, []), (111, ["traced"])])
def test_a_cost_of_tracing_up_to_100_us_is_not_a_remark(elapsed_us: float, codes: list[str]) -> None:
    evidence = Evidence()
    evidence.add(traced(copy(0, 9), elapsed_us=elapsed_us), 50e-6, MIB)
    assert [each.code for each in evidence.findings(Expected(MIB), 10e-6).remarks] == codes


@pytest.mark.parametrize(
    ("median_s", "near"),
    [(None, True), (100e-6, True), (100.9e-6, True), (99.1e-6, True), (101.1e-6, False), (98.9e-6, False)],
)
def test_a_traced_trial_is_near_the_median_within_one_percent(median_s: float | None, near: bool) -> None:
    evidence = Evidence()
    evidence.add(traced(copy(0, 100), elapsed_us=300), 50e-6, MIB)
    evidence.add(traced(copy(0, 50), elapsed_us=100), 50e-6, MIB)
    assert evidence.is_near(median_s) == near


def test_without_a_breakdown_no_trial_is_far_from_the_median() -> None:
    assert Evidence().is_near(1.0)


def test_findings_without_traced_trials_have_the_reason() -> None:
    evidence = Evidence(missing="the budget was spent")
    found = evidence.findings(Expected(MIB), None)
    assert (found.dma.reason, found.breakdown.reason, found.measured) == (
        "the budget was spent",
        "the budget was spent",
        False,
    )


def test_a_failure_after_traced_trials_is_a_remark() -> None:
    evidence = Evidence()
    evidence.add(traced(copy(0, 900)), None, MIB)
    evidence.missing, evidence.failed = "its traced trial failed: no more", True
    found = evidence.findings(Expected(MIB), None)
    assert found.dma.value is not None
    assert remark(found, "untraced").text == "its traced trial failed: no more"


def test_lost_records_do_not_elide_a_row() -> None:
    evidence = Evidence()
    evidence.add(traced(dropped={"copies": 1}), None, MIB)
    found = evidence.findings(Expected(MIB), None)
    assert (found.elided, found.measured) == (None, False)


def test_lost_records_of_all_trials_are_added() -> None:
    evidence = Evidence()
    for _ in range(3):
        evidence.add(traced(dropped={"unknown": 5}), None, MIB)
    found = evidence.findings(Expected(MIB), None)
    lost = "15 of the device's records were lost, so"
    assert (found.dma.reason or "").startswith(lost)
    assert (found.breakdown.reason or "").startswith(lost)


def test_lost_records_of_one_trial_leave_the_breakdown_of_another() -> None:
    evidence = Evidence()
    evidence.add(traced(copy(0, 900)), None, MIB)
    evidence.add(traced(dropped={"calls": 1}), None, MIB)
    breakdown = evidence.findings(Expected(MIB), None).breakdown.value
    assert breakdown is not None
    assert breakdown.left_out == 1


def test_a_host_route_has_parts_and_no_copies() -> None:
    evidence = Evidence()
    evidence.add(traced(kind=None), None, MIB)
    found = evidence.findings(Expected(MIB), None)
    assert found.dma.reason == "nothing crosses the link"
    assert found.breakdown.value is not None
