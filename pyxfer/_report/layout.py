"""A page on a stream, coloured and wrapped on a terminal and plain elsewhere; the tables, cells and bars on it."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pyxfer._report.text import Lines
from pyxfer.units import whole_of

# --- the page --------------------------------------------------------------------------------------------------------

# Layouts may rely on this width.
NARROWEST = 80
# In a file or a pipe nothing is wrapped, so that grep finds a whole remark.
_UNWRAPPED = 100_000


def checked_columns(columns: int) -> int:
    return max(NARROWEST, whole_of(columns, "columns", 1, _UNWRAPPED, "120"))


def is_plain(stream: TextIO) -> bool:
    return not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


class Page:
    """Prints to one stream. rich renders into a buffer, so that errors of the stream are raised here."""

    def __init__(self, stream: TextIO, columns: int | None = None, *, details: bool = False) -> None:
        """With `columns` any stream wraps like a terminal of that width. `details`: all that a document has."""
        self.details = details
        self._stream = stream
        plain = is_plain(stream)
        if columns is None and stream.isatty():
            columns = max(NARROWEST, Console(file=stream).width)
        width = columns or _UNWRAPPED
        self.columns = columns or NARROWEST
        self._has_begun = False
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
            force_jupyter=False,  # in a notebook rich would display the page and leave the buffer empty
        )

    def show(self, renderable: RenderableType) -> None:
        self._has_begun = True
        self._console.print(renderable)
        lines = self._buffer.getvalue().split("\n")
        self._buffer.seek(0)
        self._buffer.truncate()
        self._stream.write("\n".join(line.rstrip(" ") for line in lines))

    def line(self, text: str = "", style: str = "") -> None:
        self.show(Text(text, style=style))

    def heading(self, text: str) -> None:
        if self._has_begun:
            self.line()
        self.line(text, style="bold")

    def section(self, heading: str, lines: Lines, style: str = "") -> None:
        if lines:
            self.heading(heading)
            self.hanging(lines, style)

    def table(self, columns: Iterable[tuple[str, Iterable[str]]], left: Collection[str], heading: str = "") -> None:
        """A table of the columns with any figure, the texts among them on the `left`; nothing without a figure."""
        made = [Column(tuple(name.split("\n")), tuple(cells), left=name in left) for name, cells in columns]
        known = [column for column in made if any(cell not in ("", NONE) for cell in column.cells)]
        if any(not column.left for column in known):
            if heading:
                self.heading(heading)
            self.show(fitting_table(known, self.columns))

    def hanging(self, lines: Iterable[tuple[str, str]], style: str = "") -> None:
        """Lines of a label and a text, which wraps beside its label."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style=style)
        grid.add_column(overflow="fold")
        for name, text in lines:
            grid.add_row(Text(name), Text(text))
        if grid.row_count:
            self.show(grid)

    def code(self, text: str) -> None:
        self.line()
        for line in text.splitlines():
            self.show(Text(line, no_wrap=True, overflow="ignore"))


# --- tables ----------------------------------------------------------------------------------------------------------

# The widest gap first.
GAPS = (2, 1)
NONE = "-"


@dataclass(frozen=True)
class Column:
    """A heading of one or more lines above cells; `marks` follow the numbers and do not move them."""

    heading: tuple[str, ...]
    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()
    left: bool = False

    @cached_property
    def marks_width(self) -> int:
        return max((len(mark) + 1 for mark in self.marks if mark), default=0)

    @cached_property
    def width(self) -> int:
        cells = max(map(cell_len, self.cells), default=0) + self.marks_width
        return max(cells, max(map(cell_len, self.heading), default=0))

    def padded_heading(self, height: int) -> Text:
        room = self.width - self.marks_width
        fits = all(cell_len(line) <= room for line in self.heading)
        lines = [line + " " * self.marks_width if fits else line for line in self.heading]
        return Text("\n".join(self._pad(line) for line in [*[""] * (height - len(lines)), *lines]), no_wrap=True)

    def padded_cell(self, row: int) -> Text:
        if not self.marks:
            return Text(self._pad(self.cells[row]))
        mark = f" {self.marks[row]}" if self.marks[row] else ""
        number = " " * (self.width - self.marks_width - cell_len(self.cells[row])) + self.cells[row]
        return Text.assemble(number, (mark.ljust(self.marks_width), "yellow"))

    def _pad(self, text: str) -> str:
        spaces = " " * (self.width - cell_len(text))
        return text + spaces if self.left else spaces + text


