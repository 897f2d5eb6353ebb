"""Routes of a framework in one direction: their bandwidth at every size, and all that is known at the largest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from pyxfer import model, units

from .framework_groups import Group, Row, is_image_batch, rate_unit, title
from .grid import Column, fitting_table, grid_width, rate_cells, spread, time_cells
from .text import clean

LEGEND = "> marks the usual call, * the fastest route"
NO_COPY = "no copy"
_DMA = "DMA"
_LONGEST_WORD = 14
# What nine sizes leave room for beside the longest names.
_MOST_DECIMALS = 3


def overview_table(run: model.Run, groups: Sequence[Group], width: int) -> Table | None:
    """How far each framework's usual call is from its fastest route, and both from the ceiling."""
    lines = [line for group in groups for line in _overview_lines(run, group)]
    if not lines:
        return None
    unit, factor = rate_unit(run)
    measured = [row.at.get(group.largest) for group, _, row in lines]
    rates = [None if m is None or m.gbps is None else m.gbps * factor for m in measured]
    gaps = [_gap(row, group.largest) for group, _, row in lines]
    return fitting_table(
        [
            Column(("",), _once([title(group.framework) for group, _, _ in lines]), left=True),
            Column(("",), _once([f"{title(group.framework)}\0{group.direction}" for group, _, _ in lines]), left=True),
            Column(("",), tuple(kind for _, kind, _ in lines), left=True),
            Column(("",), tuple(row.name for _, _, row in lines), left=True),
            Column((unit,), rate_cells(rates, gaps, least=_least(run))),
            Column((_share_heading(lines),), _percents([m if m and m.nature else None for m in measured], " %")),
        ],
        width,
    )


def _share_heading(lines: Sequence[tuple[Group, str, Row]]) -> str:
    """What stays in host memory has no ceiling; it is set against one copy there."""
    ingest = {group.direction == "ingest" for group, _, _ in lines}
    return "of one copy" if ingest == {True} else "of ceiling, of one copy" if True in ingest else "of ceiling"


def rate_pivot(run: model.Run, group: Group, width: int) -> list[Table]:
    """Routes down, sizes across."""
    rows = group.rows
    head = [_names(group)]
    columns = [
        Column(
            _heading_of_size(nbytes),
            rate_cells(
                [row.gbps(nbytes) for row in rows],
                ["-" if nbytes in row.at else "" for row in rows],
                least=1,
                most=_MOST_DECIMALS,
            ),
        )
        for nbytes in group.sizes
    ]
    return spread(head, columns, _note_columns([row.letters for row in rows]), width)


def detail_tables(run: model.Run, group: Group, width: int) -> list[Table]:
    """Everything that is known of each route at the largest size."""
    measured = [row.at.get(group.largest) for row in group.rows]
    make = _ingest_columns if group.direction == "ingest" else _link_columns
    gaps = [_gap(row, group.largest) for row in group.rows]
    rates = Column(("GB/s",), rate_cells([m.gbps if m else None for m in measured], gaps))
    columns = [column for column in make(measured, rates) if any(column.cells)]
    head = _names(group)
    notes = _note_columns([row.marks.get(group.largest, "") for row in group.rows])
    if grid_width([head, *columns, *notes], 1) > width:
        notes = []  # the table above has them too
    if grid_width([head, *columns], 1) > width:  # explain has it for the route that one asks about
        columns = [column for column in columns if column.heading[0] != _DMA]
    return spread([head], columns, notes, width)


def elsewhere_lines(group: Group) -> list[str]:
    """The ceiling in the other workers of a framework, against which their routes are held."""
    lines = []
    for worker in dict.fromkeys(row.any.worker for row in group.elsewhere):
        rates = [row.gbps(group.largest) or 0.0 for row in group.elsewhere if row.any.worker == worker]
        names = ", ".join(row.name for row in group.routes if row.any.worker == worker)
        if max(rates) > 0:
            ceiling = units.format_gbps(max(rates))
            lines.append(f"{names}: measured in a process of its own, where the ceiling is {ceiling}.")
    return lines


