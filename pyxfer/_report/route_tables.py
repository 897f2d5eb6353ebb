"""Tables of a framework's routes: all bandwidths, and all figures at the largest size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rich.table import Table

from pyxfer import units
from pyxfer._document import runs
from pyxfer._report.grid import Cell, Grid, picked
from pyxfer._report.layout import Column, fitting_table, grid_width, percent_cells, rate_cells, spread
from pyxfer._report.rates import COLUMNS, cells_of, route_text
from pyxfer._report.text import clean

_TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "cupy": "CuPy", "jax": "JAX"}
WAYS = {"h2d": "to the GPU", "d2h": "from the GPU", "both": "both ways", "ingest": "into a tensor in host memory"}
_SHORTEST_NAME, _LONGEST_NAME = 20, 40

_NO_SPEED = -math.inf


def copies_nothing(m: runs.Measurement) -> bool:
    """Whether the tensor uses the array's own memory: an ingest route, correct and timed, without a bandwidth."""
    is_right_and_timed = m.verified.value is True and m.elapsed_s is not None
    return m.direction == "ingest" and m.rate.value is None and is_right_and_timed


@dataclass(frozen=True)
class Row:
    name: str
    at: Mapping[int, runs.Measurement]
    marks: Mapping[int, str]

    @property
    def any(self) -> runs.Measurement:
        return next(iter(self.at.values()))

    @property
    def raw(self) -> bool:
        return self.any.route_info is None

    @property
    def usual(self) -> bool:
        return self.any.route_info is not None and self.any.route_info.usual

    @property
    def letters(self) -> str:
        return "".join(sorted(set("".join(self.marks.values()))))

    def gbps(self, nbytes: int) -> float | None:
        return self.at[nbytes].gbps if nbytes in self.at else None

    def copies_nothing(self, nbytes: int) -> bool:
        return nbytes in self.at and copies_nothing(self.at[nbytes])

    def speed(self, nbytes: int) -> float | None:
        """Transfers per second, the order of routes; also for a route that copies nothing."""
        if self.gbps(nbytes) is None and not self.copies_nothing(nbytes):
            return None
        elapsed_s = self.at[nbytes].elapsed_s
        return 1 / elapsed_s if elapsed_s else None


@dataclass(frozen=True)
class Group:
    """A framework in one direction; `largest` is the size at which its routes are compared.

    `form`: of a group of orders of work, the form of the images.
    """

    framework: str
    direction: str
    rows: tuple[Row, ...]
    elsewhere: tuple[Row, ...]
    sizes: tuple[int, ...]
    largest: int
    form: runs.Form | None = None

    @property
    def routes(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.raw)

    @property
    def ceiling(self) -> Row | None:
        return self.fastest([row for row in self.rows if row.raw], self.largest)

    @property
    def usual(self) -> Row | None:
        return next((row for row in self.routes if row.usual), None)

    @property
    def best(self) -> Row | None:
        return self.best_at(self.largest)

    def best_at(self, nbytes: int) -> Row | None:
        right = [row for row in self.routes if nbytes in row.at and row.at[nbytes].verified.value is not False]
        return self.fastest(right, nbytes)

    @staticmethod
    def fastest(rows: Sequence[Row], nbytes: int) -> Row | None:
        found = max(rows, key=lambda row: row.speed(nbytes) or _NO_SPEED, default=None)
        return None if found is None or found.speed(nbytes) is None else found


def group_rows(run: runs.Run, marks: Sequence[str], form: runs.Form | None = None) -> list[Group]:
    """The routes of each framework and direction, or its orders of work in a form, with the raw copies of both."""
    homes: dict[str | None, str] = {worker.name: worker.framework for worker in run.workers}
    for m in run.measurements:
        if m.route_info is not None and m.worker is not None:
            homes.setdefault(m.worker, m.route_info.framework)
    found: dict[tuple[str, str], dict[tuple[str | None, str, str], list[int]]] = {}
    for index, m in enumerate(run.measurements):
        if m.route_info is not None and m.form != form:
            continue
        framework = homes.get(m.worker, m.worker or "") if m.route_info is None else m.route_info.framework
        group = found.setdefault((framework, m.direction), {})
        group.setdefault((m.worker, m.route, m.variant), []).append(index)
    order = list(dict.fromkeys([*homes.values(), *(framework for framework, _ in found)]))
    keys = sorted(found, key=lambda key: (order.index(key[0]), list(WAYS).index(key[1])))
    return [_group(run, marks, key, list(found[key].values()), form) for key in keys]


