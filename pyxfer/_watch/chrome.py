"""Writes a window as a trace for Perfetto or chrome://tracing.

The format is described in the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.files import Path, whole_file
from pyxfer._trace.records import CopyKind, Kind, no_records
from pyxfer._watch.copies import COPY_KINDS, MEMORIES
from pyxfer._watch.device_records import issuing, outermost_indices, split_stream_key, stream_keys
from pyxfer._watch.ranges import ranges_of
from pyxfer._watch.window import Window

Details = Callable[[NDArray[Any]], list[str]]

# Number of records that are converted to text at once, about ten megabytes.
CHUNK = 1 << 15


def quoted(text: str) -> str:
    """A name as JSON, with question marks for what is not valid Unicode, because readers refuse lone surrogates."""
    return json.dumps(text.encode(errors="replace").decode())


def us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:.3f}"


def chunks(count: int) -> Iterator[slice]:
    for begin in range(0, count, CHUNK):
        yield slice(begin, min(count, begin + CHUNK))


class Writer:
    """Writes the events. A row of the trace is a process and a thread of the format."""

    def __init__(self, file: BinaryIO, zero_ns: int, about: dict[str, Any]) -> None:
        self._file = file
        self._zero_ns = zero_ns
        self._rows = 0
        self._processes: set[int] = set()
        self._begun = False
        head = f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":['
        file.write(head.encode())

    def process(self, number: int, name: str) -> None:
        """Name a group of rows. Groups are shown in the order of their numbers."""
        if number not in self._processes:
            self._processes.add(number)
            self._meta(number, 0, "process_name", f'{{"name":{quoted(name)}}}')
            self._meta(number, 0, "process_sort_index", f'{{"sort_index":{number}}}')

    def row(self, process: int, name: str) -> int:
        """Add a row to the end of a group. Its number is unique in the file."""
        self._rows += 1
        self._meta(process, self._rows, "thread_name", f'{{"name":{quoted(name)}}}')
        self._meta(process, self._rows, "thread_sort_index", f'{{"sort_index":{self._rows}}}')
        return self._rows

    def slices(
        self,
        process: int,
        rows: Sequence[int],
        kind: str,
        begin_ns: Sequence[int],
        end_ns: Sequence[int],
        names: Sequence[str],
        details: Sequence[str],
    ) -> None:
        """One event for each interval. Names and details are JSON."""
        head = f'{{"ph":"X","cat":"{kind}","pid":{process},"tid":'
        zero = self._zero_ns
        self.write(
            f'{head}{row},"ts":{us(begin - zero)},"dur":{us(end - begin)},"name":{name},"args":{detail}}}'
            for row, begin, end, name, detail in zip(rows, begin_ns, end_ns, names, details, strict=True)
        )

    def flows(self, from_to: str, process: int, rows: Sequence[int], at_ns: Sequence[int], ids: Sequence[int]) -> None:
        """One end of arrows: their beginnings with `s`, their ends with `f`."""
        binding = ',"bp":"e"' if from_to == "f" else ""
        head = f'{{"ph":"{from_to}"{binding},"cat":"copy","name":"asked","pid":{process},"tid":'
        zero = self._zero_ns
        self.write(
            f'{head}{row},"ts":{us(at - zero)},"id":{number}}}'
            for row, at, number in zip(rows, at_ns, ids, strict=True)
        )

    def counter(self, process: int, name: str, at_ns: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        head = f'{{"ph":"C","pid":{process},"tid":0,"name":{quoted(name)},"ts":'
        for chunk in chunks(len(at_ns)):
            times, figures = (at_ns[chunk] - self._zero_ns).tolist(), values[chunk].tolist()
            self.write(f'{head}{us(at)},"args":{{"bytes":{v}}}}}' for at, v in zip(times, figures, strict=True))

    def write(self, events: Iterator[str]) -> None:
        text = ",\n".join(events)
        if text:
            self._file.write(((",\n" if self._begun else "\n") + text).encode())
            self._begun = True

    def _meta(self, process: int, row: int, what: str, value: str) -> None:
        self.write(iter([f'{{"ph":"M","pid":{process},"tid":{row},"name":"{what}","args":{value}}}']))


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


HOST, STREAMS, ENGINES = 1, 2, 3
_COMPRESSION = 5
"""Higher levels of gzip take twice the time and save one percent."""
_SENDS: dict[int, str] = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h"}


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
    about = {"recorded_by": "pyxfer watch", "window_us": (window.end_ns - window.begin_ns) / 1000}
    if capture is None:
        about["without_records"] = window.capture.reason or ""
    else:
        about["dropped"] = dict(capture.dropped)
    writer = Writer(file, window.begin_ns, about)
    _Trace(window, writer).write()
    file.write(b"\n]}\n")


class _Trace:
    def __init__(self, window: Window, writer: Writer) -> None:
        self._window, self._writer = window, writer
        capture = window.capture.value
        self._names = [quoted(name) for name in (capture.names if capture is not None else ("",))]
        self._records_of = capture.of if capture is not None else lambda _: no_records()
        self._calls = self._records_of(Kind.CALL)
        self._call_rows = np.zeros(len(self._calls), np.int64)
        self._arrows_drawn = 0

    def write(self) -> None:
        self._writer.process(HOST, "host")
        self._write_steps()
        self._write_ranges()
        self._write_calls()
        self._write_overhead()
        self._write_streams()
        self._write_engines()

    def _write_steps(self) -> None:
        steps, window = self._window.steps, self._window
        for thread in dict.fromkeys(step.thread for step in steps):
            own = [(place, step) for place, step in enumerate(steps, window.skipped + 1) if step.thread == thread]
            begin_ns = np.array([step.begin_ns for _, step in own], np.int64)
            end_ns = np.maximum(begin_ns, [step.end_ns if step.closed else window.end_ns for _, step in own])
            words = [quoted(step.failed) if step.failed else str(step.closed).lower() for _, step in own]
            rows = self._add_rows(HOST, f"steps of {self._thread_label(thread)}", begin_ns, end_ns)
            names, details = [quoted(f"step {place}") for place, _ in own], [f'{{"ended":{word}}}' for word in words]
            self._writer.slices(HOST, rows.tolist(), "step", begin_ns.tolist(), end_ns.tolist(), names, details)

    def _write_ranges(self) -> None:
        ranges = ranges_of(self._window)
        words = [quoted(name) for name, _ in ranges.names]
        details = [f'{{"by":"{source}"}}' for _, source in ranges.names]
        for thread in np.unique(ranges.thread).tolist():
            own = np.flatnonzero(ranges.thread == thread)
            own = own[np.argsort(ranges.begin_ns[own], kind="stable")]
            begin_ns, end_ns, names = ranges.begin_ns[own], ranges.end_ns[own], ranges.name[own].tolist()
            rows = self._add_rows(HOST, f"ranges of {self._thread_label(thread)}", begin_ns, end_ns)
            texts = ([words[name] for name in names], [details[name] for name in names])
            self._writer.slices(HOST, rows.tolist(), "range", begin_ns.tolist(), end_ns.tolist(), *texts)

    def _write_calls(self) -> None:
        for thread in np.unique(self._calls["thread"]).tolist():
            own = np.flatnonzero(self._calls["thread"] == thread)
            calls = self._calls[own]
            rows = self._add_rows(HOST, self._thread_label(thread), calls["start_ns"], calls["end_ns"])
            self._call_rows[own] = rows
            self._write_records(HOST, rows, "call", calls, _call_details)

    def _write_overhead(self) -> None:
        records = self._records_of(Kind.OVERHEAD)
        if len(records):
            rows = self._add_rows(HOST, "tracing overhead", records["start_ns"], records["end_ns"])
            self._write_records(HOST, rows, "overhead", records, _no_details)

    def _write_streams(self) -> None:
        """Copies, kernels and sets by stream. They overlap only in graphs."""
        work = np.concatenate([_timed(self._records_of(kind)) for kind in _WORK])
        work = work[np.argsort(work["start_ns"], kind="stable")]
        keys = stream_keys(work)
        requesting = outermost_indices(self._calls)
        for key in np.unique(keys).tolist():
            self._writer.process(STREAMS, "device: streams")
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
        for chunk in chunks(len(begun)):
            # Not the correlation number: a batch is one call with many copies, and a number may be used once.
            ids = range(self._arrows_drawn, self._arrows_drawn + len(begun[chunk]))
            self._arrows_drawn += len(ids)
            self._writer.flows("s", HOST, self._call_rows[calls[chunk]].tolist(), called[chunk].tolist(), ids)
            self._writer.flows("f", STREAMS, rows[chunk].tolist(), begun[chunk].tolist(), ids)

    def _write_engines(self) -> None:
        """A row for each direction of copies, with a counter of the bytes under way."""
        copies = _timed(self._records_of(Kind.COPY))
        for kind, word in COPY_KINDS.items():
            own = copies[copies["way"] == kind]
            if not len(own):
                continue
            self._writer.process(ENGINES, "device: copy engines")
            rows = self._add_rows(ENGINES, word, own["start_ns"], own["end_ns"])
            self._write_records(ENGINES, rows, "copy", own, _copy_details)
            if kind in _SENDS:
                self._writer.counter(ENGINES, f"{word} bytes under way", *_under_way(own))

    def _write_records(
        self, process: int, rows: NDArray[np.int64], kind: str, records: NDArray[Any], details: Details
    ) -> None:
        words = self._names
        for chunk in chunks(len(records)):
            part = records[chunk]
            names = _copy_names(part) if kind == "copy" else [words[name] for name in part["name"].tolist()]
            if kind == "set":
                names = ['"set"'] * len(part)
            begin, end = part["start_ns"].tolist(), np.maximum(part["start_ns"], part["end_ns"]).tolist()
            self._writer.slices(process, rows[chunk].tolist(), kind, begin, end, names, details(part))

    def _add_rows(
        self, process: int, name: str, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The row of each interval. Overlapping intervals get more rows of the same name."""
        found = lanes(begin_ns, end_ns)
        count = int(np.max(found, initial=0)) + 1
        numbers = [self._writer.row(process, f"{name} ({lane + 1})" if lane else name) for lane in range(count)]
        return np.array(numbers, np.int64)[found]

    def _thread_label(self, thread: int) -> str:
        name = self._window.threads.get(thread, "")
        return f"thread {name} {thread}" if name else f"thread {thread}"


