"""Calls that a program may not know it makes, with the line that makes them."""

from __future__ import annotations

from typing import Any

import pytest
from watch.windows import LOADER, MIB, Script, activity_of, analysed, make_window, mark, seen, steps_at

from pyxfer._document.watches import Surprise
from pyxfer._trace.records import CopyWay

STEPS = steps_at((0, 0, 100), (100, 150, 300))


def surprises(script: Script, steps: Any = STEPS, **given: Any) -> tuple[Surprise, ...]:
    found: tuple[Surprise, ...] = activity_of(analysed(make_window(script, 300, steps, **given))).surprises
    return found


def test_a_result_that_is_fetched_in_a_step_is_found_with_its_call() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 5, call=("cudaMemcpyAsync", 0, 2))
    script.copy(CopyWay.D2H, 12, 14, nbytes=4, call=("cudaMemcpyAsync", 10, 20))
    (row,) = surprises(script)
    assert (row.what, row.call, row.count, row.nbytes) == ("d2h", "cudaMemcpyAsync", 1, 4)
    assert row.seconds == pytest.approx(10e-6)


def test_calls_that_wait_or_ask_for_memory_are_found() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 60)
    script.call("cudaMemcpy", 60, 90)
    script.call("cudaMalloc", 90, 95)
    script.call("cudaMallocAsync", 95, 99)
    assert [(row.what, row.call) for row in surprises(script)] == [
        ("wait", "cudaStreamSynchronize"),
        ("blocking copy", "cudaMemcpy"),
        ("allocation", "cudaMalloc"),
    ]


def test_a_call_of_the_driver_inside_one_of_the_runtime_is_not_another() -> None:
    script = Script()
    number = script.call("cudaStreamSynchronize", 10, 60)
    script.call("cuStreamSynchronize", 11, 59, inside=number)
    assert [row.call for row in surprises(script)] == ["cudaStreamSynchronize"]


def test_a_call_of_the_driver_alone_counts() -> None:
    script = Script()
    script.call("cuStreamSynchronize", 11, 59, inside=77)
    assert [row.call for row in surprises(script)] == ["cuStreamSynchronize"]


def test_between_steps_nobody_is_surprised() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 110, 140)
    assert surprises(script) == ()


def test_where_there_are_no_steps_the_whole_window_is_looked_at() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 110, 140)
    (row,) = surprises(script, steps=())
    assert row.per_step is None


def test_the_line_is_that_at_which_the_thread_was_seen_in_the_call() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 160, 170)
    samples = (
        seen(9, "train.py:1 in before"),
        seen(15, "train.py:31 in step"),
        seen(15, "loader.py:7 in make", thread=LOADER),
        seen(165, "train.py:31 in step"),
    )
    (row,) = surprises(script, seen=samples)
    assert row.line.value == "train.py:31 in step"
    assert (row.count, row.per_step) == (2, 1.0)


def test_calls_on_different_lines_are_apart() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 30, 60)
    rows = surprises(script, seen=(seen(15, "a.py:1 in f"), seen(40, "a.py:2 in f")))
    assert [(row.line.value, row.count) for row in rows] == [("a.py:2 in f", 1), ("a.py:1 in f", 1)]


def test_a_call_too_short_to_be_seen_is_on_the_line_of_those_like_it() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 30, 31)
    (row,) = surprises(script, seen=(seen(15, "a.py:1 in f"),))
    assert (row.line.value, row.count) == ("a.py:1 in f", 2)


def test_where_those_like_it_are_on_several_lines_it_has_none() -> None:
    script = Script()
    for begin in (10, 30, 50):
        script.call("cudaStreamSynchronize", begin, begin + 10)
    rows = surprises(script, seen=(seen(15, "a.py:1 in f"), seen(35, "a.py:2 in f")))
    assert sorted(row.line.value or "none" for row in rows) == ["a.py:1 in f", "a.py:2 in f", "none"]


def test_calls_alike_in_another_range_may_be_on_another_line() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20)
    script.call("cudaStreamSynchronize", 30, 31)
    rows = surprises(script, seen=(seen(15, "a.py:1 in f"),), ranges=(mark("loss", 25, 40),))
    assert [row.line.value for row in rows] == ["a.py:1 in f", None]


def test_a_call_that_was_too_short_to_be_seen_says_so() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 11)
    (row,) = surprises(script, seen=(seen(15, "a.py:1 in f"),))
    assert row.line.reason == "too short for a sample of its line"


def test_the_range_is_the_innermost_around_the_call_on_its_thread() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 30, 40)
    script.nvtx("loss", 25, 45)
    ranges = (mark("train", 0, 90), mark("decode", 20, 50, thread=LOADER), mark("over", 5, 25))
    (row,) = surprises(script, ranges=ranges)
    assert row.range == "loss"


def test_after_the_inner_range_has_ended_the_outer_one_is_around() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 60, 70)
    (row,) = surprises(script, ranges=(mark("train", 0, 90), mark("inner", 10, 50)))
    assert row.range == "train"


def test_the_longest_come_first() -> None:
    script = Script()
    script.call("cudaEventSynchronize", 10, 15)
    script.call("cudaDeviceSynchronize", 20, 80)
    assert [row.call for row in surprises(script)] == ["cudaDeviceSynchronize", "cudaEventSynchronize"]


def test_calls_inside_steps_that_ask_for_memory_are_counted() -> None:
    script = Script()
    script.call("cudaMalloc", 10, 11)
    script.call("cudaFree", 120, 130)
    script.call("cudaHostAlloc", 160, 170)
    activity = activity_of(analysed(make_window(script, 300, STEPS)))
    assert activity.allocation_calls_in_steps == 2


def test_memory_is_summed_by_its_kind() -> None:
    script = Script()
    script.allocation(1, 4 * MIB)
    script.allocation(2, 2 * MIB)
    script.allocation(3, 2 * MIB, freed=True)
    (row,) = activity_of(analysed(make_window(script, 300))).allocated
    assert (row.memory, row.allocations, row.allocated_bytes) == ("device", 2, 6 * MIB)
    assert (row.releases, row.released_bytes) == (1, 2 * MIB)


def test_a_long_call_without_a_line_was_not_too_short_for_a_look() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 90)
    (row,) = surprises(script, seen=(seen(50, "loader.py:7 in make", thread=LOADER),))
    assert row.line.reason == "no line of yours was seen in it"


def test_a_call_much_longer_than_the_time_between_two_looks_was_looked_at() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 90)
    looks = tuple(seen(at, "train.py:1 in before") for at in (1, 3, 5, 7))
    (row,) = surprises(script, seen=looks)
    assert row.line.reason == "no line of yours was seen in it"


def test_a_call_between_two_looks_was_too_short() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 12)
    (row,) = surprises(script, seen=(seen(5, "train.py:1 in before"), seen(15, "train.py:2 in after")))
    assert row.line.reason == "too short for a sample of its line"


def test_where_no_line_was_seen_at_all_no_call_is_too_short() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 90)
    assert surprises(script)[0].line.reason == "no line of yours was seen in the window"
