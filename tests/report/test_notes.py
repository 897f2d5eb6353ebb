from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pages import full_run, missing, widened, with_remark
from samples import KIB, MIB, make_run

from pyxfer._document import machines, runs
from pyxfer._report.notes import gather, label, sizes_text

SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)


def small_run(**overrides: Any) -> runs.Run:
    return full_run(("h2d",), ("pinned", "pageable"), sizes=SIZES, **overrides)


def changed(run: runs.Run, *changes: tuple[int, runs.Measurement]) -> runs.Run:
    measurements = list(run.measurements)
    for index, measurement in changes:
        measurements[index] = measurement
    return msgspec.structs.replace(run, measurements=tuple(measurements))


def test_equal_remarks_are_one_note_with_their_fix() -> None:
    run = small_run()
    alike = [with_remark(m, "unstable", "it varies", "--budget 60s") for m in run.measurements]
    marks, notes = gather(msgspec.structs.replace(run, measurements=tuple(alike)))
    assert marks == ("a",) * 8
    assert [note.text for note in notes] == ["all at 4 KiB to 256 KiB: it varies; try --budget 60s"]


def imprecise(count: int, *others: tuple[int, float]) -> runs.Run:
    """24 values of which the first ones miss the target by a little, and others by this much."""
    run = full_run(("h2d", "d2h", "both"), ("pinned",), sizes=SIZES)
    run = msgspec.structs.replace(run, measurements=(*run.measurements, *run.measurements[:4]))
    changes = [(index, widened(run.measurements[index], 0.01)) for index in range(count)]
    changes += [(index, widened(run.measurements[index], half_width)) for index, half_width in others]
    return changed(run, *changes)


def test_what_most_values_share_is_said_once_without_letters_and_what_half_share_has_letters() -> None:
    run = imprecise(13)
    assert len(run.measurements) == 24
    marks, notes = gather(run)
    assert set(marks) == {""}
    assert [(note.mark, note.text) for note in notes] == [("-", "most values (13 of 24): precision 1 %, target 0.5 %")]
    assert gather(imprecise(24))[1][0].text.startswith("all values (24 of 24): ")
    marks, notes = gather(imprecise(12))
    assert marks == ("a",) * 12 + ("",) * 12
    assert [note.mark for note in notes] == ["a"]


def test_a_far_less_precise_value_among_imprecise_ones_has_a_letter() -> None:
    marks, notes = gather(imprecise(20, (21, 0.2)))
    assert [index for index, mark in enumerate(marks) if mark] == [21]
    assert [note.mark for note in notes] == ["-", "a"]
    assert notes[1].text.endswith(": precision 20.0 %, target 0.5 %")


@pytest.mark.parametrize(
    ("code", "texts", "end"),
    [
        ("unstable", ("known to 1 %", "known to 7 %"), ": precision 1 % to 7 %, target 0.5 %"),
        ("drift", ("it drifted a little", "it drifted far"), "; at worst: it drifted far"),
    ],
)
def test_different_remarks_of_one_code_are_a_range_or_the_worst(code: str, texts: tuple[str, str], end: str) -> None:
    run = small_run()
    mild = widened(with_remark(run.measurements[0], code, texts[0]), 0.01)
    worse = widened(with_remark(run.measurements[2], code, texts[1]), 0.07)
    _, notes = gather(changed(run, (0, mild), (2, worse)))
    assert notes[0].text == f"h2d pinned at 4 KiB, 64 KiB{end}"


def test_a_label_names_the_mode_staged_and_each_mode_of_several() -> None:
    (row,) = full_run(("h2d",), ("pageable",), ("staged",), sizes=(16 * MIB,)).measurements
    assert label(row, make_run(measurements=(row,))) == "h2d pageable staged"
    run = full_run(("h2d",), ("pinned",), ("async", "streams:2"), sizes=SIZES)
    assert label(run.measurements[5], run) == "h2d pinned streams:2"


