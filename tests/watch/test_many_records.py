"""The time and memory that millions of records take."""

from __future__ import annotations

import io
import time
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from watch.windows import MAIN, US, ZERO_NS, Flat, activity_of, analysed, at, make_window, mark, seen, steps_at

from pyxfer._document.runs import Fact
from pyxfer._trace.records import RECORD, Capture, CopyWay, Flag, Kind, MemoryKind
from pyxfer._watch.chrome import write_events
from pyxfer._watch.window import Window

TURNS = 500_000
"""Each has a copy, its call, and two kernels, which makes two million records."""
STEPS = 2_000
MOST_S = 30.0
MOST_BYTES = 1 << 30
"""The records take an eighth of it."""


def many(turns: int = TURNS) -> Window:
    """A copy, its call and two kernels every four microseconds."""
    records: Any = np.zeros(4 * turns, RECORD)
    turn = np.repeat(np.arange(turns, dtype=np.int64), 4)
    offsets = np.tile(np.array([0, 1, 2, 3], np.int64) * US, turns)
    records["start_ns"] = ZERO_NS + turn * 4 * US + offsets
    records["end_ns"] = records["start_ns"] + 900
    records["kind"] = np.tile([Kind.CALL, Kind.COPY, Kind.KERNEL, Kind.KERNEL], turns)
    records["correlation"] = turn + 1
    records["thread"] = MAIN
    records["stream"] = np.tile([0, 7, 8, 9], turns)
    copies = records["kind"] == Kind.COPY
    records["nbytes"][copies] = np.arange(turns) * 16 + 1
    records["way"][copies] = np.where(np.arange(turns) % 3, CopyWay.H2D, CopyWay.D2H)
    records["source"][copies], records["target"][copies] = MemoryKind.PAGEABLE, MemoryKind.PINNED
    calls = records["kind"] == Kind.CALL
    records["name"][calls], records["flags"][calls] = 1, Flag.RUNTIME
    length = turns * 4.0
    spans = np.linspace(0, length, STEPS + 1)
    steps = steps_at(*((a, a + 20, b) for a, b in pairwise(spans)))
    samples = tuple(seen(when, f"train.py:{int(when) % 7} in step") for when in np.arange(0, length, 400.0))
    ranges = tuple(mark(f"range {n % 5}", a, b) for n, (a, b) in enumerate(pairwise(spans)))
    empty = make_window(None, length, steps, seen=samples, ranges=ranges)
    capture = Fact(Capture(records, ("", "cudaMemcpyAsync", "gemm")))
    return Window(
        **{**vars(empty), "capture": capture, "begin_ns": at(0), "end_ns": at(length)},
    )


@pytest.mark.slow
@pytest.mark.unsanitized(reason="it is about time and memory")
def test_two_million_records_are_analysed_within_30_s_of_a_processor_and_1_gib() -> None:
    window = many()
    tracemalloc.start()
    try:
        begun = time.process_time()
        watched = analysed(window, Flat(50.0))
        took = time.process_time() - begun
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(row.count for row in activity_of(watched).copies) == TURNS
    assert watched.steps.watched == STEPS
    assert took < MOST_S
    assert peak < MOST_BYTES


@pytest.mark.slow
@pytest.mark.unsanitized(reason="it is about memory")
def test_a_trace_is_written_in_bounded_memory() -> None:
    window = many(turns=100_000)
    written = Counted()
    tracemalloc.start()
    try:
        write_events(window, written)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written.nbytes > 50_000_000
    assert peak < 100_000_000


class Counted(io.BytesIO):
    """Counts the bytes that are written, and does not keep them."""

    nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += len(data)
        return len(data)
