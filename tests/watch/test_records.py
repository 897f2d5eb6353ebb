"""What the records show: copies by way, memory and size; work that overlaps; ranges that the user has named."""

from __future__ import annotations

import io
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch import windows
from watch.windows import D2D, D2H, H2D, LOADER, MIB, P2P, Script, activity_of, analysed, flat, make_window, mark

from pyxfer._document.machines import Fact
from pyxfer._document.watches import CeilingSource, CopyClass, Overlap
from pyxfer._trace.records import Capture, Kind
from pyxfer._watch.chrome import write_events
from pyxfer._watch.copies import sizes_needed
from pyxfer._watch.device_records import Cover
from pyxfer._watch.ranges import MAX_NAMES
from pyxfer._watch.window import Window


def classes(script: Script, ceilings: Fact[CeilingSource] | None = None) -> tuple[CopyClass, ...]:
    found: tuple[CopyClass, ...] = activity_of(analysed(make_window(script, 10_000), ceilings)).copies
    return found


@pytest.mark.parametrize(
    ("nbytes", "least", "below"),
    [
        (1, 0, 4096),
        (4095, 0, 4096),
        (4096, 4096, 16384),
        (16384, 16384, 65536),
        ((1 << 30) - 1, 1 << 28, 1 << 30),
        (1 << 30, 1 << 30, None),
    ],
)
def test_a_size_class_reaches_from_a_power_of_four_to_the_next(nbytes: int, least: int, below: int | None) -> None:
    script = Script().copy(H2D, 0, 10, nbytes=nbytes)
    assert [(row.least_bytes, row.below_bytes) for row in classes(script)] == [(least, below)]


def test_copies_of_one_class_are_summed() -> None:
    (row,) = classes(Script().copy(H2D, 0, 100, nbytes=MIB).copy(H2D, 200, 400, nbytes=2 * MIB))
    assert (row.count, row.nbytes, row.seconds) == pytest.approx((2, 3 * MIB, 300e-6))
    assert row.gbps.value == pytest.approx(3 * MIB / 300e-6 / 1e9)


def test_classes_are_sorted_by_way_and_memory() -> None:
    script = Script().copy(D2D, 0, 1).copy(D2H, 1, 2, pageable=True).copy(H2D, 2, 3).copy(H2D, 3, 4, pageable=True)
    script.copy(P2P, 4, 5)
    assert [(row.direction, row.memory) for row in classes(script)] == [
        ("h2d", "pageable"),
        ("h2d", "pinned"),
        ("d2h", "pageable"),
        ("d2d", "device"),
        ("p2p", "device"),
    ]


def test_the_share_of_the_ceiling_is_the_time_at_the_ceiling_over_the_time_taken() -> None:
    (row,) = classes(Script().copy(H2D, 0, 100, nbytes=1_000_000, pageable=True))
    assert row.ceiling_share.value == pytest.approx(0.2)


def test_a_share_without_a_ceiling_has_the_reason() -> None:
    script = Script().copy(H2D, 0, 100).copy(D2D, 0, 100)
    assert [row.ceiling_share.reason for row in classes(script, flat(None, "the device was busy"))] == [
        "the device was busy",
        "only copies between host and device have a ceiling",
    ]


def test_copies_below_4_kib_have_no_ceiling() -> None:
    small, large = classes(Script().copy(H2D, 0, 1, nbytes=4095).copy(H2D, 1, 2, nbytes=4096))
    assert small.ceiling_share.reason == "a copy below 4 KiB goes within a command and has no ceiling"
    assert large.ceiling_share.value == pytest.approx(4096 / 50e9 / 1e-6)


def test_a_batch_counts_all_its_copies_and_has_their_mean_size() -> None:
    (row,) = classes(Script().copy(H2D, 0, 10, nbytes=100 * 8192, copies=100))
    assert (row.count, row.nbytes, row.least_bytes) == (100, 100 * 8192, 4096)


def test_copies_without_a_time_are_counted_and_have_no_bandwidth() -> None:
    watched = analysed(make_window(Script().copy(H2D, 0, 0, nbytes=MIB), 100))
    (row,) = activity_of(watched).copies
    assert (row.count, row.nbytes, row.timed_bytes) == (1, MIB, 0)
    assert row.gbps.reason == "the device gave no time for them"
    assert "untimed" in [remark.code for remark in watched.remarks]


def test_copies_of_another_device_are_only_counted() -> None:
    watched = analysed(make_window(Script().copy(H2D, 0, 10, device=1), 100))
    assert activity_of(watched).copies == ()
    assert "1 record of other devices is not in the figures" in [remark.text for remark in watched.remarks]


