"""Remarks on missing steps and records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from watch.windows import MACHINE, Flat, Script, analysed, make_window, mark, steps_at

from pyxfer._document.runs import Remark
from pyxfer._watch.analysis import analyse

STEP = steps_at((0, 1, 100))


def test_a_window_without_steps_has_a_remark_on_how_to_mark_them() -> None:
    (remark,) = analysed(make_window(Script(), 100)).remarks
    assert remark.code == "no-steps"
    assert remark.fix == "put what is done with each input into `with w.step():`"


def test_a_window_whose_only_step_failed_has_one_remark() -> None:
    window = make_window(Script(), 100, (replace(STEP[0], failed="ValueError: no"),))
    assert [remark.code for remark in analysed(window).remarks] == ["failed-steps"]


def test_failed_and_unclosed_steps_are_counted_with_the_first_failure() -> None:
    step, *others = steps_at(*((place, place + 0.5, place + 1) for place in range(5)))
    failed = (replace(others[0], failed="ValueError: no"), replace(others[1], failed="KeyError: 'x'"))
    unclosed = (replace(others[2], closed=False), replace(others[3], closed=False))
    assert [remark.text for remark in analysed(make_window(Script(), 100, (step, *failed, *unclosed))).remarks] == [
        "2 steps failed, and are not in the figures of steps: ValueError: no",
        "2 steps had not ended with the window, and are not in the figures",
    ]


@pytest.mark.parametrize("steps", [10_000, 10_001])
def test_the_first_ten_thousand_steps_are_listed(steps: int) -> None:
    watched = analysed(make_window(None, steps, steps_at(*((place, place, place + 1) for place in range(steps)))))
    assert (watched.steps.watched, len(watched.steps.each)) == (steps, 10_000)
    assert ("many-steps" in [remark.code for remark in watched.remarks]) == (steps > 10_000)


def test_the_64_threads_with_the_longest_calls_are_listed() -> None:
    script = Script()
    for thread in range(1, 66):
        script.call("cudaStreamSynchronize", 0, thread, thread=thread)
    assert [use.thread for use in analysed(make_window(script, 100)).threads] == [*range(65, 1, -1)]


def test_a_window_whose_only_step_had_not_ended_has_one_remark() -> None:
    window = make_window(Script(), 100, (replace(STEP[0], closed=False),))
    assert [remark.code for remark in analysed(window).remarks] == ["unclosed-steps"]


def test_the_remark_for_an_unchanged_script_says_how_to_add_a_watch() -> None:
    (remark,) = analyse(make_window(Script(), 100), Flat(50.0), MACHINE, unchanged=True).remarks
    assert remark.fix is not None
    assert "with pyxfer.watch() as w:" in remark.fix


def test_a_cut_window_has_one_remark_on_its_capacity() -> None:
    cut = Remark("capacity", "the capacity for records was used up after 1.00 s")
    window = make_window(Script(), 100, STEP, dropped={"copies": 12}, remarks=(cut,))
    assert analysed(window).remarks == (cut,)


def test_records_that_cupti_has_lost_get_a_remark_also_in_a_cut_window() -> None:
    cut = Remark("capacity", "the capacity for records was used up after 1.00 s")
    window = make_window(Script(), 100, STEP, dropped={"copies": 12, "unknown": 3}, remarks=(cut,))
    assert "missing: 3 unknown;" in analysed(window).remarks[1].text


def test_a_thread_without_a_name_is_shown_with_its_id() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20, thread=1234)
    window = make_window(script, 100, STEP, ranges=(mark("decode", 0, 1),), threads={4001: "MainThread"})
    threads = analysed(window).threads
    assert {use.name for use in threads} == {"thread 1234", "MainThread"}
    assert threads[0].thread == 1234
    assert [(use.calls_s, use.steps) for use in threads] == [(pytest.approx(10e-6), 0), (0.0, 1)]


def test_a_cut_window_without_steps_does_not_say_that_none_was_begun() -> None:
    cut = Remark("capacity", "the capacity for records was used up after 1.00 s")
    remark = analysed(make_window(Script(), 100, remarks=(cut,))).remarks[1]
    assert remark.code == "no-steps"
    assert "no step was begun" not in remark.text
    assert remark.fix is None
