"""A table of a document: rows once, for a page in HTML, Markdown, a notebook, CSV and data frames.

Cells are data: text is escaped, so that no spreadsheet executes it and no renderer formats it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from pyxfer._document.machines import Fact
from pyxfer._report.tables import Kind, Table, Value, html_table, without_surrogates
from pyxfer._report.text import clean

if TYPE_CHECKING:
    from pyxfer._report.layout import Page


@dataclass(frozen=True)
class Cell:
    """A cell for a reader, and the number that it is sorted by if that is not the text."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """A column of a grid.

    Attributes:
        name: Its name in CSV and data frames, and in the rows.
        kind: The type of its values there.
        heading: Its name for readers; empty if only CSV and data frames have it.
        say: Writes a value for readers.
        saved: False if only readers have it.
    """

    name: str
    kind: Kind = "text"
    heading: str = ""
    say: Callable[[Any], str] = str
    saved: bool = True


Row = Mapping[str, Any]
"""Values or `Cell`s by the names of columns; a missing one is empty."""


@dataclass(frozen=True)
class Grid:
    """Rows under columns. Readers do not see columns without any cell.

    Attributes:
        name: The heading above it.
        notes: Lines below it, such as the meaning of letters in its cells.
        few: The rows for a place with little room and a line about the others, if not the first rows.
        largest: The column of which a notebook shows the rows with the largest numbers first; empty for the order here.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    notes: Sequence[tuple[str, str]] = ()
    few: tuple[Sequence[Row], str] | None = None
    largest: str = ""

    def __post_init__(self) -> None:
        known = {column.name for column in self.columns}
        if unplaced := {name for row in self.rows for name in row} - known:
            raise KeyError(f"no column has the name {', '.join(sorted(unplaced))}")

    def readable(self, *, few: bool = False) -> tuple[list[str], list[list[Cell]]]:
        return self._readable(self.few[0] if few and self.few is not None else self.rows)

    def _readable(self, rows: Sequence[Row]) -> tuple[list[str], list[list[Cell]]]:
        columns = [[_cell(column, row.get(column.name)) for row in rows] for column in self.columns if column.heading]
        headings = [column.heading for column in self.columns if column.heading]
        shown = [place for place, cells in enumerate(columns) if any(cell.text for cell in cells)]
        return [headings[place] for place in shown], [
            [columns[place][at] for place in shown] for at in range(len(rows))
        ]

    def print_on(self, page: Page) -> None:
        """Print the table for readers below its name. Headings of numbers have a line for each word."""
        headings, rows = self.readable(few=True)
        columns = {}
        left = set()
        for heading, cells in zip(headings, zip(*rows, strict=True), strict=False):  # without rows there are no cells
            is_text = all(cell.value is None for cell in cells)
            name = heading if is_text else heading.replace(" ", "\n")
            columns[name] = [cell.text for cell in cells]
            left |= {name} if is_text else set()
        page.table(columns.items(), left, self.name)

    def table(self) -> Table:
        saved = [column for column in self.columns if column.saved]
        values = ([row.get(column.name) for column in saved] for row in self.rows)
        rows = [tuple(value.text if isinstance(value, Cell) else value for value in row) for row in values]
        return Table({column.name: column.kind for column in saved}, rows)

    def to_csv(self) -> str:
        """Its values unrounded. Names that are not UTF-8 are escaped as in JSON."""
        table = self.table()
        return csv_table(table.names, table.rows)

    def to_markdown(self) -> str:
        """The table for readers, and its notes; of many rows the few that matter most, if it has these."""
        headings, rows = self.readable(few=True)
        if not rows:
            return ""
        texts = [] if self.few is None or not self.few[1] else [self.few[1]]
        notes = "".join(
            f"- {escape_markdown(text if mark == '-' else f'{mark}: {text}')}\n" for mark, text in self.notes
        )
        table = markdown_table(headings, [[cell.text for cell in row] for row in rows])
        return "\n".join([table, *(f"{escape_markdown(text)}\n" for text in texts), *([notes] if notes else [])])

    def to_small_html(self) -> str:
        """The first rows as an HTML table for a notebook, or those that matter most, and its notes."""
        chosen = self.rows if self.few is None else self.few[0]
        if self.largest:
            chosen = sorted(chosen, key=lambda row: -row[self.largest])
        headings, rows = self._readable(chosen)
        texts = [[cell.text for cell in row] for row in rows]
        table = html_table(headings, texts, len(self.rows), "text(details=True) shows all")
        notes = "".join(f"<p>{escape(text if mark == '-' else f'{mark}: {text}')}</p>" for mark, text in self.notes)
        return f"{table}{notes}"


def text_grid(name: str, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Grid:
    """A grid of texts and `Cell`s; CSV and data frames have their texts."""
    columns = tuple(Column(heading, heading=heading) for heading in headings)
    return Grid(name, columns, [dict(zip(headings, row, strict=True)) for row in rows])


def picked(name: str, columns: Sequence[Column], names: Sequence[str], rows: Iterable[Row]) -> Grid:
    """A grid of some of the columns, in the order of `names`."""
    known = {column.name: column for column in columns}
    return Grid(name, tuple(known[each] for each in names), [{name: row.get(name) for name in names} for row in rows])


def fields(struct: object | None, *names: str) -> dict[str, Any]:
    """Fields of a struct by name, with the value of a fact; nothing if there is no struct."""
    if struct is None:
        return {}
    found = {name: getattr(struct, name) for name in names}
    return {name: value.value if isinstance(value, Fact) else value for name, value in found.items()}


def number(value: float | None, say: Callable[[Any], str]) -> Cell:
    return Cell("") if value is None else Cell(say(value), float(value))


def _cell(column: Column, value: Any) -> Cell:
    if value is None:
        return Cell("")
    if not isinstance(value, Cell):
        by = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        value = Cell(column.say(value), by)
    return Cell(clean(without_surrogates(value.text), 600), value.value)


# --- rows as text ----------------------------------------------------------------------------------------------------

# A spreadsheet executes a cell that begins with one of these as a formula; with East Asian input also the wide forms.
_FORMULA = re.compile(r"[=+\-@\t\n\uff0b\uff0d\uff1d\uff20]")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
# A line break ends a table row, and other control characters change the state of a terminal.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NUMBER = re.compile(r"(-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?( [A-Za-z/%]{1,4})?)?")


def csv_table(header: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """Comma-separated values with one header line; None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_inert(cell) for cell in row] for row in rows)
    return out.getvalue()


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """A Markdown table. Columns of numbers, with or without a unit, are aligned right."""
    body = [[escape_markdown(cell) for cell in row] for row in rows]
    columns = [[row[place] for row in body] for place in range(len(header))]
    rule = ["---:" if any(column) and all(map(_NUMBER.fullmatch, column)) else "---" for column in columns]
    lines = [[escape_markdown(name) for name in header], rule, *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def escape_markdown(cell: Value) -> str:
    if cell is None:
        return ""
    return _MARKUP.sub(r"\\\1", CONTROL.sub(" ", str(cell)))


def _inert(cell: Value) -> Value:
    if isinstance(cell, datetime):
        return cell.isoformat()
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r\n", "\n").replace("\r", "\n")  # csv leaves a bare return unquoted up to Python 3.12
    return "'" + text if _FORMULA.match(text) else text
