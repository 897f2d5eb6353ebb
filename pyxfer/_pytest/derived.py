"""The figures and verdicts of a session that follow from its trials, its ceilings and its limits."""

from __future__ import annotations

import msgspec

from pyxfer._ceiling.derived import derive_tests
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Measurement
from pyxfer._document.sessions import Expected, Judged, Judgement, XferSession
from pyxfer.units import format_gbps, format_percent, format_seconds

_TOO_FEW = ", and fewer than six rounds have no interval: use more"
_UNSURE = ": more calls narrow the interval"
_AGREES = 0.1
_CERTAINTY = "with 95 % certainty"


def derive_pytest(session: XferSession) -> XferSession:
    session = derive_tests(session)
    replace = msgspec.structs.replace
    words = [judged(test.expected, test.measurement, test.ceiling).word for test in session.tests]
    pairs = zip(session.tests, words, strict=True)
    return replace(session, tests=tuple(replace(test, judged=replace(test.judged, word=word)) for test, word in pairs))


def judged(expected: Expected, row: Measurement, ceiling: Fact[Measurement]) -> Judged:
    """The verdict on the limits of a marker; "too slow" only if a whole interval is beyond a limit."""
    checks = (_check_share(expected.min_of_ceiling, row, ceiling.value), _check_time(expected.max_s, row))
    verdicts = [verdict for verdict in checks if verdict is not None]
    if not verdicts:
        return Judged()
    words: tuple[Judgement, ...] = ("too slow", "unsure", "fine")
    worst = next(word for word in words if word in {found for found, _ in verdicts})
    return Judged(worst, tuple(reason for word, reason in verdicts if word == worst and reason))


def _check_share(least: float | None, row: Measurement, ceiling: Measurement | None) -> tuple[Judgement, str] | None:
    if least is None:
        return None
    share, asked = row.ceiling_share.value, f"; the marker asks for {least * 100:g} %"
    if share is None or row.gbps is None:
        # A time without a bandwidth means that the function did not move all of its bytes.
        word: Judgement = "too slow" if row.summary is not None and row.gbps is None else "unsure"
        return word, f"no share of the ceiling: {row.ceiling_share.reason}{asked}"
    raw = "what"
    # The share is of the rounds that both ran; the medians of all rounds may give another one.
    if ceiling is not None and ceiling.gbps and abs(row.gbps / ceiling.gbps - share.value) < _AGREES * share.value:
        raw = f"the {format_gbps(ceiling.gbps)} that"
    seen = f"{format_gbps(row.gbps)} is {format_percent(share.value)} of {raw} raw pinned copies reached beside it"
    if share.low is None or share.high is None:
        return "unsure", f"{seen}{asked}{_TOO_FEW}"
    if share.high < least:
        return "too slow", f"{seen} (at most {format_percent(share.high)} {_CERTAINTY}){asked}"
    if share.low < least:
        between = f"{format_percent(share.low)} to {format_percent(share.high)}"
        return "unsure", f"{seen} ({between} {_CERTAINTY}){asked}{_UNSURE}"
    return "fine", ""


def _check_time(most_s: float | None, row: Measurement) -> tuple[Judgement, str] | None:
    if most_s is None:
        return None
    summary, asked = row.summary, f"; the marker allows {format_seconds(most_s)}"
    if summary is None:
        return "unsure", f"no time: {row.rate.reason}{asked}"
    seen = f"a call takes {format_seconds(summary.median_s)}"
    if summary.low_s is None or summary.high_s is None:
        return "unsure", f"{seen}{asked}{_TOO_FEW}"
    if summary.low_s > most_s:
        return "too slow", f"{seen} (at least {format_seconds(summary.low_s)} {_CERTAINTY}){asked}"
    if summary.high_s > most_s:
        between = f"{format_seconds(summary.low_s)} to {format_seconds(summary.high_s)}"
        return "unsure", f"{seen} ({between} {_CERTAINTY}){asked}{_UNSURE}"
    return "fine", ""
