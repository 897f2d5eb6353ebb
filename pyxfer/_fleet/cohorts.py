"""Cohorts: hosts that should be equal, their figures as arrays, and what the hosts of a small one are held against."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyxfer._doctor.case import MIN_BYTES, MIN_FINE
from pyxfer._doctor.examine import references
from pyxfer._doctor.speed import ALIKE_SHARE, PAGEABLE_SHARE
from pyxfer._document.cells import Cell
from pyxfer._document.examinations import Reference
from pyxfer._document.fleets import CellUnit, CohortCell, HostReport, Judge
from pyxfer._document.machines import Remark, describe
from pyxfer._fleet.losses import Floats, Judged
from pyxfer.errors import DocumentError

LINK_CAPABILITY = "link capability"
"""The fact with what device and slot can do. The state of the link is evidence, and makes no other cohort."""
MIG = " (MIG)"
"""After the name of a GPU of which the host has a part."""
_UNKNOWN = "unknown"
_INTERVAL_TO_ERROR = 2 * 1.96


@dataclass(frozen=True)
class Column:
    """A cell of a cohort. `sign`: with it, a larger figure is a better one. `family`: cells with the same noise."""

    cell: Cell
    unit: CellUnit
    family: int

    @property
    def sign(self) -> int:
        return 1 if self.unit == "GB/s" else -1


@dataclass(frozen=True)
class Table:
    """The figures of a cohort as signed logarithms, with the standard error of each within its host.

    `places`: the rows' places in the fleet.
    """

    alike: dict[str, str]
    places: tuple[int, ...]
    columns: tuple[Column, ...]
    figures: Floats
    errors: Floats

    @property
    def families(self) -> tuple[int, ...]:
        return tuple(column.family for column in self.columns)


def tables_of(reports: Sequence[tuple[int, HostReport]]) -> list[Table]:
    """The cohorts of these hosts, the largest first. Each host comes with its place in the fleet."""
    cohorts: dict[tuple[tuple[str, str], ...], list[tuple[int, HostReport]]] = defaultdict(list)
    for place, report in reports:
        cohorts[tuple(alike_of(report).items())].append((place, report))
    ordered = sorted(cohorts.items(), key=lambda item: (-len(item[1]), item[0]))
    return [_table(dict(alike), *zip(*members, strict=True)) for alike, members in ordered]


def alike_of(report: HostReport) -> dict[str, str]:
    """What has to be the same on hosts that should be equally fast."""
    gpus = Counter(device.name + (MIG if device.mig.value else "") for device in report.devices)
    environment = report.environment
    return {
        "GPUs": ", ".join(f"{count} x {name}" for name, count in sorted(gpus.items())) or "none",
        "link": report.facts.get(LINK_CAPABILITY, _UNKNOWN),
        "CPU": _UNKNOWN if environment is None else environment.cpu_model.value or _UNKNOWN,
        "virtual machine": "no" if environment is None else environment.virtual_machine.value or "no",
    }


def _table(alike: dict[str, str], places: tuple[int, ...], reports: tuple[HostReport, ...]) -> Table:
    found: dict[Cell, CellUnit] = {}
    for cell in (cell for report in reports for cell in report.cells if cell.value.value is not None):
        found.setdefault(cell.cell, cell.unit)
    columns = columns_of(found)
    return Table(alike, places, columns, *rows_of(reports, columns))


def columns_of(found: Mapping[Cell, CellUnit]) -> tuple[Column, ...]:
    families = {cell: cell.family for cell in found}
    numbers = {family: number for number, family in enumerate(dict.fromkeys(families.values()))}
    return tuple(Column(cell, unit, numbers[families[cell]]) for cell, unit in found.items())


def signs_of(columns: Sequence[Column]) -> Floats:
    return np.array([column.sign for column in columns], np.float64)


def rows_of(reports: Sequence[HostReport], columns: Sequence[Column]) -> tuple[Floats, Floats]:
    places = {(column.cell, column.unit): place for place, column in enumerate(columns)}
    values = np.full((len(reports), len(columns)), np.nan)
    widths = np.full_like(values, np.nan)
    for row, report in enumerate(reports):
        for cell in report.cells:
            place = places.get((cell.cell, cell.unit))
            if place is None or cell.value.value is None:
                continue
            values[row, place] = cell.value.value
            if cell.low is not None and cell.high is not None:
                widths[row, place] = cell.high / cell.low
    return signs_of(columns) * np.log(values), np.log(widths) / _INTERVAL_TO_ERROR


# --- a few hosts: held against a known host, or the peak of the link, or each other -----------------------------------

FEWEST = 3
"""Hosts that can be compared with each other: with two it is not known which one is slow."""
_FEW_MIN_LOSS, _FEW_MAX_LOSS = 0.05, 0.99
_NEIGHBOURS_APART = 5.0
_POWER_SD = 1.645
_MEMORIES = ("pinned", "pageable")


class Expected(NamedTuple):
    """What a cell should reach, and which loss against that is beyond doubt."""

    judge: Judge
    figure: float
    loss: float


def expected_of(table: Table, reports: Sequence[HostReport]) -> list[Expected | None]:
    """For each cell what a few hosts are held against; None if nothing is known."""
    peaks = peaks_of(reports)
    return _expected(_known_host(reports[0]), table, [peaks.get(column.cell) for column in table.columns])


def expected_again(cells: Sequence[CohortCell], table: Table) -> list[Expected | None]:
    """What the cells of a saved fleet were held against. Known hosts come with the package; peaks are in the fleet."""
    names = {each.partition(" x ")[2].removesuffix(MIG) for each in table.alike["GPUs"].split(", ")}
    known = _known_of(names, table.alike["link"])
    for cell, column in zip(cells, table.columns, strict=True):
        if cell.judged_by == "known host" and _known(known, column) is None:
            raise DocumentError(
                f"{cell.cell.text} was held against a known host that this pyxfer does not have; judge the documents "
                "of the hosts again, with pyxfer fleet judge"
            )
    return _expected(known, table, [cell.peak.value for cell in cells])


def _expected(known: Reference | None, table: Table, peaks: Sequence[float | None]) -> list[Expected | None]:
    return [
        _known(known, column) or _peak(column, peak) or _each_other(table, place)
        for place, (column, peak) in enumerate(zip(table.columns, peaks, strict=True))
    ]


def slower_than_known(table: Table, medians: Floats, reports: Sequence[HostReport]) -> Remark | None:
    """A remark if the usual copy of a cohort is far below that of a known host, or the peak of the link."""
    known, peaks = _known_host(reports[0]), peaks_of(reports[:1])
    found = []
    for column, median in zip(table.columns, medians, strict=True):
        expected = _known(known, column) or _peak(column, peaks.get(column.cell))
        if expected is not None and math.exp(median) < expected.figure * (1 - expected.loss):
            found.append((column.cell.text, expected.judge))
    if not found:
        return None
    name, judge = found[0]
    more = f" and {len(found) - 1} more cells" if len(found) > 1 else ""
    beside = "a known host with the same GPU and link" if judge == "known host" else "what the link could do"
    return Remark(
        "all-slow",
        f"these hosts are equal, and all of them are far below {beside} in {name}{more}",
        "run pyxfer doctor on one of them",
    )


def judge_few(table: Table, expected: Sequence[Expected | None]) -> Judged:
    """Judge each figure against what is expected. Cells without that are not judged."""
    medians = signs_of(table.columns) * np.array([math.nan if u is None else math.log(u.figure) for u in expected])
    least = np.array([math.nan if u is None else -math.log1p(-u.loss) for u in expected])
    ratios = table.figures - medians
    errors = np.nan_to_num(table.errors)
    with np.errstate(invalid="ignore"):
        flagged = ratios < -(least + _POWER_SD * errors)
    limits = least + 2 * _POWER_SD * np.max(errors, axis=0)
    spreads = np.full(medians.shape, np.nan)
    centres = np.broadcast_to(medians, ratios.shape).copy()
    return Judged(medians, centres, ratios, spreads, least, least, limits, flagged, {})


def _known_host(report: HostReport) -> Reference | None:
    return _known_of({device.name for device in report.devices}, report.facts.get(LINK_CAPABILITY))


def _known_of(names: Set[str], link: str | None) -> Reference | None:
    return next((known for known in references() if {known.device} == names and describe(known.link) == link), None)


def _known(known: Reference | None, column: Column) -> Expected | None:
    cell = column.cell
    if known is None or not cell.is_alone or cell.memory not in _MEMORIES:
        return None
    gbps = known.gbps(cell.direction, cell.memory, cell.nbytes)
    share = ALIKE_SHARE if cell.memory == "pinned" else PAGEABLE_SHARE
    return None if gbps is None or cell.nbytes < MIN_BYTES else Expected("known host", gbps, 1 - share)


def peaks_of(reports: Sequence[HostReport]) -> dict[Cell, float]:
    """The largest peak that each cell has on these hosts."""
    peaks: dict[Cell, float] = {}
    for report in reports:
        for figure in report.cells:
            if figure.peak.value is not None:
                peaks[figure.cell] = max(figure.peak.value, peaks.get(figure.cell, 0.0))
    return peaks


def _peak(column: Column, peak: float | None) -> Expected | None:
    """For large pinned copies: other cells need not come near a peak."""
    cell = column.cell
    if peak is None or not cell.is_alone or cell.memory != "pinned" or cell.nbytes < MIN_BYTES:
        return None
    return Expected("peak", peak, 1 - MIN_FINE)


def _each_other(table: Table, place: int) -> Expected | None:
    """The median of three or four hosts. The closest two neighbours show how far equal hosts are apart."""
    figures = np.sort(table.figures[~np.isnan(table.figures[:, place]), place])
    if figures.size < FEWEST:
        return None
    apart = _NEIGHBOURS_APART * float(np.min(np.diff(figures)))
    loss = min(_FEW_MAX_LOSS, max(_FEW_MIN_LOSS, -math.expm1(-apart)))
    return Expected("few hosts", math.exp(table.columns[place].sign * float(np.median(figures))), loss)
