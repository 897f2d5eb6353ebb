"""From trials to measurements: statistics, shares of the ceiling and of the peak, and what a reader must know."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyxfer._ceiling.subjects import RawSubject, StagedCopies, make_subject
from pyxfer._ceiling.ways import Way
from pyxfer._document.runs import (
    OF_SIDES,
    Bracket,
    Curve,
    Ending,
    Environment,
    Fact,
    Link,
    Measurement,
    Rate,
    Remark,
    Share,
    Side,
    Summary,
    Tracing,
    Trial,
    unknown,
)
from pyxfer._machine.nvml import held_down_by
from pyxfer._measure import stats
from pyxfer._measure.sampler import After, Series
from pyxfer._trace import phase
from pyxfer._trace.findings import Evidence, Expected, Findings
from pyxfer._trace.phase import Candidate
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError
from pyxfer.units import format_gbps, format_percent, format_seconds

if TYPE_CHECKING:
    from pyxfer._ceiling.subjects import RawSubject
    from pyxfer._ceiling.ways import Request
    from pyxfer._ceiling.workshop import Workshop
    from pyxfer._trace.collector import Taking
    from pyxfer.native import Engine


Ceilings = Mapping[tuple[str, Side, int], Sequence[Trial]]


def ceiling_seconds(ceilings: Ceilings, direction: str, side: Side, nbytes: int) -> float | None:
    """What the ceiling of this process takes for one copy."""
    times = [trial.elapsed_s for trial in ceilings.get((direction, side, nbytes), ()) if trial.invalid is None]
    return stats.summarise(times).median_s if times else None


def way_candidate(found: Collected, ceilings: Ceilings, seed: int, explained: str) -> Candidate:
    """How a way is traced, if it has a trial that counts; an explained one until one is near to the timed ones."""
    subject, series = found.subject, found.series
    if subject is None or series is None or not any(series.valid_times(side) for side in series.trials):
        return Candidate(None, found.untraced)

    def trace(taking: Taking, fresh: bool) -> None:
        traced, right = subject.traced(taking, seed if fresh else None)
        if not right:
            found.verified = Fact(False)
        for side, trial in traced.items():
            ceiling_s = ceiling_seconds(ceilings, found.way.direction, side, found.nbytes)
            found.evidence[side].add(trial, ceiling_s, found.nbytes)

    def is_near() -> bool:
        return all(
            found.evidence[side].is_near(stats.summarise(times).median_s)
            for side in series.trials
            if (times := series.valid_times(side))
        )

    return Candidate(trace, found.untraced, is_near if found.way.route == explained else None)


def trace_ways(
    engine: Engine,
    device: int,
    collected: Sequence[Collected],
    request: Request,
    deadline_s: float,
    cancelled: Callable[[], bool],
    on_start: Callable[[Fact[Tracing]], None],
) -> None:
    """The traced trials of a ceiling run."""
    ceilings, locked = ceiling_trials(collected), locked_trials(collected)
    candidates = [
        way_candidate(found, locked if found.way.staged else ceilings, request.seed + number, request.explained)
        for number, found in enumerate(collected)
    ]
    if not request.trace:
        phase.leave_out(candidates, on_start)
        return
    phase.trace_candidates(
        engine,
        device,
        candidates,
        seconds=phase.seconds_for(request.budget_s, deadline_s),
        seed=request.seed,
        cancelled=cancelled,
        on_start=on_start,
    )


def after_timing(budget_s: float, *, trace: bool) -> After:
    """What the traced trials are left of a budget."""
    return After(phase.TRIALS, phase.OPENING_S, phase.TAKING_S, phase.SHARE * budget_s) if trace else After()


def prepare(found: Collected, shop: Workshop, seed: int) -> None:
    """Give it a subject, or the reason why it has none."""
    try:
        subject = _subject(found, shop)
        found.first_s = Fact(subject.calibrate())
        found.verified = subject.verify(seed)
    except (CudaUnavailableError, DeviceLostError):
        raise
    except (CudaError, MeasurementError) as error:
        found.unavailable = str(error)
    else:
        found.subject = subject


def _subject(found: Collected, shop: Workshop) -> RawSubject | StagedCopies:
    way, nbytes = found.way, found.nbytes
    if way.staged:
        return StagedCopies(shop.engine, way, nbytes, shop.arena, shop.stager(), shop.device)
    return make_subject(shop.engine, way, nbytes, shop.arena, shop.copier(way.streams), shop.device)


STUCK = Remark(
    "stuck",
    "What was under way could not be ended in time, a large allocation or a device that does not answer; its memory is "
    "left to the end of this process.",
    "if the device is to blame, look at nvidia-smi and for Xid in dmesg",
)


def circumstances(met: Collection[int], before: Environment, after: Environment | None) -> list[Remark]:
    """Who else was there, and whether the clocks were held down; `met` are the processes that measured too."""
    remarks = [_others(sorted(met))] if met else []
    others = before.other_gpu_processes.value
    if others:
        remarks.append(_holders(others))
    for environment in (before, after):
        reasons = held_down_by(environment)
        if reasons:
            remarks.append(
                Remark(
                    "throttled",
                    f"The GPU's clocks were held down: {', '.join(reasons)}.",
                    "see nvidia-smi -q -d PERFORMANCE, and measure again when it is cool and has its power",
                )
            )
            break
    return remarks


def late(prepared_s: float) -> Remark:
    """Preparation has taken the whole budget, so each row has only the fewest trials."""
    return Remark(
        "late",
        f"Preparation took {format_seconds(prepared_s)}, the whole budget, so no row has more than the fewest trials.",
        f"ask for smaller sizes, or give --budget {math.ceil(3 * prepared_s)}s",
    )


def _others(pids: Sequence[int]) -> Remark:
    who = ", ".join(str(pid) for pid in pids)
    return Remark(
        "contended",
        f"Another pyxfer measured this device at the same time (process {who}), so figures may be low.",
        "measure again when it has ended",
    )


def _holders(pids: Sequence[int]) -> Remark:
    who = ", ".join(str(pid) for pid in pids)
    return Remark(
        "shared",
        f"Other processes use this GPU (process {who}); while they copy or compute, figures are lower.",
        "end them, or measure when they are idle",
    )


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
