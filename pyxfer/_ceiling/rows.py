"""The rows of a run: an item is measured at one size, and the assembler turns it into measurements.

Raw copies, routes of frameworks and callables are all items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pyxfer._ceiling.plans import CopyPlan
from pyxfer._document import runs
from pyxfer._document.machines import MAX_SHARE, Fact, Link, Remark, Side, unknown
from pyxfer._measure import doubts, stats
from pyxfer._measure.sampler import COSTLY_S, Series
from pyxfer._trace.breakdown import NOTHING_CROSSES
from pyxfer._trace.collector import Traced, TrialRecorder
from pyxfer._trace.findings import CONVERT_LATER, Evidence, Expected, Findings
from pyxfer._trace.traced_trials import MIN_TRIALS, Candidate
from pyxfer._upload.settings import is_left_to_driver
from pyxfer.units import format_gbps, format_percent

NO_TRIAL = "the run ended before its first trial"
ENDED_EARLY: Mapping[runs.Ending, str] = {
    "interrupted": "the run was interrupted before its first trial",
    "failed": "the run failed before its first trial",
}
NO_LOCKED = "the ceiling of a staged copy is page-locked memory, which was not measured: measure pinned memory too"
WRONG_BYTES = "what arrived was not what was sent, so no bandwidth is given"

CHECKED_AGAIN_BYTES = 16 << 20
"""Up to this size the content of a traced raw copy is verified: that of the largest takes longer than all else."""
BOTH_CONTENTS_BYTES = 64 << 20
"""Above this a route is verified with one content, and its traced trials with none: the records count its bytes."""

Ceilings = Mapping[tuple[runs.Direction, Side, int], Sequence[runs.Trial]]
"""Trials of the ceiling, by direction, side and size."""

Source = TypeVar("Source")


class Traceable(Protocol):
    def traced(self, taking: TrialRecorder, seed: int | None) -> tuple[Mapping[Side, Traced], bool]:
        """Run one trial with records. With a seed it sends fresh content; returns whether that arrived intact."""


@dataclass(frozen=True)
class Head(Generic[Source]):
    source: Source
    """The plan of a raw copy, the route, or the call."""
    route: str
    direction: runs.Direction
    memory: str
    mode: str
    bracket: runs.Bracket
    variant: runs.Variant = "warm"
    crossed: str = ""
    """The memory that the device's records should show; empty if any memory is right."""
    inflation: float = 1.0
    staged: bool = False
    worker: str | None = None
    route_info: runs.RouteInfo | None = None
    image_bytes: int | None = None
    """Size of one image, if a batch of images is moved."""

    @property
    def sides(self) -> tuple[Side, ...]:
        return ("h2d", "d2h", "sum") if self.direction == "both" else (self.direction,)


def raw_head(plan: CopyPlan, worker: str | None = None, image_bytes: int | None = None) -> Head[CopyPlan]:
    bracket: runs.Bracket = "stream"
    if plan.mode == "memcpy" or plan.staged:
        bracket = "drained"
    elif plan.page_locked:
        bracket = "gated"
    crossed = "pinned" if plan.page_locked or plan.staged else "pageable"  # a staged copy crosses from the ring's slots
    of_plan = (plan, plan.route, plan.direction, plan.memory, plan.mode, bracket, plan.variant, crossed)
    return Head(*of_plan, staged=plan.staged, worker=worker, image_bytes=image_bytes)


@dataclass
class Item(Generic[Source]):
    head: Head[Source]
    nbytes: int
    unavailable: str | None = None
    """Why it was not measured."""
    no_rate: str | None = None
    """Why its times give no bandwidth."""
    subject: Any = None
    series: Series | None = None
    verified: Fact[bool] = field(default_factory=lambda: unknown("the run ended before it was verified"))
    first_s: Fact[float] = field(default_factory=lambda: unknown("the run ended before its first call"))
    evidence: dict[Side, Evidence] = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = {side: Evidence() for side in self.head.sides}
        if "sum" in self.evidence:
            self.evidence["sum"].missing = runs.OF_SIDES

    def place(self, side: Side) -> tuple[runs.Direction, Side, int]:
        return self.head.direction, side, self.nbytes

    def moved_bytes(self, side: Side) -> int:
        return self.nbytes * (2 if side == "sum" else 1)

    def trials(self, side: Side) -> tuple[runs.Trial, ...]:
        return tuple(self.series.trials.get(side, ())) if self.series else ()

    def give_up(self, error: Exception) -> None:
        self.subject, self.unavailable = None, str(error)

    def untraced(self, why: str, failed: bool) -> None:
        """Note why it is not traced, or not traced further; `failed` if its traced trial failed."""
        for side, evidence in self.evidence.items():
            if side != "sum":
                evidence.missing, evidence.failed = why, failed

    def findings(self, side: Side, median_s: float | None, chunk_bytes: int | None) -> Findings:
        if self.unavailable is not None and side != "sum":
            return Findings(unknown(self.unavailable), unknown(self.unavailable))
        memory = self.head.crossed
        if self.head.direction == "h2d" and getattr(self.head.source, "staged", False):
            memory = "" if is_left_to_driver(self.nbytes, chunk_bytes) else memory
        expected = Expected(self.nbytes, self.head.inflation, memory, self.verified.value is True)
        return self.evidence[side].findings(expected, median_s)


