"""The Chrome trace, read by Perfetto's own trace processor, and the lanes of its rows."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto_engine import Perfetto, Trace
from watch.windows import D2H, H2D, LOADER, MAIN, NO_TRACE, Script, make_window, mark, steps_at

from pyxfer._watch.chrome import lanes, write_chrome_trace, write_events
from pyxfer._watch.window import Window
from pyxfer.errors import UsageError

ROWS = """
    select slice.name, slice.ts as begin, slice.dur as length, slice.category as kind, slice.arg_set_id as details,
           thread.name as row, process.name as part
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
    order by slice.ts
"""
ARROWS = """
    select a.name as from_name, a.ts as from_ts, b.name as to_name, b.ts as to_ts
    from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id order by a.ts, b.ts
"""
HOSTILE = 'k<float, "x">\n\x1b[31m\\ </script>'


@pytest.fixture(scope="module")
def perfetto() -> Perfetto:
    return Perfetto()


def text_of(window: Window) -> bytes:
    file = io.BytesIO()
    write_events(window, file)
    return file.getvalue()


def read(perfetto: Perfetto, window: Window) -> Trace:
    trace = perfetto.read(text_of(window))
    assert trace.complaints() == []
    return trace


def rows(trace: Trace, kind: str) -> list[tuple[Any, ...]]:
    """Row, name, beginning and length, of one kind."""
    found = trace.query(ROWS)
    return [(row["row"], row["name"], row["begin"], row["length"]) for row in found if row["kind"] == kind]


def test_every_stream_has_a_row(perfetto: Perfetto) -> None:
    script = Script().kernel(10, 20.5, name="gemm", stream=7).copy(H2D, 12, 18, stream=13).set(30, 31)
    trace = read(perfetto, make_window(script, 100))
    assert rows(trace, "kernel") == [("device 0, context 1, stream 7", "gemm", 10_000, 10_500)]
    assert ("device 0, context 1, stream 13", "h2d", 12_000, 6_000) in rows(trace, "copy")
    assert rows(trace, "set") == [("device 0, context 1, stream 7", "set", 30_000, 1_000)]


def test_a_copy_has_its_bytes_rate_and_memories(perfetto: Perfetto) -> None:
    script = Script().copy(H2D, 10, 20, nbytes=500_000, pageable=True).copy(D2H, 15, 25, stream=8)
    trace = read(perfetto, make_window(script, 100))
    assert [row[1:] for row in rows(trace, "copy")] == [("h2d", 10_000, 10_000), ("d2h", 15_000, 10_000)]
    details = trace.query("select key, display_value as value from slice join args using (arg_set_id) where ts = 10000")
    assert {(row["key"], row["value"]) for row in details} >= {
        ("args.bytes", "500000"),
        ("args.GB/s", "50.0"),
        ("args.from", "pageable"),
        ("args.to", "device"),
    }


def test_every_thread_has_rows_for_its_steps_ranges_and_calls(perfetto: Perfetto) -> None:
    script = Script().call("cudaStreamSynchronize", 40, 60)
    script.call("cuStreamSynchronize", 41, 59, inside=script.number)
    script.call("cudaMalloc", 45, 46, thread=LOADER)
    script.nvtx("forward", 15, 25)
    window = make_window(
        script, 100, steps_at((0, 10, 90)), ranges=(mark("decode", 20, 30),), threads={MAIN: "MainThread"}, skipped=4
    )
    trace = read(perfetto, window)
    assert rows(trace, "step") == [("steps of thread MainThread 4001", "step 5", 10_000, 80_000)]
    assert [row[1:] for row in rows(trace, "range")] == [("forward", 15_000, 10_000), ("decode", 20_000, 10_000)]
    assert rows(trace, "call") == [
        ("thread MainThread 4001", "cudaStreamSynchronize", 40_000, 20_000),
        ("thread MainThread 4001", "cuStreamSynchronize", 41_000, 18_000),
        ("thread 4002", "cudaMalloc", 45_000, 1_000),
    ]


def test_arrows_lead_from_calls_to_their_copies(perfetto: Perfetto) -> None:
    script = Script().copy(H2D, 20, 30, call=("cudaMemcpyAsync", 5, 9)).copy(D2H, 40, 50)
    batch = script.call("cudaMemcpyBatchAsync", 55, 59).number
    script.copy(H2D, 60, 62, call=batch).copy(H2D, 62, 64, call=batch)
    script.copy(H2D, 70, 80, call=("cudaMemcpyAsync", 75, 79))  # the clocks differ: no arrow back in time
    script.copy(H2D, 0, 0, call=("cudaMemcpyAsync", 85, 89))  # without a time it is not drawn
    trace = read(perfetto, make_window(script, 100))
    arrows = [tuple(arrow.values()) for arrow in trace.query(ARROWS)]
    assert arrows == [
        ("cudaMemcpyAsync", 5_000, "h2d", 20_000),
        ("cudaMemcpyBatchAsync", 55_000, "h2d", 60_000),
        ("cudaMemcpyBatchAsync", 55_000, "h2d", 62_000),
    ]
    assert len([row for row in rows(trace, "copy") if row[1] == "h2d"]) == 4


def test_overlapping_work_of_one_stream_gets_more_rows(perfetto: Perfetto) -> None:
    script = Script()
    for begin in range(0, 50, 10):
        script.kernel(begin, begin + 15, name=f"k{begin}")
    trace = read(perfetto, make_window(script, 100))
    assert len(rows(trace, "kernel")) == 5
    assert {row for row, *_ in rows(trace, "kernel")} == {
        "device 0, context 1, stream 7",
        "device 0, context 1, stream 7 (2)",
    }


def test_control_characters_and_invalid_unicode_in_names_are_escaped(perfetto: Perfetto) -> None:
    script = Script().kernel(10, 20, name=HOSTILE).kernel(30, 40, name=b"caf\xe9".decode(errors="surrogateescape"))
    window = make_window(script, 100, ranges=(mark(HOSTILE, 1, 2),), threads={MAIN: HOSTILE})
    trace = read(perfetto, window)
    assert [name for _, name, *_ in rows(trace, "kernel")] == [HOSTILE, "caf?"]
    assert json.loads(text_of(window))["displayTimeUnit"] == "ns"


def test_without_records_there_are_steps_and_the_reason(perfetto: Perfetto) -> None:
    window = make_window(None, 100, steps_at((0, 10, 90)))
    assert [name for _, name, *_ in rows(read(perfetto, window), "step")] == ["step 1"]
    assert json.loads(text_of(window))["otherData"]["without_records"] == NO_TRACE


def test_a_trace_is_compressed_if_its_name_ends_in_gz(perfetto: Perfetto, tmp_path: Path) -> None:
    window = make_window(Script().kernel(10, 20), 100)
    write_chrome_trace(window, tmp_path / "trace.json.gz")
    packed = (tmp_path / "trace.json.gz").read_bytes()
    assert gzip.decompress(packed) == text_of(window)
    assert len(perfetto.read(packed).query("select * from slice")) == 1


def test_a_trace_that_cannot_be_written_is_a_usage_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no/trace.json' cannot be written .*: make the folder first"):
        write_chrome_trace(make_window(Script(), 100), tmp_path / "no" / "trace.json")
    assert list(tmp_path.iterdir()) == []


Spans = list[tuple[int, int]]


def lanes_of(spans: Spans) -> list[int]:
    columns = np.array(spans, np.int64).reshape(-1, 2)
    return [int(lane) for lane in lanes(columns[:, 0], columns[:, 1])]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([(0, 10), (10, 20)], [0, 0]),
        ([(0, 10), (2, 8), (3, 5)], [0, 0, 0]),
        ([(0, 10), (5, 15)], [0, 1]),
        ([(0, 10), (5, 15), (12, 20)], [0, 1, 0]),
        ([(0, 10), (5, 15), (6, 20)], [0, 1, 2]),
    ],
)
def test_the_first_lane_with_room_is_taken(spans: Spans, expected: list[int]) -> None:
    assert lanes_of(spans) == expected


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=20))
def test_intervals_of_one_lane_are_disjoint_or_nested(given_spans: Spans) -> None:
    spans = sorted((begin, begin + length) for begin, length in given_spans)
    found = lanes_of(spans)
    for place, (begin, end) in enumerate(spans):
        for other in range(place + 1, len(spans)):
            if found[place] == found[other]:
                later, last = spans[other]
                assert later >= end or last <= end or later == begin
