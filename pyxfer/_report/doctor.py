"""An examination as a page: how the host is in one sentence, then every finding, the gravest first."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer import units
from pyxfer._document import runs
from pyxfer._document.examinations import Examination, Finding, Nearest, Status
from pyxfer._report.layout import Page
from pyxfer._report.text import clean, device_text, link_text, sentence

_STYLES: dict[Status, str] = {"wrong": "bold red", "suspicious": "yellow", "unknown": "", "fine": ""}
_NAMED = 4
_SIDES: tuple[runs.Side, ...] = ("h2d", "d2h")
_LONGEST = 600


def print_examination(examination: Examination, page: Page) -> None:
    """What was examined, how it is, and why that is said."""
    page.hanging(_heading_lines(examination), style="bold")
    page.line()
    page.line(summary(examination), style=_style(examination))
    for status, name in (("wrong", "Wrong"), ("suspicious", "Suspicious")):
        _print_whole(name, [each for each in examination.findings if each.status == status], page)
    for status, name in (("unknown", "Unknown"), ("fine", "Fine")):
        found = [each for each in examination.findings if each.status == status]
        if found:
            page.heading(name)
            page.hanging([_line(each) for each in found])


def _style(examination: Examination) -> str:
    """Green only where there was something to be right."""
    right = "bold" if examination.run.runtime == "host" else "bold green"
    return _STYLES[examination.worst] or right


def summary(examination: Examination) -> str:
    """How the host is, in one sentence."""
    counts = {status: len(examination.of(status)) for status in _STYLES}
    bad = [*examination.of("wrong"), *examination.of("suspicious")]
    names = list(dict.fromkeys(clean(each.subject) for each in bad))
    told = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    rest = f"{_findings(counts['fine'])} fine, {counts['unknown']} unknown"
    if counts["wrong"]:
        return f"Something is wrong with this host: {told} ({rest})."
    if counts["suspicious"]:
        return f"Nothing is wrong for certain, and something is suspicious: {told} ({rest})."
    if examination.run.runtime == "host":
        return f"There is no link to examine here; with the host itself nothing is wrong ({rest})."
    return f"Nothing is wrong with this host, as far as it could be told ({rest})."


def _findings(count: int) -> str:
    return "1 finding" if count == 1 else f"{count} findings"


def _heading_lines(examination: Examination) -> list[tuple[str, str]]:
    environment = examination.environment
    lines = [("device", device_text(examination.device))]
    if examination.run.runtime == "cuda":
        lines.append(("link", link_text(examination.link)))
    lines.append(("host", f"{clean(environment.host)}, {clean(environment.taken_at)}"))
    lines.append(("with", _with_text(environment)))
    if examination.nearest.value is not None:
        lines.append(("known", _nearest_text(examination.nearest.value, examination.run)))
    return lines


def _with_text(environment: runs.Environment) -> str:
    driver = "" if environment.driver.value is None else f", driver {clean(environment.driver.value)}"
    return f"pyxfer {clean(environment.pyxfer)}{driver}"


def _nearest_text(nearest: Nearest, run: runs.Run) -> str:
    """The known host, what it reaches, and why that does not bind where it does not."""
    reference = nearest.reference
    words = f"{clean(reference.name)}, {clean(reference.taken_at[:10])}"
    if nearest.alike:
        return f"{words}: the same device, link and payload. {_reached(nearest, run)}"
    return f"{words}, is the nearest, and not the same: {'; '.join(map(clean, nearest.differs))}"


def _reached(nearest: Nearest, run: runs.Run) -> str:
    """Its largest pinned copies, and what share of them is reached here."""
    words = []
    for side in _SIDES:
        sizes = [each.nbytes for each in run.measurements if each.side == side and each.gbps is not None]
        known = [nbytes for nbytes in sizes if nearest.reference.gbps(side, "pinned", nbytes)]
        if known:
            there = nearest.reference.gbps(side, "pinned", max(known)) or 0.0
            here = max(
                each.gbps or 0.0
                for each in run.measurements
                if each.side == each.direction == side and each.nbytes == max(known) and each.may_be_ceiling
            )
            words.append(f"{side} {units.format_percent(here / there)} of its {units.format_gbps(there)}")
    return f"Reached: {', '.join(words)}" if words else "No size was measured on both"


def _print_whole(name: str, findings: Sequence[Finding], page: Page) -> None:
    """With everything that is known of each."""
    if not findings:
        return
    page.heading(name)
    lines = []
    for each in findings:
        lines += [
            (f"  {clean(each.subject)}", f"{clean(each.seen, _LONGEST)} ({each.sure})"),
            ("    expected", clean(each.expected, _LONGEST)),
            ("    why", clean(each.why, _LONGEST)),
            *([("    do", sentence(clean(each.do, _LONGEST)))] if each.do else []),
        ]
    page.hanging(lines, style=_STYLES[findings[0].status])


def _line(finding: Finding) -> tuple[str, str]:
    """In one line; of what is unknown, with what would make it known."""
    words = clean(finding.seen, _LONGEST)
    if finding.status == "unknown" and finding.do:
        words = f"{words.rstrip('.')}; {clean(finding.do, _LONGEST)}"
    return f"  {clean(finding.subject)}", words