@dataclass(frozen=True)
class Assembler:
    link: Link
    precision: float
    budget_s: float
    no_trial: str = NO_TRIAL
    """The reason in rows without a trial."""
    most_trials: int | None = None
    """The largest number of trials of a row, regardless of the budget."""
    chunk_bytes: int | None = None
    """The chunk size of the ring that staged copies go through, if known."""

    def measurements(
        self, items: Sequence[Item[Any]], ceilings: Ceilings | None = None
    ) -> tuple[runs.Measurement, ...]:
        best = best_trials(items) if ceilings is None else ceilings
        locked = page_locked_trials(items)
        return tuple(
            self.row(item, side, (locked if item.head.staged else best).get(item.place(side)))
            for item in items
            for side in item.head.sides
        )

    def row(
        self, item: Item[Any], side: Side, ceiling: Sequence[runs.Trial] | None, no_ceiling: str | None = None
    ) -> runs.Measurement:
        """One row. `no_ceiling` is the reason for a missing share of the ceiling, if it is known."""
        head, trials, moved = item.head, item.trials(side), item.moved_bytes(side)
        valid = [trial for trial in trials if trial.invalid is None]
        summary = summary_of([trial.elapsed_s for trial in valid])
        findings = item.findings(side, summary.median_s if summary else None, self.chunk_bytes)
        rate = self._rate(item, side, summary, findings)
        share = _share(head, valid, ceiling, rate, no_ceiling)
        doubt = filter(None, [share_remark(share.value, summary, valid, ceiling or ())])
        missing = item.unavailable
        of_head = ("route", "direction", "memory", "mode", "variant", "bracket", "worker", "route_info")
        return runs.Measurement(
            **{name: getattr(head, name) for name in of_head},
            side=side,
            nbytes=item.nbytes,
            moved_bytes=moved,
            rate=rate,
            peak_share=stats.share_of_peak(rate, self.link.peak_gbps(side)),
            ceiling_share=share,
            verified=item.verified if missing is None else unknown(missing),
            first_s=item.first_s if missing is None else unknown(missing),
            summary=summary,
            dispatch=summary_of([trial.dispatch_s for trial in valid]),
            wall=summary_of([trial.wall_s for trial in valid]),
            trials=trials,
            remarks=(*self._remarks(item, valid, trials, findings), *findings.remarks, *doubt),
            batch=item.nbytes // head.image_bytes if head.image_bytes else None,
            dma=unknown(NOTHING_CROSSES) if head.direction == "ingest" else findings.dma,
            breakdown=findings.breakdown,
        )

    def _rate(self, item: Item[Any], side: Side, summary: runs.Summary | None, findings: Findings) -> Fact[runs.Rate]:
        if item.verified.value is False:
            return unknown(WRONG_BYTES)
        if summary is None:
            failure = item.unavailable or (item.series.failure if item.series else None)
            return unknown(failure or why_no_trial(item.trials(side), self.no_trial))
        why_none = item.no_rate or findings.elided
        if why_none is not None:
            return unknown(why_none)
        return credible_rate(item.moved_bytes(side), summary, self.link.most_gbps(side))

    def _remarks(
        self, item: Item[Any], valid: Sequence[runs.Trial], trials: Sequence[runs.Trial], findings: Findings
    ) -> Iterable[Remark]:
        if valid:
            doubt = doubts.instability([trial.elapsed_s for trial in valid], self.precision, self.budget_s)
            if doubt is not None:
                is_full = self.most_trials is not None and len(trials) >= self.most_trials
                yield exhausted(doubt, len(valid)) if is_full else doubt
            if item.series is not None and item.series.failure:
                yield Remark("failed", f"it ended early: {item.series.failure}")
            if item.head.inflation > 1 and not findings.measured:
                text = f"it converts on the host first, so {item.head.inflation:g} times the bytes cross the link; the "
                text += "bandwidth counts the source's bytes"
                yield Remark("inflated", text, CONVERT_LATER)
            reasons = [trial.invalid for trial in trials if trial.invalid is not None]
            if reasons:
                text = f"{format_percent(len(reasons) / len(trials))} of the trials were not used: {reasons[0]}"
                yield Remark("invalid-trials", text)