def order_groups(run: runs.Run, marks: Sequence[str]) -> list[Group]:
    """The orders of work, a group for each framework and form."""
    groups = [group for form in run.parameters.forms for group in group_rows(run, marks, form) if group.routes]
    frameworks = list(dict.fromkeys(group.framework for group in groups))
    return sorted(groups, key=lambda group: frameworks.index(group.framework))


def title(framework: str) -> str:
    return _TITLES.get(framework) or clean(framework, longest=_LONGEST_NAME) or "no framework"


def group_title(run: runs.Run, group: Group) -> str:
    """`PyTorch 2.11.0: h2d, to the GPU`."""
    known = (w.version.value for w in run.workers if w.framework == group.framework and w.version.value)
    version = clean(next(known, ""), longest=_LONGEST_NAME)
    return f"{title(group.framework)}{' ' if version else ''}{version}: {group.direction}, {WAYS[group.direction]}"


def place_text(run: runs.Run, group: Group, nbytes: int) -> str:
    """`96 MiB`, or `batch 512` for image batches."""
    batch = batch_of(group, nbytes)
    return units.format_size(nbytes) if not is_image_batch(run) or batch is None else f"batch {batch}"


def batch_of(group: Group, nbytes: int) -> int | None:
    measured = (row.at[nbytes].batch for row in group.rows if nbytes in row.at)
    return next((batch for batch in measured if batch is not None), None)


def is_image_batch(run: runs.Run) -> bool:
    return run.parameters.workload == "image-batch"


def rate_unit(run: runs.Run) -> tuple[str, float]:
    return ("MB/s", 1000.0) if is_image_batch(run) else ("GB/s", 1.0)


def _group(
    run: runs.Run,
    marks: Sequence[str],
    key: tuple[str, str],
    indices: Sequence[Sequence[int]],
    form: runs.Form | None,
) -> Group:
    rows = [_row(run, marks, of_row) for of_row in indices]
    routes, raw = [row for row in rows if not row.raw], [row for row in rows if row.raw]
    sizes = tuple(sorted({nbytes for row in rows for nbytes in row.at}))
    measured = [nbytes for nbytes in sizes if any(row.speed(nbytes) is not None for row in routes)]
    largest = max(measured, default=sizes[-1])
    with_setting = {worker.name for worker in run.workers if worker.setting}
    homes = [row.any.worker for row in raw]
    here = next((home for home in homes if home not in with_setting), homes[0] if homes else None)

    def speed(row: Row) -> float:
        return row.speed(largest) or _NO_SPEED

    shown = sorted((row for row in raw if row.any.worker == here), key=speed, reverse=True)
    used = {row.any.worker for row in routes}
    elsewhere = tuple(row for row in raw if row.any.worker != here and row.any.worker in used)
    return Group(*key, (*shown, *sorted(routes, key=speed, reverse=True)), elsewhere, sizes, largest, form)


def _row(run: runs.Run, marks: Sequence[str], indices: Sequence[int]) -> Row:
    at = {run.measurements[index].nbytes: run.measurements[index] for index in indices}
    first = run.measurements[indices[0]]
    name = route_text(first, _LONGEST_NAME) if first.form is None else clean(first.route, _LONGEST_NAME)
    return Row(name, at, {run.measurements[index].nbytes: marks[index] for index in indices})


LEGEND = "> marks the usual call, * the fastest route"
NO_COPY = "no copy"
# More decimals would not fit beside nine sizes and the longest names.
_MAX_DECIMALS = 3


def compared(groups: Sequence[Group]) -> list[runs.Measurement]:
    found = [row.at.get(group.largest) for group in groups for _, _, row in _overview_lines(group)]
    return [m for m in found if m is not None]


def overview_table(
    run: runs.Run, groups: Sequence[Group], width: int, letters: Mapping[int, str] = MappingProxyType({})
) -> Table | None:
    """`letters` has those of measurements by their `id`."""
    lines = [line for group in groups for line in _overview_lines(group)]
    if not lines:
        return None
    unit, factor = rate_unit(run)
    measured = [row.at.get(group.largest) for group, _, row in lines]
    rates = [None if m is None or m.gbps is None else m.gbps * factor for m in measured]
    gaps = [_gap(row, group.largest) for group, _, row in lines]
    titles = [title(group.framework) for group, _, _ in lines]
    ways = [f"{name}\0{group.direction}" for name, (group, _, _) in zip(titles, lines, strict=True)]
    before = [
        Column(("",), once(titles), left=True),
        Column(("",), once(ways), left=True),
        Column(("",), tuple(kind for _, kind, _ in lines), left=True),
    ]
    least = 0 if is_image_batch(run) else 2
    # Ingest routes have no ceiling; they are compared with one copy in host memory.
    ingest = {group.direction == "ingest" for group, _, _ in lines}
    whole = tuple(name for name, is_ingest in (("of ceiling", False), ("of one copy", True)) if is_ingest in ingest)
    after = [
        Column((unit,), rate_cells(rates, gaps, least=least), tuple(letters.get(id(m), "") for m in measured)),
        Column(whole, percent_cells([m.of_ceiling if m and m.route_info else None for m in measured])),
    ]
    room = max(_SHORTEST_NAME, width - grid_width([*before, *after], 1) - 1)
    names = tuple(clean(row.name, longest=room) for _, _, row in lines)
    return fitting_table([*before, Column(("",), names, left=True), *after], width)


