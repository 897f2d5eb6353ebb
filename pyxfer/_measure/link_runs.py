"""The copies between host and GPU of a links document as runs, one for each GPU, for what reads runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pyxfer._document.links import LinkDevice, Links, Traffic, seconds_a_gigabyte
from pyxfer._document.machines import Fact, Placement, Side, unknown
from pyxfer._document.runs import Direction, Measurement, Parameters, Rate, Run, Trial
from pyxfer._measure import stats

GIGABYTE = 10**9
_NOT_TAKEN = "a run of links does not read it"
_DIRECTIONS: dict[str, Direction] = {"h2d": "h2d", "d2h": "d2h", "both": "both"}
_SIDES: tuple[Side, ...] = ("h2d", "d2h", "sum")


def runs_of(links: Links) -> tuple[Run, ...]:
    """One run for each GPU that has copies of its own, with these as raw copies of pinned memory."""
    return tuple(run for run in runs_of_all(links) if run.measurements)


def runs_of_all(links: Links) -> tuple[Run, ...]:
    return tuple(_run(links, each) for each in links.devices)


def _run(links: Links, each: LinkDevice) -> Run:
    given, measurements = links.parameters, tuple(_measurements(links, each))
    not_taken: Fact[str] = unknown(_NOT_TAKEN)
    return Run(
        kind="ceiling",
        ended=links.ended,
        runtime=links.runtime,
        runtime_reason=links.runtime_reason,
        parameters=Parameters(
            device=str(each.device.index),
            directions=tuple(dict.fromkeys(row.direction for row in measurements)),
            memories=("pinned",),
            modes=("async",),
            sizes_bytes=tuple(sorted({row.nbytes for row in measurements})),
            fresh=False,
            precision=given.precision,
            budget_s=given.budget_s,
            seed=given.seed,
            min_rounds=1,
        ),
        device=each.device,
        link=each.link,
        placement=Placement(each.node, not_taken, unknown(_NOT_TAKEN), each.pages_by_node),
        environment=links.environment,
        environment_after=links.environment_after,
        duration_s=links.duration_s,
        measurements=measurements,
        remarks=links.remarks,
        failure=links.failure,
    )


def _measurements(links: Links, each: LinkDevice) -> Iterator[Measurement]:
    for row in links.traffics:
        direction = _DIRECTIONS.get(row.case)
        is_host = row.group == "host" and row.engine == "ce" and row.flows[0].device == each.device.index
        if direction is None or not is_host:
            continue
        for side in _SIDES:
            numbers = [i for i, flow in enumerate(row.flows) if side in (flow.side, "sum")]
            if numbers and (side != "sum" or direction == "both"):
                yield _measurement(row, direction, side, numbers, each)


def _measurement(
    row: Traffic, direction: Direction, side: Side, numbers: Sequence[int], each: LinkDevice
) -> Measurement:
    moved = row.nbytes * len(numbers)
    valid = [(trial.round, s) for trial, s in zip(row.valid, seconds_a_gigabyte(row.valid, numbers), strict=True)]
    trials = tuple(Trial(number, s * moved / GIGABYTE) for number, s in valid if math.isfinite(s))
    summary = stats.summarise([trial.elapsed_s for trial in trials]) if trials else None
    rate: Fact[Rate] = unknown(row.total.reason or "no trial counts")
    if summary is not None and row.total.value is not None:
        rate = Fact(stats.rate(moved, summary))
    facts = [row.flows[number].verified for number in numbers]
    return Measurement(
        route="raw.pinned-async",
        direction=direction,
        side=side,
        memory="pinned",
        mode="async",
        variant="warm",
        bracket="gated",
        nbytes=row.nbytes,
        moved_bytes=moved,
        rate=rate,
        peak_share=stats.share_of_peak(rate, each.link.peak_gbps(side)),
        ceiling_share=unknown(_NOT_TAKEN),
        verified=next((fact for fact in facts if fact.value is not True), facts[0]),
        first_s=unknown(_NOT_TAKEN),
        summary=summary,
        trials=trials,
        remarks=row.remarks,
    )