def candidate(item: Item[Any], ceilings: Ceilings, seed: int, explained: str) -> Candidate:
    """The item as a candidate for tracing. An explained one is traced until a traced trial is near the timed ones."""
    series, subject = item.series, item.subject
    if subject is None or series is None or not any(series.valid_times(side) for side in series.trials):
        return Candidate(None, item.untraced)
    traceable: Traceable = subject

    is_raw = isinstance(item.head.source, CopyPlan) and not item.head.staged
    is_explained = item.head.route == explained
    # Nothing in a raw copy could serve old content, and preparation has verified it.
    most = CHECKED_AGAIN_BYTES if is_raw else BOTH_CONTENTS_BYTES
    is_checked = item.nbytes <= most or (is_explained and not is_raw)

    def trace(taking: TrialRecorder, fresh: bool) -> None:
        traced, intact = traceable.traced(taking, seed if fresh and is_checked else None)
        if not intact:
            item.verified = Fact(False)
        for side, trial in traced.items():
            of_ceiling = ceilings.get(item.place(side), ())
            ceiling = summary_of([each.elapsed_s for each in of_ceiling if each.invalid is None])
            item.evidence[side].add(trial, None if ceiling is None else ceiling.median_s, item.nbytes)

    def is_near() -> bool:
        sides = {side: summary_of(series.valid_times(side)) for side in series.trials}
        return all(item.evidence[side].is_near(known.median_s) for side, known in sides.items() if known is not None)

    is_once = is_raw or (not is_explained and series.mean_cost_s > COSTLY_S)
    return Candidate(trace, item.untraced, is_near if is_explained else None, 1 if is_once else MIN_TRIALS)


def best_trials(items: Sequence[Item[Any]]) -> Ceilings:
    """The trials of the best verified raw copy of each direction, side and size, staged and fresh copies excluded."""
    best: dict[tuple[runs.Direction, Side, int], tuple[float, Sequence[runs.Trial]]] = {}
    for item in items:
        head = item.head
        is_raw = isinstance(head.source, CopyPlan) and not head.staged and head.variant == "warm"
        if item.series is None or item.verified.value is False or not is_raw:
            continue
        for side, trials in item.series.trials.items():
            summary, place = summary_of(item.series.valid_times(side)), item.place(side)
            if summary is not None and (place not in best or summary.median_s < best[place][0]):
                best[place] = (summary.median_s, trials)
    return {place: trials for place, (_, trials) in best.items()}


def page_locked_trials(items: Sequence[Item[Any]]) -> Ceilings:
    return best_trials([each for each in items if getattr(each.head.source, "page_locked", False)])


def credible_rate(moved: int, summary: runs.Summary, most_gbps: float | None) -> Fact[runs.Rate]:
    if summary.median_s <= 0:
        return unknown("half of the trials are shorter than the event clock's resolution: time a larger size")
    rate = stats.rate(moved, summary)
    if most_gbps is not None and rate.gbps > most_gbps:
        return unknown(
            f"{format_gbps(rate.gbps)} would be above the link's peak of {format_gbps(most_gbps / MAX_SHARE)}: these "
            "bytes did not all cross it, or the shown state of the link or MaxPayload is wrong"
        )
    return Fact(rate)


def curves(measurements: Sequence[runs.Measurement]) -> tuple[runs.Curve, ...]:
    points: dict[tuple[str, str, Side, str], list[runs.Measurement]] = {}
    for row in measurements:
        points.setdefault((row.route, row.direction, row.side, row.variant), []).append(row)
    return tuple(map(_curve, points.values()))


