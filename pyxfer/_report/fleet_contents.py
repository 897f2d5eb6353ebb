"""The contents of the reports of a fleet and of one host: tables, lists and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pyxfer._document.fleets import Fleet, FleetHost, HostReport
from pyxfer._report.fleet import (
    FAMILY_HEADINGS,
    HOST_HEADINGS,
    contrast_lines,
    family_row,
    flagged_hosts,
    group_lines,
    heading_lines,
    host_row,
    missing_lines,
    remark_lines,
)
from pyxfer._report.fleet_words import by_family, cohort_text, counted, figure_text, sentence
from pyxfer._report.text import HOST_MEMORY, Lines, clean, reason_text, remark_text

Light = Literal["good", "doubtful", "bad", "none"]
Rows = Sequence[tuple[str, ...]]
Table = tuple[str, tuple[str, ...], Rows]
_MOST_HOSTS = 500


def fleet_headline(fleet: Fleet) -> tuple[str, Light, str]:
    """The sentence, the light and the word of a fleet's report."""
    slow, suspect = len(fleet.with_verdict("slow")), len(fleet.with_verdict("suspect"))
    if slow:
        return sentence(fleet), "bad", f"{slow} slow"
    if all(host.verdict == "not judged" for host in fleet.hosts):
        return sentence(fleet), "none", "not judged"
    has_groups = any(cell.groups is not None for cohort in fleet.cohorts for cell in cohort.cells)
    if suspect or has_groups:
        return sentence(fleet), "doubtful", f"{suspect} suspect" if suspect else "two groups"
    return sentence(fleet), "good", "none slow"


def fleet_tables(fleet: Fleet) -> list[Table]:
    """The flagged hosts and then the others, and the cells of each cohort."""
    flagged = flagged_hosts(fleet)
    others = [host for host in fleet.hosts if host.verdict not in ("slow", "suspect")]
    shown = [*flagged, *others][:_MOST_HOSTS]
    of = f"{len(shown)} of {len(fleet.hosts)} hosts" if len(shown) < len(fleet.hosts) else "Hosts"
    headings = (*HOST_HEADINGS, "state", "labels")
    tables: list[Table] = [(of, headings, [(*host_row(fleet, host), host.state, _labels_text(host)) for host in shown])]
    for cohort in fleet.cohorts[:_MOST_HOSTS]:
        rows = [family_row(name, cells) for name, cells in by_family(cohort.cells).items()]
        tables.append((f"Figures: {cohort_text(cohort.alike)}", FAMILY_HEADINGS, rows))
    return tables


def _labels_text(host: FleetHost) -> str:
    return clean(", ".join(f"{name}={value}" for name, value in host.labels.items()))


def fleet_sections(fleet: Fleet) -> Sequence[tuple[str, Lines]]:
    """The lists of the page."""
    cohorts = [(cohort_text(cohort.alike), clean(cohort.reason)) for cohort in fleet.cohorts]
    of_cohorts = [("-", remark_text(remark)) for cohort in fleet.cohorts for remark in cohort.remarks]
    return (
        ("What the slow hosts share", _listed(contrast_lines(fleet))),
        ("Two groups", _listed(group_lines(fleet))),
        ("How they were judged", cohorts),
        ("Notes on hosts", [(name.strip(), text) for name, text in missing_lines(fleet)]),
        ("Remarks", [*_listed(remark_lines(fleet)), *of_cohorts]),
    )


def fleet_heading(fleet: Fleet) -> Lines:
    """The first lines."""
    return heading_lines(fleet)


def _listed(lines: Lines) -> Lines:
    return [("-", text) for _, text in lines]


def host_headline(report: HostReport) -> tuple[str, Light, str]:
    """The sentence, the light and the word of a host's report: it is without a verdict."""
    known = sum(cell.value.value is not None for cell in report.cells)
    where = f" These figures are of {HOST_MEMORY}." if report.runtime == "host" else ""
    name = clean(report.host or "a host without a name")
    text = f"{name}: {known} of {counted(len(report.cells), 'figure')} for a fleet, without a verdict.{where}"
    if report.ended != "complete":
        return f"{text} {reason_text(report.failure or report.ended)}", "doubtful", report.ended
    wrong = sum(finding.status == "wrong" for finding in report.findings)
    return text, "doubtful" if wrong else "none", f"{wrong} wrong" if wrong else "complete"


def host_heading(report: HostReport) -> Lines:
    """When it was measured, and its labels."""
    labels = ", ".join(f"{name}={value}" for name, value in report.labels.items())
    heading = [("began", clean(report.began_at)), ("ended", report.ended)]
    return [*heading, *([("labels", clean(labels))] if labels else [])]


def host_tables(report: HostReport) -> list[Table]:
    """The figures, the facts and the findings."""
    figures = [
        (
            cell.cell.text,
            "" if cell.value.value is None else figure_text(cell.value.value, cell.unit),
            "" if not cell.low or not cell.high else f"{cell.low:.4g} to {cell.high:.4g}",
            str(len(cell.samples)),
            cell.value.reason or "",
        )
        for cell in report.cells
    ]
    findings = [(each.status, each.subject, each.seen, each.expected, each.do or "") for each in report.findings]
    return [
        ("Figures", ("cell", "figure", "95 % interval", "trials", "missing because"), figures),
        ("Facts", ("fact", "value"), list(report.facts.items())),
        ("Findings", ("status", "what", "seen", "expected", "to do"), findings),
    ]


def host_sections(report: HostReport) -> Sequence[tuple[str, Lines]]:
    """Its remarks."""
    return (("Remarks", [("-", remark_text(remark)) for remark in report.remarks]),)
