"""Hosts of a fleet: the figures and findings of one, without a verdict, which needs other hosts."""

from __future__ import annotations

from pyxfer import units
from pyxfer._document.fleets import HostCell, HostReport
from pyxfer._report.fleet_charts import charts_of_host
from pyxfer._report.fleet_words import counted, figure_text
from pyxfer._report.grid import Cell, Grid, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.report import INTERVALS, Badge, Caption, Report
from pyxfer._report.text import HOST_MEMORY, Lines, clean, reason_text, remark_text

_LONGEST = 600


def print_host_report(report: HostReport, page: Page) -> None:
    page.hanging(_heading(report), style="bold")
    page.section("Figures", [(clean(cell.cell.text), _figure(cell)) for cell in report.cells])
    findings = [(clean(found.subject), clean(found.seen, longest=_LONGEST)) for found in report.findings]
    page.section("Findings", findings)
    page.section("Remarks", [(clean(remark.code), remark_text(remark)) for remark in report.remarks])


def _heading(report: HostReport) -> Lines:
    names = list(dict.fromkeys(device.name for device in report.devices))
    lines = [
        ("host", f"{clean(report.host or 'not known')}, {clean(report.began_at)}"),
        ("devices", f"{len(report.devices)} x {clean(', '.join(names))}"),
        ("ended", f"{report.ended} after {units.format_seconds(report.duration_s)}"),
    ]
    if report.failure is not None:
        lines.append(("failure", clean(report.failure, longest=_LONGEST)))
    if report.labels:
        lines.append(("labels", clean(", ".join(f"{name}={value}" for name, value in report.labels.items()))))
    return lines


def _figure(cell: HostCell) -> str:
    if cell.value.value is None:
        return clean(f"none: {cell.value.reason}")
    figure = f"{cell.value.value:.4g} {cell.unit}"
    if cell.low is not None and cell.high is not None:
        figure += f" ({cell.low:.4g} to {cell.high:.4g})"
    if cell.unit == "GB/s" and cell.peak.value is not None:
        figure += f", {units.format_percent(cell.value.value / cell.peak.value)} of peak"
    return figure


# --- the report ------------------------------------------------------------------------------------------------------


def _headline(report: HostReport) -> str:
    known = sum(cell.value.value is not None for cell in report.cells)
    where = f" These figures are of {HOST_MEMORY}." if report.runtime == "host" else ""
    name = clean(report.host or "a host without a name")
    text = f"{name}: {known} of {counted(len(report.cells), 'figure')} for a fleet, without a verdict.{where}"
    return text if report.ended == "complete" else f"{text} {reason_text(report.failure or report.ended)}"


def _badge(report: HostReport) -> tuple[Badge, str]:
    """A host alone has no verdict."""
    if report.ended != "complete":
        return "doubtful", report.ended
    wrong = sum(finding.status == "wrong" for finding in report.findings)
    return "doubtful" if wrong else "none", f"{wrong} wrong" if wrong else "complete"


def _grids(report: HostReport) -> list[Grid]:
    figures = [
        (
            cell.cell.text,
            Cell("") if cell.value.value is None else Cell(figure_text(cell.value.value, cell.unit), cell.value.value),
            "" if not cell.low or not cell.high else f"{cell.low:.4g} to {cell.high:.4g}",
            Cell(str(len(cell.samples)), len(cell.samples)),
            cell.value.reason or "",
        )
        for cell in report.cells
    ]
    findings = [(each.status, each.subject, each.seen, each.expected, each.do or "") for each in report.findings]
    return [
        text_grid("Figures", ("cell", "figure", "95 % interval", "trials", "missing because"), figures),
        text_grid("Facts", ("fact", "value"), report.facts.items()),
        text_grid("Findings", ("status", "what", "seen", "expected", "to do"), findings),
    ]


REPORT = Report(
    struct=HostReport,
    title=lambda _: "pyxfer fleet host",
    page=print_host_report,
    headline=_headline,
    badge=_badge,
    heading=_heading,
    grids=_grids,
    sections=lambda report: [("Remarks", [("-", remark_text(remark)) for remark in report.remarks])],
    charts=charts_of_host,
    captions={"figures": Caption("Figures of this host", INTERVALS)},
)