_NO_INTERVAL = 1.0
"""The half-width of a median of too few trials. It hardly moves the line, and is within its worst misfit."""


def _curve(points: Sequence[runs.Measurement]) -> runs.Curve:
    known = [
        (row.moved_bytes, row.summary.median_s, row.summary.relative_half_width)
        for row in points
        if row.gbps is not None and row.summary is not None and row.verified.value is not False
    ]
    fit = stats.fit_curve(
        [(nbytes, seconds, _NO_INTERVAL if half is None else half) for nbytes, seconds, half in known]
    )
    first = points[0]
    return runs.Curve(first.route, first.direction, first.side, first.variant, **vars(fit))


def _share(
    head: Head[Any],
    valid: Sequence[runs.Trial],
    ceiling: Sequence[runs.Trial] | None,
    rate: Fact[runs.Rate],
    no_ceiling: str | None,
) -> Fact[runs.Share]:
    if head.staged and isinstance(head.source, CopyPlan) and ceiling is None and rate.value is not None:
        return unknown(NO_LOCKED)
    share = ceiling_share(valid, ceiling, rate)
    return unknown(no_ceiling) if share.value is None and rate.value is not None and no_ceiling else share


def ceiling_share(
    valid: Sequence[runs.Trial], ceiling: Sequence[runs.Trial] | None, rate: Fact[runs.Rate]
) -> Fact[runs.Share]:
    """The median of the ratios within rounds, because a drift of the machine affects both sides of a ratio."""
    if rate.value is None:
        return unknown(rate.reason or "")
    pairs = shared_rounds(valid, ceiling or ())
    if not pairs:
        return unknown("no round has a valid trial of this and of the ceiling")
    return Fact(stats.ratio_share([best_s for best_s, _ in pairs], [own_s for _, own_s in pairs]))


def shared_rounds(valid: Sequence[runs.Trial], ceiling: Sequence[runs.Trial]) -> list[tuple[float, float]]:
    """The seconds of the ceiling and of these trials, in each round that has both."""
    reference = {trial.round: trial.elapsed_s for trial in ceiling if trial.invalid is None}
    pairs = [(reference[trial.round], trial.elapsed_s) for trial in valid if trial.round in reference]
    return [(best_s, own_s) for best_s, own_s in pairs if best_s > 0 and own_s > 0]


def share_remark(
    share: runs.Share | None, own: runs.Summary | None, valid: Sequence[runs.Trial], ceiling: Sequence[runs.Trial]
) -> Remark | None:
    rounds = {trial.round: trial.elapsed_s for trial in ceiling if trial.invalid is None}
    best = summary_of(list(rounds.values()))
    if share is None or own is None or best is None or own.median_s <= 0:
        return None
    of_medians = best.median_s / own.median_s
    low, high = share.low or share.value, share.high or share.value
    least, most = of_medians, of_medians
    if own.low_s and own.high_s and best.low_s and best.high_s:
        least, most = best.low_s / own.high_s, best.high_s / own.low_s
    if high < least or low > most:
        shared = sum(trial.round in rounds for trial in valid)
        return Remark(
            "share",
            f"{format_percent(share.value)} of the ceiling in the {shared} rounds that both ran, "
            f"{format_percent(of_medians)} by the medians of all",
            doubts.QUIETER,
        )
    if low > 1:
        return Remark("above-ceiling", f"faster than its ceiling: {format_percent(share.value)} of it")
    return None


def summary_of(seconds: Sequence[float | None]) -> runs.Summary | None:
    known = [time_s for time_s in seconds if time_s is not None]
    return stats.summarise(known) if known else None


# What a busy machine does to every trial of a row.
_DISTURBED = ("the other direction ended", "the gate timed out")


def why_no_trial(trials: Sequence[runs.Trial], none: str = NO_TRIAL) -> str:
    """Why there is no time: `none` without trials, or the fault of the first invalid one."""
    invalid = next((trial.invalid for trial in trials if trial.invalid), None)
    if invalid is None:
        return none
    remedy = f"; {doubts.QUIETER}" if invalid.startswith(_DISTURBED) else ""
    return f"no trial was valid: {invalid}{remedy}"


def exhausted(doubt: Remark, trials: int) -> Remark:
    if doubt.code not in ("unstable", "few-trials"):
        return doubt
    return Remark("exhausted", f"{doubt.text}, after {trials} trials, the most that a row may have", doubts.QUIETER)
