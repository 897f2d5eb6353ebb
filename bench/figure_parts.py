"""Shared by the tables of `readme_figures.py`: documents, captions, intervals, terminal output as a code block."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import shared

from pyxfer._document.files import read_whole
from pyxfer._document.fleets import HostReport
from pyxfer._document.links import Links
from pyxfer._document.runs import Measurement, Run, Summary
from pyxfer._measure import stats
from pyxfer._report.grid import escape_markdown
from pyxfer._report.layout import NARROWEST, Page
from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_seconds

GB = "GB = 1e9 bytes."
INTERVAL = "In brackets: the 95 % interval of the median. Trials that give no interval give no figure."

Document = TypeVar("Document", bound=msgspec.Struct)
RunT = TypeVar("RunT", Run, Links, HostReport)


class IncompleteRunError(UsageError):
    """A table's run was interrupted or failed."""


def complete_run(path: Path) -> Run:
    """Read a run; `IncompleteRunError` if it did not end."""
    return _complete(Run.load(path), path)


def complete_links(path: Path) -> Links:
    """Read a run of links; `IncompleteRunError` if it did not end."""
    return _complete(Links.load(path), path)


def complete_job(path: Path) -> HostReport:
    """Read the document of a host job; `IncompleteRunError` if the job did not end."""
    return _complete(HostReport.load(path), path)


def _complete(run: RunT, path: Path) -> RunT:
    if run.ended != "complete":
        began_at = run.began_at if isinstance(run, HostReport) else run.environment.taken_at
        raise IncompleteRunError(f"{path.name} of {began_at[:10]} is {run.ended}: measure it again")
    return run


def caption(run: Run, units: str = GB) -> str:
    """The machine, software, date, units, and what the brackets are."""
    return escape_markdown(f"{shared.machine_line(run.device, run.environment)}. {units} {INTERVAL}")


def summary_of(row: Measurement | None) -> Summary | None:
    """The summary of the valid trials, if they give an interval."""
    seconds = [] if row is None else [trial.elapsed_s for trial in row.trials if trial.invalid is None]
    summary = stats.summarise(seconds) if seconds else None
    return None if summary is None or summary.low_s is None else summary


def gbps_cell(row: Measurement | None) -> str:
    """The bandwidth and its interval, or a dash without an interval."""
    return _rate_cell(row, lambda gbps: f"{gbps:.2f}")


def mbps_cell(row: Measurement | None) -> str:
    """`gbps_cell` in MB/s, as in published figures."""
    return _rate_cell(row, lambda gbps: f"{1000 * gbps:.0f}")


def seconds_cell(row: Measurement) -> str:
    """The duration and its interval, or a dash without an interval."""
    summary = summary_of(row)
    if summary is None or summary.low_s is None or summary.high_s is None:
        return "-"
    return _with_interval(format_seconds, summary.median_s, summary.low_s, summary.high_s)


def _rate_cell(row: Measurement | None, show: Callable[[float], str]) -> str:
    summary = summary_of(row)
    if row is None or row.gbps is None or summary is None:
        return "-"
    rate = stats.rate(row.moved_bytes, summary)
    return _with_interval(show, rate.gbps, rate.low_gbps or 0.0, rate.high_gbps or 0.0)


def _with_interval(show: Callable[[float], str], value: float, low: float, high: float) -> str:
    return f"{show(value)} ({show(low)} to {show(high)})"


def printed(document: Document, show: Callable[[Document, Page], None], *, details: bool = False) -> str:
    """The output of `show` on a terminal of 80 columns."""
    shown = io.StringIO()
    show(document, Page(shown, columns=NARROWEST, details=details))
    return shown.getvalue().strip()


def fenced(text: str) -> str:
    """The text as a fenced code block."""
    return f"```\n{text.strip()}\n```\n"


def page_of(document: Document, show: Callable[[Document, Page], None], *, details: bool = False) -> str:
    """The output of `show` as a fenced code block."""
    return fenced(printed(document, show, details=details))


def load_own(path: Path, kind: type[Document], script: str) -> Document:
    """Read a document that is not a run and that `script` in bench/ wrote."""
    try:
        return msgspec.json.decode(read_whole(path), type=kind)
    except msgspec.MsgspecError as error:
        raise DocumentError(f"{path} is not a document of bench/{script}: {error}") from error
