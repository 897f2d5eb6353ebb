"""Work that overlaps in time."""

from __future__ import annotations

import pytest
from watch.windows import MIB, Script, activity_of, analysed, make_window

from pyxfer._document.watches import Overlap
from pyxfer._trace.records import CopyWay


def overlap_of(script: Script, length: float = 100) -> Overlap:
    found: Overlap = activity_of(analysed(make_window(script, length))).overlap
    return found


def test_kernels_at_once_are_counted_while_any_runs() -> None:
    script = Script()
    script.kernel(0, 30, stream=7)
    script.kernel(20, 40, stream=8)
    overlap = overlap_of(script)
    assert overlap.kernels == 2
    assert overlap.kernels_at_once.value == pytest.approx(50 / 40)
    assert overlap.kernels_share.value == pytest.approx(0.25)


def test_the_device_is_busy_with_any_work_inside_the_window() -> None:
    script = Script()
    script.kernel(-50, 10)
    script.copy(CopyWay.D2H, 40, 60)
    script.set(90, 150)
    assert overlap_of(script).busy_share == pytest.approx(0.4)


def test_the_hidden_share_is_the_time_of_copies_under_kernels() -> None:
    script = Script()
    script.kernel(0, 20)
    script.copy(CopyWay.H2D, 10, 30)
    script.copy(CopyWay.D2H, 50, 70)
    assert overlap_of(script).hidden_share.value == pytest.approx(0.25)


def test_copies_at_once_is_the_largest_number_under_way() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 30, stream=7)
    script.copy(CopyWay.D2H, 20, 40, stream=8)
    overlap = overlap_of(script)
    assert overlap.copies_at_once == 2
    assert overlap.copies_share.value == pytest.approx(0.25)


def test_without_work_there_is_no_share_of_it() -> None:
    overlap = overlap_of(Script())
    assert overlap.busy_share == 0
    assert overlap.kernels_at_once.reason == "no kernel ran"
    assert overlap.hidden_share.reason == "no copy has a time"


def test_streams_are_listed_with_their_copies_and_kernels() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 10, nbytes=MIB, stream=13)
    script.kernel(0, 50, stream=7)
    script.kernel(60, 70, stream=13)
    streams = activity_of(analysed(make_window(script, 100))).streams
    assert [(use.stream, use.copies, use.copied_bytes, use.kernels) for use in streams] == [
        (7, 0, 0, 1),
        (13, 1, MIB, 1),
    ]
