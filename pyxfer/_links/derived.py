"""The figures of a run of links that follow from its trials and its links."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

import msgspec

from pyxfer._document import links
from pyxfer._document.machines import Fact
from pyxfer._links import plan as plans
from pyxfer._links.chases import QUICK_HOPS
from pyxfer._links.plan import LatencyPlan, TrafficPlan
from pyxfer._links.rows import interference, with_figures, with_latencies, with_small_rates
from pyxfer._machine.link import derived_link

replace = msgspec.structs.replace


def derive_links(run: links.Links) -> links.Links:
    devices = tuple(
        replace(each, device=replace(each.device, runtime=run.runtime), link=derived_link(each.link))
        for each in run.devices
    )
    run = _as_planned(replace(run, devices=_with_nvlinks(devices, run.peers)))
    traffics = with_figures(run.traffics, run.devices, run.peers)
    sharing = run.sharing
    if sharing is not None:
        sharing = interference(traffics, run.parameters.devices, run.peers, sharing.tree)
    return replace(
        run,
        ended="failed" if run.failure is not None else "interrupted" if run.ended == "failed" else run.ended,
        traffics=traffics,
        latencies=tuple(map(with_latencies, run.latencies)),
        small=tuple(map(with_small_rates, run.small)),
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
    nodes = sorted({row.node for rows in (run.traffics, run.latencies) for row in rows if row.node is not None})
    for brief in (False, True):
        copied = plans.traffics(run.parameters, nodes, brief=brief)
        loaded = plans.latencies(run.parameters, nodes, brief=brief)
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
    return replace(row, **{**msgspec.structs.asdict(plan), "flows": flows})


def _planned_latency(places: int, row: links.Latency, plan: LatencyPlan) -> links.Latency:
    given = {name: getattr(plan, name) for name in ("device", "target", "load", "node")}
    return replace(row, places=places, hops=QUICK_HOPS if plan.quick else places, **given)
