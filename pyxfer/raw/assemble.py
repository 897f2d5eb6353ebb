"""From trials to measurements: statistics, shares of the ceiling and of the peak, and what a reader must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyxfer import stats
from pyxfer.model import (
    Bracket,
    Curve,
    Ending,
    Fact,
    Link,
    Measurement,
    Rate,
    Remark,
    Share,
    Side,
    Summary,
    Trial,
    unknown,
)
from pyxfer.model_trace import OF_SIDES
from pyxfer.raw.staged import StagedCopies
from pyxfer.raw.subjects import RawSubject
from pyxfer.raw.ways import Way
from pyxfer.sampling.subject import Series
from pyxfer.tracing.findings import Evidence, Expected, Findings
from pyxfer.units import format_gbps, format_percent

NO_LOCKED = "a staged copy is held against page-locked memory, which was not measured: add --memory pinned"
NO_TRIAL = "the run ended before its first trial"
# Where it is known how it ended.
ENDED_EARLY: Mapping[Ending, str] = {
    "interrupted": "the run was interrupted before its first trial",
    "failed": "the run failed before its first trial",
}


@dataclass
class Collected:
    """What is known of one way at one size, measured or not."""

    way: Way
    nbytes: int
    unavailable: str | None = None
    subject: RawSubject | StagedCopies | None = None
    series: Series | None = None
    verified: Fact[bool] = field(default_factory=lambda: unknown("the run ended before it was verified"))
    first_s: Fact[float] = field(default_factory=lambda: unknown("the run ended before its first copy"))
    evidence: dict[Side, Evidence] = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = {side: Evidence() for side in _sides(self.way)}
        if "sum" in self.evidence:
            self.evidence["sum"].missing = OF_SIDES

    def untraced(self, why: str, failed: bool) -> None:
        """Why there is no traced trial, or no further one."""
        for side, evidence in self.evidence.items():
            if side != "sum":
                evidence.missing, evidence.failed = why, failed

    def findings(self, side: Side, median_s: float | None) -> Findings:
        """What its traced trials say of a side."""
        expected = Expected(self.nbytes, memory=self.way.met, verified=self.verified.value is True)
        return self.evidence[side].findings(expected, median_s)


@dataclass(frozen=True)
class Assembler:
    """Makes measurements; the same for a run under way and for a finished one.

    `no_trial` says why what has no trial has none.
    """

    link: Link
    precision: float
    budget_s: float
    no_trial: str = NO_TRIAL

    def measurements(self, collected: Sequence[Collected]) -> tuple[Measurement, ...]:
        """In the order collected, the sides of a copy both ways one after the other."""
        ceilings, locked = ceiling_trials(collected), locked_trials(collected)
        return tuple(
            self._measurement(each, side, (locked if each.way.staged else ceilings).get(_place(each, side)))
            for each in collected
            for side in _sides(each.way)
        )

    def _measurement(self, found: Collected, side: Side, ceiling: Sequence[Trial] | None) -> Measurement:
        trials = tuple(found.series.trials.get(side, ())) if found.series else ()
        valid = [trial for trial in trials if trial.invalid is None]
        summary = stats.summarise([trial.elapsed_s for trial in valid]) if valid else None
        moved = found.nbytes * (2 if side == "sum" else 1)
        findings = found.findings(side, summary.median_s if summary else None)
        rate = self._rate(found, side, moved, summary, trials)
        if findings.elided is not None and rate.value is not None:
            rate = unknown(findings.elided)
        return Measurement(
            route=found.way.route,
            direction=found.way.direction,
            side=side,
            memory=found.way.memory,
            mode=found.way.mode,
            variant=found.way.variant,
            bracket=_bracket(found),
            nbytes=found.nbytes,
            moved_bytes=moved,
            rate=rate,
            peak_share=peak_share(self.link, side, rate),
            ceiling_share=self._ceiling_share(found, valid, ceiling, rate),
            verified=found.verified if found.unavailable is None else unknown(found.unavailable),
            first_s=found.first_s if found.unavailable is None else unknown(found.unavailable),
            summary=summary,
            dispatch=summary_of([trial.dispatch_s for trial in valid]),
            wall=summary_of([trial.wall_s for trial in valid]),
            trials=trials,
            remarks=(*self._remarks(found, valid, trials, summary), *findings.remarks),
            dma=findings.dma,
            breakdown=findings.breakdown,
        )

    def _rate(
        self, found: Collected, side: Side, moved: int, summary: Summary | None, trials: Sequence[Trial]
    ) -> Fact[Rate]:
        reason = found.unavailable or (found.series.failure if found.series else None)
        if summary is None:
            return unknown(reason or why_no_trial(trials, self.no_trial))
        if found.verified.value is False:
            return unknown("what arrived was not what was sent, so no bandwidth is given")
        return credible_rate(moved, summary, self.link.most_gbps(side))

    @staticmethod
    def _ceiling_share(
        found: Collected, valid: Sequence[Trial], ceiling: Sequence[Trial] | None, rate: Fact[Rate]
    ) -> Fact[Share]:
        if found.way.staged and ceiling is None and rate.value is not None:
            return unknown(NO_LOCKED)
        return ceiling_share(valid, ceiling, rate)

    def _remarks(
        self, found: Collected, valid: Sequence[Trial], trials: Sequence[Trial], summary: Summary | None
    ) -> tuple[Remark, ...]:
        remarks = []
        if summary is not None:
            doubt = stats.instability([trial.elapsed_s for trial in valid], self.precision, self.budget_s)
            remarks += [doubt] if doubt else []
        if found.series is not None and found.series.failure and summary is not None:
            remarks.append(Remark("failed", f"it ended early: {found.series.failure}"))
        unused = unused_remark(trials)
        remarks += [unused] if unused else []
        return tuple(remarks)


def credible_rate(moved: int, summary: Summary, most_gbps: float | None) -> Fact[Rate]:
    """The bandwidth, unless it cannot be true."""
    if summary.median_s <= 0:
        return unknown("half of the trials took no time that the event clock could see: time a larger size")
    rate = stats.rate(moved, summary)
    if most_gbps is not None and rate.gbps > most_gbps:
        return unknown(
            f"{format_gbps(rate.gbps)} would be above the link's peak of {format_gbps(most_gbps)}, so these bytes did "
            "not all cross it"
        )
    return Fact(rate)


def peak_share(link: Link, side: Side, rate: Fact[Rate]) -> Fact[float]:
    """What part of the link's protocol peak that is."""
    peak = link.peak_gbps(side)
    if rate.value is None:
        return unknown(rate.reason or "")
    if peak.value is None:
        return unknown(peak.reason or "")
    return Fact(rate.value.gbps / peak.value)


