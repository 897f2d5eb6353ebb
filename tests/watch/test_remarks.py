"""Remarks on records, clocks, missing steps; figures of a step are of completed steps alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from watch.windows import MACHINE, Flat, Script, activity_of, analysed, make_window, mark, steps_at

from pyxfer._document.runs import Remark
from pyxfer._document.watches import Advice, Watched
from pyxfer._trace.records import Clock, CopyWay
from pyxfer._watch.analysis import analyse

STEP = steps_at((0, 1, 100))


def test_the_remarks_of_the_session_come_first() -> None:
    said = Remark("children", "at least 2 child processes ran during the window")
    failed = make_window(None, 100, STEP, remarks=(said,))
    assert analysed(failed).remarks[0] == said


def test_dropped_records_get_a_remark_by_kind() -> None:
    watched = analysed(make_window(Script(), 100, STEP, dropped={"copies": 12, "kernels": 0, "unknown": 3}))
    assert activity_of(watched).dropped == {"copies": 12, "unknown": 3}
    (remark,) = watched.remarks
    assert remark.code == "dropped"
    assert "missing: 12 copies, 3 unknown;" in remark.text


@pytest.mark.parametrize(
    ("seconds", "error_ns", "drift_ns", "codes"),
    [
        *[(100e-6, 20_000, 0, []), (100e-6, 20_001, 0, ["clock-error"])],
        *[(100e-6, 0, 20_000, []), (100e-6, 0, 20_001, ["clock-drift"])],
        *[(60.5, 0, 6_049_000, []), (60.5, 0, 6_051_000, ["clock-drift"])],
    ],
)
def test_clocks_may_be_20_us_apart_and_drift_by_a_ten_thousandth(
    seconds: float, error_ns: int, drift_ns: int, codes: list[str]
) -> None:
    length = seconds * 1e6
    watched = analysed(make_window(Script(), length, steps_at((0, 1, length)), clock=Clock(error_ns, drift_ns)))
    assert watched.window_s == pytest.approx(seconds)
    assert [remark.code for remark in watched.remarks] == codes


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


SENT = 10_000_000
TURN = 5_000
TURNS = 4


def loop() -> Script:
    """Four steps: one millisecond to make the input, one to send it, three to compute."""
    script = Script()
    for begin in range(0, TURNS * TURN, TURN):
        send(script, begin + 1000)
        script.kernel(begin + 2000, begin + TURN)
        script.call("cudaStreamSynchronize", begin + 2000, begin + TURN)
    return script


def send(script: Script, begin: float, nbytes: int = SENT) -> None:
    call = ("cudaMemcpyAsync", begin, begin + 1000)
    script.copy(CopyWay.H2D, begin, begin + 1000, nbytes=nbytes, pageable=True, call=call)


def spans(turns: int = TURNS) -> list[tuple[float, float, float]]:
    return [(begin, begin + 1000, begin + TURN) for begin in range(0, turns * TURN, TURN)]


def watched_loop(script: Script, length: float = 10 * TURNS * TURN) -> Watched:
    return analysed(make_window(script, length, steps_at(*spans())), Flat(50.0))


def gains(watched: Watched) -> dict[str, Advice]:
    return {row.code: row for row in watched.advice}


def test_copies_after_the_loop_are_in_no_prediction() -> None:
    script = loop()
    for place in range(20):
        send(script, (TURNS + 1 + place) * TURN, nbytes=100 * SENT)
    assert gains(watched_loop(script)) == gains(watched_loop(loop()))


def test_copies_of_a_failed_step_are_in_no_prediction() -> None:
    script = loop()
    for place in range(20):
        send(script, TURNS * TURN + 10 + place, nbytes=100 * SENT)
    failed = replace(steps_at((TURNS * TURN, TURNS * TURN, (TURNS + 1) * TURN))[0], failed="ValueError: no")
    window = make_window(script, 50_000, (*steps_at(*spans()), failed))
    assert gains(analysed(window, Flat(50.0))) == gains(watched_loop(loop()))


def test_pinned_copies_outside_of_steps_do_not_hide_that_the_input_is_pageable() -> None:
    script = loop()
    script.copy(CopyWay.H2D, 40_000, 45_000, nbytes=1000 * SENT)
    assert "waits" not in gains(watched_loop(script))


def test_the_saving_per_step_is_of_copies_in_steps() -> None:
    script = loop()
    send(script, 60_000)
    (row,) = activity_of(watched_loop(script)).pageable
    assert (row.count, row.saves_s.value) == (5, pytest.approx(5 * 800e-6))
    assert row.saves_per_step_s == pytest.approx(800e-6)


def test_a_copy_without_a_time_belongs_to_the_step_of_its_call() -> None:
    script = Script()
    script.kernel(0, 20_000)
    for begin in (1000, 60_000):
        script.copy(CopyWay.H2D, 0, 0, nbytes=SENT, pageable=True, call=("cudaMemcpyAsync", begin, begin + 10))
    script.copy(CopyWay.H2D, 2000, 3000, nbytes=SENT)
    window = make_window(script, 70_000, steps_at((0, 0, 20_000)))
    assert activity_of(analysed(window)).pageable[0].saves_per_step_s == pytest.approx(0)


def test_a_window_without_steps_has_no_saving_per_step() -> None:
    (row,) = activity_of(analysed(make_window(loop(), 20_000))).pageable
    assert row.saves_per_step_s is None
