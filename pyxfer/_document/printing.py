"""Documents as text: `repr()` is one line, `report()` and `str()` are the page, and a notebook shows a small table."""

from __future__ import annotations

_LONGEST = 200


class OneLine:
    """An object whose `repr()` is its class and `_in_short()`, whatever its fields contain."""

    __slots__ = ()

    def _in_short(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        text = "".join(character if character.isprintable() else " " for character in self._in_short())
        return f"<{type(self).__name__} {text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...'}>"


class Printed(OneLine):
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

    def _repr_html_(self) -> str:
        from pyxfer._report.documents import small_table

        return small_table(self)