def _overview_lines(run: model.Run, group: Group) -> list[tuple[Group, str, Row]]:
    usual, best, ceiling = group.usual, group.best, group.ceiling
    routes = [("usual >*", usual)] if usual is best else [("usual >", usual), ("fastest *", best)]
    lines = [("one copy" if group.direction == "ingest" else "ceiling", ceiling), *routes]
    return [(group, kind, row) for kind, row in lines if row is not None] if group.routes else []


def _names(group: Group) -> Column:
    """The routes, with what marks the usual one and the fastest."""
    best = group.best
    marks = [f"{'>' if row.usual else ''}{'*' if row is best else ''}" for row in group.rows]
    room = max(map(len, marks), default=0)
    names = tuple(f"{mark.ljust(room)} {row.name}".rstrip() for mark, row in zip(marks, group.rows, strict=True))
    return Column((" " * (room + 1) + "route",), names if room else tuple(row.name for row in group.rows), left=True)


def _link_columns(measured: Sequence[model.Measurement | None], rates: Column) -> list[Column]:
    overhead_unit, overheads = time_cells([m.overhead_s if m and m.nature else None for m in measured])
    dma_unit, dmas = time_cells([m.dma_s if m else None for m in measured])
    dispatch_unit, dispatches = time_cells([m.dispatch_s if m else None for m in measured])
    return [
        *_static_columns(measured),
        rates,
        _half_widths(measured),
        Column(("% of", "ceil-", "ing"), _percents(measured)),
        Column(("over-", "head", overhead_unit), overheads),
        Column((_DMA, dma_unit), dmas),
        Column(("% of", "peak"), _cells(measured, lambda m: _percent(m.of_peak))),
        Column(("dis-", "patch", dispatch_unit), dispatches),
    ]


def _ingest_columns(measured: Sequence[model.Measurement | None], rates: Column) -> list[Column]:
    """Nothing crosses the link here, so that one copy in host memory is what routes are held against."""
    return [
        *_static_columns(measured),
        Column(
            ("time",), _cells(measured, lambda m: None if m.elapsed_s is None else units.format_seconds(m.elapsed_s))
        ),
        rates,
        _half_widths(measured),
        Column(("% of", "one", "copy"), _percents(measured)),
        Column(("faults", "a call"), _cells(measured, lambda m: None if m.faults is None else f"{m.faults:.0f}")),
    ]


def _static_columns(measured: Sequence[model.Measurement | None]) -> list[Column]:
    return [
        Column(("host", "memory"), _cells(measured, lambda m: clean(m.memory, longest=_LONGEST_WORD)), left=True),
        Column(
            ("host", "co-", "pies"), _cells(measured, lambda m: None if m.nature is None else str(m.nature.host_copies))
        ),
    ]


def _half_widths(measured: Sequence[model.Measurement | None]) -> Column:
    return Column(
        ("+-", "%"), _cells(measured, lambda m: _percent(m.summary.relative_half_width if m.summary else None))
    )


def _percents(measured: Sequence[model.Measurement | None], unit: str = "") -> tuple[str, ...]:
    return tuple("" if m is None or m.of_ceiling is None else f"{_percent(m.of_ceiling)}{unit}" for m in measured)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share * 100:.1f}"


def _cells(
    measured: Sequence[model.Measurement | None], say: Callable[[model.Measurement], str | None]
) -> tuple[str, ...]:
    return tuple("" if m is None else say(m) or "" for m in measured)


def _gap(row: Row, nbytes: int) -> str:
    """What stands where there is no bandwidth: nothing was asked, nothing was copied, or nothing came out."""
    if nbytes not in row.at:
        return ""
    return NO_COPY if row.copies_nothing(nbytes) else "-"


def _heading_of_size(nbytes: int) -> tuple[str, ...]:
    return tuple(units.format_size(nbytes).split(" "))


def _note_columns(letters: Sequence[str]) -> list[Column]:
    return [Column(("",), tuple(letters), left=True)] if any(letters) else []


def _once(values: Sequence[str]) -> tuple[str, ...]:
    """Each value where it changes, the part after a NUL alone of those that have one."""
    before = ["", *values[:-1]]
    return tuple("" if value == last else value.split("\0")[-1] for value, last in zip(values, before, strict=True))


def _least(run: model.Run) -> int:
    """Decimals of a rate at least."""
    return 0 if is_image_batch(run) else 2
