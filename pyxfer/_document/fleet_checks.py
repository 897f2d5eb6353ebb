"""Checks that documents of hosts and fleets agree with themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pyxfer._document.cells import is_of_host
from pyxfer._document.checks import Problems, refuse
from pyxfer._document.fleets import Cohort, Fleet, FleetHost, HostCell, HostReport

TOLERANCE = 1e-6
"""Relative. The figures are quotients of doubles, which another machine may round differently."""

LEAST, MOST = 1e-6, 1e9
"""GB/s or nanoseconds: every figure of every host lies far inside."""


def check_host(report: HostReport, source: str) -> None:
    """Refuse a host's document whose figures disagree."""
    refuse(source, _host_problems(report))


def check_fleet(fleet: Fleet, source: str) -> None:
    """Refuse a fleet whose parts do not fit together."""
    refuse(source, _fleet_problems(fleet))


def _host_problems(report: HostReport) -> Problems:
    if not report.duration_s >= 0:
        yield "duration_s", "is below zero"
    if len({cell.cell for cell in report.cells}) != len(report.cells):
        yield "cells", "have a cell twice"
    numbers = {number for cell in report.cells for number in (*cell.cell.source, *cell.cell.destination)}
    if not {number for number in numbers if number >= 0} <= {device.index for device in report.devices}:
        yield "cells", "are of GPUs that are not among the devices"
    for number, cell in enumerate(report.cells):
        if not is_of_host(cell.cell):
            yield f"cells[{number}].cell", "is not a copy or latency of a host"
        problem = _cell_problem(cell)
        if problem is not None:
            yield f"cells[{number}]", problem


def _cell_problem(cell: HostCell) -> str | None:
    value, peak, samples = cell.value.value, cell.peak.value, cell.samples
    if peak is not None and not 0 < peak < math.inf:
        return "has a peak that is not above zero"
    if value is None:
        return None
    low, high = cell.low or value, cell.high or value
    if not LEAST <= value <= MOST or not LEAST <= low <= high <= MOST:
        return "has a figure that no host has"
    if not low * (1 - TOLERANCE) <= value <= high * (1 + TOLERANCE):
        return "has a value outside its interval"
    if samples and not min(samples) * (1 - TOLERANCE) <= value <= max(samples) * (1 + TOLERANCE):
        return "has a value outside its samples"
    return None


def _fleet_problems(fleet: Fleet) -> Problems:
    settings = fleet.settings
    if not 0 < settings.error_rate < 1 or not 0 < settings.power < 1 or not 0 < settings.least_loss < 1:
        yield "settings", "are outside of 0 to 1"
    for number, cohort in enumerate(fleet.cohorts):
        for problem in _cohort_problems(cohort, len(fleet.hosts)):
            yield f"cohorts[{number}]", problem
    for number, host in enumerate(fleet.hosts):
        for problem in _member_problems(host, fleet):
            yield f"hosts[{number}]", problem
    for number, contrast in enumerate(fleet.contrasts):
        if not _are_places(contrast.hosts, len(fleet.hosts)):
            yield f"contrasts[{number}].hosts", "are not places of hosts"


def _cohort_problems(cohort: Cohort, hosts: int) -> Iterator[str]:
    if len({cell.cell for cell in cohort.cells}) != len(cohort.cells):
        yield "has a cell twice"
    for cell in cohort.cells:
        if not is_of_host(cell.cell):
            yield "has a cell that no host has"
        if cell.groups is not None and not _are_places(cell.groups.slower + cell.groups.faster, hosts):
            yield "has a group of hosts that are not in the fleet"


def _member_problems(host: FleetHost, fleet: Fleet) -> Iterator[str]:
    if host.cohort is None:
        if host.values or host.losses:
            yield "has figures and no cohort"
        return
    if not 0 <= host.cohort < len(fleet.cohorts):
        yield "has a cohort that is not in the fleet"
        return
    cells = fleet.cohorts[host.cohort].cells
    if len(host.values) != len(cells):
        yield "has another number of values than its cohort has cells"
    if any(len(figures) != len(cells) for figures in (host.errors, *host.again)):
        yield "has another number of errors or later figures than its cohort has cells"
    if any(value is not None and not LEAST / 2 <= value <= 2 * MOST for value in host.values):
        yield "has a value that no host has"
    if not {loss.cell for loss in host.losses} <= {cell.cell for cell in cells}:
        yield "has a loss in a cell that its cohort does not have"


def _are_places(places: tuple[int, ...], count: int) -> bool:
    return all(0 <= place < count for place in places)
