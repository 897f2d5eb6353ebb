"""The rows of a document as one table for pandas, polars, pyarrow and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from pyxfer._document.printing import ShortRepr
from pyxfer.errors import INSTALL, UsageError
from pyxfer.units import parse_moment

if TYPE_CHECKING:
    import pandas as pd

Value = str | int | float | bool | datetime | None
Kind = Literal["text", "whole", "number", "flag", "moment"]
# Their types do not depend on the values, so that tables of several documents can be put together.
_PANDAS = {"text": "string", "whole": "Int64", "number": "Float64", "flag": "boolean", "moment": "datetime64[us, UTC]"}
_MAX_SHOWN = 20
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)


class Table(ShortRepr):
    """The rows of a document. Names of columns end in their units, and a missing value is null.

    It can be iterated: each row is a dict, so that `pandas.DataFrame(table)` works.

    polars, pyarrow, DuckDB and pandas read it by the Arrow PyCapsule interface, for which nanoarrow must be installed
    (`pip install nanoarrow`). `to_pandas` does not need it.
    """

    def __init__(self, kinds: Mapping[str, Kind], rows: Sequence[Sequence[Value]]) -> None:
        """`kinds`: the type of each column by its name."""
        self.names = tuple(kinds)
        self._kinds = tuple(kinds.values())
        self.rows = [tuple(map(_value, row, self._kinds)) for row in rows]

    def _summary(self) -> str:
        return f"{len(self)} rows of {', '.join(self.names)}"

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        """Yield each row as a dict by the names of the columns."""
        return (dict(zip(self.names, row, strict=True)) for row in self.rows)

    def _repr_html_(self) -> str:
        """The first rows for a notebook, with numbers of six digits."""
        return html_table(self.names, [[_shown(cell) for cell in row] for row in self.rows[:_MAX_SHOWN]], len(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an `arrow_array_stream` capsule. Its columns keep their own types, whatever schema is requested.

        Raises:
            UsageError: nanoarrow is not installed.
        """
        nanoarrow = library("nanoarrow", "The Arrow interface needs nanoarrow")
        types = {"text": nanoarrow.string(), "whole": nanoarrow.int64(), "number": nanoarrow.float64()}
        types |= {"flag": nanoarrow.bool_(), "moment": nanoarrow.timestamp("us", timezone="UTC")}
        columns = {name: types[kind] for name, kind in self._typed()}
        cells = [
            nanoarrow.c_array([cell and (cell - _EPOCH) // _MICROSECOND for cell in column], types[kind])
            if kind == "moment"
            else nanoarrow.c_array(column, types[kind])
            for kind, column in zip(self._kinds, self._columns(), strict=True)
        ]
        whole = nanoarrow.c_array_from_buffers(nanoarrow.struct(columns), len(self), [None], children=cells)
        return nanoarrow.c_array_stream(whole).__arrow_c_stream__()

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame, whose types can hold missing values.

        Raises:
            UsageError: pandas is not installed.
        """
        pandas = library("pandas", "`to_pandas` needs pandas")
        columns = zip(self._typed(), self._columns(), strict=True)
        arrays = {name: pandas.array(cells, dtype=_PANDAS[kind]) for (name, kind), cells in columns}
        frame: pd.DataFrame = pandas.DataFrame(arrays)
        return frame

    def _typed(self) -> list[tuple[str, Kind]]:
        return list(zip(self.names, self._kinds, strict=True))

    def _columns(self) -> list[list[Any]]:
        """The cells of each column, as its type has them."""
        cells = [list(column) for column in zip(*self.rows, strict=True)] or [[] for _ in self.names]
        return [
            [float(cell) if cell is not None else None for cell in column] if kind == "number" else column
            for kind, column in zip(self._kinds, cells, strict=True)
        ]


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], count: int, how: str = "") -> str:
    """The first rows of `count` for a notebook; `how`: how to see the others."""
    shown = [("th", headings), *(("td", row) for row in rows[:_MAX_SHOWN])]
    lines = (f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>" for tag, cells in shown)
    left = count - min(len(rows), _MAX_SHOWN)
    more = f"<p>{left} more rows{': ' * bool(how)}{how}</p>" if left > 0 else ""
    return f"<table>{''.join(lines)}</table>{more}"


def library(name: str, needed: str) -> Any:
    """Import an optional library. `needed` says what needs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{needed}, which is not installed: {INSTALL[name]}.") from error


def _shown(cell: Value) -> str:
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _value(cell: Value, kind: Kind) -> Value:
    if not isinstance(cell, str):
        return cell
    return parse_moment(cell).astimezone(timezone.utc) if kind == "moment" else without_surrogates(cell)


def without_surrogates(text: str) -> str:
    """Names that are not UTF-8 are escaped as in the JSON; Arrow's text is UTF-8."""
    return text.encode(errors="backslashreplace").decode()
