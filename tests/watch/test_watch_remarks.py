"""Remarks on records and clocks."""

from __future__ import annotations

import pytest
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
    assert activity_of(watched).clock_drift_s == -3e-3


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
