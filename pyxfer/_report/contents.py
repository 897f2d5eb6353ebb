"""The contents of a document's report beside its charts: tables, lists and the page of the command."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyxfer import units
from pyxfer._document import (
    baselines,
    examinations,
    exports,
    fleets,
    link_exports,
    links,
    runs,
    sessions,
    tunings,
    watches,
    wording,
)
from pyxfer._report import doctor, fleet_contents, link_words, watch
from pyxfer._report import links as links_page
from pyxfer._report.baseline import change_text, print_comparison, print_history, without_change
from pyxfer._report.doctor import print_examination
from pyxfer._report.documents import rate_interval
from pyxfer._report.fleet import print_fleet
from pyxfer._report.host import environment_lines, print_tuning, ring_lines, ring_name
from pyxfer._report.host_report import print_host_report
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather
from pyxfer._report.rates import heading_lines
from pyxfer._report.run import last_sections, print_run
from pyxfer._report.session import print_session, title
from pyxfer._report.text import Lines, clean, remark_text
from pyxfer._report.watch import watch_text

_COLUMNS = 120
_LONGEST_CELL = 600
_MOST_POINTS = 2000


@dataclass(frozen=True)
class Cell:
    """A cell as text, and the value that it is sorted by if that is not the text."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Grid:
    """A table of a report. Columns without any cell are left out."""

    name: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Contents:
    """What a report shows of one document."""

    name: str
    heading: Lines
    grids: tuple[Grid, ...]
    sections: tuple[tuple[str, Lines], ...]
    page: str


def contents_of(document: object) -> Contents:
    """The tables, lists and page of a document."""
    for kind, make in _CONTENTS.items():
        if isinstance(document, kind):
            return make(document)
    raise TypeError(f"{type(document).__name__} has no report")


def environment_of(document: object) -> runs.Environment | None:
    """The machine that a document is of, if it is of one."""
    if isinstance(document, (runs.Run, examinations.Examination, watches.Watched, links.Links)):
        return document.environment
    if isinstance(document, fleets.HostReport):
        return document.environment
    return document.processes[0].environment if isinstance(document, baselines.Baseline) else None


# --- each kind -------------------------------------------------------------------------------------------------------


def _of_run(run: runs.Run) -> Contents:
    return Contents(
        f"pyxfer {run.kind}",
        heading_lines(run),
        (_measurements(run),),
        (*_sections_of(run), ("Environment", environment_lines(run.environment))),
        _page(lambda page: print_run(run, page)),
    )


def _sections_of(run: runs.Run) -> tuple[tuple[str, Lines], ...]:
    notes = [(note.mark or "-", note.text) for note in gather(run)[1]]
    return (("Notes", notes), *last_sections(run))


def _measurements(run: runs.Run) -> Grid:
    """One row per measurement, with the letters of its notes."""
    marks = gather(run)[0]
    columns: list[tuple[str, Callable[[runs.Measurement], Cell]]] = [
        ("worker", lambda m: Cell(m.worker or "")),
        ("route", lambda m: Cell(f"{m.route} (fresh)" if m.variant == "fresh" else m.route)),
        ("way", lambda m: Cell(f"both {m.side}" if m.direction == "both" else m.direction)),
        ("memory", lambda m: Cell(m.memory)),
        ("mode", lambda m: Cell(m.mode)),
        ("size", lambda m: Cell(units.format_size(m.nbytes), m.nbytes)),
        ("batch", lambda m: _number(m.batch, str)),
        ("bandwidth", lambda m: _number(m.gbps, units.format_gbps)),
        ("95 % interval", _interval),
        ("of ceiling", lambda m: _number(m.of_ceiling, units.format_percent)),
        ("of peak", lambda m: _number(m.of_peak, units.format_percent)),
        ("median", lambda m: _number(m.elapsed_s, units.format_seconds)),
        ("trials", lambda m: _number(None if m.summary is None else m.summary.n, str)),
    ]
    rows = [
        (*(cell(m) for _, cell in columns), Cell(mark or clean(m.rate.reason or "")))
        for m, mark in zip(run.measurements, marks, strict=True)
    ]
    return _grid("Measurements", (*(name for name, _ in columns), "notes"), rows)