def test_pageable_copies_say_what_pinning_would_save() -> None:
    script = Script().copy(H2D, 0, 1000, nbytes=10_000_000, pageable=True).copy(H2D, 1000, 1100, nbytes=1_000_000)
    (row,) = activity_of(analysed(make_window(script, 2000, windows.steps_at((0, 0, 2000))))).pageable
    assert (row.direction, row.count, row.nbytes, row.seconds) == ("h2d", 1, 10_000_000, pytest.approx(1e-3))
    assert (row.pinned_s.value, row.saves_s.value) == (pytest.approx(200e-6), pytest.approx(800e-6))


def test_a_pageable_copy_between_steps_is_counted_once() -> None:
    script = Script()
    for begin in (0, 2000):  # while the input of each step is made
        script.copy(H2D, begin + 100, begin + 600, nbytes=10_000_000, pageable=True)
    script.copy(H2D, 4100, 4500, nbytes=10_000_000, pageable=True)  # after the last step
    steps = windows.steps_at((0, 1000, 2000), (2000, 3000, 4000))
    (row,) = activity_of(analysed(make_window(script, 5000, steps))).pageable
    assert (row.count, row.nbytes, row.seconds) == (3, 30_000_000, pytest.approx(1400e-6))
    assert row.saves_s.value == pytest.approx(800e-6)
    assert (row.saves_per_step_s, row.other_saves_s) == (pytest.approx(300e-6), pytest.approx(200e-6))


def test_ceilings_are_needed_at_the_mean_size_of_each_class() -> None:
    script = Script().copy(D2D, 0, 1, nbytes=64)
    for nbytes in (4096, 8192, MIB):
        script.copy(H2D, 0, 1, nbytes=nbytes)
    assert sizes_needed(make_window(script, 10)) == {"h2d": (6144, MIB)}


def overlap_of(script: Script) -> Overlap:
    found: Overlap = activity_of(analysed(make_window(script, 100))).overlap
    return found


def test_kernels_and_copies_at_once_are_counted_while_any_runs() -> None:
    script = Script().kernel(0, 30, stream=7).kernel(20, 40, stream=8).copy(H2D, 30, 60, stream=9)
    script.copy(D2H, 50, 70, stream=10)
    watched = analysed(make_window(script, 100))
    overlap = activity_of(watched).overlap
    assert (overlap.kernels, overlap.copies_at_once) == (2, 2)
    assert overlap.kernels_at_once.value == pytest.approx(50 / 40)
    assert overlap.kernels_share.value == pytest.approx(0.25)
    assert overlap.copies_share.value == pytest.approx(10 / 40)
    assert overlap.hidden_share.value == pytest.approx(10 / 50)
    assert [row.hidden_share.value for row in activity_of(watched).copies] == pytest.approx([10 / 30, 0.0])


def test_the_device_is_busy_with_any_work_inside_the_window_and_without_work_there_is_no_share_of_it() -> None:
    assert overlap_of(Script().kernel(-50, 10).copy(D2H, 40, 60).set(90, 150)).busy_share == pytest.approx(0.4)
    overlap = overlap_of(Script())
    assert overlap.busy_share == 0
    assert overlap.kernels_at_once.reason == "no kernel ran"
    assert overlap.hidden_share.reason == "no copy has a time"


def test_streams_are_listed_with_their_copies_and_kernels() -> None:
    script = Script().copy(H2D, 0, 10, nbytes=MIB, stream=13).kernel(0, 50, stream=7).kernel(60, 70, stream=13)
    streams = activity_of(analysed(make_window(script, 100))).streams
    assert [(use.stream, use.copies, use.copied_bytes, use.kernels) for use in streams] == [
        (7, 0, 0, 1),
        (13, 1, MIB, 1),
    ]


@pytest.mark.parametrize(
    ("spans", "seconds", "share"),
    [
        (((0, 10), (50, 60)), 20e-6, 0.2),
        (((0, 50), (10, 20)), 60e-6, 0.5),  # nested: each instant counts once in the share
        (((-50, 10), (95, 200)), 15e-6, 0.15),  # cut to the window
    ],
)
def test_ranges_of_one_name_are_one_row(spans: tuple[tuple[float, float], ...], seconds: float, share: float) -> None:
    (row,) = analysed(make_window(Script(), 100, ranges=tuple(mark("decode", *span) for span in spans))).ranges
    assert (row.name, row.source, row.count) == ("decode", "mark", 2)
    assert (row.seconds, row.share) == pytest.approx((seconds, share))


