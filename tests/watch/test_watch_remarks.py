"""What a reader must know before the figures are believed."""

from __future__ import annotations

from watch.windows import Script, activity_of, analysed, make_window, steps_at

from pyxfer._document.runs import Remark
from pyxfer._document.watches import Watched
from pyxfer._trace.records import Clock

STEP = steps_at((0, 1, 100))


def texts(watched: Watched) -> list[str]:
    return [remark.text for remark in watched.remarks]


def test_a_clean_window_needs_no_remark() -> None:
    assert texts(analysed(make_window(Script(), 100, STEP))) == []


def test_what_the_session_has_to_say_comes_first() -> None:
    said = Remark("children", "2 child processes were started; what they do is not in this report")
    failed = make_window(None, 100, STEP, remarks=(said,))
    assert analysed(failed).remarks[0] == said


def test_dropped_records_are_told_by_their_kind() -> None:
    watched = analysed(make_window(Script(), 100, STEP, dropped={"copies": 12, "kernels": 0, "unknown": 3}))
    assert activity_of(watched).dropped == {"copies": 12, "unknown": 3}
    assert texts(watched) == [
        "records found no room and are missing: 12 copies, 3 unknown; what is counted and summed of them is too low"
    ]


def test_clocks_that_fit_badly_are_told() -> None:
    watched = analysed(make_window(Script(), 100, STEP, clock=Clock(error_ns=50_000, drift_ns=-3_000_000)))
    assert [remark.code for remark in watched.remarks] == ["clock-error", "clock-drift"]
    assert "moved 3.00 ms against each other" in texts(watched)[1]


def test_the_drift_of_a_quartz_is_nothing_to_tell() -> None:
    watched = analysed(make_window(Script(), 60e6, steps_at((0, 1, 60e6)), clock=Clock(500, 600_000)))
    assert texts(watched) == []
    assert activity_of(watched).clock_drift_s == 600e-6
