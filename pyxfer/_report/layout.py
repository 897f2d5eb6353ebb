"""One stream as a page: coloured and as wide as the terminal, or plain where it is read by something else."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_MOST_DECIMALS = 5
_DIGITS_OF_TIMES = 5
# Widest gap first: a table that fits with room between its columns reads better.
GAPS = (2, 1)
_TIMES = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))


@dataclass(frozen=True)
class Column:
    """Lines of heading over cells; `marks` stand behind the numbers and do not move them."""

    heading: tuple[str, ...]
    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()
    left: bool = False

    @cached_property
    def marks_width(self) -> int:
        """Room behind the numbers, the space before a mark included."""
        return max((len(mark) + 1 for mark in self.marks if mark), default=0)

    @cached_property
    def width(self) -> int:
        """Cells and heading, padded."""
        cells = max(map(cell_len, self.cells), default=0) + self.marks_width
        return max(cells, max(map(cell_len, self.heading), default=0))

    def padded_heading(self, height: int) -> Text:
        """The heading at the foot of `height` lines."""
        room = self.width - self.marks_width
        fits = all(cell_len(line) <= room for line in self.heading)
        lines = [line + " " * self.marks_width if fits else line for line in self.heading]
        return Text("\n".join(self._pad(line) for line in [*[""] * (height - len(lines)), *lines]), no_wrap=True)

    def padded_cell(self, row: int) -> Text:
        """A cell and its mark."""
        if not self.marks:
            return Text(self._pad(self.cells[row]))
        mark = f" {self.marks[row]}" if self.marks[row] else ""
        number = " " * (self.width - self.marks_width - cell_len(self.cells[row])) + self.cells[row]
        return Text.assemble(number, (mark.ljust(self.marks_width), "yellow"))

    def _pad(self, text: str) -> str:
        spaces = " " * (self.width - cell_len(text))
        return text + spaces if self.left else spaces + text


def grid_width(columns: Sequence[Column], gap: int) -> int:
    """Characters that a line of the grid takes."""
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def to_table(columns: Sequence[Column], gap: int) -> Table:
    """The columns as a rich table without any box."""
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    height = max(len(column.heading) for column in columns)
    for column in columns:
        table.add_column(column.padded_heading(height), no_wrap=not column.left, overflow="fold")
    for row in range(len(columns[0].cells)):
        table.add_row(*(column.padded_cell(row) for column in columns))
    return table


def fitting_table(columns: Sequence[Column], width: int) -> Table:
    """The columns as a table with as much room between them as the width has."""
    return to_table(columns, next((gap for gap in GAPS if grid_width(columns, gap) <= width), GAPS[-1]))


def pack(head: Sequence[Column], blocks: Sequence[Sequence[Column]], width: int) -> list[list[Column]]:
    """Blocks side by side in as few tables as fit, each of them behind the head."""
    packed: list[list[Column]] = []
    for block in blocks:
        if packed and grid_width([*packed[-1], *block], GAPS[0]) <= width:
            packed[-1].extend(block)
        else:
            packed.append([*head, *block])
    return packed


def spread(head: Sequence[Column], columns: Sequence[Column], tail: Sequence[Column], width: int) -> list[Table]:
    """The columns in as few tables as fit, about as many in each; the head before each and the tail behind the last."""
    for tables in range(1, len(columns) + 1):
        each = -(-len(columns) // tables)
        parts = [[*head, *columns[begin : begin + each]] for begin in range(0, len(columns), each)]
        parts[-1].extend(tail)
        if tables == len(columns) or all(grid_width(part, GAPS[-1]) <= width for part in parts):
            gap = next((gap for gap in GAPS if all(grid_width(part, gap) <= width for part in parts)), GAPS[-1])
            return [to_table(part, gap) for part in parts]
    return [fitting_table([*head, *tail], width)]


def time_cells(values: Sequence[float | None]) -> tuple[str, tuple[str, ...]]:
    """The unit that suits the longest of these times, and all of them in it with the same number of decimals."""
    sizes = [abs(value) for value in values if value]
    unit, factor = next((time for time in _TIMES if max(sizes, default=0.0) * time[1] >= 1), _TIMES[-1])
    scaled = [None if value is None else value * factor for value in values]
    whole = len(f"{max(sizes, default=0.0) * factor:.0f}")
    return unit, rate_cells(scaled, [""] * len(values), least=1, most=max(1, min(3, _DIGITS_OF_TIMES - whole)))


def rate_cells(
    values: Sequence[float | None], missing: Sequence[str], least: int = 2, most: int = _MOST_DECIMALS
) -> tuple[str, ...]:
    """Values with the same number of decimals: the least, or as many as leave two digits of the smallest."""
    smallest = min((abs(value) for value in values if value and math.isfinite(value)), default=1.0)
    decimals = min(max(least, 1 - math.floor(math.log10(smallest))), most)
    return tuple(gap if value is None else f"{value:.{decimals}f}" for value, gap in zip(values, missing, strict=True))


def percent_cells(values: Sequence[float | None]) -> tuple[str, ...]:
    """Shares of one in percent, one decimal, nothing where there is none."""
    return tuple("" if value is None else f"{value * 100:.1f} %" for value in values)


BAR = "#"


def bars(shares: Sequence[float], room: int) -> list[str]:
    """One for each share of the whole, which is as wide as the room; what is there at all is seen.

    A document that was changed by hand may hold less than nothing or more than the whole; a bar keeps to the room.
    """
    drawn, begin = [], 0.0
    for share in (max(0.0, min(each, 1.0)) for each in shares):
        start = min(round(begin * room), room - 1)
        length = max(1, round((begin + share) * room) - start) if share > 0 else 0
        drawn.append(" " * start + BAR * min(length, room - start))
        begin += share
    return drawn


# What a layout may rely on everywhere; a wider terminal gives it more.
NARROWEST = 80
# Nothing is wrapped or cut for a file or a pipe: one remark is one line that grep finds whole.
_UNWRAPPED = 100_000


def is_plain(stream: TextIO) -> bool:
    """Whether colour, movement and wrapping stay off: not a terminal, NO_COLOR, or a terminal that can do nothing."""
    return not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


class Page:
    """Prints to one stream; what rich renders is written by us, so that a closed reader is seen here."""

    def __init__(self, stream: TextIO, columns: int | None = None) -> None:
        """`columns` makes any stream wrap as a terminal of that width does."""
        self._stream = stream
        plain = is_plain(stream)
        if columns is None and stream.isatty():
            columns = max(NARROWEST, Console(file=stream).width)
        width = columns or _UNWRAPPED
        self.columns = columns or NARROWEST
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer,
            width=width,
            force_terminal=not plain,
            color_system=None if plain else "standard",
            no_color=plain,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def show(self, renderable: RenderableType) -> None:
        """Write a renderable, without the spaces that tables leave at the end of a line."""
        self._console.print(renderable)
        lines = self._buffer.getvalue().split("\n")
        self._buffer.seek(0)
        self._buffer.truncate()
        self._stream.write("\n".join(line.rstrip(" ") for line in lines))

    def line(self, text: str = "", style: str = "") -> None:
        """One line of prose, wrapped at words on a terminal."""
        self.show(Text(text, style=style))

    def heading(self, text: str) -> None:
        """An empty line and the name of what follows."""
        self.line()
        self.line(text, style="bold")

    def hanging(self, lines: Iterable[tuple[str, str]], style: str = "") -> None:
        """A short name and its text on each line; where the text wraps, it stays beside the name."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style=style)
        grid.add_column(overflow="fold")
        for name, text in lines:
            grid.add_row(Text(name), Text(text))
        if grid.row_count:
            self.show(grid)
