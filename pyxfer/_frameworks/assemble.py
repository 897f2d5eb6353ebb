"""From the trials of frameworks' routes to measurements, each against the ceiling of its own worker and rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyxfer._ceiling.assemble import (
    NO_TRIAL,
    Ceilings,
    Collected,
    ceiling_seconds,
    ceiling_share,
    ceiling_trials,
    credible_rate,
    peak_share,
    summary_of,
    unused_remark,
    way_candidate,
    why_no_trial,
)
from pyxfer._document.runs import (
    Fact,
    Link,
    Measurement,
    Rate,
    Remark,
    Side,
    Summary,
    Tracing,
    Trial,
    Workload,
    unknown,
)
from pyxfer._frameworks.base import HOST_COPY, Route
from pyxfer._frameworks.messages import Doing, FromWorker, Task, Tracer
from pyxfer._frameworks.place import IMAGE_BYTES
from pyxfer._frameworks.subjects import side_of
from pyxfer._measure import stats
from pyxfer._measure.sampler import Series
from pyxfer._trace import phase
from pyxfer._trace.breakdown import NOTHING_CROSSES
from pyxfer._trace.findings import Evidence, Expected, Findings
from pyxfer._trace.phase import Candidate

if TYPE_CHECKING:
    from pyxfer._frameworks.subjects import RouteSubject
    from pyxfer._trace.collector import Taking
    from pyxfer.native import Engine


Pairs = Sequence[tuple["Found", "RouteSubject | None"]]


def trace_worker(
    engine: Engine,
    device: int,
    task: Task,
    raw: Sequence[Collected],
    routes: Pairs,
    deadline_s: float,
    cancelled: Callable[[], bool],
    send: Callable[[FromWorker], None],
) -> None:
    """A few trials of each row that has some which count; what it was is told of before a trial that could crash."""
    ceilings = ceiling_trials(raw)
    candidates = [
        way_candidate(found, ceilings, task.seed + number, task.explained) for number, found in enumerate(raw)
    ]
    candidates += [
        _route_candidate(found, subject, ceilings, task.seed + 2 * number, task.explained)
        for number, (found, subject) in enumerate(routes, start=len(raw))
    ]

    def tell(tracing: Fact[Tracing]) -> None:
        send(Tracer(tracing))

    if not task.trace:
        phase.leave_out(candidates, tell)
        return
    send(Doing("tracing", 1.0, ""))
    phase.trace_candidates(
        engine,
        device,
        candidates,
        seconds=phase.seconds_for(task.budget_s, deadline_s),
        seed=task.seed,
        cancelled=cancelled,
        on_start=tell,
        on_round=lambda number: send(Doing("tracing", 1.0, f"round {number + 1} of {phase.TRIALS}")),
    )


def _route_candidate(
    found: Found, subject: RouteSubject | None, ceilings: Ceilings, seed: int, explained: str
) -> Candidate:
    """How a route is traced, if it has a trial that counts; an explained one until one is near to the timed ones."""
    route, side = found.route, side_of(found.route)
    if subject is None or found.series is None or not found.series.valid_times(side):
        return Candidate(None, found.untraced)
    ceiling_s = ceiling_seconds(ceilings, route.direction, side, found.nbytes)

    def trace(taking: Taking, fresh: bool) -> None:
        trial, right = subject.traced(taking, seed if fresh else None)
        if not right:
            found.verified = Fact(False)
        found.evidence.add(trial, ceiling_s, found.nbytes)

    median_s = stats.summarise(found.series.valid_times(side)).median_s
    is_near = partial(found.evidence.is_near, median_s) if route.name == explained else None
    return Candidate(trace, found.untraced, is_near)


# Many routes share the budget and a document: what is cheap to repeat leaves room for what is not.
MOST_ROUNDS = 200
ALIASED = "no bytes were moved: the result uses the memory of the array that it was made from"
_NOT_VERIFIED = "the run ended before it was verified"


@dataclass
class Found:
    """What is known of one route at one size, measured or not."""

    route: Route
    nbytes: int
    unavailable: str | None = None
    aliased: bool = False
    series: Series | None = None
    verified: Fact[bool] = field(default_factory=lambda: unknown(_NOT_VERIFIED))
    first_s: Fact[float] = field(default_factory=lambda: unknown("the run ended before its first call"))
    evidence: Evidence = field(default_factory=Evidence)

    def untraced(self, why: str, failed: bool) -> None:
        """Why there is no traced trial, or no further one."""
        self.evidence.missing, self.evidence.failed = why, failed

    def findings(self, median_s: float | None) -> Findings:
        """What its traced trials say."""
        route = self.route
        if self.unavailable is not None:
            return Findings(unknown(self.unavailable), unknown(self.unavailable))
        memory = "" if route.dma == "none" else route.dma
        return self.evidence.findings(
            Expected(self.nbytes, route.inflation, memory, self.verified.value is True), median_s
        )


@dataclass(frozen=True)
class RouteAssembler:
    """Makes the rows of one worker."""

    worker: str
    framework: str
    link: Link
    precision: float
    budget_s: float
    workload: Workload

    def measurement(self, found: Found, ceilings: Ceilings) -> Measurement:
        """The row of a route at a size."""
        route, side = found.route, side_of(found.route)
        trials = tuple(found.series.trials.get(side, ())) if found.series else ()
        valid = [trial for trial in trials if trial.invalid is None]
        summary = summary_of([trial.elapsed_s for trial in valid])
        findings = found.findings(summary.median_s if summary else None)
        rate = self._rate(found, side, summary, trials, findings)
        why_not = found.unavailable
        return Measurement(
            route=route.name,
            direction=route.direction,
            side=side,
            memory=route.memory,
            mode="framework",
            variant="warm",
            bracket=route.bracket,
            nbytes=found.nbytes,
            moved_bytes=found.nbytes,
            rate=rate,
            peak_share=peak_share(self.link, side, rate),
            ceiling_share=ceiling_share(valid, ceilings.get((route.direction, side, found.nbytes)), rate),
            verified=found.verified if why_not is None else unknown(why_not),
            first_s=found.first_s if why_not is None else unknown(why_not),
            summary=summary,
            dispatch=summary_of([trial.dispatch_s for trial in valid]),
            wall=summary_of([trial.wall_s for trial in valid]),
            trials=trials,
            remarks=self._remarks(found, valid, trials, findings),
            worker=self.worker,
            nature=None if route is HOST_COPY else route.nature(self.framework, self.workload),
            batch=found.nbytes // IMAGE_BYTES if self.workload == "image-batch" else None,
            dma=unknown(NOTHING_CROSSES) if route.direction == "ingest" else findings.dma,
            breakdown=findings.breakdown,
        )

    def _rate(
        self, found: Found, side: Side, summary: Summary | None, trials: Sequence[Trial], findings: Findings
    ) -> Fact[Rate]:
        if found.verified.value is False:
            return unknown("what arrived was not what was sent, so no bandwidth is given")
        if summary is None:
            failure = found.series.failure if found.series else None
            return unknown(found.unavailable or failure or (why_no_trial(trials) if trials else NO_TRIAL))
        if found.aliased:
            return unknown(ALIASED)
        if findings.elided is not None:
            return unknown(findings.elided)
        return credible_rate(found.nbytes, summary, self.link.most_gbps(side))

    def _remarks(
        self, found: Found, valid: Sequence[Trial], trials: Sequence[Trial], findings: Findings
    ) -> tuple[Remark, ...]:
        if not valid:
            return ()
        doubt = stats.instability([trial.elapsed_s for trial in valid], self.precision, self.budget_s)
        remarks = [_exhausted(doubt, len(valid)) if doubt and len(trials) >= MOST_ROUNDS else doubt]
        if found.series is not None and found.series.failure:
            remarks.append(Remark("failed", f"it ended early: {found.series.failure}"))
        if found.route.inflation > 1 and not findings.measured:
            remarks.append(_inflated(found.route))
        return tuple(remark for remark in (*remarks, unused_remark(trials), *findings.remarks) if remark is not None)


def host_ceilings(found: Sequence[Found]) -> Ceilings:
    """The trials of one NumPy copy, by size."""
    return {
        ("ingest", "ingest", each.nbytes): each.series.trials.get("ingest", ())
        for each in found
        if each.route is HOST_COPY and each.series is not None
    }


def _exhausted(doubt: Remark, trials: int) -> Remark:
    """No longer budget would narrow what has had all the trials that it can have."""
    if doubt.code not in ("unstable", "few-trials"):
        return doubt
    return Remark("exhausted", f"{doubt.text}, after {trials} trials, which are as many as there may be", stats.QUIETER)


def _inflated(route: Route) -> Remark:
    return Remark(
        "inflated",
        f"it converts on the host first, so {route.inflation:g} times the bytes cross the link; the bandwidth counts "
        "those that were asked for",
        "convert on the GPU, after the copy",
    )
