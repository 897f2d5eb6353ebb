"""Batches of images to the GPU: MB/s beside what others have published, images and batches a second, shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from pyxfer import model

from .framework_groups import Group, Row, batch_of
from .grid import Column, fitting_table, pack, percent_cells, rate_cells
from .text import clean

_MB_PER_GB = 1000.0
_WIDEST_WORDS = 12
_LONGEST_LABEL = 60

Named = tuple[str, list[Table]]


def batch_tables(run: model.Run, group: Group, width: int) -> list[Named]:
    """The tables of one framework, each with what it shows."""
    head = [Column(("batch",), tuple(str(batch_of(group, nbytes) or nbytes) for nbytes in group.sizes))]
    ceiling = group.ceiling
    rates = [[_rates(group, row), *_published(run, group, row)] for row in group.routes]
    of_ceiling = [[_shares(group, row)] for row in group.routes]
    measured = [[_rates(group, ceiling, ("ceiling:",))]] if ceiling is not None else []
    named = [
        ("MB/s", [*measured, *rates]),
        ("images/s", [[_a_second(group, row, lambda m: float(m.batch or 0))] for row in group.routes]),
        ("batches/s", [[_a_second(group, row, lambda _: 1.0)] for row in group.routes]),
        ("share of the ceiling, and the ceiling in MB/s", [*measured, *of_ceiling] if ceiling is not None else []),
    ]
    return [
        (name, [fitting_table(columns, width) for columns in pack(head, blocks, width)])
        for name, blocks in named
        if any(cell for block in blocks for column in block for cell in column.cells)
    ]


def published_lines(run: model.Run, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """How published figures differ from the host's own, and where each comes from."""
    routes = {row.any.route for group in groups for row in group.routes}
    shown = [published for published in run.published if published.route in routes]
    if not shown:
        return []
    lines = [("-", "Published figures are means of 100 calls on the GPU named above them; this host's are medians.")]
    sources: dict[str, list[str]] = {}
    for published in shown:
        name = f"{clean(published.label, longest=_LONGEST_LABEL)} on {clean(published.gpu, longest=_LONGEST_LABEL)}"
        sources.setdefault(clean(published.source), []).append(name)
    return [*lines, *(("-", f"{', '.join(names)}: {source}") for source, names in sources.items())]


def _rates(group: Group, row: Row, words: tuple[str, ...] = ()) -> Column:
    values = [row.gbps(nbytes) for nbytes in group.sizes]
    scaled = [None if value is None else value * _MB_PER_GB for value in values]
    return Column((*words, *_heading(group, row)), rate_cells(scaled, _gaps(group, row), least=0), _marks(group, row))


def _published(run: model.Run, group: Group, row: Row) -> list[Column]:
    columns = []
    for published in run.published:
        if published.route != row.any.route:
            continue
        values = [published.mbps.get(batch_of(group, nbytes) or 0) for nbytes in group.sizes]
        words = [clean(text, longest=_LONGEST_LABEL).split(" ") for text in (published.label, published.gpu)]
        heading = [line for part in words for line in _wrapped(part, " ")]
        columns.append(Column(("published:", *heading), rate_cells(values, [""] * len(values), least=0)))
    return [column for column in columns if any(column.cells)]


def _a_second(group: Group, row: Row, count: Callable[[model.Measurement], float]) -> Column:
    values = []
    for nbytes in group.sizes:
        m = row.at.get(nbytes)
        seconds = None if m is None or m.gbps is None else m.elapsed_s
        values.append(count(m) / seconds if m is not None and seconds is not None and seconds > 0 else None)
    return Column(_heading(group, row), rate_cells(values, _gaps(group, row), least=0), _marks(group, row))


def _shares(group: Group, row: Row) -> Column:
    shares = [row.at[nbytes].of_ceiling if nbytes in row.at else None for nbytes in group.sizes]
    return Column(_heading(group, row), percent_cells(shares), _marks(group, row))


def _heading(group: Group, row: Row) -> tuple[str, ...]:
    """The route in narrow lines, under what marks the usual one and the fastest."""
    mark = f"{'>' if row.usual else ''}{'*' if row is group.best else ''}"
    parts = row.name.replace(".", ".\0").replace("-", "-\0").split("\0")
    return (*([mark] if mark else []), *_wrapped(parts, ""))


def _wrapped(words: Sequence[str], joint: str) -> tuple[str, ...]:
    """Words in lines, as many in each as stay narrow."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(joint) + len(word) <= _WIDEST_WORDS:
            lines[-1] += joint + word
        else:
            lines.append(word)
    return tuple(lines)


def _gaps(group: Group, row: Row) -> list[str]:
    return ["-" if nbytes in row.at else "" for nbytes in group.sizes]


def _marks(group: Group, row: Row) -> tuple[str, ...]:
    return tuple(row.marks.get(nbytes, "") for nbytes in group.sizes)
