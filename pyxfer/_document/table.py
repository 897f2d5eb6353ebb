"""Rows as text: CSV and Markdown, with whatever the cells hold kept as data."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

Cell = str | int | float | bool | None

# A spreadsheet runs a cell that begins with one of these as a formula; the wide forms where East Asian input is set.
_FORMULA = re.compile(r"[=+\-@\t\n\uff0b\uff0d\uff1d\uff20]")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
# A line break ends a table row, and the other control characters steer a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NUMBER = re.compile(r"(-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?( [A-Za-z/%]{1,4})?)?")


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Comma-separated, one header line, empty cells for what is missing."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_inert(cell) for cell in row] for row in rows)
    return out.getvalue()


def to_markdown(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A pipe table; columns of numbers, with or without a unit, stand right."""
    body = [[escape_markdown(cell) for cell in row] for row in rows]
    columns = [[row[place] for row in body] for place in range(len(header))]
    rule = ["---:" if any(column) and all(map(_NUMBER.fullmatch, column)) else "---" for column in columns]
    lines = [[escape_markdown(name) for name in header], rule, *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def escape_markdown(cell: Cell) -> str:
    """One line of text that a Markdown renderer shows as it is."""
    if cell is None:
        return ""
    return _MARKUP.sub(r"\\\1", _CONTROL.sub(" ", str(cell)))


def _inert(cell: Cell) -> Cell:
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r\n", "\n").replace("\r", "\n")  # csv leaves a bare return unquoted up to Python 3.12
    return "'" + text if _FORMULA.match(text) else text
