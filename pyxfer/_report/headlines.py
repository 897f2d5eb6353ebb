"""One sentence about each document and chart: what was found. Charts have it as their title, reports begin with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pyxfer import units
from pyxfer._document import baselines, examinations, fleets, links, runs, sessions, tunings, watches, wording
from pyxfer._report.baseline import group_text
from pyxfer._report.doctor import summary
from pyxfer._report.explain import find_explained
from pyxfer._report.explain import headline as explained_text
from pyxfer._report.fleet_contents import fleet_headline, host_headline
from pyxfer._report.frameworks import summary_lines
from pyxfer._report.link_words import sentence as links_text
from pyxfer._report.rates import ending_text, has_times
from pyxfer._report.text import HOST_MEMORY, clean
from pyxfer._report.watch import first_steps_text

Light = Literal["good", "doubtful", "bad", "none"]
"""What a reader has to think of a document at first sight; `none` where nothing is judged."""
_VERDICT_LIGHTS: dict[baselines.Verdict, Light] = {
    "SAME": "good",
    "FAST": "good",
    "AMBIGUOUS": "doubtful",
    "SLOW": "bad",
}
_STATUS_LIGHTS: dict[examinations.Status, Light] = {
    "fine": "good",
    "unknown": "none",
    "suspicious": "doubtful",
    "wrong": "bad",
}
_LONGEST = 600
_SIDES: tuple[runs.Side, ...] = ("h2d", "d2h", "sum")


@dataclass(frozen=True)
class Headline:
    """The sentence, and the light with the word that it stands for."""

    text: str
    light: Light
    word: str


def headline(document: object) -> Headline:
    """The first sentence of a document's report."""
    for kind, make in _HEADLINES.items():
        if isinstance(document, kind):
            return make(document)
    raise TypeError(f"{type(document).__name__} has no report")


def reached_text(run: runs.Run, side: runs.Side) -> str:
    """`h2d: 55.31 GB/s at 256 MiB from pinned memory, 97.9 % of the peak`; empty without a figure."""
    rows = [m for m in run.measurements if is_alone(m, side) and m.gbps is not None and m.verified.value is not False]
    best = max(rows, key=lambda m: m.gbps or 0.0, default=None)
    if best is None or best.gbps is None:
        return ""
    name = "both ways" if side == "sum" else "ingest" if side == "ingest" else side
    text = (
        f"{name}: {units.format_gbps(best.gbps)} at {units.format_size(best.nbytes)} with {clean(best.memory)} memory"
    )
    if best.mode == runs.STAGED:
        text += ", staged"
    return text if best.of_peak is None else f"{text}, {units.format_percent(best.of_peak)} of the peak"


def trials_text(row: runs.Measurement, name: str) -> str:
    """The middle half of a row's trials, beside its median."""
    times = [trial.elapsed_s for trial in row.trials if trial.invalid is None]
    if row.summary is None or not times:
        return ""
    low, high = (units.format_seconds(seconds) for seconds in (row.summary.q1_s, row.summary.q3_s))
    middle = units.format_seconds(statistics.median(times))
    return f"{name}, {units.format_size(row.nbytes)}: half of {len(times)} trials took {low} to {high}, median {middle}"


def is_alone(m: runs.Measurement, side: runs.Side) -> bool:
    """Whether a row is of one direction alone, or the sum of both."""
    return m.side == side and side in (m.direction, "sum")


def titled(runtime: runs.Runtime, text: str) -> str:
    """The finding. Of host memory it says so, because no link has these figures."""
    return f"{text} ({HOST_MEMORY})" if runtime == "host" else text


def _run_text(run: runs.Run) -> str:
    if not has_times(run):
        return ending_text(run) or "Nothing was measured."
    where = f" These figures are of {HOST_MEMORY}." if run.runtime == "host" else ""
    ending = f"{ending_text(run)} " if ending_text(run) else ""
    return f"{ending}{_figures_text(run)}{where}"


def _figures_text(run: runs.Run) -> str:
    if run.kind == "explain":
        explained = find_explained(run)
        return "" if explained is None else f"{explained_text(explained)}."
    if run.kind == "frameworks":
        lines = summary_lines(run, [""] * len(run.measurements))
        first = next((f"{name} {text}" for name, text in lines if name), "")
        return f"{first}." if first else ""
    texts = [text for side in (*_SIDES, "ingest") if (text := reached_text(run, side))]
    return f"{'; '.join(texts)}." if texts else "No bandwidth is known."


def _run_light(run: runs.Run) -> tuple[Light, str]:
    if any(m.verified.value is False for m in run.measurements):
        return "bad", "wrong contents"
    if run.ended != "complete":
        return ("bad" if run.ended == "failed" else "doubtful"), run.ended
    missing = sum(m.rate.value is None and m.direction != "ingest" for m in run.measurements)
    if missing or not run.measurements:
        return "doubtful", f"{missing} of {len(run.measurements)} figures missing"
    if run.runtime == "host":
        return "none", "host memory"
    return "good", "complete"


def _links_text(run: links.Links) -> str:
    where = f" These figures are of {HOST_MEMORY}." if run.runtime == "host" else ""
    ending = "" if run.ended == "complete" else f"The run was {run.ended} before its end. "
    return f"{ending}{links_text(run)}{where}"


