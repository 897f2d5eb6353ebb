"""From the trials of frameworks' routes to measurements, each against the ceiling of its own worker and rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyxfer import stats
from pyxfer.model import Fact, Link, Measurement, Rate, Remark, Side, Summary, Trial, Workload, unknown
from pyxfer.raw.assemble import (
    NO_TRIAL,
    ceiling_share,
    credible_rate,
    peak_share,
    summary_of,
    unused_remark,
    why_no_trial,
)
from pyxfer.routes.base import Route
from pyxfer.routes.place import IMAGE_BYTES
from pyxfer.routes.reference_route import HOST_COPY
from pyxfer.sampling.subject import Series
from pyxfer.tracing.dma import NOTHING_CROSSES
from pyxfer.tracing.findings import Evidence, Expected, Findings
from pyxfer.workers.subjects import side_of

# Many routes share the budget and a document: what is cheap to repeat leaves room for what is not.
MOST_ROUNDS = 200
ALIASED = "no bytes were moved: the result uses the memory of the array that it was made from"
_NOT_VERIFIED = "the run ended before it was verified"

Ceilings = Mapping[tuple[str, Side, int], Sequence[Trial]]


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
