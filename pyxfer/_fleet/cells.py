"""The figures of a host: a cell for each copy and latency that its runs have, the same on equal hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pyxfer._document.cells import Cell, cell_of, cell_of_flow, cell_of_latency, cell_of_total
from pyxfer._document.fleets import MAX_FIGURE, MIN_FIGURE, CellUnit, HostCell, HostReport
from pyxfer._document.links import HOST_END, Links, Traffic
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Run
from pyxfer._links.rows import peak_of
from pyxfer._measure import stats

replace = msgspec.structs.replace


def cells_of_run(run: Run) -> Iterator[HostCell]:
    for row in run.measurements:
        if row.side == row.direction:
            cell = cell_of(row, run.device.index)
            is_wrong = row.verified.value is False
            times = [trial.elapsed_s for trial in row.trials if trial.invalid is None and trial.elapsed_s > 0]
            rates = [] if is_wrong or row.rate.value is None else [row.moved_bytes / each / 1e9 for each in times]
            reason = "the contents were wrong" if is_wrong else row.rate.reason
            yield _cell(cell, rates, reason, run.link.peak_gbps(row.side))


def cells_of_links(links: Links) -> Iterator[HostCell]:
    """Copies of each GPU alone and of all at once, the ring of peers, and latencies from host memory."""
    for traffic in links.traffics:
        yield from _cells_of_traffic(links, traffic)
    for latency in links.latencies:
        if latency.target == HOST_END:
            times = [trial.p50_ns for trial in latency.trials if trial.invalid is None]
            samples = times if latency.p50.value is not None else []
            yield _cell(cell_of_latency(latency), samples, latency.p50.reason, unknown("a latency has no peak"))


def _cells_of_traffic(links: Links, traffic: Traffic) -> Iterator[HostCell]:
    for number, flow in enumerate(traffic.flows):
        samples = [] if flow.rate.value is None else _flow_rates(traffic, [number])
        yield _cell(cell_of_flow(traffic, flow), samples, flow.rate.reason, peak_of(flow, links.devices, links.peers))
    if traffic.group == "together" and len(traffic.flows) > 1:
        samples = [] if traffic.total.value is None else _flow_rates(traffic, range(len(traffic.flows)))
        yield _cell(cell_of_total(traffic), samples, traffic.total.reason, unknown("each GPU has its own"))


def _flow_rates(traffic: Traffic, numbers: Sequence[int]) -> list[float]:
    rates = [sum(trial.nbytes[number] for number in numbers) / trial.seconds / 1e9 for trial in traffic.valid]
    return [rate for rate in rates if rate > 0]


def unit_of(cell: Cell) -> CellUnit:
    return "ns" if cell.is_latency else "GB/s"


def _cell(cell: Cell, samples: Sequence[float], reason: str | None, peak: Fact[float]) -> HostCell:
    """A cell with its samples rounded to 6 digits: what is beyond is below the clock's resolution."""
    kept = tuple(float(f"{sample:.6g}") for sample in samples)
    if not kept:
        return HostCell(cell, unit_of(cell), unknown(reason or "no trial of it counts"), None, None, (), peak)
    value, low, high = figure_of(kept)
    return HostCell(cell, unit_of(cell), Fact(value), low, high, kept, peak)


def figure_of(samples: Sequence[float]) -> tuple[float, float | None, float | None]:
    summary = stats.summarise(samples)
    low = None if summary.low_s is None else max(MIN_FIGURE, summary.low_s)
    high = None if summary.high_s is None else min(MAX_FIGURE, summary.high_s)
    return summary.median_s, low, high


def derive_host(report: HostReport) -> HostReport:
    """The document with the figures that follow from the samples, and one peak for each direction of a GPU's link."""
    devices = tuple(replace(device, runtime=report.runtime) for device in report.devices)
    ended = "failed" if report.failure is not None and report.ended == "complete" else report.ended
    cells = tuple(_derived_cell(cell, report.cells) for cell in report.cells)
    return replace(report, ended=ended, devices=devices, cells=cells)


def _derived_cell(cell: HostCell, cells: Sequence[HostCell]) -> HostCell:
    cell = replace(cell, unit=unit_of(cell.cell))
    if cell.samples:
        value, low, high = figure_of(cell.samples)
        cell = replace(cell, value=Fact(value), low=low, high=high)
    peaks = [each.peak.value for each in cells if _link(each) == _link(cell) and each.peak.value is not None]
    return cell if cell.peak.value is None else replace(cell, peak=Fact(sorted(peaks)[len(peaks) // 2]))


def _link(cell: HostCell) -> tuple[object, ...]:
    return cell.cell.side, cell.cell.source, cell.cell.destination
