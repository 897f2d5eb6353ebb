"""What is said of steps and records that are not all there: once, and nothing that is not so."""

from __future__ import annotations

from dataclasses import replace

from watch.windows import MACHINE, Flat, Script, analysed, make_window, mark, steps_at

from pyxfer._document.runs import Remark
from pyxfer._watch.analysis import analyse

STEP = steps_at((0, 1, 100))


def test_a_window_in_which_no_step_was_begun_says_how_to_mark_them() -> None:
    (remark,) = analysed(make_window(Script(), 100)).remarks
    assert remark.code == "no-steps"
    assert remark.fix == "put what is done with each input into `with w.step():`"


def test_where_the_only_step_failed_that_is_all_that_is_said() -> None:
    window = make_window(Script(), 100, (replace(STEP[0], failed="ValueError: no"),))
    assert [remark.code for remark in analysed(window).remarks] == ["failed-steps"]


def test_where_the_only_step_had_not_ended_that_is_all_that_is_said() -> None:
    window = make_window(Script(), 100, (replace(STEP[0], closed=False),))
    assert [remark.code for remark in analysed(window).remarks] == ["unclosed-steps"]


def test_an_unchanged_script_has_no_w_to_be_told_of() -> None:
    (remark,) = analyse(make_window(Script(), 100), Flat(50.0), MACHINE, unchanged=True).remarks
    assert remark.fix is not None
    assert remark.fix.startswith("only the steps of PyTorch's optimizers are found by themselves")
    assert "with pyxfer.watch() as w:" in remark.fix


def test_a_window_that_was_cut_speaks_of_its_room_once() -> None:
    cut = Remark("capacity", "after 1.00 s records found no room any more, so the rest is left out")
    window = make_window(Script(), 100, STEP, dropped={"copies": 12}, remarks=(cut,))
    assert analysed(window).remarks == (cut,)


def test_records_that_the_library_has_lost_are_told_beside_a_cut() -> None:
    cut = Remark("capacity", "after 1.00 s records found no room any more, so the rest is left out")
    window = make_window(Script(), 100, STEP, dropped={"copies": 12, "unknown": 3}, remarks=(cut,))
    assert "missing: 3 unknown;" in analysed(window).remarks[1].text


def test_a_thread_without_a_name_is_called_by_its_number() -> None:
    script = Script()
    script.call("cudaStreamSynchronize", 10, 20, thread=1234)
    window = make_window(script, 100, STEP, ranges=(mark("decode", 0, 1),), threads={4001: "MainThread"})
    assert {use.name for use in analysed(window).threads} == {"thread 1234", "MainThread"}


def test_where_all_steps_were_cut_off_nobody_says_that_none_was_begun() -> None:
    cut = Remark("capacity", "after 1.00 s records found no room any more, so the rest is left out")
    remark = analysed(make_window(Script(), 100, remarks=(cut,))).remarks[1]
    assert remark.text.startswith("no step ended in the part that the records cover, so")
    assert remark.fix is None