def curves(measurements: Sequence[Measurement]) -> tuple[Curve, ...]:
    """A fit for every route, direction, side and variant that was measured."""
    points: dict[tuple[str, str, Side, str], list[Measurement]] = {}
    for each in measurements:
        points.setdefault((each.route, each.direction, each.side, each.variant), []).append(each)
    return tuple(_curve(each) for each in points.values())


def _curve(points: Sequence[Measurement]) -> Curve:
    known = [(each.moved_bytes, each.elapsed_s) for each in points if each.gbps is not None and each.elapsed_s]
    fit = stats.fit_curve(known)
    first = points[0]
    return Curve(
        route=first.route,
        direction=first.direction,
        side=first.side,
        variant=first.variant,
        latency_s=fit.latency_s,
        asymptote_gbps=fit.asymptote_gbps,
        half_bytes=fit.half_bytes,
        worst_misfit=fit.worst_misfit,
    )


def ceiling_trials(collected: Sequence[Collected]) -> Mapping[tuple[str, Side, int], Sequence[Trial]]:
    """The trials of the best verified route of each direction, side and size; staged ones are none of the driver's."""
    best: dict[tuple[str, Side, int], tuple[float, Sequence[Trial]]] = {}
    for found in collected:
        if found.series is None or found.verified.value is False or found.way.staged or found.way.variant != "warm":
            continue
        for side in found.series.trials:
            times = found.series.valid_times(side)
            if not times:
                continue
            place = _place(found, side)
            median = stats.summarise(times).median_s
            if place not in best or median < best[place][0]:
                best[place] = (median, found.series.trials[side])
    return {place: trials for place, (_, trials) in best.items()}


def locked_trials(collected: Sequence[Collected]) -> Mapping[tuple[str, Side, int], Sequence[Trial]]:
    """The same of page-locked memory alone: what staged copies are held against, for it is what they go through."""
    return ceiling_trials([found for found in collected if found.way.page_locked])


def _place(found: Collected, side: Side) -> tuple[str, Side, int]:
    return found.way.direction, side, found.nbytes


def ceiling_share(valid: Sequence[Trial], ceiling: Sequence[Trial] | None, rate: Fact[Rate]) -> Fact[Share]:
    """The median of the ratios round by round: a machine's drift is in both."""
    if rate.value is None:
        return unknown(rate.reason or "")
    reference = {trial.round: trial.elapsed_s for trial in ceiling or () if trial.invalid is None}
    shared = [(reference[trial.round], trial.elapsed_s) for trial in valid if trial.round in reference]
    shared = [(above, below) for above, below in shared if above > 0 and below > 0]
    if not shared:
        return unknown("no round has a valid trial of this and of the ceiling")
    return Fact(stats.ratio_share([above for above, _ in shared], [below for _, below in shared]))


def summary_of(seconds: Sequence[float | None]) -> Summary | None:
    """The summary of those that were taken."""
    known = [each for each in seconds if each is not None]
    return stats.summarise(known) if known else None


def unused_remark(trials: Sequence[Trial]) -> Remark | None:
    """What became of the trials that do not count, where others do."""
    reasons = [trial.invalid for trial in trials if trial.invalid is not None]
    if not reasons or len(reasons) == len(trials):
        return None
    return Remark(
        "invalid-trials", f"{format_percent(len(reasons) / len(trials))} of the trials were not used: {reasons[0]}"
    )


def why_no_trial(trials: Sequence[Trial], none: str = NO_TRIAL) -> str:
    """Why there is no time: no trial at all, or none that counts."""
    invalid = next((trial.invalid for trial in trials if trial.invalid), None)
    return f"no trial was valid: {invalid}" if invalid else none


def _sides(way: Way) -> tuple[Side, ...]:
    if way.direction == "both":
        return ("h2d", "d2h", "sum")
    return ("h2d",) if way.direction == "h2d" else ("d2h",)


def _bracket(found: Collected) -> Bracket:
    if found.way.mode == "memcpy" or found.way.staged:
        return "drained"
    return "gated" if found.way.page_locked else "stream"
