"""Documents of `pyxfer links`, assembled from trials with chosen rates, by default those of two H200s."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from samples import make_device, make_environment, make_link

from pyxfer._document.links import (
    HOST_END,
    Counted,
    FlowPlan,
    LatencyTrial,
    LinkDevice,
    Links,
    LinkTrial,
    PeerLink,
)
from pyxfer._document.machines import Device, Fact, unknown
from pyxfer._links.chases import LARGE_HOST_FOOTPRINT, LatencySubject
from pyxfer._links.plan import LatencyPlan, TrafficPlan, latencies, make_request, traffics
from pyxfer._links.rows import Assembler, interference
from pyxfer._links.traffic import SIZES, SmallSubject, TrafficSubject

RateOf = Callable[[TrafficPlan, FlowPlan], float]
SHIFTS = (-2e-4, 1e-4, 0.0, 2e-4, -1e-4, 1.5e-4, -1.5e-4, 0.5e-4)
NO_SHOP: Any = None
NO_TREE: Fact[Any] = unknown("the machine shows no PCIe tree above the GPUs")


def h200_rate(plan: TrafficPlan, flow: FlowPlan) -> float:
    """GB/s of a flow on a host with two H200s."""
    both = {flow.side for flow in plan.flows} == {"h2d", "d2h"}
    if flow.side == "local":
        return 2080.0 if plan.engine == "ce" else 1954.0
    if flow.side == "peer":
        if not plan.peer_access:
            return 38.0
        return {"ce": 393.7, "sm": 370.0}[plan.engine] if flow.device == flow.destination else 396.1
    if plan.engine == "sm":
        return 42.4 if both else {"h2d": 51.4, "d2h": 52.6}[flow.side]
    if both:
        return {"h2d": 29.7 if len(plan.flows) > 2 else 52.0, "d2h": 51.5}[flow.side]
    return {"h2d": 55.5, "d2h": 55.4}[flow.side]


def link_device(device: Device, **overrides: Any) -> LinkDevice:
    """A GPU with 18 NVLinks."""
    found = LinkDevice(
        device=device,
        link=make_link(),
        node=Fact(0),
        pages_by_node=Fact({"0": 16384}),
        nvlinks=Fact(18),
        nvlink_gbps=Fact(18 * 26.562),
        c2c_gbps=unknown("NVML gives this GPU no NVLink-C2C link"),
        kernels_s=Fact(0.186),
        traits=("no-tree",),
        other_processes=Fact(()),
    )
    return msgspec.structs.replace(found, **overrides)


def peer_links(count: int, bare: Sequence[tuple[int, int]] = ()) -> tuple[PeerLink, ...]:
    """NVLink between all GPUs but the bare pairs."""
    return tuple(
        PeerLink(one, other, Fact(True), "pcie", Fact(0), unknown("no NVLink joins the two"))
        if (min(one, other), max(one, other)) in bare
        else PeerLink(one, other, Fact(True), "nvlink", Fact(18), Fact(18 * 26.562))
        for one in range(count)
        for other in range(count)
        if one != other
    )


ALL_GROUPS = ("host", "together", "pairs", "local", "latency", "numa", "small")


def make_links(
    count: int = 2, rate_of: RateOf = h200_rate, groups: tuple[str, ...] = ALL_GROUPS, **overrides: Any
) -> Links:
    """A complete run of links. `unavailable`: why a plan cannot be measured, or None."""
    names = ("devices", "peers", "nodes", "unavailable", "tree")
    place = {name: overrides.pop(name) for name in names if name in overrides}
    is_usual = rate_of is h200_rate and not place
    run = _make_usual_links(count, groups) if is_usual else _make_links(count, rate_of, groups, **place)
    return msgspec.structs.replace(run, **overrides)


@functools.cache
def _make_usual_links(count: int, groups: tuple[str, ...]) -> Links:
    return _make_links(count, h200_rate, groups)


def _make_links(
    count: int,
    rate_of: RateOf,
    groups: tuple[str, ...],
    devices: tuple[LinkDevice, ...] | None = None,
    peers: tuple[PeerLink, ...] | None = None,
    nodes: tuple[int, ...] = (0,),
    unavailable: Callable[[TrafficPlan], str | None] = lambda plan: None,
    tree: Fact[Any] = NO_TREE,
) -> Links:
    request = make_request(None, groups, ("ce", "sm"), None, 0.005, None, 1)
    numbers = list(range(count))
    given = request.parameters(numbers, 1 << 40, interpreted=False)
    devices = devices or tuple(
        link_device(make_device(index=n, uuid=Fact(f"GPU-{n}"), pci=Fact(f"0000:{n + 16:02x}:00.0"))) for n in numbers
    )
    peers = peers or peer_links(count)
    assembler = Assembler(devices, peers, 0.005, 30.0, None, {})
    measured = [_measured(plan, rate_of, unavailable(plan)) for plan in traffics(given, nodes)]
    rows = assembler.traffics(measured)
    return Links(
        kind="links",
        ended="complete",
        runtime="cuda",
        runtime_reason="",
        parameters=given,
        environment=make_environment(),
        environment_after=make_environment(taken_at="2025-11-21T08:30:27+00:00"),
        devices=devices,
        peers=peers,
        traffics=rows,
        latencies=tuple(map(assembler.latency, [_chased(plan) for plan in latencies(given, nodes)])),
        small=tuple(map(assembler.small, _small(numbers) if "small" in request.groups else [])),
        sharing=interference(rows, numbers, peers, tree),
        duration_s=27.4,
    )


def _measured(plan: TrafficPlan, rate_of: RateOf, unavailable: str | None) -> TrafficSubject:
    subject = TrafficSubject(plan, NO_SHOP)
    if unavailable is not None:
        subject.unavailable = unavailable
        return subject
    subject.verified = [Fact(True)] * len(plan.flows)
    rates = [rate_of(plan, flow) for flow in plan.flows]
    overlap = 1.0 if len(rates) == 1 else 0.972
    subject.trials = [
        LinkTrial(i, 0.05, tuple(0.05e9 * rate * (1 + shift) for rate in rates), overlap)
        for i, shift in enumerate(SHIFTS)
    ]
    if plan.node is not None:
        subject.pages = Fact({str(plan.node): 16384})
    if plan.group == "pairs" and len(plan.flows) == 1:
        source, sent = plan.flows[0].source, 10 * plan.nbytes
        over_nvlink = bool(plan.peer_access)
        subject.counted = [
            Counted(source, "nvlink-sent", Fact(sent if over_nvlink else 0), sent),
            Counted(source, "pcie-sent", Fact(4096 if over_nvlink else sent), sent),
        ]
    return subject


def _chased(plan: LatencyPlan) -> LatencySubject:
    subject = LatencySubject(plan, NO_SHOP, 1, lambda _: None, 0)
    idle = 1181.0 if plan.target == HOST_END else 142.0 if plan.target == plan.device else 852.0
    median = idle * (1 + plan.load) * (1.2 if plan.large else 1.0)
    subject.footprint = LARGE_HOST_FOOTPRINT if plan.large else subject.footprint
    load = 55.5 * plan.load or None
    subject.trials = [
        LatencyTrial(i, 300, median * (1 + shift), 1.3 * median * (1 + shift) if plan.quick else None, load)
        for i, shift in enumerate(SHIFTS)
    ]
    if plan.target == HOST_END and not plan.large and not plan.quick:
        subject.multiprocessors = [(number, 1150.0 + number / 2) for number in range(132)]
    return subject


def _small(devices: Sequence[int]) -> list[SmallSubject]:
    found = []
    for device in devices:
        for direction in ("h2d", "d2h"):
            for nbytes in SIZES:
                for way, start_s in (("queue", 2.4e-6), ("batch", 0.25e-6)):
                    subject = SmallSubject(device, direction, way, nbytes, NO_SHOP)  # type: ignore[arg-type]
                    subject.verified = Fact(True)
                    subject.seconds = [(start_s + nbytes / 55.5e9) * (1 + shift) for shift in SHIFTS]
                    issue_s = {"queue": 0.2e-6, "batch": 1.6e-6}[way]
                    subject.caller_seconds = [each + issue_s for each in subject.seconds]
                    found.append(subject)
    return found
