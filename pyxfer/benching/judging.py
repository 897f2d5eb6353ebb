"""Whether a test has reached what its marker asks, as far as the intervals tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.model_xfer import Expected, Judged
from pyxfer.units import format_percent, format_seconds

if TYPE_CHECKING:
    from pyxfer.benching.outcome import Outcome
    from pyxfer.model_xfer import Judgement

_TOO_FEW = "by too few rounds for an interval (six or more have one)"
_MORE = ", and more time (--xfer-budget) tells"


def judged(expected: Expected, outcome: Outcome) -> Judged:
    """Too slow only where a whole interval lies beyond what is asked."""
    answers = [
        answer for answer in (_share(expected.min_of_ceiling, outcome), _time(expected.max_s, outcome)) if answer
    ]
    if not answers:
        return Judged()
    words: tuple[Judgement, ...] = ("too slow", "unsure", "fine")
    worst = next(word for word in words if word in {answer for answer, _ in answers})
    return Judged(worst, tuple(reason for answer, reason in answers if answer == worst and reason))


def _share(least: float | None, outcome: Outcome) -> tuple[Judgement, str] | None:
    if least is None:
        return None
    share, asked = outcome.share, f"{format_percent(least)} are asked"
    if share is None:
        # There is a time and yet no bandwidth: the function did not move what it should have moved.
        word: Judgement = "too slow" if outcome.summary is not None and outcome.gbps is None else "unsure"
        return word, f"no share of the ceiling, of which {asked}: {outcome.measurement.ceiling_share.reason}"
    seen = f"{format_percent(share.value)} of the ceiling"
    if share.low is None or share.high is None:
        return "unsure", f"{seen}, {_TOO_FEW}; {asked}"
    if share.high < least:
        return "too slow", f"{seen}, at most {format_percent(share.high)}; {asked}"
    if share.low < least:
        return "unsure", f"{format_percent(share.low)} to {format_percent(share.high)} of the ceiling; {asked}{_MORE}"
    return "fine", ""


def _time(most_s: float | None, outcome: Outcome) -> tuple[Judgement, str] | None:
    if most_s is None:
        return None
    summary, asked = outcome.summary, f"at most {format_seconds(most_s)} are asked"
    if summary is None:
        return "unsure", f"no time, and {asked}: {outcome.reason}"
    seen = f"it took {format_seconds(summary.median_s)}"
    if summary.low_s is None or summary.high_s is None:
        return "unsure", f"{seen}, {_TOO_FEW}; {asked}"
    if summary.low_s > most_s:
        return "too slow", f"{seen}, at least {format_seconds(summary.low_s)}; {asked}"
    if summary.high_s > most_s:
        between = f"{format_seconds(summary.low_s)} to {format_seconds(summary.high_s)}"
        return "unsure", f"it took {between}; {asked}{_MORE}"
    return "fine", ""