def _interval(m: runs.Measurement) -> Cell:
    rate = m.rate.value
    if rate is None or rate.low_gbps is None or rate.high_gbps is None:
        return Cell("")
    return Cell(rate_interval(rate), rate.high_gbps - rate.low_gbps)


def _of_examination(examination: examinations.Examination) -> Contents:
    findings = [finding for status in doctor.ORDER for finding in examination.of(status)]
    rows = [tuple(map(Cell, (f.status, f.subject, f.seen, f.expected, f.why, f.do or "", f.sure))) for f in findings]
    headings = ("status", "what", "seen", "expected", "why", "to do", "sure")
    return Contents(
        "pyxfer doctor",
        doctor.heading_lines(examination),
        (_grid("Findings", headings, rows), _measurements(examination.run)),
        (*_sections_of(examination.run), ("Environment", environment_lines(examination.environment))),
        _page(lambda page: print_examination(examination, page)),
    )


def _of_links(run: links.Links) -> Contents:
    rows = link_exports.link_cells(run)
    copies = [cells for cells in rows if "footprint_bytes" not in cells]
    loads = [cells for cells in rows if "footprint_bytes" in cells]
    grids = [_links_grid("Copies", copies, _COPIES), _links_grid("Latency", loads, _LATENCIES)]
    sections: list[tuple[str, Lines]] = [
        ("What limits what", [("-", text) for text in link_words.limits(run)]),
        ("Notes", [("-", text) for text in links_page.note_texts(run)]),
        ("Environment", environment_lines(run.environment)),
    ]
    page = _page(lambda page: links_page.print_links(run, page))
    return Contents("pyxfer links", links_page.heading_lines(run), tuple(grids), tuple(sections), page)


def _nanoseconds(ns: float) -> str:
    return f"{ns:.0f} ns"


_Say = Callable[[Any], str] | None
_COPIES: tuple[tuple[str, str, _Say], ...] = (
    *((name, name, None) for name in ("group", "case", "engine", "from", "to", "side", "beside", "node")),
    ("size", "nbytes", units.format_size),
    ("bandwidth", "gbps", units.format_gbps),
    ("caller gets", "caller_gbps", units.format_gbps),
    ("of alone", "of_alone", units.format_percent),
    ("of peak", "of_peak", units.format_percent),
    ("sum of separate", "sum_alone_gbps", units.format_gbps),
    *((name, name, None) for name in ("missing", "remarks")),
)
_LATENCIES: tuple[tuple[str, str, _Say], ...] = (
    *((name, name, None) for name in ("from", "to", "node")),
    ("within", "footprint_bytes", units.format_size),
    ("loads in a launch", "hops", str),
    ("load", "load", units.format_percent),
    ("copied beside it", "load_gbps", units.format_gbps),
    ("median", "ns", _nanoseconds),
    ("p99", "p99_ns", _nanoseconds),
    *((name, name, None) for name in ("missing", "remarks")),
)


def _links_grid(name: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str, _Say]]) -> Grid:
    """Columns are a heading, the field, and how its numbers are written; the others are text."""
    cells = [
        tuple(
            Cell("" if (value := row.get(field)) is None else str(value)) if say is None else _number(value, say)
            for _, field, say in columns
        )
        for row in rows
    ]
    return _grid(name, [heading for heading, _, _ in columns], cells)


def _of_ring(state: tunings.RingState) -> Contents:
    trials = () if state.tuning.value is None else state.tuning.value.trials
    rows = [
        (
            Cell(ring_name(trial.ring)),
            *(_number(_rate_of(trial.rates, way), units.format_gbps) for way in ("h2d", "d2h")),
            _number(trial.against_best, lambda ratio: f"{ratio:.2f}"),
            *map(Cell, (trial.verdict, trial.reason or "")),
        )
        for trial in trials
    ]
    headings = ("threads x slots x chunk", "h2d", "d2h", "x best before", "verdict", "why")
    page = _page(lambda page: print_tuning(state, page))
    return Contents(
        "pyxfer tune", ring_lines(state), (_grid("Trials at their largest size", headings, rows),), (), page
    )


