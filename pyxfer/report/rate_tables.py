"""The measurements as tables: sizes down and memories across where that fits, else one row a measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from pyxfer import model, units
from pyxfer.errors import UsageError

from .grid import GAPS, Column, fitting_table, grid_width, pack, percent_cells, rate_cells
from .notes import label_words
from .text import clean

_Key = tuple[str, ...]
# Of the rows, without and with a column for their workers.
_MOST_DECIMALS = (5, 3)

SORTS: dict[str, Callable[[model.Measurement], tuple[str | float, ...]]] = {
    "size": lambda measurement: (measurement.nbytes,),
    "gbps": lambda measurement: (-(measurement.gbps or 0.0),),
    "route": lambda measurement: (measurement.route,),
    "direction": lambda measurement: (measurement.direction, measurement.side),
    "memory": lambda measurement: (measurement.memory,),
    "mode": lambda measurement: (measurement.mode,),
}


def rate_tables(run: model.Run, marks: Sequence[str], width: int, sort: str | None) -> list[Table]:
    """Every rate of the run, with the mark that leads to its note."""
    if not run.measurements:
        return []
    if sort is None and run.kind == "ceiling":
        tables = _pivots(run, marks, width)
        if tables is not None:
            return tables
    return [_rows(run, marks, width, sort)]


def _pivots(run: model.Run, marks: Sequence[str], width: int) -> list[Table] | None:
    """Blocks of directions packed side by side into as few tables as fit; None where one direction alone does not."""
    sizes = sorted({measurement.nbytes for measurement in run.measurements})
    head = Column(("size",), tuple(units.format_size(size) for size in sizes))
    blocks = [
        _block(run, marks, direction, sizes) for direction in dict.fromkeys(m.direction for m in run.measurements)
    ]
    if any(grid_width((head, *block), GAPS[-1]) > width for block in blocks):
        return None
    return [fitting_table(columns, width) for columns in pack([head], blocks, width)]


def _block(run: model.Run, marks: Sequence[str], direction: str, sizes: Sequence[int]) -> list[Column]:
    """The columns of one direction, and what share of the peak the best of them reaches."""
    columns: dict[_Key, dict[int, int]] = {}
    for index, measurement in enumerate(run.measurements):
        if measurement.direction == direction:
            columns.setdefault(_heading(measurement, run), {})[measurement.nbytes] = index
    block = [_rate_column(run, marks, key, at, sizes) for key, at in columns.items()]
    best = [_best_share(run, [at[size] for at in columns.values() if size in at]) for size in sizes]
    if any(share is not None for share in best):
        block.append(Column(("best", "of peak"), percent_cells(best)))
    return block


def _heading(measurement: model.Measurement, run: model.Run) -> _Key:
    """One line each: the way, the memory, and mode and variant where they tell columns apart."""
    return (_way(measurement), *label_words(measurement, run))


def _way(measurement: model.Measurement) -> str:
    return f"both {measurement.side}" if measurement.direction == "both" else measurement.direction


def _rate_column(
    run: model.Run, marks: Sequence[str], heading: _Key, at: dict[int, int], sizes: Sequence[int]
) -> Column:
    values = [run.measurements[at[size]].gbps if size in at else None for size in sizes]
    missing = ["-" if size in at else "" for size in sizes]
    return Column(heading, rate_cells(values, missing), tuple(marks[at[size]] if size in at else "" for size in sizes))


def _best_share(run: model.Run, indices: Sequence[int]) -> float | None:
    """Of a transfer both ways the two sides together count, because neither side alone fills the link."""
    counted = [m for m in (run.measurements[i] for i in indices) if m.direction != "both" or m.side == "sum"]
    return max((m.of_peak for m in counted if m.of_peak is not None), default=None)


def _rows(run: model.Run, marks: Sequence[str], width: int, sort: str | None) -> Table:
    """One row a measurement."""
    order = list(range(len(run.measurements)))
    if sort is not None:
        key = _sort_key(sort)
        order.sort(key=lambda index: key(run.measurements[index]))
    chosen = [run.measurements[index] for index in order]
    columns = [
        Column(("route",), tuple(_route(measurement) for measurement in chosen), left=True),
        Column(("way",), tuple(_way(measurement) for measurement in chosen), left=True),
        *_place_columns(run, chosen),
        Column(
            ("GB/s",),
            rate_cells([m.gbps for m in chosen], ["-"] * len(chosen), most=_MOST_DECIMALS[bool(run.workers)]),
            tuple(marks[index] for index in order),
        ),
        Column(("+-",), percent_cells([m.summary.relative_half_width if m.summary else None for m in chosen])),
        Column(_words(run, "of peak"), percent_cells([m.of_peak for m in chosen])),
        Column(_words(run, "of ceiling"), percent_cells([m.of_ceiling for m in chosen])),
        Column(("wor-", "ker"), tuple(worker_number(run, m.worker) for m in chosen)),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def worker_number(run: model.Run, name: str | None) -> str:
    """What leads from a row to the list of the run's workers, whose names are too long for a table."""
    return next((str(number) for number, worker in enumerate(run.workers, start=1) if worker.name == name), "")


def _place_columns(run: model.Run, chosen: Sequence[model.Measurement]) -> list[Column]:
    """The size; of image batches the images, which say it too."""
    if run.parameters.workload == "image-batch":
        batches = ("" if m.batch is None else str(m.batch) for m in chosen)
        return [Column(("batch",), tuple(batches))]
    return [Column(("size",), tuple(units.format_size(m.nbytes) for m in chosen))]


def _words(run: model.Run, heading: str) -> tuple[str, ...]:
    """A heading in one line, or in narrow ones where a run has columns more."""
    return tuple(heading.split()) if run.workers else (heading,)


def _sort_key(sort: str) -> Callable[[model.Measurement], tuple[str | float, ...]]:
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {clean(sort)!r}: choose one of {', '.join(SORTS)}, such as --sort gbps")
    return SORTS[sort]


def _route(measurement: model.Measurement) -> str:
    """The route's name, which says memory and mode; the variant where it is not the usual one."""
    name = clean(measurement.route, longest=60)
    return f"{name} (fresh)" if measurement.variant == "fresh" else name
