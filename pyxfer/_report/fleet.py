"""Fleets: the page with the worst hosts, causes, groups and what is missing; histories; the document of one host."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from pyxfer import units
from pyxfer._document.fleets import (
    Cohort,
    CohortCell,
    Fleet,
    FleetHost,
    HostCell,
    HostPoint,
    HostReport,
    KeptFleet,
    hosts_once,
)
from pyxfer._report import fleet_words, grid
from pyxfer._report.fleet_charts import charts_of_fleet, charts_of_host
from pyxfer._report.grid import Grid, Row, fields, text_grid
from pyxfer._report.layout import Column, Page, fitting_table
from pyxfer._report.report import INTERVALS, Badge, Caption, Report, Section
from pyxfer._report.text import HOST_MEMORY, Lines, clean, counted, reason_text, remark_text
from pyxfer.units import format_percent

_MAX_HOSTS = 10
_MAX_FAMILIES = 16
_MAX_MISSING = 10
_MAX_COHORTS = 6
_MAX_FIGURES = 8
_LONGEST_REASON = 300


def print_fleet(fleet: Fleet, page: Page) -> None:
    style = "bold red" if fleet.with_verdict("slow") else "yellow" if fleet.with_verdict("suspect") else "bold green"
    page.line(fleet_words.sentence(fleet), style=style)
    page.section("To do", [("  -", text) for text in remedies(fleet)])
    _print_hosts(fleet, page)
    page.section("What the slow hosts share", contrast_lines(fleet))
    page.section("Two groups", group_lines(fleet))
    for number, cohort in enumerate(fleet.cohorts[:_MAX_COHORTS]):
        _print_cohort(fleet, number, cohort, page)
    if len(fleet.cohorts) > _MAX_COHORTS:
        page.line(f"and {len(fleet.cohorts) - _MAX_COHORTS} more cohorts; --export-json has all")
    page.section("Notes on hosts", missing_lines(fleet))
    page.section("Remarks", remark_lines(fleet))
    page.line()
    page.hanging(heading_lines(fleet))


def remedies(fleet: Fleet) -> list[str]:
    slow, suspect = fleet.with_verdict("slow"), fleet.with_verdict("suspect")
    texts = []
    if slow:
        names = fleet_words.some_names(slow)
        texts.append(f"Run pyxfer doctor on {names}. To drain: fleet judge --export-drain FILE writes host and reason.")
    if suspect:
        names = fleet_words.some_names(suspect)
        texts.append(f"Measure {names} again, which decides whether they are slow: pyxfer fleet run --confirm.")
    return texts


def heading_lines(fleet: Fleet) -> Lines:
    once = hosts_once(fleet)
    verdicts = Counter(host.verdict for host in once)
    words = [
        f"{verdicts[verdict]} {verdict}" for verdict in ("slow", "suspect", "fine", "not judged") if verdicts[verdict]
    ]
    rate = fleet.settings.error_rate
    kept = f"a fleet without a slow host has one called slow in {format_percent(rate)} of cases"
    lines = [
        ("hosts", f"{len(once)}: {', '.join(words)}" if once else "0"),
        ("judged", f"{clean(fleet.judged_at)}, pyxfer {clean(fleet.pyxfer)}"),
    ]
    if any(cell.judged_by == "cohort" for cohort in fleet.cohorts for cell in cohort.cells):
        lines.append(("errors", f"{kept}; losses below {format_percent(fleet.settings.least_loss)} do not count"))
    return lines


def flagged_hosts(fleet: Fleet) -> list[FleetHost]:
    return [
        *fleet_words.worst_first(fleet.with_verdict("slow")),
        *fleet_words.worst_first(fleet.with_verdict("suspect")),
    ]


def host_row(fleet: Fleet, host: FleetHost) -> tuple[str, ...]:
    """Host, verdict, cell, loss, figure, usual figure, number of its low cells, wrong findings."""
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
    page.heading("Worst hosts")
    _print_rows(HOST_HEADINGS, rows, ("host", "verdict", "cell", "doctor"), page)
    if len(flagged) > _MAX_HOSTS:
        page.line(f"and {len(flagged) - _MAX_HOSTS} more; --export-json has all")
    if fleet.with_verdict("suspect"):
        page.line("A suspect host was low once and was not measured again, so it may be a coincidence.")


def _print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str], page: Page) -> None:
    """A table of the columns that have any text."""
    columns = [
        Column((name,), tuple(cells), left=name in left)
        for name, cells in zip(headings, zip(*rows, strict=True), strict=True)
        if any(cells)
    ]
    page.show(fitting_table(columns, page.columns))


def contrast_lines(fleet: Fleet) -> Lines:
    return [("  -", f"{fleet_words.contrast_text(each)} ({fleet_words.chance_text(each)})") for each in fleet.contrasts]


def group_lines(fleet: Fleet) -> Lines:
    lines: Lines = []
    for cohort in fleet.cohorts:
        for family, cells in fleet_words.by_family([cell for cell in cohort.cells if cell.groups is not None]).items():
            first = cells[0]
            more = f" and {len(cells) - 1} more such cells" if len(cells) > 1 else ""
            slower = () if first.groups is None else first.groups.slower
            name = clean(first.cell.text if len(cells) == 1 else family)
            lines.append(
                (
                    "  -",
                    f"{name}: {fleet_words.groups_text(first)}{more}; slower: {fleet_words.names_text(fleet, slower)}",
                )
            )
    return lines


def _print_cohort(fleet: Fleet, number: int, cohort: Cohort, page: Page) -> None:
    members = sum(host.cohort == number for host in fleet.hosts)
    page.heading(f"{counted(members, 'host')} with {fleet_words.cohort_text(cohort.alike)}")
    page.line(f"Judged: {clean(cohort.reason, _LONGEST_REASON)}.")
    families = fleet_words.by_family(cohort.cells)
    rows = [family_row(name, cells) for name, cells in list(families.items())[:_MAX_FAMILIES]]
    _print_rows(FAMILY_HEADINGS, rows, ("cell",), page)
    if len(families) > _MAX_FAMILIES:
        page.line(f"and {len(families) - _MAX_FAMILIES} more; --export-json has all")
    for remark in cohort.remarks[:_MAX_FAMILIES]:
        page.line(remark_text(remark))


FAMILY_HEADINGS = ("cell", "judged by", "usual", "spread", "detection limit")


def family_row(name: str, cells: Sequence[CohortCell]) -> tuple[str, ...]:
    """The cells of all GPUs in one line: the middle one's figure, and the worst spread and limit."""
    known = sorted(cell.usual.value for cell in cells if cell.usual.value is not None)
    usual = fleet_words.figure_text(known[len(known) // 2], cells[0].unit) if known else ""
    spreads = [cell.spread.value for cell in cells if cell.spread.value is not None]
    limits = [cell.detection_limit.value for cell in cells if cell.detection_limit.value is not None]
    return (
        clean(cells[0].cell.text if len(cells) == 1 else name),
        ", ".join(dict.fromkeys(cell.judged_by for cell in cells)),
        usual,
        format_percent(max(spreads)) if spreads else "",
        format_percent(max(limits)) if limits else "",
    )


def missing_lines(fleet: Fleet) -> Lines:
    reasons: dict[tuple[str, str], list[int]] = {}
    for place, host in enumerate(fleet.hosts):
        if host.state != "measured" or host.verdict == "not judged":
            reason = clean(host.reason or "no reason given", _LONGEST_REASON)
            reasons.setdefault((host.state, reason), []).append(place)
    lines = [
        (f"  {state}", f"{fleet_words.names_text(fleet, places)}: {reason}")
        for (state, reason), places in list(reasons.items())[:_MAX_MISSING]
    ]
    if len(reasons) > _MAX_MISSING:
        left = sum(len(places) for places in list(reasons.values())[_MAX_MISSING:])
        lines.append(("", f"and {left} more hosts; --export-json has all"))
    return lines


def remark_lines(fleet: Fleet) -> Lines:
    return [("  -", remark_text(remark)) for remark in fleet.remarks]


# --- history ----------------------------------------------------------------------------------------------------------


def print_fleets(fleets: Sequence[KeptFleet], page: Page) -> None:
    if not fleets:
        page.line("The store has no fleet yet; pyxfer fleet judge --save keeps one.")
        return
    counts = [
        (name, tuple(str(getattr(fleet, field)) for fleet in fleets))
        for name, field in (("hosts", "hosts"), ("slow", "slow"), ("suspect", "suspect"), ("not judged", "not_judged"))
    ]
    columns = [
        Column(("judged at",), tuple(clean(fleet.judged_at) for fleet in fleets), left=True),
        *(Column((name,), cells) for name, cells in counts),
        Column(("id",), tuple(fleet.id for fleet in fleets), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def print_host_history(host: str, points: Sequence[HostPoint], page: Page) -> None:
    name = clean(host, fleet_words.LONGEST_NAME)
    if not points:
        page.line(f"No stored fleet has the host {name}; pyxfer fleet history lists the fleets.")
        return
    slow = sum(point.verdict == "slow" for point in points)
    page.line(f"{name}: slow in {slow} of {len(points)} fleets; now {points[-1].verdict}.", style="bold")
    page.line()
    columns = [
        Column(("judged at",), tuple(clean(point.judged_at) for point in points), left=True),
        Column(("verdict",), tuple(point.verdict for point in points), left=True),
        Column(("loss",), tuple("" if point.loss is None else format_percent(point.loss) for point in points)),
        Column(("cell, or why it was not judged",), tuple(_why(point) for point in points), left=True),
    ]
    page.show(fitting_table(columns, page.columns))
    _print_figures([point.figures for point in points if point.figures], page)


def _why(point: HostPoint) -> str:
    if point.cell is not None:
        return clean(point.cell)
    return clean(f"{point.state}: {point.reason}", 80) if point.reason else ""


def _print_figures(known: Sequence[Mapping[str, tuple[float, float | None]]], page: Page) -> None:
    if not known:
        return
    newest = known[-1]
    medians = {name: statistics.median([each[name][0] for each in known if name in each]) for name in newest}
    names = sorted(newest, key=lambda name: newest[name][0] / medians[name])[:_MAX_FIGURES]
    page.heading("The newest figures, those that have fallen most first")
    columns = [
        Column(("cell",), tuple(clean(name) for name in names), left=True),
        Column(("newest",), tuple(f"{newest[name][0]:.4g}" for name in names)),
        Column((f"median of {len(known)}",), tuple(f"{medians[name]:.4g}" for name in names)),
        Column(("usual of the cohort",), tuple(_usual(newest[name][1]) for name in names)),
    ]
    page.show(fitting_table(columns, page.columns))


def _usual(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


# --- the report ------------------------------------------------------------------------------------------------------

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
    rows = [(*host_row(fleet, host), host.state, _labels_text(host)) for host in listed]
    grids = [text_grid(name, (*HOST_HEADINGS, "state", "labels"), rows)]
    for cohort in fleet.cohorts[:_MAX_SHOWN]:
        families = [family_row(name, cells) for name, cells in fleet_words.by_family(cohort.cells).items()]
        grids.append(text_grid(f"Figures: {fleet_words.cohort_text(cohort.alike)}", FAMILY_HEADINGS, families))
    return grids


def _labels_text(host: FleetHost) -> str:
    return clean(", ".join(f"{name}={value}" for name, value in host.labels.items()))


def _sections(fleet: Fleet) -> list[Section]:
    cohorts = [(fleet_words.cohort_text(cohort.alike), clean(cohort.reason)) for cohort in fleet.cohorts]
    of_cohorts = [("-", remark_text(remark)) for cohort in fleet.cohorts for remark in cohort.remarks]
    return [
        ("What the slow hosts share", _listed(contrast_lines(fleet))),
        ("Two groups", _listed(group_lines(fleet))),
        ("How they were judged", cohorts),
        ("Notes on hosts", [(name.strip(), text) for name, text in missing_lines(fleet)]),
        ("Remarks", [*_listed(remark_lines(fleet)), *of_cohorts]),
    ]


def _listed(lines: Lines) -> Lines:
    return [("-", text) for _, text in lines]


_COLUMNS = (
    grid.Column("host"),
    grid.Column("state"),
    grid.Column("verdict"),
    grid.Column("cohort", "whole"),
    grid.Column("cell"),
    grid.Column("unit"),
    grid.Column("value", "number"),
    grid.Column("usual", "number"),
    grid.Column("loss", "number"),
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
            "hosts the worst are drawn, and below them quantiles of the others.",
        )
    },
    table=lambda fleet, _: _figures_of_hosts(fleet),
)


# --- the document of one host: figures and findings without a verdict, which needs other hosts -----------------------

_LONGEST_FINDING = 600


def print_host_report(report: HostReport, page: Page) -> None:
    page.line(_host_headline(report), style="bold" if report.ended == "complete" else "bold yellow")
    page.section("Figures", [(clean(cell.cell.text), _figure(cell)) for cell in report.cells])
    findings = [(clean(found.subject), clean(found.seen, longest=_LONGEST_FINDING)) for found in report.findings]
    page.section("Findings", findings)
    page.section("Remarks", [(clean(remark.code), remark_text(remark)) for remark in report.remarks])
    page.line()
    page.hanging(_host_heading(report))


def _host_heading(report: HostReport) -> Lines:
    names = list(dict.fromkeys(device.name for device in report.devices))
    lines = [
        ("host", f"{clean(report.host or 'not known')}, {clean(report.began_at)}"),
        ("devices", f"{len(report.devices)} x {clean(', '.join(names))}"),
        ("ended", f"{report.ended} after {units.format_seconds(report.duration_s)}"),
    ]
    if report.failure is not None:
        lines.append(("failure", clean(report.failure, longest=_LONGEST_FINDING)))
    if report.labels:
        lines.append(("labels", clean(", ".join(f"{name}={value}" for name, value in report.labels.items()))))
    return lines


def _figure(cell: HostCell) -> str:
    if cell.value.value is None:
        return clean(f"none: {cell.value.reason}")
    figure = f"{cell.value.value:#.4g}".rstrip(".") + f" {cell.unit}"
    if cell.low is not None and cell.high is not None:
        low, high = (f"{end:#.4g}".rstrip(".") for end in (cell.low, cell.high))
        figure += f" ({low} to {high})"
    if cell.unit == "GB/s" and cell.peak.value is not None:
        figure += f", {units.format_percent(cell.value.value / cell.peak.value)} of peak"
    return figure


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
    """A host alone has no verdict."""
    if report.ended != "complete":
        return "doubtful", report.ended
    wrong = sum(finding.status == "wrong" for finding in report.findings)
    return "doubtful" if wrong else "none", f"{wrong} wrong" if wrong else "complete"


def _interval_text(cell: HostCell) -> str:
    if not cell.low or not cell.high:
        return ""
    return " to ".join(fleet_words.figure_text(end, cell.unit) for end in (cell.low, cell.high))


def _host_grids(report: HostReport) -> list[Grid]:
    figures = [
        (
            cell.cell.text,
            grid.number(cell.value.value, partial(fleet_words.figure_text, unit=cell.unit)),
            _interval_text(cell),
            grid.Cell(str(len(cell.samples)), len(cell.samples)),
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


_HOST_COLUMNS = (
    grid.Column("cell"),
    grid.Column("value", "number"),
    grid.Column("unit"),
    *(grid.Column(name, "number") for name in ("low", "high")),
    grid.Column("n", "whole"),
    grid.Column("missing"),
)


def _figures_of_host(report: HostReport) -> Grid:
    rows = [
        {
            "cell": cell.cell.text,
            **fields(cell, "value", "unit", "low", "high"),
            "n": len(cell.samples),
            "missing": cell.value.reason,
        }
        for cell in report.cells
    ]
    return Grid("Figures", _HOST_COLUMNS, rows)


HOST_REPORT = Report(
    struct=HostReport,
    title=lambda _: "pyxfer fleet host",
    page=print_host_report,
    headline=_host_headline,
    badge=_host_badge,
    heading=_host_heading,
    grids=_host_grids,
    sections=lambda report: [("Remarks", [("-", remark_text(remark)) for remark in report.remarks])],
    charts=charts_of_host,
    captions={"figures": Caption("Figures of this host", INTERVALS)},
    table=lambda report, _: _figures_of_host(report),
)
