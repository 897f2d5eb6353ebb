"""Remarks on records and clocks."""

from __future__ import annotations

from watch.windows import Script, activity_of, analysed, make_window, steps_at

from pyxfer._document.runs import Remark
from pyxfer._document.watches import Watched
from pyxfer._trace.records import Clock

STEP = steps_at((0, 1, 100))


def texts(watched: Watched) -> list[str]:
    return [remark.text for remark in watched.remarks]


def test_a_complete_window_has_no_remarks() -> None:
    assert texts(analysed(make_window(Script(), 100, STEP))) == []


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


def test_a_large_clock_error_or_drift_gets_a_remark() -> None:
    watched = analysed(make_window(Script(), 100, STEP, clock=Clock(error_ns=50_000, drift_ns=-3_000_000)))
    assert [remark.code for remark in watched.remarks] == ["clock-error", "clock-drift"]
    assert "drifted by 3.00 ms" in texts(watched)[1]


def test_a_clock_error_of_20_us_gets_no_remark() -> None:
    assert texts(analysed(make_window(Script(), 100, STEP, clock=Clock(20_000, 0)))) == []


def test_the_drift_of_a_quartz_gets_no_remark() -> None:
    watched = analysed(make_window(Script(), 60e6, steps_at((0, 1, 60e6)), clock=Clock(500, 600_000)))
    assert texts(watched) == []
    assert activity_of(watched).clock_drift_s == 600e-6
