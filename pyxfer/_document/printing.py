"""Documents as text: `repr()` is one line, `report()` and `str()` are the page, and a notebook shows a small table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

_LONGEST = 200
VEGA_LITE = 6
"""Major version of the charts that documents give to notebooks."""


class OneLine:
    """An object whose `repr()` is its class and `_in_short()`, whatever its fields contain."""

    __slots__ = ()

    def _in_short(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        text = "".join(character if character.isprintable() else " " for character in self._in_short())
        return f"<{type(self).__name__} {text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...'}>"


class Drawn(OneLine):
    """An object with charts, which a notebook shows as the first of them and a small table."""

    __slots__ = ()

    def chart(self, name: str) -> alt.Chart:
        """Return a chart of this object as an Altair chart, such as `run.chart("sizes")`.

        Raises:
            UsageError: it has no such chart (the text names those that it has), or Altair is not installed.

        """
        from pyxfer._report.charts import altair_chart

        chart: alt.Chart = altair_chart(self, name)
        return chart

    def _repr_html_(self) -> str:
        from pyxfer._report.documents import small_table

        return small_table(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        """The first chart for a notebook that draws Vega-Lite, the small table, and one line of text."""
        from pyxfer._report.charts import chart_of, charts_of

        names = list(charts_of(self))
        drawn = {f"application/vnd.vegalite.v{VEGA_LITE}+json": chart_of(self, names[0])} if names else {}
        return {**drawn, "text/html": self._repr_html_(), "text/plain": repr(self)}


class Printed(Drawn):
    """A document with a page of its own."""

    __slots__ = ()

    def report(self, columns: int = 80) -> str:
        """Return the page that the command prints, for a terminal of this width.

        Raises:
            UsageError: `columns` is not a whole number above zero.

        """
        from pyxfer._report.documents import page_text

        return page_text(self, columns)

    def __str__(self) -> str:
        return self.report()
