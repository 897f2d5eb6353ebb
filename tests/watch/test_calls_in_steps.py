"""Calls in steps that copy, wait or allocate, with their lines and ranges."""

from __future__ import annotations

from typing import Any

import pytest
from watch.windows import LOADER, MIB, Script, activity_of, analysed, make_window, mark, seen, steps_at

from pyxfer._document.watches import Surprise
from pyxfer._trace.records import CopyWay

STEPS = steps_at((0, 0, 100), (100, 150, 300))


def listed_calls(script: Script, steps: Any = STEPS, **given: Any) -> tuple[Surprise, ...]:
    found: tuple[Surprise, ...] = activity_of(analysed(make_window(script, 300, steps, **given))).surprises
    return found


def test_a_copy_to_the_host_in_a_step_is_listed_with_its_call() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 5, call=("cudaMemcpyAsync", 0, 2))
    script.copy(CopyWay.D2H, 12, 14, nbytes=4, call=("cudaMemcpyAsync", 10, 20))
    (row,) = listed_calls(script)
    assert (row.what, row.call, row.count, row.nbytes) == ("d2h", "cudaMemcpyAsync", 1, 4)
    assert row.seconds == pytest.approx(10e-6)


def test_calls_that_wait_or_allocate_are_listed() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 60)
    script.call("cudaMemcpy", 60, 90)
    script.call("cudaMalloc", 90, 95)
    script.call("cudaMallocAsync", 95, 99)
    assert [(row.what, row.call) for row in listed_calls(script)] == [
        ("wait", "cudaStreamSynchronize"),
        ("blocking copy", "cudaMemcpy"),
        ("allocation", "cudaMalloc"),
    ]


def test_a_driver_call_inside_a_runtime_call_is_not_counted() -> None:
    script = Script()
    number = script.call("cudaStreamSynchronize", 10, 60)
    script.call("cuStreamSynchronize", 11, 59, inside=number)
    assert [row.call for row in listed_calls(script)] == ["cudaStreamSynchronize"]


def test_a_driver_call_without_a_runtime_call_is_counted() -> None:
    script = Script()
    script.call("cuStreamSynchronize", 11, 59, inside=77)
    assert [row.call for row in listed_calls(script)] == ["cuStreamSynchronize"]


def test_calls_between_steps_are_not_listed() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 110, 140)
    assert listed_calls(script) == ()


def test_without_steps_all_calls_of_the_window_are_listed() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 110, 140)
    (row,) = listed_calls(script, steps=())
    assert row.per_step is None


def test_a_call_has_the_line_that_was_sampled_in_its_thread() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 160, 170)
    samples = (
        seen(9, "train.py:1 in before"),
        seen(15, "train.py:31 in step"),
        seen(15, "loader.py:7 in make", thread=LOADER),
        seen(165, "train.py:31 in step"),
    )
    (row,) = listed_calls(script, seen=samples)
    assert row.line.value == "train.py:31 in step"
    assert (row.count, row.per_step) == (2, 1.0)


def test_calls_on_different_lines_are_separate_rows() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 30, 60)
    rows = listed_calls(script, seen=(seen(15, "a.py:1 in f"), seen(40, "a.py:2 in f")))
    assert [(row.line.value, row.count) for row in rows] == [("a.py:2 in f", 1), ("a.py:1 in f", 1)]


def test_a_call_without_a_sample_has_the_line_of_similar_calls() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 30, 31)
    (row,) = listed_calls(script, seen=(seen(15, "a.py:1 in f"),))
    assert (row.line.value, row.count) == ("a.py:1 in f", 2)


def test_a_call_has_no_line_if_similar_calls_are_on_several() -> None:
    script = Script()
    for begin in (10, 30, 50):
        script.call("cudaStreamSynchronize", begin, begin + 10)
    rows = listed_calls(script, seen=(seen(15, "a.py:1 in f"), seen(35, "a.py:2 in f")))
    assert sorted(row.line.value or "none" for row in rows) == ["a.py:1 in f", "a.py:2 in f", "none"]


def test_calls_in_another_range_are_not_similar() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 30, 31)
    rows = listed_calls(script, seen=(seen(15, "a.py:1 in f"),), ranges=(mark("loss", 25, 40),))
    assert [row.line.value for row in rows] == ["a.py:1 in f", None]


def test_a_call_without_any_similar_sample_has_the_reason() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 11)
    (row,) = listed_calls(script, seen=(seen(15, "a.py:1 in f"),))
    assert row.line.reason == "too short for a sample of its line"


def test_the_range_is_the_innermost_around_the_call_on_its_thread() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 30, 40)
    script.nvtx("loss", 25, 45)
    ranges = (mark("train", 0, 90), mark("decode", 20, 50, thread=LOADER), mark("over", 5, 25))
    (row,) = listed_calls(script, ranges=ranges)
    assert row.range == "loss"


def test_the_range_is_the_outer_one_after_the_inner_has_ended() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 60, 70)
    (row,) = listed_calls(script, ranges=(mark("train", 0, 90), mark("inner", 10, 50)))
    assert row.range == "train"


def test_rows_are_sorted_by_time() -> None:
    script = Script()
    script.call("cudaEventSynchronize", 10, 15)
    script.call("cudaDeviceSynchronize", 20, 80)
    assert [row.call for row in listed_calls(script)] == ["cudaDeviceSynchronize", "cudaEventSynchronize"]


def test_allocation_calls_in_steps_are_counted() -> None:
    script = Script()
    script.call("cudaMalloc", 10, 11)
    script.call("cudaFree", 120, 130)
    script.call("cudaHostAlloc", 160, 170)
    activity = activity_of(analysed(make_window(script, 300, STEPS)))
    assert activity.allocation_calls_in_steps == 2


def test_allocations_are_summed_by_kind_of_memory() -> None:
    script = Script()
    script.allocation(1, 4 * MIB)
    script.allocation(2, 2 * MIB)
    script.allocation(3, 2 * MIB, freed=True)
    (row,) = activity_of(analysed(make_window(script, 300))).allocated
    assert (row.memory, row.allocations, row.allocated_bytes) == ("device", 2, 6 * MIB)
    assert (row.releases, row.released_bytes) == (1, 2 * MIB)


def test_a_long_call_without_a_line_is_not_called_too_short() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 90)
    (row,) = listed_calls(script, seen=(seen(50, "loader.py:7 in make", thread=LOADER),))
    assert row.line.reason == "no line of yours was seen in it"


def test_a_call_of_several_sampling_intervals_is_not_called_too_short() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 90)
    samples = tuple(seen(at, "train.py:1 in before") for at in (1, 3, 5, 7))
    (row,) = listed_calls(script, seen=samples)
    assert row.line.reason == "no line of yours was seen in it"


def test_a_call_between_two_samples_is_too_short() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 12)
    (row,) = listed_calls(script, seen=(seen(5, "train.py:1 in before"), seen(15, "train.py:2 in after")))
    assert row.line.reason == "too short for a sample of its line"


def test_without_any_sample_no_call_is_called_too_short() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 90)
    assert listed_calls(script)[0].line.reason == "no line of yours was seen in the window"
