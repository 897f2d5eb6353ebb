"""Examinations: the page with a summary and all findings, the most serious first, and the table of findings."""

from __future__ import annotations

from pyxfer._document.examinations import Examination, Finding, Nearest, Status
from pyxfer._report import rates, run
from pyxfer._report.grid import Grid, text_grid
from pyxfer._report.layout import Page
from pyxfer._report.report import Advice, Badge, Report
from pyxfer._report.text import Lines, clean, machine_lines, place_text, sentence
from pyxfer.units import first_of

_BADGES: dict[Status, Badge] = {"fine": "good", "unknown": "none", "suspicious": "doubtful", "wrong": "bad"}
_STYLES: dict[Status, str] = {"wrong": "bold red", "suspicious": "yellow", "unknown": "", "fine": ""}
_IN_FULL: tuple[Status, ...] = ("wrong", "suspicious")
ORDER: tuple[Status, ...] = (*_IN_FULL, "unknown", "fine")
_SPEED = ("ceiling", "known-host", "pageable")
_NAMED = 4
_LONGEST = 600


def print_examination(examination: Examination, page: Page) -> None:
    # Never green for host memory, which has no link that could be right.
    right = "bold" if examination.run.runtime == "host" else "bold green"
    page.line(summary(examination), style=_STYLES[examination.worst] or right)
    for status in _IN_FULL:
        lines = [line for finding in examination.of(status) for line in _whole(finding)]
        page.section(status.capitalize(), lines, style=_STYLES[status])
    speed = [finding for finding in examination.of("fine") if finding.code in _SPEED]
    others = [finding for finding in examination.of("fine") if finding.code not in _SPEED]
    page.section("Speed", list(map(_line, speed)))
    page.section("Unknown", list(map(_line, examination.of("unknown"))))
    if page.details:
        page.section("Fine", list(map(_line, others)))
    elif others:
        page.section("Fine", [(" ", ", ".join(dict.fromkeys(clean(finding.subject) for finding in others)))])
        page.section("Next", [("  pyxfer doctor --details", "what each check saw; --report page.html has all")])
    page.line()
    page.hanging(heading_lines(examination))


def _whole(finding: Finding) -> Lines:
    return [
        (f"  {clean(finding.subject)}", f"{clean(finding.seen, _LONGEST)} ({finding.sure})"),
        ("    expected", clean(finding.expected, _LONGEST)),
        ("    why", clean(finding.why, _LONGEST)),
        *([("    do", sentence(clean(finding.do, _LONGEST)))] if finding.do else []),
    ]


def _line(finding: Finding) -> tuple[str, str]:
    words = clean(finding.seen, _LONGEST)
    if finding.status == "unknown" and finding.do:
        words = f"{words.rstrip('.')}; {clean(finding.do, _LONGEST)}"
    return f"  {clean(finding.subject)}", words


def summary(examination: Examination) -> str:
    counts = {status: len(examination.of(status)) for status in _STYLES}
    bad = [*examination.of("wrong"), *examination.of("suspicious")]
    names = list(dict.fromkeys(clean(finding.subject) for finding in bad))
    named = first_of(names, _NAMED)
    where = place_text(examination.run)
    place = where[0].upper() + where[1:]
    rest = f"findings: {counts['fine']} fine, {counts['unknown']} unknown"
    if counts["wrong"]:
        return f"{place}: something is wrong with {named} (other {rest})."
    if counts["suspicious"]:
        return f"{place}: nothing is certainly wrong, but something is suspicious: {named} (other {rest})."
    if examination.run.runtime == "host":
        return f"{place}: no link was examined; nothing is wrong with the host itself ({rest})."
    return f"{place}: nothing is wrong with this host, as far as the checks could see ({rest})."


def heading_lines(examination: Examination) -> Lines:
    lines = machine_lines(examination.run)
    known = examination.nearest.value
    return lines if known is None else [*lines, ("known", _nearest_text(known))]


def _nearest_text(nearest: Nearest) -> str:
    name = f"{clean(nearest.reference.name)}, {clean(nearest.reference.taken_at[:10])}"
    if nearest.alike:
        return f"{name}: the same device, link and payload"
    return f"{name}, the nearest but different: {'; '.join(map(clean, nearest.differs))}"


def _grids(examination: Examination) -> list[Grid]:
    findings = [finding for status in ORDER for finding in examination.of(status)]
    rows = [(f.status, f.subject, f.seen, f.expected, f.why, f.do or "", f.sure) for f in findings]
    headings = ("status", "what", "seen", "expected", "why", "to do", "sure")
    return [text_grid("Findings", headings, rows), rates.measurements(examination.run)]


def _advice(examination: Examination) -> list[Advice]:
    bad = [finding for status in _IN_FULL for finding in examination.of(status)]
    return [(f"{clean(each.subject)}: {sentence(clean(each.do, _LONGEST))}", "") for each in bad if each.do]


REPORT = Report(
    struct=Examination,
    title=lambda _: "pyxfer doctor",
    page=print_examination,
    headline=summary,
    badge=lambda each: ("none" if each.run.runtime == "host" else _BADGES[each.worst], each.worst),
    heading=heading_lines,
    advice=_advice,
    grids=_grids,
    sections=lambda examination: run.sections(examination.run),
    charts=lambda examination: run.REPORT.charts(examination.run),
    captions=run.REPORT.captions,
)
