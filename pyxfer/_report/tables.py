"""The rows of a document as one table for pandas, polars, pyarrow and DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from pyxfer._document.printing import ShortRepr
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Value = str | int | float | bool | None
Kind = Literal["text", "whole", "number", "flag"]
# Their types do not depend on the values, so that tables of several documents can be put together.
_PANDAS = {"text": "string", "whole": "Int64", "number": "Float64", "flag": "boolean"}
_POLARS = {"text": "String", "whole": "Int64", "number": "Float64", "flag": "Boolean"}
_MAX_SHOWN = 20
_ARROW = {"text": "string", "whole": "int64", "number": "float64", "flag": "bool_"}


class Table(ShortRepr):
    """The rows of a document. Names of columns end in their units, and a missing value is null.

    polars, pyarrow, DuckDB and pandas read it by the Arrow PyCapsule interface, for which nanoarrow must be installed
    (`pip install 'pyxfer[report]'`). `to_pandas` and `to_polars` do not need it.
    """

    def __init__(self, kinds: Mapping[str, Kind], rows: Sequence[Sequence[Value]]) -> None:
        """`kinds`: the type of each column by its name."""
        self.names = tuple(kinds)
        self._kinds = tuple(kinds.values())
        self.rows = [tuple(map(_value, row)) for row in rows]

    def _summary(self) -> str:
        return f"{len(self)} rows of {', '.join(self.names)}"

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def _repr_html_(self) -> str:
        """The first rows for a notebook, with numbers of six digits."""
        cells = [[_shown(cell) for cell in row] for row in self.rows[:_MAX_SHOWN]]
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
        head = "".join(f"<th>{escape(name)}</th>" for name in self.names)
        left = len(self) - len(cells)
        more = f"<p>{left} more rows</p>" if left else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an `arrow_array_stream` capsule. Its columns keep their own types, whatever schema is requested.

        Raises:
            UsageError: nanoarrow is not installed.

        """
        nanoarrow = library("nanoarrow", "The Arrow interface needs nanoarrow", "'pyxfer[report]'")
        columns = {name: getattr(nanoarrow, _ARROW[kind])() for name, kind in self._typed()}
        cells = [
            nanoarrow.c_array(column, kind) for column, kind in zip(self._columns(), columns.values(), strict=True)
        ]
        whole = nanoarrow.c_array_from_buffers(nanoarrow.struct(columns), len(self), [None], children=cells)
        return nanoarrow.c_array_stream(whole).__arrow_c_stream__()

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame, whose types can hold missing values.

        Raises:
            UsageError: pandas is not installed.

        """
        pandas = library("pandas", "`to_pandas` needs pandas", "pandas")
        columns = zip(self._typed(), self._columns(), strict=True)
        frame: pd.DataFrame = pandas.DataFrame(
            {name: pandas.array(cells, dtype=_PANDAS[kind]) for (name, kind), cells in columns}
        )
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return a polars data frame.

        Raises:
            UsageError: polars is not installed.

        """
        polars = library("polars", "`to_polars` needs polars", "polars")
        columns = zip(self._typed(), self._columns(), strict=True)
        frame: pl.DataFrame = polars.DataFrame(
            [polars.Series(name, cells, dtype=getattr(polars, _POLARS[kind])) for (name, kind), cells in columns]
        )
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


def library(name: str, needed: str, install: str) -> Any:
    """Import an optional library. `needed` says what needs it, and `install` is what pip installs."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{needed}, which is not installed: pip install {install}.") from error


def _shown(cell: Value) -> str:
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _value(cell: Value) -> Value:
    return without_surrogates(cell) if isinstance(cell, str) else cell


def without_surrogates(text: str) -> str:
    """Names that are not UTF-8 are escaped as in the JSON; Arrow's text is UTF-8."""
    return text.encode(errors="backslashreplace").decode()