def _rate_of(rates: Sequence[tunings.CopyRate], way: str) -> float | None:
    own = [rate for rate in rates if rate.direction == way]
    return max(own, key=lambda rate: rate.nbytes).gbps if own else None


def _of_watch(watched: watches.Watched) -> Contents:
    grids = [
        _grid(name, header, [tuple(_formatted("" if cell is None else str(cell)) for cell in row) for row in rows])
        for name, header, rows in exports.readable_watch(watched)
    ]
    sections: list[tuple[str, Lines]] = [
        ("Evidence", [("-", clean(text, _LONGEST_CELL)) for text in watched.verdict.evidence]),
        ("Steps", watch.beside_lines(watched)),
        ("Overlap", watch.overlap_lines(watched)),
        ("Pageable memory", watch.pageable_lines(watched)),
        ("Memory", watch.memory_lines(watched)),
        ("Next steps", watch.advice_lines(watched)),
        ("Remarks", [("-", remark_text(remark)) for remark in watched.remarks]),
        ("Environment", environment_lines(watched.environment)),
    ]
    page = watch_text(watched, _COLUMNS)
    return Contents("pyxfer watch", watch.heading_lines(watched), tuple(grids), tuple(sections), page)


def _of_comparison(comparison: baselines.Comparison) -> Contents:
    rows = [
        (
            Cell(row.text),
            *_both_sides(row),
            Cell(wording.signed_change(row.ratio.value), None if not row.ratio.value else 1 / row.ratio.value - 1),
            Cell(wording.interval_text(row)),
            Cell(row.verdict),
            Cell(row.why),
        )
        for row in comparison.cells
    ]
    differences = [tuple(map(Cell, (d.what, d.a, d.b, "yes" if d.matters else "no"))) for d in comparison.differences]
    heading = [("A", clean(comparison.a)), ("B", clean(comparison.b)), ("overall", wording.overall_text(comparison))]
    return Contents(
        "pyxfer compare",
        heading,
        (
            _grid("Cells", ("cell", "A", "B", "change", "95 % interval", "verdict", "why"), rows),
            _grid("Differences", ("what", "A", "B", "may cost bandwidth"), differences),
        ),
        (
            ("Likely causes", [("-", clean(wording.cause_text(cause), _LONGEST_CELL)) for cause in comparison.causes]),
            ("Remarks", [("-", clean(wording.remark_text(remark))) for remark in comparison.remarks]),
        ),
        _page(lambda page: print_comparison(comparison, page)),
    )


def _both_sides(row: baselines.CellComparison) -> tuple[Cell, ...]:
    if wording.is_latency(row):
        return tuple(_number(fact.value, wording.format_latency) for fact in (row.a_s, row.b_s))
    return tuple(_number(fact.value, units.format_gbps) for fact in (row.a_gbps, row.b_gbps))


def _of_baseline(baseline: baselines.Baseline) -> Contents:
    """The charts, notes and page are of the first process; each process has its own tables."""
    each = [contents_of(process) for process in baseline.processes]
    grids = [
        Grid(f"{grid.name} of process {number}", grid.headings, grid.rows)
        for number, contents in enumerate(each, start=1)
        for grid in contents.grids
    ]
    labels = [(clean(name), clean(value)) for name, value in baseline.labels.items()]
    return replace(
        each[0], name="pyxfer baseline", grids=tuple(grids), sections=(("Labels", labels), *each[0].sections)
    )


def _of_session(session: sessions.XferSession) -> Contents:
    rows = [
        (
            Cell(test.test),
            Cell(test.outcome),
            Cell(test.measurement.direction),
            Cell(units.format_size(test.measurement.nbytes), test.measurement.nbytes),
            _number(test.measurement.gbps, units.format_gbps),
            _number(test.measurement.of_ceiling, units.format_percent),
            Cell(test.judged.word),
            Cell("; ".join(test.judged.reasons)),
        )
        for test in session.tests
    ]
    headings = ("test", "outcome", "way", "size", "bandwidth", "of ceiling", "limit", "why")
    environments = [(f"Environment: {title(place)}", environment_lines(place.environment)) for place in session.places]
    heading = [("began", clean(session.began_at)), ("pytest", clean(session.pytest))]
    grids = (_grid("Tests", headings, rows),)
    return Contents("pytest", heading, grids, tuple(environments), _page(lambda page: print_session(session, page)))


