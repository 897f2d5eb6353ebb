"""The page of any document as text, and its small table for a notebook."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from pyxfer import units
from pyxfer._document.baselines import Comparison
from pyxfer._document.examinations import Examination
from pyxfer._document.fleets import Fleet, HostCell, HostReport
from pyxfer._document.links import Links, end_name
from pyxfer._document.runs import Measurement, Rate, Run
from pyxfer._document.watches import Watched
from pyxfer._document.wording import signed_change
from pyxfer._report.baseline import print_comparison
from pyxfer._report.doctor import print_examination
from pyxfer._report.fleet import HOST_HEADINGS, flagged_hosts, host_row, print_fleet
from pyxfer._report.host_report import print_host_report
from pyxfer._report.layout import Page, checked_columns
from pyxfer._report.links import print_links
from pyxfer._report.run import print_run
from pyxfer._report.text import clean
from pyxfer._report.watch import watch_text

_MOST_ROWS = 20
Cells = tuple[str, ...]
Table = tuple[Cells, list[Cells]]
"""Headings and rows."""


_PAGES: dict[type, Callable[[Any, Page], object]] = {
    Run: print_run,
    Comparison: print_comparison,
    Examination: print_examination,
    Links: print_links,
    Fleet: print_fleet,
    HostReport: print_host_report,
}


def page_text(document: object, columns: int) -> str:
    """The page of a run, links, a comparison, an examination, a watch, a host or a fleet."""
    if isinstance(document, Watched):
        return watch_text(document, columns)
    stream = io.StringIO()
    _PAGES[type(document)](document, Page(stream, checked_columns(columns)))
    return stream.getvalue()


def small_table(document: object) -> str:
    """The rows that matter most as an HTML table, below the document in one line."""
    head, rows = _TABLES[type(document)](document)
    shown = [_row("th", head), *(_row("td", row) for row in rows[:_MOST_ROWS])]
    left = len(rows) - _MOST_ROWS
    more = f"<p>{left} more rows: print() shows them all</p>" if left > 0 else ""
    return f"<p>{escape(repr(document))}</p><table>{''.join(shown)}</table>{more}"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(clean(cell))}</{tag}>' for cell in cells)}</tr>"


def _of_run(run: Run) -> Table:
    return ("route", "side", "size", "GB/s", "of the ceiling"), _rates(run)


def _of_measurement(m: Measurement) -> Table:
    return ("figure", "value"), _figures(m)


def _of_comparison(comparison: Comparison) -> Table:
    cells: list[Cells] = [(row.text, row.verdict, signed_change(row.ratio.value)) for row in comparison.cells]
    return ("cell", "verdict", "change"), cells


def _of_examination(examination: Examination) -> Table:
    ordered = [finding for status in ("wrong", "suspicious", "unknown", "fine") for finding in examination.of(status)]
    return ("status", "what", "seen", "to do"), [(f.status, f.subject, f.seen, f.do or "") for f in ordered]


def _of_links(run: Links) -> Table:
    return ("case", "from", "to", "GB/s", "of alone"), _link_rates(run)


def _of_fleet(fleet: Fleet) -> Table:
    return HOST_HEADINGS, [host_row(fleet, host) for host in flagged_hosts(fleet) or fleet.hosts]


def _of_host(report: HostReport) -> Table:
    return ("cell", "figure"), [(cell.cell.text, _host_figure(cell)) for cell in report.cells]


def _of_watch(watched: Watched) -> Table:
    parts: list[Cells] = [
        (name, units.format_seconds(seconds)) for name, seconds in watched.parts.named() if seconds > 0
    ]
    return ("part of a step", "time"), parts


_TABLES: dict[type, Callable[[Any], Table]] = {
    Run: _of_run,
    Measurement: _of_measurement,
    Comparison: _of_comparison,
    Examination: _of_examination,
    Links: _of_links,
    Fleet: _of_fleet,
    HostReport: _of_host,
    Watched: _of_watch,
}


def _host_figure(cell: HostCell) -> str:
    return cell.value.reason or "" if cell.value.value is None else f"{cell.value.value:.4g} {cell.unit}"


def _link_rates(run: Links) -> list[Cells]:
    return [
        (
            f"{row.group} {row.case} {row.engine}",
            end_name(flow.source),
            end_name(flow.destination),
            "" if flow.gbps is None else f"{flow.gbps:.2f}",
            "" if flow.alone_share.value is None else units.format_percent(flow.alone_share.value.value),
        )
        for row in run.traffics
        for flow in row.flows
    ]


def _rates(run: Run) -> list[Cells]:
    return [
        (
            m.route,
            m.side,
            units.format_size(m.nbytes),
            "" if m.gbps is None else f"{m.gbps:.2f}",
            "" if m.of_ceiling is None else units.format_percent(m.of_ceiling),
        )
        for m in run.measurements
        if m.variant == "warm"
    ]


def _figures(m: Measurement) -> list[Cells]:
    """What is known of one measurement, the bandwidth first."""
    rate, counted = m.rate.value, sum(trial.invalid is None for trial in m.trials)
    known = {
        "bandwidth": units.format_gbps(rate.gbps) if rate is not None else m.rate.reason or "",
        "95 % interval": rate_interval(rate),
        "of the ceiling": "" if m.of_ceiling is None else units.format_percent(m.of_ceiling),
        "of the peak": "" if m.of_peak is None else units.format_percent(m.of_peak),
        "median": "" if m.elapsed_s is None else units.format_seconds(m.elapsed_s),
        "trials": str(counted) if counted else "",
    }
    return [(name, text) for name, text in known.items() if text]


def rate_interval(rate: Rate | None) -> str:
    """The ends of a rate's interval, or nothing."""
    if rate is None or rate.low_gbps is None or rate.high_gbps is None:
        return ""
    low = units.format_gbps(rate.low_gbps).removesuffix(" GB/s")
    return f"{low} to {units.format_gbps(rate.high_gbps)}"
