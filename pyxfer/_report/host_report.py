"""The page of a host's report: its figures and findings, without a verdict, which needs other hosts."""

from __future__ import annotations

from pyxfer import units
from pyxfer._document.fleets import HostCell, HostReport
from pyxfer._report.layout import Page
from pyxfer._report.text import Lines, clean

_LONGEST = 600


def print_host_report(report: HostReport, page: Page) -> None:
    """The host, its figures with their intervals, and what the doctor found."""
    page.hanging(_heading(report), style="bold")
    if report.cells:
        page.heading("Figures")
        page.hanging([(clean(cell.cell.text), _figure(cell)) for cell in report.cells])
    if report.findings:
        page.heading("Findings")
        page.hanging([(clean(found.subject), clean(found.seen, longest=_LONGEST)) for found in report.findings])
    if report.remarks:
        page.heading("Remarks")
        page.hanging([(clean(remark.code), clean(remark.text, longest=_LONGEST)) for remark in report.remarks])


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
