"""Documents as text: `repr()` is one line, `text()` and `str()` are the page, and a notebook shows a small table."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import altair as alt

    from pyxfer._report.tables import Table

_MAX_LENGTH = 200
VEGA_LITE = 6
"""Major version of the charts that documents give to notebooks."""


def _kinds() -> Any:
    """The reports of all kinds, which are in a layer above the documents."""
    from pyxfer._report import kinds

    return kinds


class ShortRepr:
    """An object whose `repr()` is its class and `_summary()`, whatever its fields contain."""

    __slots__ = ()

    def _summary(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        text = "".join(character if character.isprintable() else " " for character in self._summary())
        return f"<{type(self).__name__} {text if len(text) <= _MAX_LENGTH else f'{text[: _MAX_LENGTH - 3]}...'}>"


class HasTable(ShortRepr):
    """A document with a page of its own, whose rows are a table; a notebook shows its first chart and a small table."""

    __slots__ = ()

    def chart(self, name: str) -> alt.Chart:
        """Return a chart of this object as an Altair chart, such as `run.chart("sizes")`.

        Raises:
            UsageError: it has no such chart (the text names those that it has), or Altair is not installed.
        """
        return cast("alt.Chart", _kinds().altair_chart(self, name))

    def _repr_html_(self) -> str:
        return str(_kinds().small_table(self))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        """The first chart for a notebook that draws Vega-Lite, the small table, and one line of text."""
        kinds = _kinds()
        names = list(kinds.charts_of(self))
        drawn = {f"application/vnd.vegalite.v{VEGA_LITE}+json": kinds.chart_of(self, names[0])} if names else {}
        return {**drawn, "text/html": self._repr_html_(), "text/plain": repr(self)}

    def text(self, columns: int = 80, *, details: bool = False) -> str:
        """Return the page that the command prints, for a terminal of this width; `details` as with `--details`.

        Raises:
            UsageError: `columns` is not a whole number above zero.
        """
        return str(_kinds().page_text(self, columns, details=details))

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Write the page with charts (.html), or its charts as pictures (.svg, .png), as `--report` does.

        Raises:
            UsageError: the name has another ending, the file cannot be written, or what draws charts is not installed.
        """
        _kinds().write_report(self, os.fspath(path))

    def __str__(self) -> str:
        return self.text()

    def table(self) -> Table:
        """Return its rows for pandas, polars, pyarrow or DuckDB; the columns are those of `to_csv`."""
        return cast("Table", _kinds().table_of(self, "").table())

    def to_csv(self) -> str:
        """CSV with its rows and unrounded numbers."""
        return str(_kinds().table_of(self, "").to_csv())

    def to_markdown(self) -> str:
        """Markdown with its verdict, tables and notes, with rounded numbers."""
        return str(_kinds().to_markdown(self))


class HasTables(HasTable):
    """A watch, which has several tables: `steps`, `copies`, `calls` and `ranges`. Another name is a UsageError."""

    __slots__ = ()

    def table(self, name: str = "steps") -> Table:
        """Return the table `steps`, `copies`, `calls` or `ranges`, for pandas, polars, pyarrow or DuckDB."""
        return cast("Table", _kinds().table_of(self, name).table())

    def to_csv(self, table: str = "steps") -> str:
        """CSV of one table, `steps`, `copies`, `calls` or `ranges`, with unrounded numbers."""
        return str(_kinds().table_of(self, table).to_csv())
