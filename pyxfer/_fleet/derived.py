"""The figures of a host's document that follow from its samples."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pyxfer._document.fleets import HostCell, HostReport
from pyxfer._document.machines import Fact
from pyxfer._fleet.cells import figure_of, unit_of

replace = msgspec.structs.replace


def derive_host(report: HostReport) -> HostReport:
    """The document with the figures that follow from the samples, and one peak for each direction of a GPU's link."""
    devices = tuple(replace(device, runtime=report.runtime) for device in report.devices)
    ended = "failed" if report.failure is not None and report.ended == "complete" else report.ended
    return replace(
        report, ended=ended, devices=devices, cells=tuple(_cell(cell, report.cells) for cell in report.cells)
    )


def _cell(cell: HostCell, cells: Sequence[HostCell]) -> HostCell:
    cell = replace(cell, unit=unit_of(cell.cell))
    if cell.samples:
        value, low, high = figure_of(cell.samples)
        cell = replace(cell, value=Fact(value), low=low, high=high)
    peaks = [each.peak.value for each in cells if _link(each) == _link(cell) and each.peak.value is not None]
    return cell if cell.peak.value is None else replace(cell, peak=Fact(sorted(peaks)[len(peaks) // 2]))


def _link(cell: HostCell) -> tuple[object, ...]:
    """What the copies join, in this direction."""
    return cell.cell.side, cell.cell.source, cell.cell.destination