def rate_pivot(group: Group, width: int) -> list[Table]:
    columns = []
    for nbytes in group.sizes:
        gaps = ["-" if nbytes in row.at else "" for row in group.rows]
        rates = rate_cells([row.gbps(nbytes) for row in group.rows], gaps, least=1, most=_MAX_DECIMALS)
        columns.append(Column(tuple(units.format_size(nbytes).split(" ")), rates))
    letters = tuple(row.letters for row in group.rows)
    notes = [Column(("",), letters, left=True)] if any(letters) else []
    return spread([_names(group)], columns, notes, width)


# The figures of routes at the largest size, in tables that fit into 80 columns.
_RATES = ("route", "gbps", "of_ceiling", "of_peak", "notes")
_OF_LINK = ("route", "memory", "host_copies", "overhead_s", "dma_s", "dispatch_s")
_OF_INGEST = ("route", "memory", "host_copies", "median_s", "faults")


def detail_grids(run: runs.Run, group: Group) -> list[Grid]:
    rows = []
    for row in group.rows:
        if (m := row.at.get(group.largest)) is not None:
            name = f"{row.name}{' >' * row.usual}{' *' * (row is group.best)}"
            gap = {"gbps": Cell(NO_COPY)} if copies_nothing(m) else {}
            rows.append({**cells_of(m, run), "route": name, "notes": row.marks[group.largest], **gap})
    times = _OF_INGEST if group.direction == "ingest" else _OF_LINK
    return [picked("", COLUMNS, names, rows) for names in (_RATES, times)]


def elsewhere_lines(group: Group) -> list[str]:
    lines = []
    for worker in dict.fromkeys(row.any.worker for row in group.elsewhere):
        ceiling = max(row.gbps(group.largest) or 0.0 for row in group.elsewhere if row.any.worker == worker)
        names = ", ".join(row.name for row in group.routes if row.any.worker == worker)
        if ceiling > 0:
            text = f"measured in a separate process, whose ceiling is {units.format_gbps(ceiling)}"
            lines.append(f"{names}: {text}")
    return lines


def clock_lines(group: Group) -> list[str]:
    ceiling = group.ceiling
    if ceiling is None or not any(m.has_both_clocks for m in ceiling.at.values()):
        return []
    return ["The ceiling is by the device's clock, without the calls; the times of routes contain their calls."]


def _overview_lines(group: Group) -> list[tuple[Group, str, Row]]:
    usual, best, ceiling = group.usual, group.best, group.ceiling
    routes = [("usual >*", usual)] if usual is best else [("usual >", usual), ("fastest *", best)]
    lines = [("one copy" if group.direction == "ingest" else "ceiling", ceiling), *routes]
    return [(group, kind, row) for kind, row in lines if row is not None] if group.routes else []


def _names(group: Group) -> Column:
    """The routes, with marks before the usual one and the fastest."""
    best = group.best
    marks = [f"{'>' if row.usual else ''}{'*' if row is best else ''}" for row in group.rows]
    room = max(map(len, marks), default=0)
    names = tuple(f"{mark.ljust(room)} {row.name}".rstrip() for mark, row in zip(marks, group.rows, strict=True))
    return Column((" " * (room + 1) + "route",), names if room else tuple(row.name for row in group.rows), left=True)


def _gap(row: Row, nbytes: int) -> str:
    """The cell without a bandwidth: not measured, nothing copied, or no result."""
    if nbytes not in row.at:
        return ""
    return NO_COPY if row.copies_nothing(nbytes) else "-"


def once(values: Sequence[str]) -> tuple[str, ...]:
    """Empty cells where a value repeats the one above; of a value with a NUL only the part after it is shown."""
    before = ["", *values][:-1]
    return tuple("" if value == last else value.split("\0")[-1] for value, last in zip(values, before, strict=True))