def test_missing_and_wrong_values_always_have_a_letter_and_outliers_none() -> None:
    run = imprecise(0)
    gone = tuple(missing(m, "no driver") for m in run.measurements)
    assert set(gather(msgspec.structs.replace(run, measurements=gone))[0]) == {"a"}
    run = small_run()
    wrong = with_remark(run.measurements[0], "unstable", "it varies")
    marks, notes = gather(changed(run, (0, msgspec.structs.replace(wrong, verified=machines.Fact(False)))))
    assert marks[0] == "ab"
    assert "the bytes that arrived are not the bytes that were sent" in notes[1].text
    marked = tuple(with_remark(m, "outliers", "some trials are outliers") for m in run.measurements)
    marks, notes = gather(msgspec.structs.replace(run, measurements=marked))
    assert (set(marks), notes) == ({""}, ())


def test_missing_and_imprecise_values_are_marked_without_a_remark() -> None:
    run = small_run()
    wide, gone = widened(run.measurements[0], 0.031), missing(run.measurements[5], "out of memory")
    marks, notes = gather(changed(run, (0, wide), (5, gone)))
    assert (marks[0], marks[5]) == ("a", "b")
    assert [note.text for note in notes] == [
        "h2d pinned at 4 KiB: precision 3.1 %, target 0.5 %",
        "h2d pageable at 16 KiB: out of memory",
    ]


@pytest.mark.parametrize(("code", "named"), [("late", False), ("shared", True)])
def test_a_row_names_no_budget_if_the_remark_on_the_run_names_one(code: str, named: bool) -> None:
    run = small_run()
    few = machines.Remark("few-trials", "1 trial is too few", "give a budget of 42s")
    row = msgspec.structs.replace(run.measurements[0], remarks=(few,))
    run = msgspec.structs.replace(changed(run, (0, row)), remarks=(machines.Remark(code, "the budget was too short"),))
    assert ("42s" in gather(run)[1][0].text.lower()) is named


def traced(run: runs.Run, reason: str) -> runs.Run:
    """A traced run whose first row has no records, for this reason."""
    row = msgspec.structs.replace(run.measurements[0], dma=machines.unknown(reason), breakdown=machines.unknown(reason))
    tracing = machines.Fact(runs.Tracing("libcupti.so.12", 28))
    return msgspec.structs.replace(changed(run, (0, row)), tracing=tracing)


def test_records_are_missed_only_where_others_were_kept() -> None:
    lost = traced(small_run(), "15 of the device's records were lost")
    marks, notes = gather(lost)
    assert marks == ("a", *[""] * 7)
    assert notes[0].text == "h2d pinned at 4 KiB: 15 of the device's records were lost"
    for reason in (runs.UNTRACED, runs.OF_SIDES, runs.NOT_TRACED, runs.NOT_ASKED):
        assert gather(traced(small_run(), reason))[1] == ()
    assert gather(msgspec.structs.replace(lost, tracing=machines.unknown("trace: unavailable: no library")))[1] == ()


def test_more_than_26_notes_have_distinct_marks() -> None:
    sizes = tuple(range(KIB, 41 * KIB, KIB))
    run = full_run(("h2d",), ("pinned",), sizes=sizes)
    different = tuple(missing(m, f"reason {i}") for i, m in enumerate(run.measurements))
    marks, _ = gather(msgspec.structs.replace(run, measurements=different))
    assert marks[25:28] == ("z", "aa", "ab")
    assert len(set(marks)) == len(sizes)


def test_consecutive_sizes_are_a_range_few_with_a_gap_a_list_and_many_are_counted() -> None:
    known = tuple(4**step * MIB for step in range(8))
    assert sizes_text(SIZES, SIZES) == "4 KiB to 256 KiB"
    assert sizes_text(known[::2], known) == "1 MiB, 16 MiB, 256 MiB, 4 GiB"
    assert sizes_text(known[:2] + known[3:], known) == "7 sizes from 1 MiB to 16 GiB"
