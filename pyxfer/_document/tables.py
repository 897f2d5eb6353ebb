"""The rows of a document as one table for pandas, polars, pyarrow and DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyxfer._document.baselines import Comparison
from pyxfer._document.exports import Cell, comparison_rows, fleet_rows, run_rows, watch_rows
from pyxfer._document.fleets import Fleet
from pyxfer._document.link_exports import link_rows
from pyxfer._document.links import Links
from pyxfer._document.printing import OneLine
from pyxfer._document.runs import Run
from pyxfer._document.watches import Watched
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_Kind = Literal["text", "whole", "number", "flag"]
_KINDS: dict[_Kind, set[str]] = {
    "text": {
        *("route", "direction", "side", "memory", "mode", "variant", "missing", "remarks", "worker", "framework"),
        *("call", "dma", "returns", "dma_source", "dma_missing", "runtime", "device", "host", "taken_at"),
        *("way", "what", "line", "range", "name", "source", "cell", "verdict", "why", "a", "b"),
        *("group", "case", "engine", "from", "to", "beside", "state", "unit"),
    },
    "whole": {
        *("nbytes", "n", "host_copies", "batch", "dma_bytes", "number", "thread", "least_bytes", "below_bytes"),
        *("count", "timed_bytes", "h2d_bytes", "d2h_bytes", "a_processes", "b_processes"),
        *("issued_by", "node", "footprint_bytes", "hops", "cohort"),
    },
    "flag": {"verified", "slow", "confirmed", "assumed", "peer_access"},
}
# Their types do not depend on the values, so that tables of several documents can be put together.
_PANDAS = {"text": "string", "whole": "Int64", "number": "Float64", "flag": "boolean"}
_POLARS = {"text": "String", "whole": "Int64", "number": "Float64", "flag": "Boolean"}
_ARROW = {"text": "string", "whole": "int64", "number": "float64", "flag": "bool_"}


class Table(OneLine):
    """The rows of a document. Names of columns end in their units, and a missing value is null.

    polars, pyarrow, DuckDB and pandas read it by the Arrow PyCapsule interface, for which nanoarrow must be installed
    (`pip install 'pyxfer[report]'`). `to_pandas` and `to_polars` do not need it.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self.names = tuple(names)
        self.rows = [tuple(map(_without_surrogates, row)) for row in rows]

    def _in_short(self) -> str:
        return f"{len(self)} rows of {', '.join(self.names)}"

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an `arrow_array_stream` capsule. Its columns keep their own types, whatever schema is requested.

        Raises:
            UsageError: nanoarrow is not installed.

        """
        try:
            import nanoarrow
        except ModuleNotFoundError as error:
            raise UsageError("the Arrow interface needs nanoarrow: pip install 'pyxfer[report]'") from error
        columns = {name: getattr(nanoarrow, _ARROW[_kind(name)])() for name in self.names}
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
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UsageError("pandas is not installed: pip install pandas") from error
        columns = zip(self.names, self._columns(), strict=True)
        return pd.DataFrame({name: pd.array(cells, dtype=_PANDAS[_kind(name)]) for name, cells in columns})

    def to_polars(self) -> pl.DataFrame:
        """Return a polars data frame.

        Raises:
            UsageError: polars is not installed.

        """
        try:
            import polars as pl
        except ModuleNotFoundError as error:
            raise UsageError("polars is not installed: pip install polars") from error
        columns = zip(self.names, self._columns(), strict=True)
        return pl.DataFrame(
            [pl.Series(name, cells, dtype=getattr(pl, _POLARS[_kind(name)])) for name, cells in columns]
        )

    def _columns(self) -> list[list[Any]]:
        """The cells of each column, as its type has them."""
        cells = [list(column) for column in zip(*self.rows, strict=True)] or [[] for _ in self.names]
        return [
            [float(cell) if cell is not None else None for cell in column] if _kind(name) == "number" else column
            for name, column in zip(self.names, cells, strict=True)
        ]


def table_of(document: object, name: str = "steps") -> Table:
    """The table of a run, links, comparison or fleet, or a named table of a watch."""
    if isinstance(document, Run):
        return Table(*run_rows(document))
    if isinstance(document, Links):
        return Table(*link_rows(document))
    if isinstance(document, Comparison):
        return Table(*comparison_rows(document))
    if isinstance(document, Watched):
        return Table(*watch_rows(document, name))
    if isinstance(document, Fleet):
        return Table(*fleet_rows(document))
    raise TypeError(f"{type(document).__name__} has no table")


def _kind(name: str) -> _Kind:
    return next((kind for kind, names in _KINDS.items() if name in names), "number")


def _without_surrogates(cell: Cell) -> Cell:
    """Names that are not UTF-8 are escaped as in the JSON; Arrow's text is UTF-8."""
    return cell.encode(errors="backslashreplace").decode() if isinstance(cell, str) else cell
