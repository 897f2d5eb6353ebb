"""Ranges that the user has named, and the work in them."""

from __future__ import annotations

import pytest
from watch.windows import LOADER, MIB, Script, analysed, make_window, mark

from pyxfer._trace.records import CopyWay
from pyxfer._watch.ranges import MOST_NAMES


def test_ranges_of_one_name_are_one_row() -> None:
    (row,) = analysed(make_window(Script(), 100, ranges=(mark("decode", 0, 10), mark("decode", 50, 60)))).ranges
    assert (row.name, row.source, row.count) == ("decode", "mark", 2)
    assert (row.seconds, row.share) == pytest.approx((20e-6, 0.2))


def test_nested_ranges_of_one_name_count_each_instant_once() -> None:
    (row,) = analysed(make_window(Script(), 100, ranges=(mark("f", 0, 50), mark("f", 10, 20)))).ranges
    assert row.share == pytest.approx(0.5)


def test_nvtx_ranges_are_paired_from_their_two_records() -> None:
    script = Script()
    script.nvtx("forward", 10, 40)
    (row,) = analysed(make_window(script, 100)).ranges
    assert (row.name, row.source) == ("forward", "nvtx")
    assert row.seconds == pytest.approx(30e-6)


def test_an_nvtx_range_without_an_end_lasts_to_the_end_of_the_window_and_gets_a_remark() -> None:
    script = Script()
    script.nvtx("forward", 10, None)
    watched = analysed(make_window(script, 100))
    assert watched.ranges[0].seconds == pytest.approx(90e-6)
    assert "1 NVTX range had not ended with the window, and last to its end" in [r.text for r in watched.remarks]


def test_ranges_are_cut_to_the_window() -> None:
    (row,) = analysed(make_window(Script(), 100, ranges=(mark("decode", -50, 10),))).ranges
    assert row.seconds == pytest.approx(10e-6)


def test_the_busy_time_of_a_range_counts_work_of_all_threads() -> None:
    script = Script()
    script.kernel(5, 20)
    (row,) = analysed(make_window(script, 100, ranges=(mark("decode", 10, 40),))).ranges
    assert row.busy_s == pytest.approx(10e-6)


def test_the_bytes_of_a_range_are_those_that_its_calls_requested() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 50, 60, nbytes=MIB, call=("cudaMemcpyAsync", 12, 14))
    script.copy(CopyWay.D2H, 60, 70, nbytes=4, call=("cudaMemcpyAsync", 15, 16))
    script.copy(CopyWay.H2D, 15, 20, nbytes=7, call=("cudaMemcpyAsync", 1, 2))
    script.copy(CopyWay.H2D, 15, 20, nbytes=9, call=("cudaMemcpyAsync", 13, 15), thread=LOADER)
    (row,) = analysed(make_window(script, 100, ranges=(mark("send", 10, 20),))).ranges
    assert (row.h2d_bytes, row.d2h_bytes) == (MIB, 4)


def test_without_records_ranges_still_have_their_times() -> None:
    (row,) = analysed(make_window(None, 100, ranges=(mark("decode", 0, 10),))).ranges
    assert (row.count, row.busy_s, row.h2d_bytes) == (1, None, None)


@pytest.mark.parametrize("names", [MOST_NAMES, MOST_NAMES + 1])
def test_the_longest_ranges_are_kept_and_a_remark_counts_all_names(names: int) -> None:
    ranges = tuple(mark(f"batch {number}", 0, 1 + number) for number in range(names))
    watched = analysed(make_window(Script(), 200, ranges=ranges))
    assert len(watched.ranges) == MOST_NAMES
    assert watched.ranges[0].name == f"batch {names - 1}"
    assert ("many-ranges" in [remark.code for remark in watched.remarks]) == (names > MOST_NAMES)
