"""The parts of a step and its calls that copy, wait or allocate."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import known
from watch.windows import LOADER, MAIN, MIB, NO_TRACE, Script, activity_of, analysed, make_window, mark, seen, steps_at

from pyxfer._document.watches import Parts, Surprise
from pyxfer._trace.records import CopyKind
from pyxfer._watch.marks import Seen

H2D, D2H, D2D = CopyKind.H2D, CopyKind.D2H, CopyKind.D2D


def parts_of(script: Script, *span: float) -> dict[str, float]:
    """Of the only step."""
    return in_us(analysed(make_window(script, span[-1], steps_at((span[0], span[1], span[2])))).parts)


def in_us(parts: Parts) -> dict[str, float]:
    return {name: round(seconds * 1e6, 3) for name, seconds in parts.named()}


@pytest.mark.parametrize(
    ("name", "thread", "idle"),
    [
        *((name, MAIN, 20) for name in ("cudaDeviceSynchronize", "cuStreamSynchronize", "cudaMemcpy", "cuMemcpyDtoH")),
        *((name, MAIN, 0) for name in ("cudaMemcpyAsync", "cudaMalloc", "cudaMemcpyBatchAsync", "cudaMemcpyPeer")),
        ("cudaStreamSynchronize", LOADER, 0),
    ],
)
def test_a_step_is_idle_while_it_waits_for_a_device_that_does_nothing(name: str, thread: int, idle: float) -> None:
    parts = parts_of(Script().call(name, 10, 30, thread=thread), 0, 0, 40)
    assert (parts["idle"], parts["host"]) == (idle, 40 - idle)


def test_a_copy_to_pageable_memory_waits_even_if_named_async() -> None:
    script = Script().copy(D2H, 12, 14, pageable=True, call=("cudaMemcpyAsync", 10, 20))
    assert parts_of(script, 0, 0, 40)["idle"] == 8


def test_copies_under_kernels_are_counted_separately() -> None:
    script = Script().kernel(0, 30).copy(H2D, 20, 40, stream=8).copy(D2H, 5, 10, stream=9)
    watched = analysed(make_window(script, 50, steps_at((0, 0, 50))))
    assert watched.parts.hidden_h2d_s == pytest.approx(10e-6)
    assert watched.parts.hidden_d2h_s == pytest.approx(5e-6)
    assert in_us(watched.parts)["h2d"] == 10


def test_each_step_has_its_own_row_and_all_have_means_and_a_median() -> None:
    script = Script().kernel(10, 20).kernel(45, 60)
    steps = analysed(make_window(script, 100, steps_at((0, 10, 40), (40, 60, 100)), skipped=10)).steps
    assert [step.number for step in steps.each] == [11, 12]
    assert [in_us(step.parts)["kernels"] for step in steps.each] == [10, 15]
    assert [step.at_s for step in steps.each] == pytest.approx([10e-6, 60e-6])
    assert steps.watched == 2
    assert known(steps.period).median_s == pytest.approx(50e-6)
    assert (steps.between_s, steps.inside_s) == pytest.approx((15e-6, 35e-6))


def test_without_steps_the_window_is_one_period_without_input() -> None:
    watched = analysed(make_window(Script().kernel(10, 20).call("cudaDeviceSynchronize", 15, 30, thread=LOADER), 40))
    assert in_us(watched.parts) == {"kernels": 10, "h2d": 0, "d2h": 0, "other copies": 0, "idle": 10, "host": 20}
    assert watched.parts.input_s is None
    assert watched.steps.period.reason == "no step was watched to its end"
    assert "no-steps" in [remark.code for remark in watched.remarks]


def test_the_input_is_unknown_if_only_the_ends_of_steps_are_known() -> None:
    watched = analysed(make_window(Script().kernel(10, 20), 100, steps_at((0, 0, 40), (40, 40, 100))))
    assert watched.parts.input_s is None
    assert in_us(watched.parts)["host"] == 45
    assert watched.steps.between_s is None
    assert [remark.code for remark in watched.remarks] == ["ends-only"]


def test_without_records_only_input_and_host_are_known() -> None:
    watched = analysed(make_window(None, 100, steps_at((0, 30, 100))))
    assert in_us(watched.parts) == {"input": 30, "host": 70}
    assert watched.activity.reason == NO_TRACE
    assert watched.remarks == ()


spans = st.tuples(st.integers(0, 200), st.integers(0, 60))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["kernel", "set", "h2d", "d2h", "d2d", "wait"]), spans), max_size=14),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=5),
)
def test_every_instant_belongs_to_the_first_part_that_applies(
    events: list[tuple[str, tuple[int, int]]], lengths: list[tuple[int, int]]
) -> None:
    script = Script()
    held: dict[str, set[int]] = {name: set() for name in ("kernel", "h2d", "d2h", "d2d", "wait")}
    for name, (begin, length) in events:
        held["kernel" if name == "set" else name] |= set(range(begin, begin + length))
        if name == "kernel":
            script.kernel(begin, begin + length)
        elif name == "set":
            script.set(begin, begin + length)
        elif name == "wait":
            script.call("cudaDeviceSynchronize", begin, begin + length)
        elif length:
            script.copy(CopyKind[name.upper()], begin, begin + length)
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


STEPS = steps_at((0, 0, 100), (100, 150, 300))


def listed_calls(script: Script, steps: Any = STEPS, **given: Any) -> tuple[Surprise, ...]:
    found: tuple[Surprise, ...] = activity_of(analysed(make_window(script, 300, steps, **given))).surprises
    return found


def test_the_lines_that_samples_of_the_steps_thread_saw_are_counted() -> None:
    samples = (*(seen(at, "a.py:1 in f") for at in (1, 3, 5)), seen(7, "a.py:2 in f"), seen(8, "b.py:9 in g", LOADER))
    found = analysed(make_window(Script(), 300, STEPS, seen=samples)).lines
    assert [(use.line, use.samples, use.share) for use in found] == [("a.py:1 in f", 3, 0.75), ("a.py:2 in f", 1, 0.25)]


def test_a_copy_to_the_host_in_a_step_is_listed_with_its_call() -> None:
    script = Script().copy(H2D, 0, 5, call=("cudaMemcpyAsync", 0, 2))
    script.copy(D2H, 12, 14, nbytes=4, call=("cudaMemcpyAsync", 10, 20))
    (row,) = listed_calls(script)
    assert (row.what, row.call, row.count, row.nbytes) == ("d2h", "cudaMemcpyAsync", 1, 4)
    assert row.seconds == pytest.approx(10e-6)


def test_calls_that_wait_or_allocate_are_listed() -> None:
    script = Script().call("cudaStreamSynchronize", 10, 60).call("cudaMemcpy", 60, 90).call("cudaMalloc", 90, 95)
    script.call("cudaMallocAsync", 95, 99)
    assert [(row.what, row.call) for row in listed_calls(script)] == [
        ("wait", "cudaStreamSynchronize"),
        ("blocking copy", "cudaMemcpy"),
        ("allocation", "cudaMalloc"),
    ]


def test_a_driver_call_inside_a_runtime_call_is_not_counted() -> None:
    script = Script().call("cudaStreamSynchronize", 10, 60)
    script.call("cuStreamSynchronize", 11, 59, inside=script.number)
    script.call("cuEventSynchronize", 70, 75, inside=77)
    assert [row.call for row in listed_calls(script)] == ["cudaStreamSynchronize", "cuEventSynchronize"]


def test_calls_between_steps_are_listed_only_without_steps() -> None:
    script = Script().call("cudaStreamSynchronize", 110, 140)
    assert listed_calls(script) == ()
    assert [row.per_step for row in listed_calls(script, steps=())] == [None]


def test_a_call_has_the_line_that_was_sampled_in_its_thread() -> None:
    script = Script().call("cudaStreamSynchronize", 10, 20).call("cudaStreamSynchronize", 160, 170)
    samples = (
        seen(9, "train.py:1 in before"),
        seen(15, "train.py:31 in step"),
        seen(15, "loader.py:7 in make", thread=LOADER),
        seen(165, "train.py:31 in step"),
    )
    (row,) = listed_calls(script, seen=samples)
    assert row.line.value == "train.py:31 in step"
    assert (row.count, row.per_step) == (2, 1.0)


@pytest.mark.parametrize(
    ("calls", "lines", "ranges", "rows"),
    [
        # Calls on different lines are separate rows.
        ([(10, 20), (30, 60)], [(15, "a.py:1"), (40, "a.py:2")], (), [("a.py:2", 1), ("a.py:1", 1)]),
        # A call without a sample has the line of similar calls, unless they are on several, or in another range.
        ([(10, 20), (30, 31)], [(15, "a.py:1")], (), [("a.py:1", 2)]),
        ([(10, 20), (30, 41), (50, 59)], [(15, "1"), (35, "2")], (), [("2", 1), ("1", 1), (None, 1)]),
        ([(10, 20), (30, 31)], [(15, "a.py:1")], (mark("loss", 25, 40),), [("a.py:1", 1), (None, 1)]),
    ],
)
def test_calls_are_listed_by_their_lines(
    calls: list[tuple[float, float]], lines: list[tuple[float, str]], ranges: Any, rows: list[tuple[str | None, int]]
) -> None:
    script = Script()
    for begin, end in calls:
        script.call("cudaStreamSynchronize", begin, end)
    found = listed_calls(script, seen=tuple(seen(*line) for line in lines), ranges=ranges)
    assert [(row.line.value, row.count) for row in found] == rows


@pytest.mark.parametrize(
    ("end", "samples", "reason"),
    [
        (11, (seen(15, "a.py:1 in f"),), "too short for a sample of its line"),
        (12, (seen(5, "a.py:1 in f"), seen(15, "a.py:2 in g")), "too short for a sample of its line"),
        (90, (seen(50, "loader.py:7 in make", thread=LOADER),), "no line of yours was seen in it"),
        (90, tuple(seen(at, "a.py:1 in f") for at in (1, 3, 5, 7)), "no line of yours was seen in it"),
        (90, (), "no line of yours was seen in the window"),
    ],
)
def test_a_call_without_a_line_has_the_reason(end: float, samples: tuple[Seen, ...], reason: str) -> None:
    (row,) = listed_calls(Script().call("cudaStreamSynchronize", 10, end), seen=samples)
    assert row.line.reason == reason


def test_the_range_is_the_innermost_around_the_call_on_its_thread() -> None:
    script = Script().call("cudaStreamSynchronize", 30, 40).nvtx("loss", 25, 45)
    ranges = (mark("train", 0, 90), mark("decode", 20, 50, thread=LOADER), mark("over", 5, 25))
    (row,) = listed_calls(script, ranges=ranges)
    assert row.range == "loss"
    script.call("cudaStreamSynchronize", 60, 70)
    assert {row.range for row in listed_calls(script, ranges=ranges)} == {"loss", "train"}


def test_allocation_calls_in_steps_are_listed_and_allocations_are_summed_by_kind_of_memory() -> None:
    script = Script().call("cudaMalloc", 10, 11).call("cudaFree", 120, 130).call("cudaHostAlloc", 160, 170)
    script.allocation(1, 4 * MIB).allocation(2, 2 * MIB).allocation(3, 2 * MIB, freed=True)
    activity = activity_of(analysed(make_window(script, 300, STEPS)))
    assert {row.call for row in activity.surprises} == {"cudaMalloc", "cudaHostAlloc"}
    (row,) = activity.allocated
    assert (row.memory, row.allocations, row.allocated_bytes) == ("device", 2, 6 * MIB)
    assert (row.releases, row.released_bytes) == (1, 2 * MIB)
