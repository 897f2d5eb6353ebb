"""The rows of the document from the trials of the subjects, and the interference map from the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pyxfer._document import links
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import Rate, Share
from pyxfer._links import sharing
from pyxfer._links.chases import LatencySubject
from pyxfer._links.traffic import WRONG, SmallSubject, TrafficSubject
from pyxfer._measure import stats
from pyxfer._measure.doubts import instability
from pyxfer.errors import MeasurementError

replace = msgspec.structs.replace

GIGABYTE = 10**9
NO_TRIAL = "no trial of it counts"
NO_ALONE = "the same copies were not measured alone"
NO_PEAK_INSIDE = "copies inside a GPU cross no link"


@dataclass(frozen=True)
class Assembler:
    """Makes rows. `ended_early`: the reason for rows without trials in a run that ended early; `failures`: by key."""

    devices: Sequence[links.LinkDevice]
    peers: Sequence[links.PeerLink]
    precision: float
    budget_s: float
    ended_early: str | None
    failures: Mapping[str, str]

    def traffics(self, subjects: Sequence[TrafficSubject]) -> tuple[links.Traffic, ...]:
        return with_figures(list(map(self._traffic, subjects)), self.devices, self.peers)

    def _traffic(self, subject: TrafficSubject) -> links.Traffic:
        plan, failure = subject.plan, self.failures.get(subject.key)
        reason = subject.unavailable or self._why_missing(subject.trials, failure)
        flows = (
            links.LinkFlow(
                **msgspec.structs.asdict(flow),
                rate=unknown(reason),
                alone_share=unknown(NO_ALONE),
                peak_share=unknown(reason),
                verified=verified,
            )
            for flow, verified in zip(plan.flows, subject.verified, strict=True)
        )
        return links.Traffic(
            **{**msgspec.structs.asdict(plan), "flows": tuple(flows)},
            total=unknown(reason),
            sum_alone_gbps=unknown(NO_ALONE),
            slowest_gbps=unknown(reason),
            pages_by_node=subject.pages,
            counted=tuple(subject.counted),
            trials=tuple(subject.trials),
            remarks=tuple(self._remarks(subject.trials, len(plan.flows), failure)),
        )

    def _why_missing(self, trials: Sequence[links.LinkTrial | links.LatencyTrial], failure: str | None) -> str:
        faults = [trial.invalid for trial in trials if trial.invalid]
        return failure or (f"no trial counts: {faults[-1]}" if faults else self.ended_early or NO_TRIAL)

    def _remarks(self, trials: Sequence[links.LinkTrial], flows: int, failure: str | None) -> Iterator[Remark]:
        valid = [trial for trial in trials if trial.invalid is None]
        faults = [trial.invalid for trial in trials if trial.invalid]
        if failure and valid:
            yield Remark("failed", failure)
        if faults and valid:
            yield Remark("invalid-trials", f"{len(faults)} of {len(trials)} trials do not count: {faults[-1]}")
        yield from self._doubts(links.seconds_a_gigabyte(valid, range(flows)))

    def _doubts(self, seconds: Sequence[float]) -> tuple[Remark, ...]:
        found = instability(seconds, self.precision, self.budget_s) if seconds else None
        return (found,) if found else ()

    def latency(self, subject: LatencySubject) -> links.Latency:
        plan = subject.plan
        valid = [trial for trial in subject.trials if trial.invalid is None]
        missing = subject.unavailable or self._why_missing(subject.trials, self.failures.get(subject.key))
        no_spread: Fact[links.Chased] = unknown("the multiprocessors were not measured one by one")
        return with_latencies(
            links.Latency(
                **{name: getattr(plan, name) for name in ("device", "target", "load", "node")},
                footprint_bytes=subject.footprint,
                places=subject.places,
                hops=subject.hops,
                p50=unknown(missing),
                p99=unknown("too few launches in a trial for a p99" if valid else missing),
                load_gbps=unknown("nothing was copied beside it"),
                fastest=no_spread,
                slowest=no_spread,
                multiprocessor_ns=tuple(subject.multiprocessors),
                trials=tuple(subject.trials),
                remarks=(*self._doubts([trial.p50_ns / 1e9 for trial in valid]), *subject.remarks),
            )
        )

    def small(self, subject: SmallSubject) -> links.SmallCopies:
        missing = subject.unavailable or self.failures.get(subject.key) or self.ended_early or NO_TRIAL
        of_subject = ("device", "direction", "mode", "nbytes", "copies", "caller_copies", "verified")
        return with_small_rates(
            links.SmallCopies(
                **{name: getattr(subject, name) for name in of_subject},
                rate=unknown(missing),
                caller_rate=unknown(missing),
                seconds=tuple(subject.seconds),
                caller_seconds=tuple(subject.caller_seconds),
            )
        )


# --- what follows from the trials of a row; without any, the row keeps its reason -------------------------------------


def with_figures(
    rows: Sequence[links.Traffic], devices: Sequence[links.LinkDevice], peers: Sequence[links.PeerLink]
) -> tuple[links.Traffic, ...]:
    found = [_with_rates(row, devices, peers) for row in rows]
    alone = links.alone_by_key(found)
    return tuple(_with_shares(row, alone) for row in found)


def _with_rates(
    row: links.Traffic, devices: Sequence[links.LinkDevice], peers: Sequence[links.PeerLink]
) -> links.Traffic:
    flows = []
    for number, flow in enumerate(row.flows):
        rate = unknown(WRONG) if flow.verified.value is False else _rate_of(row.valid, [number], flow.rate)
        peak_share = stats.share_of_peak(rate, peak_of(flow, devices, peers))
        flows.append(replace(flow, rate=rate, peak_share=peak_share))
    rates = [flow.gbps for flow in flows if flow.gbps is not None]
    return replace(
        row,
        flows=tuple(flows),
        total=_rate_of(row.valid, range(len(flows)), row.total),
        slowest_gbps=Fact(min(rates)) if rates else unknown(row.slowest_gbps.reason or NO_TRIAL),
    )


def with_latencies(row: links.Latency) -> links.Latency:
    valid = [trial for trial in row.trials if trial.invalid is None]
    loads = [trial.load_gbps for trial in valid if trial.load_gbps is not None]
    each = sorted(ns for _, ns in row.multiprocessor_ns)
    return replace(
        row,
        p50=_chased([trial.p50_ns for trial in valid], row.p50),
        p99=_chased(links.p99_of(valid), row.p99),
        load_gbps=Fact(stats.summarise(loads).median_s) if loads else unknown(row.load_gbps.reason or NO_TRIAL),
        fastest=_chased(each[:1], row.fastest),
        slowest=_chased(each[-1:], row.slowest),
    )


def with_small_rates(row: links.SmallCopies) -> links.SmallCopies:
    def rate(seconds: Sequence[float], before: Fact[Rate]) -> Fact[Rate]:
        if row.verified.value is False or not seconds:
            return unknown(before.reason or WRONG)
        return Fact(stats.rate(row.nbytes, stats.summarise(seconds)))

    return replace(row, rate=rate(row.seconds, row.rate), caller_rate=rate(row.caller_seconds, row.caller_rate))


def peak_of(flow: links.FlowPlan, devices: Sequence[links.LinkDevice], peers: Sequence[links.PeerLink]) -> Fact[float]:
    if flow.side == "local":
        return unknown(NO_PEAK_INSIDE)
    if flow.side == "peer":
        ends = (flow.source, flow.destination)
        found = (peer.peak_gbps for peer in peers if (peer.source, peer.destination) == ends)
        return next(found, unknown("the link between the two was not read"))
    return next(each for each in devices if each.device.index == flow.device).host_peak_gbps(flow.side)


def _rate_of(valid: Sequence[links.LinkTrial], numbers: Sequence[int], before: Fact[Rate]) -> Fact[Rate]:
    seconds = links.seconds_a_gigabyte(valid, numbers)
    if not seconds or not all(map(math.isfinite, seconds)):
        return unknown("a stream copied nothing in a trial" if seconds else before.reason or NO_TRIAL)
    return Fact(stats.rate(GIGABYTE, stats.summarise(seconds)))


def _chased(values: Sequence[float], before: Fact[links.Chased]) -> Fact[links.Chased]:
    if not values:
        return unknown(before.reason or NO_TRIAL)
    found = stats.summarise(values)
    return Fact(links.Chased(found.median_s, found.low_s, found.high_s))


def _with_shares(row: links.Traffic, singles: links.Alone) -> links.Traffic:
    alone = [links.alone_of(row, number, singles) for number in range(len(row.flows))]
    flows = tuple(
        flow if other is None else replace(flow, alone_share=_share_of_alone(row, number, other))
        for number, (flow, other) in enumerate(zip(row.flows, alone, strict=True))
    )
    if len(row.flows) == 1:
        return row
    known = [other.gbps for other in alone if other is not None and other.gbps is not None]
    total: Fact[float] = Fact(math.fsum(known)) if len(known) == len(alone) else unknown(NO_ALONE)
    return replace(row, flows=flows, sum_alone_gbps=total)


def _share_of_alone(row: links.Traffic, number: int, alone: links.Traffic) -> Fact[Share]:
    own, other = _by_round(row, number), _by_round(alone, 0)
    shared = sorted(own.keys() & other.keys())
    if not shared:
        return unknown("no round has both a valid trial of it and one of the same copies alone")
    try:
        return Fact(stats.ratio_share([other[place] for place in shared], [own[place] for place in shared]))
    except MeasurementError as error:
        return unknown(str(error))


def _by_round(row: links.Traffic, number: int) -> dict[int, float]:
    seconds = links.seconds_a_gigabyte(row.valid, [number])
    return {trial.round: each for trial, each in zip(row.valid, seconds, strict=True) if math.isfinite(each)}


# --- interference ----------------------------------------------------------------------------------------------------


def interference(
    traffics: Sequence[links.Traffic],
    devices: Sequence[int],
    peers: Sequence[links.PeerLink],
    tree: Fact[tuple[tuple[int, ...], ...]],
) -> links.LinksSharing | None:
    cases = ("h2d", "d2h") if len(devices) == 2 else ("beside-h2d", "beside-d2h")  # noqa: PLR2004 - two are the only pair
    beside = [row for row in traffics if row.group == "together" and row.engine == "ce" and row.case in cases]
    if not beside:
        return None
    keeps = [
        links.Keep(_direction(row), flow.device, other.device, flow.alone_share)
        for row in beside
        for flow, other in (row.flows, row.flows[::-1])
    ]
    classes = _classes(traffics, peers)
    # Each direction and each class of links could name something by chance.
    error_rate = sharing.ERROR_RATE / (2 + len(classes))
    has_rounds = any(len(row.valid) >= sharing.MIN_ROUNDS for row in beside)
    groups: list[links.SharedGroup] = []
    both: tuple[links.HostDirection, ...] = ("h2d", "d2h")
    for direction in both:
        by_itself = [row for row in traffics if (row.group, row.case, row.engine) == ("host", direction, "ce")]
        alone = {row.flows[0].device: _gbps(row, [0]) for row in by_itself}
        sums = {
            (row.flows[0].device, row.flows[1].device): _gbps(row, [0, 1])
            for row in beside
            if _direction(row) == direction
        }
        groups += [
            links.SharedGroup(direction, members, _keep_of(direction, members, keeps), _against_tree(members, tree))
            for members in sharing.groups_of(sharing.losses(alone, sums, error_rate))
        ]
    measured = {frozenset(flow.device for flow in row.flows) for row in beside}
    return links.LinksSharing(
        keeps=tuple(keeps),
        groups=Fact(tuple(groups)) if has_rounds else unknown("too few rounds of pairs were measured"),
        slow=_slow(classes, error_rate),
        tree=tree,
        error_rate=sharing.ERROR_RATE,
        pairs_measured=len(measured),
        pairs=len(devices) * (len(devices) - 1) // 2,
    )


def _direction(row: links.Traffic) -> links.HostDirection:
    return "h2d" if row.case.endswith("h2d") else "d2h"


def _keep_of(direction: links.HostDirection, members: tuple[int, ...], keeps: Sequence[links.Keep]) -> float:
    within = [keep for keep in keeps if keep.direction == direction and {keep.device, keep.beside} <= set(members)]
    known = [keep.share.value.value for keep in within if keep.share.value is not None]
    return stats.summarise(known).median_s if known else 0.0


def _gbps(row: links.Traffic, numbers: Sequence[int]) -> list[float]:
    return [1 / seconds for seconds in links.seconds_a_gigabyte(row.valid, numbers) if 0 < seconds < math.inf]


def _against_tree(members: tuple[int, ...], tree: Fact[tuple[tuple[int, ...], ...]]) -> links.TreeVerdict:
    if tree.value is None:
        return "hidden"
    return "agrees" if any(set(members) <= set(branch) for branch in tree.value) else "differs"


Classes = dict[tuple[str, str], dict[tuple[int, int], list[float]]]


def _classes(traffics: Sequence[links.Traffic], peers: Sequence[links.PeerLink]) -> Classes:
    kinds = {(peer.source, peer.destination): peer.kind for peer in peers}
    classes: Classes = {}
    for row in traffics:
        is_link = row.group in ("host", "pairs") and row.case != "through-host"
        if is_link and len(row.flows) == 1 and row.engine == "ce":
            ends = (row.flows[0].source, row.flows[0].destination)
            kind = "" if links.HOST_END in ends else kinds.get(ends, "unknown")
            classes.setdefault((row.case, kind), {})[ends] = _gbps(row, [0])
    return classes


def _slow(classes: Classes, error_rate: float) -> Fact[tuple[links.SlowLink, ...]]:
    if all(len(rates) < sharing.MIN_LIKE for rates in classes.values()):
        return unknown(f"fewer than {sharing.MIN_LIKE} links of a kind do not tell which rate is usual")
    found = [
        links.SlowLink(case, *ends, slow.gbps, slow.usual_gbps)
        for (case, _), rates in classes.items()
        for ends, slow in sharing.slow_links(rates, error_rate).items()
    ]
    return Fact(tuple(found))