@pytest.mark.parametrize(("end", "seconds"), [(40, 30e-6), (None, 90e-6)])
def test_nvtx_ranges_are_paired_or_last_to_the_end_with_a_remark(end: float | None, seconds: float) -> None:
    watched = analysed(make_window(Script().nvtx("forward", 10, end), 100))
    (row,) = watched.ranges
    assert (row.name, row.source) == ("forward", "nvtx")
    assert row.seconds == pytest.approx(seconds)
    assert any("1 NVTX range had not ended" in remark.text for remark in watched.remarks) == (end is None)


def test_a_range_has_the_work_of_all_threads_and_the_bytes_that_its_calls_requested() -> None:
    script = Script().kernel(5, 20).copy(H2D, 50, 60, nbytes=MIB, call=("cudaMemcpyAsync", 12, 14))
    script.copy(D2H, 60, 70, nbytes=4, call=("cudaMemcpyAsync", 15, 16))
    script.copy(H2D, 15, 20, nbytes=7, call=("cudaMemcpyAsync", 1, 2))
    script.copy(H2D, 15, 20, nbytes=9, call=("cudaMemcpyAsync", 13, 15), thread=LOADER)
    ranges = (mark("send", 10, 20),)
    (row,), (without,) = (analysed(make_window(given, 100, ranges=ranges)).ranges for given in (script, None))
    assert row.busy_s == pytest.approx(10e-6)
    assert (row.h2d_bytes, row.d2h_bytes) == (MIB, 4)
    assert (without.count, without.busy_s, without.h2d_bytes) == (1, None, None)


@pytest.mark.parametrize("names", [MAX_NAMES, MAX_NAMES + 1])
def test_the_longest_ranges_are_kept_and_a_remark_counts_all_names(names: int) -> None:
    ranges = tuple(mark(f"batch {number}", 0, 1 + number) for number in range(names))
    watched = analysed(make_window(Script(), 200, ranges=ranges))
    assert len(watched.ranges) == MAX_NAMES
    assert watched.ranges[0].name == f"batch {names - 1}"
    assert ("many-ranges" in [remark.code for remark in watched.remarks]) == (names > MAX_NAMES)


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)
times = st.lists(st.integers(-5, 70), min_size=1, max_size=8)


def array(pairs: list[tuple[int, int]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(pairs, np.int64).reshape(-1, 2)


@given(intervals, times)
def test_holds_includes_both_ends_of_an_interval(pairs: list[tuple[int, int]], at: list[int]) -> None:
    expected = [any(b <= t <= e for b, e in pairs if e > b) for t in at]
    assert Cover(array(pairs)).holds(np.array(at, np.int64)).tolist() == expected


TURNS = 100_000
"""Each has a copy, its call, and two kernels."""
STEPS = 2_000
MAX_BYTES_OF_RECORD = 512
"""Eight times a record itself."""


def many() -> Window:
    """A copy, its call and two kernels every four microseconds."""
    one = Script().copy(H2D, 1, 1.9, pageable=True, call=("cudaMemcpyAsync", 0, 0.9))
    first = one.kernel(2, 2.9, stream=8).kernel(3, 3.9, stream=9).capture()
    records = np.tile(first.records, TURNS)
    turn = np.repeat(np.arange(TURNS, dtype=np.int64), len(first.records))
    for edge in ("start_ns", "end_ns"):
        records[edge] += turn * 4 * windows.US
    records["correlation"] = turn + 1
    copies = records["kind"] == Kind.COPY
    records["nbytes"][copies] = np.arange(TURNS) * 16 + 1
    records["way"][copies] = np.where(np.arange(TURNS) % 3, H2D, D2H)
    length = TURNS * 4.0
    spans = np.linspace(0, length, STEPS + 1)
    steps = windows.steps_at(*((a, a + 20, b) for a, b in pairwise(spans)))
    samples = tuple(windows.seen(when, f"train.py:{int(when) % 7} in step") for when in np.arange(0, length, 400.0))
    ranges = tuple(mark(f"range {n % 5}", a, b) for n, (a, b) in enumerate(pairwise(spans)))
    capture = Fact(Capture(records, first.names))
    return replace(make_window(None, length, steps, seen=samples, ranges=ranges), capture=capture)


@pytest.mark.slow
@pytest.mark.unsanitized(reason="it is about memory")
def test_many_records_are_analysed_and_written_in_bounded_memory() -> None:
    window, written = many(), Counted()
    tracemalloc.start()
    try:
        watched = analysed(window, flat(50.0))
        analysing = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        write_events(window, written)
        writing = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(row.count for row in activity_of(watched).copies) == TURNS
    assert watched.steps.watched == STEPS
    assert written.nbytes > 50_000_000
    assert analysing < 4 * TURNS * MAX_BYTES_OF_RECORD
    assert writing < 100_000_000


class Counted(io.BytesIO):
    """Counts the bytes that are written, and does not keep them."""

    nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += len(data)
        return len(data)