def grid_width(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def to_table(columns: Sequence[Column], gap: int) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    height = max(len(column.heading) for column in columns)
    for column in columns:
        table.add_column(column.padded_heading(height), no_wrap=not column.left, overflow="fold")
    for row in range(len(columns[0].cells)):
        table.add_row(*(column.padded_cell(row) for column in columns))
    return table


def fitting_table(columns: Sequence[Column], width: int) -> Table:
    return to_table(columns, next((gap for gap in GAPS if grid_width(columns, gap) <= width), GAPS[-1]))


def waterfall(parts: Sequence[tuple[str, float]], whole_s: float, width: int, whole: str = "") -> Table:
    """A row and a bar for each part, which begins where the one before it ends; the row `whole` is the sum of all."""
    rows = [*parts, *([(whole, whole_s)] if whole else [])]
    unit, times = time_cells([seconds for _, seconds in rows])
    shares = [seconds / (whole_s or 1.0) for _, seconds in rows]
    columns = [
        Column(("",), tuple(name for name, _ in rows), left=True),
        Column((unit,), times),
        Column(("of it",), percent_cells(shares)),
    ]
    room = min(40, width - grid_width(columns, 2) - 2)
    drawn = (*bars(shares[: len(parts)], room), *([BAR * room] if whole else []))
    return fitting_table([*columns, Column(("",), drawn, left=True)], width)


def pack(head: Sequence[Column], blocks: Sequence[Sequence[Column]], width: int) -> list[list[Column]]:
    """Blocks side by side in as few tables as fit; every table begins with the head."""
    packed: list[list[Column]] = []
    for block in blocks:
        if packed and grid_width([*packed[-1], *block], GAPS[0]) <= width:
            packed[-1].extend(block)
        else:
            packed.append([*head, *block])
    return packed


def spread(head: Sequence[Column], columns: Sequence[Column], tail: Sequence[Column], width: int) -> list[Table]:
    """The columns in as few tables of similar size as fit.

    Every table begins with the head; the last one ends with the tail.
    """
    for tables in range(1, len(columns) + 1):
        count = -(-len(columns) // tables)
        parts = [[*head, *columns[begin : begin + count]] for begin in range(0, len(columns), count)]
        parts[-1].extend(tail)
        if tables == len(columns) or all(grid_width(part, GAPS[-1]) <= width for part in parts):
            gap = next((gap for gap in GAPS if all(grid_width(part, gap) <= width for part in parts)), GAPS[-1])
            return [to_table(part, gap) for part in parts]
    return [fitting_table([*head, *tail], width)]


_MAX_DECIMALS = 5
_DIGITS_OF_TIMES = 5
_TIMES = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))


def time_cells(values: Sequence[float | None]) -> tuple[str, tuple[str, ...]]:
    """The unit that suits the longest time, and all times in it with the same number of decimals."""
    sizes = [abs(value) for value in values if value]
    unit, factor = next((time for time in _TIMES if max(sizes, default=0.0) * time[1] >= 1), _TIMES[-1])
    scaled = [None if value is None else value * factor for value in values]
    whole = len(f"{max(sizes, default=0.0) * factor:.0f}")
    return unit, rate_cells(scaled, least=1, most=max(1, min(3, _DIGITS_OF_TIMES - whole)))


def rate_cells(
    values: Sequence[float | None], missing: str | Sequence[str] = "", least: int = 2, most: int = _MAX_DECIMALS
) -> tuple[str, ...]:
    """Values with the same number of decimals: at least `least`, and two digits of the smallest value.

    `missing`: the cell of each missing value, or one text for all.
    """
    gaps = [missing] * len(values) if isinstance(missing, str) else missing
    smallest = min((abs(value) for value in values if value and math.isfinite(value)), default=1.0)
    decimals = min(max(least, 1 - math.floor(math.log10(smallest))), most)
    return tuple(gap if value is None else f"{value:.{decimals}f}" for value, gap in zip(values, gaps, strict=True))


def percent_cells(values: Sequence[float | None], missing: str = "") -> tuple[str, ...]:
    return tuple(missing if value is None else f"{value * 100:.1f} %" for value in values)


def precision_cells(values: Sequence[float | None], missing: str = "") -> tuple[str, ...]:
    """Half widths of intervals. One above 100 % says no more than that."""
    cells = zip(values, percent_cells(values, missing), strict=True)
    return tuple("> 100 %" if (value or 0.0) > 1 else cell for value, cell in cells)


BAR = "#"


def bars(shares: Sequence[float], room: int) -> list[str]:
    """A bar for every share, begun where the one before it ends; a share above zero has at least one character.

    Shares below 0 or above 1, from a document that was edited by hand, are clipped.
    """
    drawn, begin = [], 0.0
    for share in (max(0.0, min(raw, 1.0)) for raw in shares):
        start = min(round(begin * room), room - 1)
        length = max(1, round((begin + share) * room) - start) if share > 0 else 0
        drawn.append(" " * start + BAR * min(length, room - start))
        begin += share
    return drawn