def _links_light(run: links.Links) -> tuple[Light, str]:
    """`good` says that the run is complete; a slow link or a shared uplink is doubtful."""
    flows = [flow for row in run.traffics for flow in row.flows]
    if any(fact.value is False for fact in (*(flow.verified for flow in flows), *(row.verified for row in run.small))):
        return "bad", "wrong contents"
    if run.ended != "complete":
        return ("bad" if run.ended == "failed" else "doubtful"), run.ended
    if run.runtime == "host":
        return "none", "host memory"
    slow = () if run.sharing is None else run.sharing.slow.value or ()
    if slow:
        return "doubtful", f"{len(slow)} slow {'link' if len(slow) == 1 else 'links'}"
    if run.sharing is not None and run.sharing.groups.value:
        return "doubtful", "shared uplink"
    return "good", "complete"


def ring_text(tuned: tunings.Tuned, way: tunings.CopyDirection) -> str:
    """The rate of the chosen ring in one direction at the largest size, beside that of a plain copy."""
    rates = [max((r for r in own if r.direction == way), key=lambda r: r.nbytes) for own in (tuned.rates, tuned.plain)]
    ring, plain = (units.format_gbps(rate.gbps) for rate in rates)
    return f"{way}: {ring} through the ring, {plain} as a plain copy, at {units.format_size(rates[0].nbytes)}"


def _ring_headline(state: tunings.RingState) -> Headline:
    tuned = state.tuning.value
    if tuned is None or not tuned.rates or not tuned.plain:
        return Headline(
            f"No tuning: {clean(state.tuning.reason or 'no trial has figures', _LONGEST)}.", "none", state.source
        )
    return Headline(f"Pageable memory {ring_text(tuned, 'h2d')}; {ring_text(tuned, 'd2h')}.", "none", state.source)


def _watch_text(watched: watches.Watched) -> str:
    return " ".join(filter(None, (first_steps_text(watched), clean(watched.verdict.text, _LONGEST))))


def _watch_light(watched: watches.Watched) -> tuple[Light, str]:
    bound = watched.verdict.bound_by
    if watched.ended == "failed":
        return "bad", "failed"
    if bound == "unknown":
        return "none", "unknown"
    return ("good" if bound == "device" else "doubtful"), f"bound by {bound}"


def _baseline_text(baseline: baselines.Baseline) -> str:
    host, device = clean(baseline.fingerprint.host), clean(baseline.fingerprint.device)
    count = "1 process" if len(baseline.processes) == 1 else f"{len(baseline.processes)} processes"
    made = f"made at {clean(baseline.made_at)}. The charts show the first process"
    return f"Baseline {clean(baseline.name)} of {host}, {device}: {count}, {made}."


def _session_text(session: sessions.XferSession) -> str:
    failed = sum(test.outcome == "failed" for test in session.tests)
    return f"{len(session.tests)} tests measured transfers; {failed} of them failed."


def _session_light(session: sessions.XferSession) -> tuple[Light, str]:
    failed = any(test.outcome == "failed" for test in session.tests)
    return ("bad", "failed") if failed else ("good", "passed")


def _history_text(history: baselines.History) -> str:
    """The history whose last change lost most, or that none has changed."""
    changed = [group for group in history.groups if group.changes]
    if not changed:
        searched = [group for group in history.groups if group.drift is not None or group.limit.value is not None]
        unknown = f"; {len(history.groups) - len(searched)} histories cannot show one"
        drifting = f"; {count} of them drift" if (count := sum(group.drift is not None for group in searched)) else ""
        if not searched:
            return f"Whether any of {len(history.groups)} histories has changed is not known."
        rest = unknown if len(searched) < len(history.groups) else ""
        return f"No change in {len(searched)} histories{drifting}{rest}."
    worst = min(changed, key=lambda group: group.changes[-1].share)
    return f"{len(changed)} of {len(history.groups)} histories have changed; {group_text(worst)}."


def _history_light(history: baselines.History) -> tuple[Light, str]:
    last = [group.changes[-1].share if group.changes else group.drift or 0.0 for group in history.groups]
    slower = sum(share < 0 for share in last)
    return ("doubtful", f"{slower} slower") if slower else ("none", "no loss")


def _of_comparison(comparison: baselines.Comparison) -> Headline:
    text = clean(wording.headline(comparison), _LONGEST)
    return Headline(text, _VERDICT_LIGHTS[comparison.verdict], comparison.verdict)


def _of_examination(examination: examinations.Examination) -> Headline:
    light: Light = "none" if examination.run.runtime == "host" else _STATUS_LIGHTS[examination.worst]
    return Headline(summary(examination), light, examination.worst)


_HEADLINES: dict[type, Callable[[Any], Headline]] = {
    runs.Run: lambda run: Headline(_run_text(run), *_run_light(run)),
    baselines.Comparison: _of_comparison,
    examinations.Examination: _of_examination,
    tunings.RingState: _ring_headline,
    links.Links: lambda run: Headline(_links_text(run), *_links_light(run)),
    watches.Watched: lambda watched: Headline(_watch_text(watched), *_watch_light(watched)),
    baselines.Baseline: lambda baseline: Headline(_baseline_text(baseline), "none", "baseline"),
    sessions.XferSession: lambda session: Headline(_session_text(session), *_session_light(session)),
    baselines.History: lambda history: Headline(_history_text(history), *_history_light(history)),
    fleets.Fleet: lambda fleet: Headline(*fleet_headline(fleet)),
    fleets.HostReport: lambda report: Headline(*host_headline(report)),
}