def _timed(records: NDArray[Any]) -> NDArray[Any]:
    chosen: NDArray[Any] = records[records["end_ns"] > 0]
    return chosen


def _copy_names(part: NDArray[Any]) -> list[str]:
    words = {kind: quoted(word) for kind, word in COPY_KINDS.items()}
    return [words.get(kind, '"other"') for kind in part["way"].tolist()]


def _copy_details(part: NDArray[Any]) -> list[str]:
    took = np.maximum(part["end_ns"] - part["start_ns"], 1)
    return [
        f'{{"bytes":{nbytes},"GB/s":{nbytes / length:.3f},"from":"{MEMORIES.get(source, "unknown")}",'
        f'"to":"{MEMORIES.get(target, "unknown")}","copies":{max(1, copies)}}}'
        for nbytes, length, source, target, copies in zip(
            *(part["nbytes"].tolist(), took.tolist(), part["source"].tolist()),
            *(part["target"].tolist(), part["copies"].tolist()),
            strict=True,
        )
    ]


def _set_details(part: NDArray[Any]) -> list[str]:
    return [f'{{"bytes":{nbytes}}}' for nbytes in part["nbytes"].tolist()]


def _no_details(part: NDArray[Any]) -> list[str]:
    return ["{}"] * len(part)


def _call_details(part: NDArray[Any]) -> list[str]:
    return [
        f'{{"correlation":{number},"result":{result}}}'
        for number, result in zip(part["correlation"].tolist(), part["result"].tolist(), strict=True)
    ]


def _under_way(copies: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    nbytes = copies["nbytes"].astype(np.int64)
    at = np.concatenate((copies["start_ns"], copies["end_ns"]))
    order = np.argsort(at, kind="stable")
    under_way = np.cumsum(np.concatenate((nbytes, -nbytes))[order])
    at = at[order]
    last = np.concatenate((at[1:] != at[:-1], [True])) if len(at) else np.empty(0, np.bool_)
    return at[last], under_way[last]


_WORK: dict[Kind, tuple[str, Details]] = {
    Kind.COPY: ("copy", _copy_details),
    Kind.KERNEL: ("kernel", _no_details),
    Kind.SET: ("set", _set_details),
}
