"""The parts of a step: every instant belongs to the first part that applies."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch.windows import LOADER, MAIN, NO_TRACE, Script, analysed, make_window, steps_at

from pyxfer._document.watches import Parts
from pyxfer._trace.records import CopyWay
from pyxfer._watch.window import Step


def parts_of(script: Script | None, *spans: tuple[float, float, float], thread: int = MAIN) -> dict[str, float]:
    """Microseconds by name, of the mean step."""
    steps = steps_at(*spans, thread=thread)
    watched = analysed(make_window(script, max(end for *_, end in spans), steps))
    return in_us(watched.parts)


def in_us(parts: Parts) -> dict[str, float]:
    return {name: round(seconds * 1e6, 3) for name, seconds in parts.named()}


def test_every_instant_belongs_to_the_first_part_that_applies() -> None:
    script = Script()
    script.kernel(40, 70)
    script.copy(CopyWay.H2D, 30, 50)
    script.copy(CopyWay.D2H, 65, 80)
    script.copy(CopyWay.D2D, 78, 85)
    script.call("cudaStreamSynchronize", 60, 90)
    assert parts_of(script, (0, 20, 100)) == {
        "kernels": 30,
        "h2d": 10,
        "d2h": 10,
        "other copies": 5,
        "input": 20,
        "idle": 5,
        "host": 20,
    }


def test_time_before_a_step_is_input_while_the_device_is_idle() -> None:
    script = Script()
    script.kernel(0, 30)
    assert parts_of(script, (0, 50, 60))["input"] == 20


def test_memory_being_set_counts_as_kernels() -> None:
    script = Script()
    script.set(10, 20)
    assert parts_of(script, (0, 0, 40))["kernels"] == 10


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "cuStreamSynchronize", "cudaMemcpy", "cuMemcpyDtoH"])
def test_a_step_that_waits_for_a_device_that_does_nothing_is_idle(name: str) -> None:
    script = Script()
    script.call(name, 10, 30)
    assert parts_of(script, (0, 0, 40)) | {"idle": 20, "host": 20} == parts_of(script, (0, 0, 40))


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "cudaMalloc", "cudaMemcpyBatchAsync", "cudaMemcpyPeer"])
def test_a_call_that_does_not_wait_is_time_of_the_host(name: str) -> None:
    script = Script()
    script.call(name, 10, 30)
    assert parts_of(script, (0, 0, 40))["idle"] == 0


def test_a_copy_to_pageable_memory_waits_even_if_named_async() -> None:
    script = Script()
    script.copy(CopyWay.D2H, 12, 14, pageable=True, call=("cudaMemcpyAsync", 10, 20))
    assert parts_of(script, (0, 0, 40))["idle"] == 8


def test_another_thread_that_waits_does_not_make_the_step_idle() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 30, thread=LOADER)
    assert parts_of(script, (0, 0, 40))["idle"] == 0


def test_copies_under_kernels_are_counted_separately() -> None:
    script = Script()
    script.kernel(0, 30)
    script.copy(CopyWay.H2D, 20, 40, stream=8)
    script.copy(CopyWay.D2H, 5, 10, stream=9)
    watched = analysed(make_window(script, 50, steps_at((0, 0, 50))))
    assert watched.parts.hidden_h2d_s == pytest.approx(10e-6)
    assert watched.parts.hidden_d2h_s == pytest.approx(5e-6)
    assert in_us(watched.parts)["h2d"] == 10


def test_each_step_has_its_own_row() -> None:
    script = Script()
    script.kernel(10, 20)
    script.kernel(45, 60)
    watched = analysed(make_window(script, 100, steps_at((0, 5, 30), (30, 40, 100)), skipped=10))
    assert [step.number for step in watched.steps.each] == [11, 12]
    assert [in_us(step.parts)["kernels"] for step in watched.steps.each] == [10, 15]
    assert [step.at_s for step in watched.steps.each] == pytest.approx([5e-6, 40e-6])


def test_steps_have_means_and_a_median() -> None:
    steps = analysed(make_window(Script(), 100, steps_at((0, 10, 40), (40, 60, 100)))).steps
    assert steps.watched == 2
    assert steps.period.value is not None
    assert steps.period.value.median_s == pytest.approx(50e-6)
    assert (steps.between_s, steps.inside_s) == pytest.approx((15e-6, 35e-6))


def test_without_steps_the_window_is_one_period_without_input() -> None:
    script = Script()
    script.kernel(10, 20)
    script.call("cudaDeviceSynchronize", 15, 30, thread=LOADER)
    watched = analysed(make_window(script, 40))
    assert in_us(watched.parts) == {"kernels": 10, "h2d": 0, "d2h": 0, "other copies": 0, "idle": 10, "host": 20}
    assert watched.parts.input_s is None
    assert watched.steps.period.reason == "no step was watched to its end"
    assert "no-steps" in [remark.code for remark in watched.remarks]


def test_the_input_is_unknown_if_only_the_ends_of_steps_are_known() -> None:
    script = Script()
    script.kernel(10, 20)
    watched = analysed(make_window(script, 100, steps_at((0, 0, 40), (40, 40, 100))))
    assert watched.parts.input_s is None
    assert in_us(watched.parts)["host"] == 45
    assert watched.steps.between_s is None
    assert [remark.code for remark in watched.remarks] == ["ends-only"]


def test_without_records_only_input_and_host_are_known() -> None:
    watched = analysed(make_window(None, 100, steps_at((0, 30, 100))))
    assert in_us(watched.parts) == {"input": 30, "host": 70}
    assert watched.activity.reason == NO_TRACE
    assert watched.remarks == ()


def test_steps_that_failed_or_were_not_closed_are_counted_and_left_out() -> None:
    good = steps_at((0, 10, 40))
    failed = Step(good[0].end_ns, good[0].end_ns, good[0].end_ns + 1000, MAIN, failed="ValueError: no")
    unclosed = Step(failed.end_ns, failed.end_ns, failed.end_ns + 1000, MAIN, closed=False)
    watched = analysed(make_window(Script(), 100, (*good, failed, unclosed)))
    assert (watched.steps.watched, watched.steps.failed, watched.steps.unclosed) == (1, 1, 1)
    assert watched.steps.failure == "ValueError: no"
    assert watched.parts.period_s == pytest.approx(40e-6)
    assert {"failed-steps", "unclosed-steps"} <= {remark.code for remark in watched.remarks}


def test_a_window_without_length_is_analysed() -> None:
    watched = analysed(make_window(Script(), 0))
    assert watched.window_s == 0
    assert watched.verdict.bound_by == "unknown"
    assert watched.advice == ()


spans = st.tuples(st.integers(0, 200), st.integers(0, 60))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["kernel", "h2d", "d2h", "d2d", "wait"]), spans), max_size=14),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=5),
)
def test_the_parts_agree_with_a_count_of_every_instant(
    events: list[tuple[str, tuple[int, int]]], lengths: list[tuple[int, int]]
) -> None:
    script = Script()
    held: dict[str, set[int]] = {name: set() for name in ("kernel", "h2d", "d2h", "d2d", "wait")}
    for name, (begin, length) in events:
        held[name] |= set(range(begin, begin + length))
        if name == "kernel":
            script.kernel(begin, begin + length)
        elif name == "wait":
            script.call("cudaDeviceSynchronize", begin, begin + length)
        elif length:
            script.copy(CopyWay[name.upper()], begin, begin + length)
    layout, since = [], 0
    for before, inside in lengths:
        layout.append((since, since + before, since + before + inside))
        since += before + inside
    watched = analysed(make_window(script, max(since, 1), steps_at(*layout)))
    for step, (start, begin, end) in zip(watched.steps.each, layout, strict=True):
        counts = dict.fromkeys(("kernels", "h2d", "d2h", "other copies", "input", "idle", "host"), 0)
        for instant in range(start, end):
            claims = (
                *(instant in held[name] for name in ("kernel", "h2d", "d2h", "d2d")),
                *(instant < begin, instant in held["wait"], True),
            )
            counts[list(counts)[claims.index(True)]] += 1
        assert in_us(step.parts) == counts
        assert math.isclose(sum(seconds for _, seconds in step.parts.named()), step.parts.period_s, abs_tol=1e-15)
