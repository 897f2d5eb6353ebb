"""Writes a window as a trace for Perfetto or chrome://tracing.

The format is described in the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from pyxfer._document.files import Path, whole_file
from pyxfer._trace.records import Kind, no_records
from pyxfer._watch.copies import COPY_KINDS, MEMORIES
from pyxfer._watch.device_records import issuing, outermost_indices, split_stream_key, stream_keys
from pyxfer._watch.ranges import ranges_of
from pyxfer._watch.window import Window

Details = Callable[[NDArray[Any]], Iterable[dict[str, Any]]]

# Number of records that are converted to text at once, about ten megabytes.
CHUNK = 1 << 15
HOST, STREAMS = 1, 2
_COMPRESSION = 5
"""Higher levels of gzip take twice the time and save one percent."""


def write_chrome_trace(window: Window, path: Path) -> None:
    with whole_file(path) as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0, filename="") as packed:
                write_events(window, cast(BinaryIO, packed))
        else:
            write_events(window, file)


def write_events(window: Window, file: BinaryIO) -> None:
    """Write the trace to an open file, in bounded memory for any number of records."""
    capture = window.capture.value
    about: dict[str, Any] = {"recorded_by": "pyxfer watch", "window_us": (window.end_ns - window.begin_ns) / 1000}
    if capture is None:
        about["without_records"] = _valid(window.capture.reason or "")
    else:
        about["dropped"] = dict(capture.dropped)
    file.write(b'{"displayTimeUnit":"ns","otherData":' + msgspec.json.encode(about) + b',"traceEvents":[')
    _Trace(window, file).write()
    file.write(b"\n]}\n")


def _valid(text: str) -> str:
    """With question marks for what is not valid Unicode, because readers refuse lone surrogates."""
    return text.encode(errors="replace").decode()


def _chunks(count: int) -> Iterator[slice]:
    return (slice(begin, begin + CHUNK) for begin in range(0, count, CHUNK))


class _Trace:
    """Writes the events. A row of the trace is a process and a thread of the format."""

    def __init__(self, window: Window, file: BinaryIO) -> None:
        self._window, self._file = window, file
        capture = window.capture.value
        self._names = [_valid(name) for name in (capture.names if capture is not None else ("",))]
        self._records_of = capture.of if capture is not None else lambda _: no_records()
        self._calls = self._records_of(Kind.CALL)
        self._call_rows = np.zeros(len(self._calls), np.int64)
        self._rows = self._arrows_drawn = 0
        self._groups: set[int] = set()
        self._separator = b"\n"

    def write(self) -> None:
        self._add_group(HOST, "host")
        self._write_steps()
        self._write_ranges()
        for thread in np.unique(self._calls["thread"]).tolist():
            own = np.flatnonzero(self._calls["thread"] == thread)
            self._call_rows[own] = self._write_host_records(self._thread_label(thread), "call", self._calls[own])
        overhead = self._records_of(Kind.OVERHEAD)
        if len(overhead):
            self._write_host_records("tracing overhead", "overhead", overhead)
        self._write_streams()

    def _write_steps(self) -> None:
        steps, window = self._window.steps, self._window
        for thread in dict.fromkeys(step.thread for step in steps):
            own = [(place, step) for place, step in enumerate(steps, window.skipped + 1) if step.thread == thread]
            begin_ns = np.array([step.begin_ns for _, step in own], np.int64)
            end_ns = np.maximum(begin_ns, [step.end_ns if step.closed else window.end_ns for _, step in own])
            rows = self._add_rows(HOST, f"steps of {self._thread_label(thread)}", begin_ns, end_ns)
            details = [{"ended": _valid(step.failed) if step.failed else step.closed} for _, step in own]
            self._slices(HOST, rows, "step", begin_ns, end_ns, [f"step {place}" for place, _ in own], details)

    def _write_ranges(self) -> None:
        ranges = ranges_of(self._window)
        for thread in np.unique(ranges.thread).tolist():
            own = np.flatnonzero(ranges.thread == thread)
            own = own[np.argsort(ranges.begin_ns[own], kind="stable")]
            begin_ns, end_ns = ranges.begin_ns[own], ranges.end_ns[own]
            named = [ranges.names[name] for name in ranges.name[own].tolist()]
            rows = self._add_rows(HOST, f"ranges of {self._thread_label(thread)}", begin_ns, end_ns)
            details = [{"by": source} for _, source in named]
            self._slices(HOST, rows, "range", begin_ns, end_ns, [_valid(name) for name, _ in named], details)

    def _write_host_records(self, name: str, kind: str, records: NDArray[Any]) -> NDArray[np.int64]:
        rows = self._add_rows(HOST, name, records["start_ns"], records["end_ns"])
        self._write_records(HOST, rows, kind, records, _call_details if kind == "call" else _no_details)
        return rows

    def _write_streams(self) -> None:
        """Copies, kernels and sets by stream. They overlap only in graphs."""
        work = np.concatenate([self._records_of(kind) for kind in _WORK])
        work = work[work["end_ns"] > 0]
        work = work[np.argsort(work["start_ns"], kind="stable")]
        keys = stream_keys(work)
        requesting = outermost_indices(self._calls)
        for key in np.unique(keys).tolist():
            self._add_group(STREAMS, "device: streams")
            own = work[keys == key]
            name = "device {}, context {}, stream {}".format(*split_stream_key(key))
            rows = self._add_rows(STREAMS, name, own["start_ns"], own["end_ns"])
            for kind, (word, details) in _WORK.items():
                chosen = own["kind"] == kind
                self._write_records(STREAMS, rows[chosen], word, own[chosen], details)
            copies = own["kind"] == Kind.COPY
            self._write_arrows(requesting, own[copies], rows[copies])

    def _write_arrows(self, requesting: NDArray[np.intp], copies: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Arrows from calls to the copies that they requested, without those that would lead back in time."""
        place = issuing(self._calls[requesting], copies)
        known = place >= 0
        calls = requesting[place[known]]
        called, begun = self._calls["start_ns"][calls], copies["start_ns"][known]
        forward = called <= begun
        calls, called, begun, rows = calls[forward], called[forward], begun[forward], rows[known][forward]
        common = {"cat": "copy", "name": "asked"}
        for chunk in _chunks(len(begun)):
            # Not the correlation number: a batch is one call with many copies, and a number may be used once.
            ids = range(self._arrows_drawn, self._arrows_drawn + len(begun[chunk]))
            self._arrows_drawn += len(ids)
            calling = self._call_rows[calls[chunk]]
            self._events({**common, "ph": "s", "pid": HOST}, called[chunk], tid=calling, id=ids)
            self._events({**common, "ph": "f", "bp": "e", "pid": STREAMS}, begun[chunk], tid=rows[chunk], id=ids)

    def _write_records(
        self, process: int, rows: NDArray[np.int64], kind: str, records: NDArray[Any], details: Details
    ) -> None:
        for chunk in _chunks(len(records)):
            part = records[chunk]
            if kind == "copy":
                names = [str(COPY_KINDS.get(way, "other")) for way in part["way"].tolist()]
            else:
                names = [kind if kind == "set" else self._names[name] for name in part["name"].tolist()]
            end_ns = np.maximum(part["start_ns"], part["end_ns"])
            self._slices(process, rows[chunk], kind, part["start_ns"], end_ns, names, details(part))

    def _slices(
        self,
        process: int,
        rows: NDArray[np.int64],
        kind: str,
        begin_ns: NDArray[np.int64],
        end_ns: NDArray[np.int64],
        names: Sequence[str],
        details: Iterable[dict[str, Any]],
    ) -> None:
        common = {"ph": "X", "cat": kind, "pid": process}
        self._events(common, begin_ns, dur=(end_ns - begin_ns) / 1000, tid=rows, name=names, args=details)

    def _events(self, common: dict[str, Any], at_ns: NDArray[np.int64], **columns: Iterable[Any]) -> None:
        """One event for each time, with what all have and its values of the columns."""
        columns["ts"] = (at_ns - self._window.begin_ns) / 1000
        values = (each.tolist() if isinstance(each, np.ndarray) else each for each in columns.values())
        self._put({**common, **dict(zip(columns, row, strict=True))} for row in zip(*values, strict=True))

    def _put(self, events: Iterable[dict[str, Any]]) -> None:
        text = msgspec.json.encode(list(events))[1:-1]
        if text:
            self._file.write(self._separator + text)
            self._separator = b",\n"

    def _add_group(self, number: int, name: str) -> None:
        """Name a group of rows. Groups are shown in the order of their numbers."""
        if number not in self._groups:
            self._groups.add(number)
            self._describe("process", number, 0, name, number)

    def _describe(self, what: str, process: int, row: int, name: str, order: int) -> None:
        for key, args in (("name", {"name": _valid(name)}), ("sort_index", {"sort_index": order})):
            self._put([{"ph": "M", "pid": process, "tid": row, "name": f"{what}_{key}", "args": args}])

    def _add_rows(
        self, process: int, name: str, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The row of each interval. Overlapping intervals get more rows of the same name."""
        found, first = lanes(begin_ns, end_ns), self._rows + 1
        for lane in range(int(np.max(found, initial=0)) + 1):
            self._rows += 1
            self._describe("thread", process, self._rows, f"{name} ({lane + 1})" if lane else name, self._rows)
        return first + found

    def _thread_label(self, thread: int) -> str:
        name = self._window.threads.get(thread, "")
        return f"thread {name} {thread}" if name else f"thread {thread}"


def lanes(begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest lane in which each interval is nested or alone. Intervals are in the order of their beginning."""
    found = np.zeros(len(begin_ns), np.int64)
    if (begin_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return found
    order = np.lexsort((-end_ns, begin_ns))
    open_ends: list[list[int]] = []
    for place, begin, end in zip(order.tolist(), begin_ns[order].tolist(), end_ns[order].tolist(), strict=True):
        found[place] = _first_with_room(open_ends, begin, end)
    return found


def _first_with_room(open_ends: list[list[int]], begin: int, end: int) -> int:
    """`open_ends` has the ends of the open intervals of each lane, the outermost first."""
    for lane, ends in enumerate(open_ends):
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return lane
    open_ends.append([end])
    return len(open_ends) - 1


def _copy_details(part: NDArray[Any]) -> Iterator[dict[str, Any]]:
    gbps = part["nbytes"] / np.maximum(part["end_ns"] - part["start_ns"], 1)
    ends = ([MEMORIES.get(memory, "unknown") for memory in part[side].tolist()] for side in ("source", "target"))
    columns = (part["nbytes"].tolist(), gbps.round(3).tolist(), *ends, np.maximum(part["copies"], 1).tolist())
    return (
        dict(zip(("bytes", "GB/s", "from", "to", "copies"), row, strict=True)) for row in zip(*columns, strict=True)
    )


def _no_details(part: NDArray[Any]) -> list[dict[str, Any]]:
    return [{}] * len(part)


def _call_details(part: NDArray[Any]) -> list[dict[str, Any]]:
    results = zip(part["correlation"].tolist(), part["result"].tolist(), strict=True)
    return [{"correlation": number, "result": result} for number, result in results]


_WORK: dict[Kind, tuple[str, Details]] = {
    Kind.COPY: ("copy", _copy_details),
    Kind.KERNEL: ("kernel", _no_details),
    Kind.SET: ("set", lambda part: [{"bytes": nbytes} for nbytes in part["nbytes"].tolist()]),
}
