"""Fleets: the page with the worst hosts, causes, groups and what is missing; and the document of one host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pyxfer import units
from pyxfer._document.fleets import (
    Cohort,
    Fleet,
    FleetHost,
    HostReport,
    HostVerdict,
    hosts_once,
)
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._report import fleet_words, grid, plots
from pyxfer._report.grid import Grid, Row, fields, picked, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.report import INTERVALS, Badge, Caption, Charts, Report, Section
from pyxfer._report.text import Lines, clean, counted, reason_text, remark_lines, remark_text
from pyxfer.units import format_percent

_MAX_HOSTS = 10
_MAX_FAMILIES = 16
_MAX_MISSING = 10
_MAX_COHORTS = 6
_LONGEST_REASON = 300


def print_fleet(fleet: Fleet, page: Page) -> None:
    style = "bold red" if fleet.with_verdict("slow") else "yellow" if fleet.with_verdict("suspect") else "bold green"
    page.line(fleet_words.sentence(fleet), style=style)
    page.section("To do", [("  -", text) for text in remedies(fleet)])
    _print_hosts(fleet, page)
    page.section("What the slow hosts share", [("  -", text) for text in contrast_texts(fleet)])
    page.section("Two groups", [("  -", text) for text in group_texts(fleet)])
    for number, cohort in enumerate(fleet.cohorts[:_MAX_COHORTS]):
        members = sum(host.cohort == number for host in fleet.hosts)
        page.heading(f"{counted(members, 'host')} with {fleet_words.cohort_text(cohort.alike)}")
        page.line(f"Judged: {clean(cohort.reason, _LONGEST_REASON)}.")
        rows = family_rows(cohort)
        page.table(zip(FAMILY_HEADINGS, zip(*rows[:_MAX_FAMILIES], strict=True), strict=False), ("cell",))
        if len(rows) > _MAX_FAMILIES:
            page.line(f"and {len(rows) - _MAX_FAMILIES} more; --export-json has all")
        for remark in cohort.remarks[:_MAX_FAMILIES]:
            page.line(remark_text(remark))
    if len(fleet.cohorts) > _MAX_COHORTS:
        page.line(f"and {len(fleet.cohorts) - _MAX_COHORTS} more cohorts; --export-json has all")
    page.section("Notes on hosts", [(f"  {state}" if state else "", text) for state, text in missing_lines(fleet)])
    page.section("Remarks", remark_lines(fleet.remarks, "  -"))
    page.line()
    page.hanging(heading_lines(fleet))


def remedies(fleet: Fleet) -> list[str]:
    slow, suspect = fleet.with_verdict("slow"), fleet.with_verdict("suspect")
    texts = []
    if slow:
        names = fleet_words.some_names(fleet_words.worst_first(slow))
        texts.append(f"Run pyxfer doctor on {names}. To drain: fleet judge --export-drain FILE writes host and reason.")
    if suspect:
        names = fleet_words.some_names(fleet_words.worst_first(suspect))
        texts.append(f"Measure {names} again, which decides whether they are slow: pyxfer fleet run --confirm.")
    return texts


def heading_lines(fleet: Fleet) -> Lines:
    once = hosts_once(fleet)
    counts = Counter(host.verdict for host in once)
    verdicts: tuple[HostVerdict, ...] = ("slow", "suspect", "fine", "not judged")
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts if counts[verdict])
    lines = [
        ("hosts", f"{len(once)}: {words}" if once else "0"),
        ("judged", f"{clean(fleet.judged_at)}, pyxfer {clean(fleet.pyxfer)}"),
    ]
    if any(cell.judged_by == "cohort" for cohort in fleet.cohorts for cell in cohort.cells):
        rate, least = format_percent(fleet.settings.error_rate), format_percent(fleet.settings.least_loss)
        kept = f"a fleet without a slow host has one called slow in {rate} of cases"
        lines.append(("errors", f"{kept}; losses below {least} do not count"))
    return lines


def flagged_hosts(fleet: Fleet) -> list[FleetHost]:
    slow, suspect = fleet.with_verdict("slow"), fleet.with_verdict("suspect")
    return [*fleet_words.worst_first(slow), *fleet_words.worst_first(suspect)]


def host_row(fleet: Fleet, host: FleetHost) -> tuple[str, ...]:
    worst = host.worst
    if worst is None or host.cohort is None:
        return (fleet_words.host_name(host), host.verdict, "", "", "", "", "", "")
    unit = next(cell.unit for cell in fleet.cohorts[host.cohort].cells if cell.cell == worst.cell)
    figures = (fleet_words.figure_text(worst.value, unit), fleet_words.figure_text(worst.usual, unit))
    found = ", ".join(clean(code, 40) for code in host.wrong[:3])
    low = (clean(worst.cell.text), fleet_words.loss_text(worst), *figures, str(len(host.losses)))
    return (fleet_words.host_name(host), host.verdict, *low, found)


HOST_HEADINGS = ("host", "verdict", "cell", "loss", "figure", "usual", "low cells", "doctor")


def _print_hosts(fleet: Fleet, page: Page) -> None:
    flagged = flagged_hosts(fleet)
    if not flagged:
        return
    rows = [host_row(fleet, host) for host in flagged[:_MAX_HOSTS]]
    columns = zip(HOST_HEADINGS, zip(*rows, strict=True), strict=True)
    page.table(columns, ("host", "verdict", "cell", "doctor"), "Worst hosts")
    if len(flagged) > _MAX_HOSTS:
        page.line(f"and {len(flagged) - _MAX_HOSTS} more; --export-json has all")
    if fleet.with_verdict("suspect"):
        page.line("A suspect host was low once and was not measured again, so it may be a coincidence.")


def contrast_texts(fleet: Fleet) -> list[str]:
    return [f"{fleet_words.contrast_text(each)} ({fleet_words.chance_text(each)})" for each in fleet.contrasts]


def group_texts(fleet: Fleet) -> list[str]:
    texts = []
    for cohort in fleet.cohorts:
        for family, cells in fleet_words.by_family([cell for cell in cohort.cells if cell.groups is not None]).items():
            first = cells[0]
            more = f" and {len(cells) - 1} more such cells" if len(cells) > 1 else ""
            slower = fleet_words.names_text(fleet, () if first.groups is None else first.groups.slower)
            name = clean(first.cell.text if len(cells) == 1 else family)
            texts.append(f"{name}: {fleet_words.groups_text(first)}{more}; slower: {slower}")
    return texts


FAMILY_HEADINGS = ("cell", "judged by", "usual", "spread", "detection limit")


def family_rows(cohort: Cohort) -> list[tuple[str, ...]]:
    """The cells of all GPUs in one line: the middle one's figure, and the worst spread and limit."""
    rows = []
    for name, cells in fleet_words.by_family(cohort.cells).items():
        known = sorted(cell.usual.value for cell in cells if cell.usual.value is not None)
        usual = fleet_words.figure_text(known[len(known) // 2], cells[0].unit) if known else ""
        spreads = [cell.spread.value for cell in cells if cell.spread.value is not None]
        limits = [cell.detection_limit.value for cell in cells if cell.detection_limit.value is not None]
        worst = [format_percent(max(shares)) if shares else "" for shares in (spreads, limits)]
        judged_by = ", ".join(dict.fromkeys(cell.judged_by for cell in cells))
        rows.append((clean(cells[0].cell.text if len(cells) == 1 else name), judged_by, usual, *worst))
    return rows


def missing_lines(fleet: Fleet) -> Lines:
    reasons: dict[tuple[str, str], list[int]] = {}
    for place, host in enumerate(fleet.hosts):
        if host.state != "measured" or host.verdict == "not judged":
            reason = clean(host.reason or "no reason given", _LONGEST_REASON)
            reasons.setdefault((host.state, reason), []).append(place)
    lines: Lines = [
        (state, f"{fleet_words.names_text(fleet, places)}: {reason}")
        for (state, reason), places in list(reasons.items())[:_MAX_MISSING]
    ]
    left = sum(len(places) for places in list(reasons.values())[_MAX_MISSING:])
    return [*lines, ("", f"and {left} more hosts; --export-json has all")] if left else lines


_MAX_SHOWN = 500


def _badge(fleet: Fleet) -> tuple[Badge, str]:
    slow, suspect = len(fleet.with_verdict("slow")), len(fleet.with_verdict("suspect"))
    if slow:
        return "bad", f"{slow} slow"
    if all(host.verdict == "not judged" for host in fleet.hosts):
        return "none", "not judged"
    has_groups = any(cell.groups is not None for cohort in fleet.cohorts for cell in cohort.cells)
    if suspect or has_groups:
        return "doubtful", f"{suspect} suspect" if suspect else "two groups"
    return "good", "none slow"


def _grids(fleet: Fleet) -> list[Grid]:
    others = [host for host in fleet.hosts if host.verdict not in ("slow", "suspect")]
    listed = [*flagged_hosts(fleet), *others][:_MAX_SHOWN]
    name = f"{len(listed)} of {len(fleet.hosts)} hosts" if len(listed) < len(fleet.hosts) else "Hosts"
    rows = [(*host_row(fleet, host), host.state, labels_text(host)) for host in listed]
    grids = [text_grid(name, (*HOST_HEADINGS, "state", "labels"), rows)]
    for cohort in fleet.cohorts[:_MAX_SHOWN]:
        name = f"Figures: {fleet_words.cohort_text(cohort.alike)}"
        grids.append(text_grid(name, FAMILY_HEADINGS, family_rows(cohort)))
    return grids


def labels_text(host: FleetHost | HostReport) -> str:
    return clean(", ".join(f"{name}={value}" for name, value in host.labels.items()))


def _sections(fleet: Fleet) -> list[Section]:
    cohorts = [(fleet_words.cohort_text(cohort.alike), clean(cohort.reason)) for cohort in fleet.cohorts]
    remarks = [*fleet.remarks, *(remark for cohort in fleet.cohorts for remark in cohort.remarks)]
    return [
        ("What the slow hosts share", [("-", text) for text in contrast_texts(fleet)]),
        ("Two groups", [("-", text) for text in group_texts(fleet)]),
        ("How they were judged", cohorts),
        ("Notes on hosts", missing_lines(fleet)),
        ("Remarks", remark_lines(remarks)),
    ]


_COLUMNS = (
    *(grid.Column(name) for name in ("host", "state", "verdict")),
    grid.Column("cohort", "whole"),
    *(grid.Column(name) for name in ("cell", "unit")),
    *(grid.Column(name, "number") for name in ("value", "usual", "loss")),
    grid.Column("confirmed", "flag"),
    grid.Column("source"),
)


def _figures_of_hosts(fleet: Fleet) -> Grid:
    """One row for each host and cell, and one without a cell for a host that has no figures.

    `loss` is that of a flagged cell, as it is stated, and `confirmed` whether it was low again.
    """
    rows: list[Row] = []
    for host in fleet.hosts:
        head = fields(host, "host", "state", "verdict", "cohort", "source")
        losses = {loss.cell: loss for loss in host.losses}
        cells = () if host.cohort is None else fleet.cohorts[host.cohort].cells
        for cell, value in zip(cells, host.values, strict=True):
            loss = losses.get(cell.cell)
            flagged = {} if loss is None else {"loss": loss.stated, "confirmed": loss.confirmed}
            own = {"cell": cell.cell.text, "value": value, **fields(cell, "unit", "usual")}
            rows.append({**head, **own, **flagged})
        if not cells:
            rows.append(head)
    return Grid("Figures", _COLUMNS, rows)


_MAX_ROWS = 24
_MAX_COLUMNS, _MAX_COLUMNS_NARROW = 12, 5
# Only what was judged low has a strong colour, however large other losses are.
_SMALL, _LARGE, _NONE = "loss below 0.5 %", "0.5 % or more, not judged low", "not measured"
_LOW, _VERY_LOW = "judged low", "judged low, 10 % or more"
_SHADES = {
    _SMALL: plots.BLUES[0],
    _LARGE: plots.ORANGES[1],
    _LOW: plots.ORANGES[3],
    _VERY_LOW: plots.ORANGES[4],
    _NONE: plots.GRID,
}
_SMALL_LOSS, _LARGE_LOSS = 0.005, 0.10


@dataclass(frozen=True)
class MapRow:
    """A host of the map. `low`: the families in which it was judged low."""

    name: str
    losses: dict[str, float]
    low: frozenset[str]


def charts_of_fleet(fleet: Fleet) -> Charts:
    is_judged = any(cell.usual.value is not None for cohort in fleet.cohorts for cell in cohort.cells)
    rows = lru_cache(maxsize=1)(partial(rows_of, fleet))
    return {"fleet": (lambda width: _heat_map(fleet, rows(), width)) if is_judged else None}


def losses_of(fleet: Fleet) -> dict[int, dict[str, float]]:
    """By the place of each judged host its largest loss in each family of cells; below zero if all are better."""
    plans = [
        [
            (cell.cell.family.text, place, cell.usual.value, cell.unit == "GB/s")
            for place, cell in enumerate(cohort.cells)
            if cell.usual.value is not None
        ]
        for cohort in fleet.cohorts
    ]
    found: dict[int, dict[str, float]] = {}
    for number, host in enumerate(fleet.hosts):
        losses: dict[str, float] = {}
        for family, place, usual, is_rate in [] if host.cohort is None else plans[host.cohort]:
            value = host.values[place]
            if value is not None:
                loss = 1 - value / usual if is_rate else value / usual - 1
                losses[family] = max(losses.get(family, loss), loss)
        if losses:
            found[number] = losses
    return found


def rows_of(fleet: Fleet) -> tuple[MapRow, ...]:
    losses = losses_of(fleet)
    flagged = fleet_words.worst_first(host for place, host in enumerate(fleet.hosts) if place in losses and host.losses)
    first = {id(host): number for number, host in enumerate(flagged)}
    order = sorted(
        losses, key=lambda place: (first.get(id(fleet.hosts[place]), len(first)), -max(losses[place].values()))
    )
    rows = []
    for number, place in enumerate(order[:_MAX_ROWS], start=1):
        host = fleet.hosts[place]
        mark = "" if host.verdict == "fine" else f" ({host.verdict})"
        # Numbered, so that two hosts with one name have a row each.
        name = f"{number}. {clean(host.host, 24)}{mark}"
        rows.append(MapRow(name, losses[place], frozenset(loss.cell.family.text for loss in host.losses)))
    return tuple(rows)


def _heat_map(fleet: Fleet, rows: Sequence[MapRow], width: int) -> plots.Spec:
    worst: dict[str, float] = {}
    for row in rows:
        for family, loss in row.losses.items():
            worst[family] = max(worst.get(family, loss), loss)
    most = _MAX_COLUMNS if width >= plots.WIDE else _MAX_COLUMNS_NARROW
    chosen = sorted(worst, key=lambda family: -worst[family])[:most]
    columns = [family for family in worst if family in chosen]
    left = len(worst) - len(columns)
    more = f" The {len(columns)} of {len(worst)} figures with the largest losses are drawn." if left else ""
    more += f" The worst {_MAX_ROWS} hosts are drawn." if len(rows) == _MAX_ROWS else ""
    values = [_square(row, family) for row in rows for family in columns]
    axes = (("", [row.name for row in rows]), ("", list(map(clean, columns))))
    return plots.heat_plot(values, axes, _SHADES, f"{fleet_words.sentence(fleet)}{more}", [], width)


def _square(row: MapRow, family: str) -> dict[str, Any]:
    loss, name = row.losses.get(family), clean(family)
    figure, words, shade = "-", "not measured", _NONE
    if loss is not None:
        figure = f"{round(-loss * 100, 1) + 0.0:+.1f}"
        words = f"{format_percent(abs(loss))} {'worse' if loss > 0 else 'better'} than usual"
        pale = _SMALL if loss < _SMALL_LOSS else _LARGE
        shade = (_LOW if loss < _LARGE_LOSS else _VERY_LOW) if family in row.low else pale
    return {"row": row.name, "column": name, "figure": figure, "text": f"{row.name}, {name}: {words}", "shade": shade}


def charts_of_host(report: HostReport) -> Charts:
    bars = []
    for cell in report.cells:
        if (value := cell.value.value) is not None and cell.unit == "GB/s":
            name = clean(cell.cell.text)
            text = f"{name}: {fleet_words.figure_text(value, cell.unit)}"
            bars.append(plots.bar(clean(name, 48), value, text, plots.bar_figure(value), low=cell.low, high=cell.high))
    shown = bars[: plots.MAX_BARS]
    title = f"{clean(report.host or 'a host without a name')}: the {len(shown)} rates that a fleet judges"
    return {"figures": (lambda width: plots.bar_plot(shown, title, width, "GB/s")) if shown else None}


REPORT = Report(
    struct=Fleet,
    title=lambda _: "pyxfer fleet",
    page=print_fleet,
    headline=fleet_words.sentence,
    badge=_badge,
    heading=heading_lines,
    advice=lambda fleet: [(text, "") for text in remedies(fleet)],
    grids=_grids,
    sections=_sections,
    charts=charts_of_fleet,
    captions={
        "fleet": Caption(
            "Hosts beside each other",
            "Change against what is usual in the host's cohort, in per cent; of figures that differ only in the GPU, "
            "the worst one. Strong colours: judged low, and darker is slower; pale ones have no such verdict. Of many "
            "hosts the worst are drawn.",
        )
    },
    table=lambda fleet, _: _figures_of_hosts(fleet),
)


# --- the document of one host: figures and findings without a verdict, which needs other hosts -----------------------

_LONGEST_FINDING = 600


def print_host_report(report: HostReport, page: Page) -> None:
    page.line(_host_headline(report), style="bold" if report.ended == "complete" else "bold yellow")
    picked("Figures", _HOST_COLUMNS, _READ, _host_rows(report)).print_on(page)
    findings = [(clean(found.subject), clean(found.seen, longest=_LONGEST_FINDING)) for found in report.findings]
    page.section("Findings", findings)
    page.section("Remarks", [(clean(remark.code), remark_text(remark)) for remark in report.remarks])
    page.line()
    page.hanging(_host_heading(report))


def _host_heading(report: HostReport) -> Lines:
    names = clean(", ".join(dict.fromkeys(device.name for device in report.devices)))
    lines = [
        ("host", f"{clean(report.host or 'not known')}, {clean(report.began_at)}"),
        ("devices", f"{len(report.devices)} x {names}"),
        ("ended", f"{report.ended} after {units.format_seconds(report.duration_s)}"),
    ]
    if report.failure is not None:
        lines.append(("failure", clean(report.failure, longest=_LONGEST_FINDING)))
    return [*lines, ("labels", labels_text(report))] if report.labels else lines


def _host_headline(report: HostReport) -> str:
    known = sum(cell.value.value is not None for cell in report.cells)
    where = f" These figures are of {HOST_MEMORY}." if report.runtime == "host" else ""
    name = clean(report.host or "a host without a name")
    devices = ", ".join(dict.fromkeys(clean(device.name) for device in report.devices))
    on = f" of {len(report.devices)} x {devices}" if report.runtime == "cuda" else ""
    wrong = list(dict.fromkeys(clean(finding.subject) for finding in report.findings if finding.status == "wrong"))
    found = f" The doctor found something wrong: {', '.join(wrong)}." if wrong else ""
    text = f"{name}: {known} of {counted(len(report.cells), 'figure')}{on} measured; a fleet judges them.{found}{where}"
    return text if report.ended == "complete" else f"{text} {reason_text(report.failure or report.ended)}"


def _host_badge(report: HostReport) -> tuple[Badge, str]:
    wrong = sum(finding.status == "wrong" for finding in report.findings)
    if report.ended != "complete":
        return "doubtful", report.ended
    return ("doubtful", f"{wrong} wrong") if wrong else ("none", "complete")


def _host_grids(report: HostReport) -> list[Grid]:
    findings = [(each.status, each.subject, each.seen, each.expected, each.do or "") for each in report.findings]
    return [
        Grid("Figures", _HOST_COLUMNS, _host_rows(report)),
        text_grid("Facts", ("fact", "value"), report.facts.items()),
        text_grid("Findings", ("status", "what", "seen", "expected", "to do"), findings),
    ]


_READ = ("cell", "figure", "interval", "of_peak", "missing")
_HOST_COLUMNS = (
    grid.Column("cell", heading="cell"),
    grid.Column("figure", heading="figure", saved=False),
    grid.Column("interval", heading="95 % interval", saved=False),
    grid.Column("of_peak", heading="of peak", say=format_percent, saved=False),
    grid.Column("value", "number"),
    grid.Column("unit"),
    *(grid.Column(name, "number") for name in ("low", "high")),
    grid.Column("n", "whole", "trials"),
    grid.Column("missing", heading="missing because"),
)


def _host_rows(report: HostReport) -> list[Row]:
    rows: list[Row] = []
    for cell in report.cells:
        value, peak, say = cell.value.value, cell.peak.value, partial(fleet_words.figure_text, unit=cell.unit)
        readable = {
            "figure": grid.number(value, say),
            "interval": f"{say(cell.low)} to {say(cell.high)}" if cell.low and cell.high else "",
            "of_peak": value / peak if value is not None and peak is not None and cell.unit == "GB/s" else None,
        }
        saved = {"n": len(cell.samples), "missing": cell.value.reason, **fields(cell, "value", "unit", "low", "high")}
        rows.append({"cell": cell.cell.text, **readable, **saved})
    return rows


HOST_REPORT = Report(
    struct=HostReport,
    title=lambda _: "pyxfer fleet host",
    page=print_host_report,
    headline=_host_headline,
    badge=_host_badge,
    heading=_host_heading,
    grids=_host_grids,
    sections=lambda report: [("Remarks", remark_lines(report.remarks))],
    charts=charts_of_host,
    captions={"figures": Caption("Figures of this host", INTERVALS)},
)
