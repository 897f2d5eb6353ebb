"""One stream as a page: coloured and as wide as the terminal, or plain where it is read by something else."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# What a layout may rely on everywhere; a wider terminal gives it more.
NARROWEST = 80
# Nothing is wrapped or cut for a file or a pipe: one remark is one line that grep finds whole.
_UNWRAPPED = 100_000


def is_plain(stream: TextIO) -> bool:
    """Whether colour, movement and wrapping stay off: not a terminal, NO_COLOR, or a terminal that can do nothing."""
    return not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


class Page:
    """Prints to one stream; what rich renders is written by us, so that a closed reader is seen here."""

    def __init__(self, stream: TextIO, columns: int | None = None) -> None:
        """`columns` makes any stream wrap as a terminal of that width does."""
        self._stream = stream
        plain = is_plain(stream)
        if columns is None and stream.isatty():
            columns = max(NARROWEST, Console(file=stream).width)
        width = columns or _UNWRAPPED
        self.columns = columns or NARROWEST
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
        )

    def show(self, renderable: RenderableType) -> None:
        """Write a renderable, without the spaces that tables leave at the end of a line."""
        self._console.print(renderable)
        lines = self._buffer.getvalue().split("\n")
        self._buffer.seek(0)
        self._buffer.truncate()
        self._stream.write("\n".join(line.rstrip(" ") for line in lines))

    def line(self, text: str = "", style: str = "") -> None:
        """One line of prose, wrapped at words on a terminal."""
        self.show(Text(text, style=style))

    def heading(self, text: str) -> None:
        """An empty line and the name of what follows."""
        self.line()
        self.line(text, style="bold")

    def hanging(self, lines: Iterable[tuple[str, str]], style: str = "") -> None:
        """A short name and its text on each line; where the text wraps, it stays beside the name."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style=style)
        grid.add_column(overflow="fold")
        for name, text in lines:
            grid.add_row(Text(name), Text(text))
        if grid.row_count:
            self.show(grid)
