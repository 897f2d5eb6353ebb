"""What a few hosts are held against: a known host, or the peak of the link, or each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from pyxfer._doctor.case import MIN_BYTES, MIN_FINE
from pyxfer._doctor.examine import references
from pyxfer._doctor.speed import ALIKE_SHARE, PAGEABLE_SHARE
from pyxfer._document.cells import Cell
from pyxfer._document.examinations import Reference
from pyxfer._document.fleets import CohortCell, HostReport, Judge
from pyxfer._document.machines import Remark
from pyxfer._fleet.cohorts import LINK_CAPABILITY, MIG, Column, Table, signs_of
from pyxfer._fleet.losses import Floats, Judged
from pyxfer._machine.link import describe
from pyxfer.errors import DocumentError

FEWEST = 3
"""Hosts that can be compared with each other: with two it is not known which one is slow."""
_FEW_LEAST_LOSS, _FEW_MOST_LOSS = 0.05, 0.99
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
    known = _known_alike(table.alike)
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


def _known_alike(alike: Mapping[str, str]) -> Reference | None:
    names = {each.partition(" x ")[2].removesuffix(MIG) for each in alike["GPUs"].split(", ")}
    return _known_of(names, alike["link"])


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
    loss = min(_FEW_MOST_LOSS, max(_FEW_LEAST_LOSS, -math.expm1(-apart)))
    return Expected("few hosts", math.exp(table.columns[place].sign * float(np.median(figures))), loss)
