"""The tables of a watch's page: the parts of a period, the classes of copies, the named ranges."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.table import Table

from pyxfer.model_watch import CopyClass, NamedRange, Parts
from pyxfer.watch_documents import part_words, size_text, sum_text

from .bars import bars
from .grid import Column, fitting_table, grid_width, percent_cells, rate_cells, time_cells
from .text import clean

MOST_RANGES = 10
_WIDEST_BAR = 40
_LONGEST_NAME = 30


def parts_table(parts: Parts, width: int) -> Table:
    """A line a part, with a bar begun where the one before it ends; what took no time is left out."""
    named = [(name, seconds) for name, seconds in parts.named() if seconds > 0]
    words = part_words(parts)
    unit, times = time_cells([seconds for _, seconds in named])
    shares = [parts.share(name) for name, _ in named]
    columns = [
        Column(("",), tuple(words[name] for name, _ in named), left=True),
        Column((unit,), times),
        Column(("of it",), percent_cells(shares)),
    ]
    room = min(_WIDEST_BAR, width - grid_width(columns, 2) - 2)
    return fitting_table([*columns, Column(("",), tuple(bars(shares, room)), left=True)], width)


def copies_table(copies: Sequence[CopyClass], width: int) -> Table:
    """A row a class."""
    unit, times = time_cells([row.seconds for row in copies])
    return fitting_table(
        [
            Column(("way",), tuple(row.way for row in copies), left=True),
            Column(("memory",), tuple(shortened(row.memory, _LONGEST_NAME) for row in copies), left=True),
            Column(("size",), tuple(size_text(row) for row in copies), left=True),
            Column(("copies",), tuple(str(row.count) for row in copies)),
            Column(("bytes",), tuple(sum_text(row.nbytes) for row in copies)),
            Column((unit,), times),
            Column(("GB/s",), rate_cells([row.gbps.value for row in copies], ["-"] * len(copies), most=3)),
            Column(("of", "ceiling"), _share_cells([row.of_ceiling for row in copies])),
            Column(("under", "kernels"), _share_cells([row.hidden_share.value for row in copies])),
        ],
        width,
    )


def ranges_table(ranges: Sequence[NamedRange], width: int) -> Table:
    """The longest, a row a name."""
    shown = ranges[:MOST_RANGES]
    unit, times = time_cells([row.seconds for row in shown])
    columns = [
        Column(("name",), tuple(shortened(row.name, _LONGEST_NAME) for row in shown), left=True),
        Column(("count",), tuple(str(row.count) for row in shown)),
        Column((unit,), times),
        Column(("of the", "window"), percent_cells([row.share for row in shown])),
        Column(("device", "busy"), percent_cells([_busy_share(row) for row in shown])),
        Column(("h2d",), tuple(_bytes_cell(row.h2d_bytes) for row in shown)),
        Column(("d2h",), tuple(_bytes_cell(row.d2h_bytes) for row in shown)),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def shortened(text: str, most: int) -> str:
    """A name as one harmless line of so many cells; wide letters, such as Chinese ones, take two."""
    line = clean(text)
    if cell_len(line) <= most:
        return line
    return f"{set_cell_size(line, most - 3).rstrip()}..."


def _share_cells(shares: Sequence[float | None]) -> tuple[str, ...]:
    return tuple("-" if share is None else f"{share * 100:.1f} %" for share in shares)


def _busy_share(row: NamedRange) -> float | None:
    return None if row.busy_s is None or row.seconds <= 0 else min(1.0, row.busy_s / row.seconds)


def _bytes_cell(nbytes: int | None) -> str:
    return "" if not nbytes else sum_text(nbytes)
