"""Events of the trace-event format as text, in pieces of bounded size. Names are data, and encoded as such."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# So many records are text at once: some ten megabytes.
PIECE = 1 << 15


def quoted(text: str) -> str:
    """A name as JSON, with a question mark for each byte that is no text: readers refuse half a surrogate."""
    return json.dumps(text.encode(errors="replace").decode())


def us(nanoseconds: int) -> str:
    """The format's microseconds, exact to the nanosecond."""
    return f"{nanoseconds / 1000:.3f}"


def pieces(count: int) -> Iterator[slice]:
    """The whole in parts that are small enough."""
    for begin in range(0, count, PIECE):
        yield slice(begin, min(count, begin + PIECE))


class Writer:
    """One array of events in one object; a row is a process and thread of the format, and is named once."""

    def __init__(self, file: BinaryIO, zero_ns: int, about: dict[str, Any]) -> None:
        self._file = file
        self._zero_ns = zero_ns
        self._rows = 0
        self._processes: set[int] = set()
        self._begun = False
        head = f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":['
        file.write(head.encode())

    def end(self) -> None:
        """Close what is open."""
        self._file.write(b"\n]}\n")

    def process(self, number: int, name: str) -> None:
        """A group of rows; groups are shown in the order of their numbers."""
        if number not in self._processes:
            self._processes.add(number)
            self._meta(number, 0, "process_name", f'{{"name":{quoted(name)}}}')
            self._meta(number, 0, "process_sort_index", f'{{"sort_index":{number}}}')

    def row(self, process: int, name: str) -> int:
        """A new row at the end of its group; its number is no other row's in the whole file."""
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
        """One event a stretch; names and details are JSON already."""
        head = f'{{"ph":"X","cat":"{kind}","pid":{process},"tid":'
        zero = self._zero_ns
        self.write(
            f'{head}{row},"ts":{us(begin - zero)},"dur":{us(end - begin)},"name":{name},"args":{detail}}}'
            for row, begin, end, name, detail in zip(rows, begin_ns, end_ns, names, details, strict=True)
        )

    def flows(self, from_to: str, process: int, rows: Sequence[int], at_ns: Sequence[int], ids: Sequence[int]) -> None:
        """One end of arrows: `s` where they begin, `f` where they end."""
        binding = ',"bp":"e"' if from_to == "f" else ""
        head = f'{{"ph":"{from_to}"{binding},"cat":"copy","name":"asked","pid":{process},"tid":'
        zero = self._zero_ns
        self.write(
            f'{head}{row},"ts":{us(at - zero)},"id":{number}}}'
            for row, at, number in zip(rows, at_ns, ids, strict=True)
        )

    def counter(self, process: int, name: str, at_ns: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """A figure over time, from each of these times on."""
        head = f'{{"ph":"C","pid":{process},"tid":0,"name":{quoted(name)},"ts":'
        for piece in pieces(len(at_ns)):
            times, figures = (at_ns[piece] - self._zero_ns).tolist(), values[piece].tolist()
            self.write(f'{head}{us(at)},"args":{{"bytes":{v}}}}}' for at, v in zip(times, figures, strict=True))

    def write(self, events: Iterator[str]) -> None:
        """These events, each on its line."""
        text = ",\n".join(events)
        if text:
            self._file.write(((",\n" if self._begun else "\n") + text).encode())
            self._begun = True

    def _meta(self, process: int, row: int, what: str, value: str) -> None:
        self.write(iter([f'{{"ph":"M","pid":{process},"tid":{row},"name":"{what}","args":{value}}}']))