def _of_history(history: baselines.History) -> Contents:
    rows = [
        (
            *map(Cell, (group.host, group.gpu.value or group.device, group.worker or "", group.cell_text)),
            *map(Cell, (point.taken_at, point.run_id)),
            _of_point(point, group),
            _number(point.change - 1, lambda share: f"{share * 100:+.1f} %"),
        )
        for group in history.groups
        for point in group.points
    ]
    headings = ("host", "device", "worker", "cell", "time", "run", "bandwidth", "to median")
    changes = [
        (clean(group.cell_text), f"{change_text(change, group)} since {clean(change.taken_at)}, {clean(group.host)}")
        for group in history.groups
        for change in group.changes
    ]
    changes += [
        (clean(group.cell_text), f"{without_change(group)}, {clean(group.host)}")
        for group in history.groups
        if not group.changes
    ]
    of_groups = [remark for group in history.groups for remark in group.remarks]
    remarks = [("-", remark_text(remark)) for remark in (*history.remarks, *of_groups)]
    name = "Points" if len(rows) <= _MOST_POINTS else f"The last {_MOST_POINTS} of {len(rows)} points"
    grid = _grid(name, headings, rows[-_MOST_POINTS:])
    page = _page(lambda page: print_history(history, page))
    return Contents("pyxfer history", [], (grid,), (("Changes", changes), ("Remarks", remarks)), page)


def _of_point(point: baselines.HistoryPoint, group: baselines.HistoryGroup) -> Cell:
    if group.cell.direction == "latency":
        return _number(point.median_s, wording.format_latency)
    return _number(point.gbps, units.format_gbps)


def _of_fleet(fleet: fleets.Fleet) -> Contents:
    return Contents(
        "pyxfer fleet",
        fleet_contents.fleet_heading(fleet),
        tuple(_text_grid(*table) for table in fleet_contents.fleet_tables(fleet)),
        tuple(fleet_contents.fleet_sections(fleet)),
        _page(lambda page: print_fleet(fleet, page)),
    )


def _of_host(report: fleets.HostReport) -> Contents:
    environment = () if report.environment is None else (("Environment", environment_lines(report.environment)),)
    return Contents(
        "pyxfer fleet host",
        fleet_contents.host_heading(report),
        tuple(_text_grid(*table) for table in fleet_contents.host_tables(report)),
        (*fleet_contents.host_sections(report), *environment),
        _page(lambda page: print_host_report(report, page)),
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def _number(value: Any, say: Callable[[Any], str]) -> Cell:
    return Cell("") if value is None else Cell(say(value), float(value))


def _formatted(text: str) -> Cell:
    """A cell that is sorted by the number in it."""
    return Cell(text, units.formatted_value(text))


def _grid(name: str, headings: Sequence[str], rows: Iterable[tuple[Cell, ...]]) -> Grid:
    """The rows, without columns that have no cell and with harmless texts."""
    kept = list(rows)
    places = [place for place in range(len(headings)) if any(row[place].text for row in kept)]
    cleaned = [tuple(Cell(clean(row[place].text, _LONGEST_CELL), row[place].value) for place in places) for row in kept]
    return Grid(name, tuple(headings[place] for place in places), tuple(cleaned))


def _text_grid(name: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Grid:
    return _grid(name, headings, [tuple(map(Cell, row)) for row in rows])


def _page(write: Callable[[Page], object]) -> str:
    """The page of the command as text."""
    stream = io.StringIO()
    write(Page(stream, _COLUMNS))
    return stream.getvalue()


_CONTENTS: dict[type, Callable[[Any], Contents]] = {
    runs.Run: _of_run,
    examinations.Examination: _of_examination,
    tunings.RingState: _of_ring,
    links.Links: _of_links,
    watches.Watched: _of_watch,
    baselines.Comparison: _of_comparison,
    baselines.Baseline: _of_baseline,
    sessions.XferSession: _of_session,
    baselines.History: _of_history,
    fleets.Fleet: _of_fleet,
    fleets.HostReport: _of_host,
}
