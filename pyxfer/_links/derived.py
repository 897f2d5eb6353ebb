"""The figures of a run of links that follow from its trials and its links."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import msgspec

from pyxfer._document import links
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Rate
from pyxfer._links import plan as plans
from pyxfer._links.chases import QUICK_HOPS
from pyxfer._links.plan import LatencyPlan, LinksRequest, TrafficPlan
from pyxfer._links.rows import NO_TRIAL, chased, interference, peak_of, rate_of, slowest_of, with_shares
from pyxfer._links.traffic import WRONG
from pyxfer._machine.link import derived_link
from pyxfer._measure import stats

T = TypeVar("T")
replace = msgspec.structs.replace


def derive_links(run: links.Links) -> links.Links:
    devices = tuple(
        replace(each, device=replace(each.device, runtime=run.runtime), link=derived_link(each.link))
        for each in run.devices
    )
    run = _as_planned(replace(run, devices=_with_nvlinks(devices, run.peers)))
    alone = [_alone(row, run) for row in run.traffics]
    singles = links.alone_by_key(alone)
    traffics = tuple(_traffic(row, found, singles) for row, found in zip(run.traffics, alone, strict=True))
    sharing = run.sharing
    if sharing is not None:
        sharing = interference(traffics, run.parameters.devices, run.peers, sharing.tree)
    return replace(
        run,
        ended="failed" if run.failure is not None else "interrupted" if run.ended == "failed" else run.ended,
        traffics=traffics,
        latencies=tuple(map(_latency, run.latencies)),
        small=tuple(
            replace(
                row,
                rate=_small_rate(row, row.rate, row.seconds),
                caller_rate=_small_rate(row, row.caller_rate, row.caller_seconds),
            )
            for row in run.small
        ),
        sharing=sharing,
    )


def _with_nvlinks(devices: Sequence[links.LinkDevice], peers: Sequence[links.PeerLink]) -> tuple[links.LinkDevice, ...]:
    """The NVLinks of a GPU carry the same each, so that what one carries to a peer says what all of them do."""
    each = {
        peer.source: peer.peak_gbps.value / peer.nvlinks.value
        for peer in peers
        if peer.peak_gbps.value is not None and peer.nvlinks.value
    }
    return tuple(
        replace(device, nvlink_gbps=Fact(device.nvlinks.value * each[device.device.index]))
        if device.nvlinks.value is not None and device.device.index in each
        else device
        for device in devices
    )


def _as_planned(run: links.Links) -> links.Links:
    """The run with the rows that its settings ask for. The nodes of the machine are those of the rows."""
    given = {name: getattr(run.parameters, name) for name in run.parameters.__struct_fields__}
    nodes = sorted({row.node for rows in (run.traffics, run.latencies) for row in rows if row.node is not None})
    for request in (LinksRequest(**given), LinksRequest(**given, brief=True)):
        copied = plans.traffics(request, run.parameters.devices, nodes)
        loaded = plans.latencies(request, run.parameters.devices, nodes)
        if (len(copied), len(loaded)) == (len(run.traffics), len(run.latencies)):
            places = statistics.mode(row.places for row in run.latencies) if loaded else 0
            return replace(
                run,
                traffics=tuple(map(_planned_traffic, run.traffics, copied)),
                latencies=tuple(map(partial(_planned_latency, places), run.latencies, loaded)),
            )
    return run


def _planned_traffic(row: links.Traffic, plan: TrafficPlan) -> links.Traffic:
    flows = tuple(replace(flow, **msgspec.structs.asdict(own)) for flow, own in zip(row.flows, plan.flows, strict=True))
    return replace(row, **{**vars(plan), "flows": flows})


def _planned_latency(places: int, row: links.Latency, plan: LatencyPlan) -> links.Latency:
    given = {name: getattr(plan, name) for name in ("device", "target", "load", "node")}
    return replace(row, places=places, hops=QUICK_HOPS if plan.quick else places, **given)


def _if_known(before: Fact[T], follows: Fact[T]) -> Fact[T]:
    """What follows. Whether there is a value depends on more than the trials."""
    return before if before.value is None else follows


def _alone(row: links.Traffic, run: links.Links) -> links.Traffic:
    flows = []
    for number, flow in enumerate(row.flows):
        rate = _if_known(flow.rate, rate_of(row.valid, [number], NO_TRIAL))
        rate = unknown(WRONG) if flow.verified.value is False else rate
        peak = peak_of(flow, run.devices, run.peers)
        flows.append(replace(flow, rate=rate, peak_share=stats.share_of_peak(rate, peak)))
    total = _if_known(row.total, rate_of(row.valid, range(len(flows)), NO_TRIAL))
    return replace(row, flows=tuple(flows), total=total, slowest_gbps=slowest_of(flows, NO_TRIAL))


def _traffic(row: links.Traffic, found: links.Traffic, singles: links.Alone) -> links.Traffic:
    shared = with_shares(found, singles)
    flows = (
        replace(flow, alone_share=_if_known(before.alone_share, flow.alone_share))
        for before, flow in zip(row.flows, shared.flows, strict=True)
    )
    return replace(shared, flows=tuple(flows))


def _latency(row: links.Latency) -> links.Latency:
    valid = [trial for trial in row.trials if trial.invalid is None]
    loads = [trial.load_gbps for trial in valid if trial.load_gbps is not None]
    each = sorted(ns for _, ns in row.multiprocessor_ns)
    return replace(
        row,
        p50=_if_known(row.p50, chased([trial.p50_ns for trial in valid], NO_TRIAL)),
        p99=_if_known(row.p99, chased(links.p99_of(valid), NO_TRIAL)),
        load_gbps=Fact(stats.summarise(loads).median_s) if loads else unknown(NO_TRIAL),
        fastest=chased(each[:1], NO_TRIAL),
        slowest=chased(each[-1:], NO_TRIAL),
    )


def _small_rate(row: links.SmallCopies, before: Fact[Rate], seconds: Sequence[float]) -> Fact[Rate]:
    if row.verified.value is False or not seconds:
        return before if before.value is None else unknown(WRONG)
    return _if_known(before, Fact(stats.rate(row.nbytes, stats.summarise(seconds))))
