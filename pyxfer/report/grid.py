"""Columns whose numbers line up: the cells are padded here, so that a layout knows its width before it is printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_MOST_DECIMALS = 5


@dataclass(frozen=True)
class Column:
    """Lines of heading over cells; `marks` stand behind the numbers and do not move them."""

    heading: tuple[str, ...]
    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()
    left: bool = False

    @property
    def marks_width(self) -> int:
        """Room behind the numbers, the space before a mark included."""
        return max((len(mark) + 1 for mark in self.marks if mark), default=0)

    @property
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


def rate_cells(values: Sequence[float | None], missing: Sequence[str]) -> tuple[str, ...]:
    """GB/s with the same number of decimals: two, or as many as leave two digits of the smallest."""
    smallest = min((value for value in values if value is not None and value > 0), default=1.0)
    decimals = min(max(2, 1 - math.floor(math.log10(smallest))), _MOST_DECIMALS)
    return tuple(gap if value is None else f"{value:.{decimals}f}" for value, gap in zip(values, missing, strict=True))


def percent_cells(values: Sequence[float | None]) -> tuple[str, ...]:
    """Shares of one in percent, one decimal, nothing where there is none."""
    return tuple("" if value is None else f"{value * 100:.1f} %" for value in values)
