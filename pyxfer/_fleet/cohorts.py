"""Cohorts: hosts that should be equal, and their figures as arrays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyxfer._document.cells import Cell
from pyxfer._document.fleets import CellUnit, HostReport
from pyxfer._fleet.losses import Floats

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
