"""What a run measures: the traffics, latencies and small copies of its groups, and the request that names them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from pyxfer._document import links
from pyxfer._document.cells import cell_of_total
from pyxfer._document.links import FlowPlan
from pyxfer.errors import UsageError
from pyxfer.units import seconds_of, share_of, sizes_of, whole_of, words_of

# Copies in a queue are 4 us apart (H200): 0.3 % of the rate at 64 MiB, and 1 % if both directions run; 0.1 and 0.4 % at
# 128 MiB. Larger copies make the trials of several flows longer, and a run of two GPUs would have too few.
HOST_BYTES = 128 << 20
PEER_BYTES = 512 << 20
LOCAL_BYTES = 2 << 30
# Without a GPU, kernels are interpreted.
INTERPRETED_BYTES_PER_S = 0.1e9
INTERPRETED_BYTES = 1 << 20
# A GPU has a source of each size, and a landing for each peer, the host and itself.
FREE_PARTS = 2
MIN_BYTES = 16 << 10
BUDGET_OF_A_DEVICE_S = 15.0
DEFAULT_PRECISION = 0.005
# All pairs of more GPUs at once would be too many streams.
MAX_FLOWS = 120


class TrafficPlan(links.TrafficPlan, frozen=True):
    @property
    def name(self) -> str:
        return cell_of_total(self).text

    @property
    def devices(self) -> frozenset[int]:
        ends = {end for flow in self.flows for end in (flow.source, flow.destination, flow.device)}
        return frozenset(ends - {links.HOST_END})


@dataclass(frozen=True)
class LatencyPlan:
    device: int
    target: int
    large: bool
    quick: bool
    load: float = 0.0
    node: int | None = None

    @property
    def name(self) -> str:
        far = "far" if self.large else "near"
        each = "" if self.quick else ", on each multiprocessor"
        load = f", at {self.load * 100:.0f} % load" if self.load else ""
        node = "" if self.node is None else f", node {self.node}"
        return f"latency of {links.end_name(self.target)} from GPU {self.device}, {far}{each}{load}{node}"


@dataclass(frozen=True)
class LinksRequest:
    """The checked arguments of a run. `devices` are selectors, as the user gave them; empty for all.

    `nbytes`: one size for all copies. `brief`: only the rows that show every GPU and NVLink within seconds, however
    many GPUs there are.
    """

    devices: tuple[str | int, ...]
    groups: tuple[links.LinkGroup, ...]
    engines: tuple[links.CopyEngine, ...]
    nbytes: int | None
    precision: float
    budget_s: float | None
    seed: int
    brief: bool = False
    complete: bool = False

    def parameters(self, devices: Sequence[int], free_bytes: int, *, interpreted: bool) -> links.LinksParameters:
        """The settings on these devices, of which each has this free memory. Without a GPU kernels are interpreted."""
        share = free_bytes // FREE_PARTS
        peer_bytes = min(PEER_BYTES, _power_of_two(share // (2 * (len(devices) + 1))))
        sizes = min(HOST_BYTES, peer_bytes), peer_bytes, min(LOCAL_BYTES, _power_of_two(share // 4))
        one_size = self.nbytes or (INTERPRETED_BYTES if interpreted else None)
        return links.LinksParameters(
            tuple(devices),
            self.groups,
            self.engines,
            *(sizes if one_size is None else (one_size,) * 3),
            precision=self.precision,
            budget_s=self.budget_s or BUDGET_OF_A_DEVICE_S * len(devices),
            seed=self.seed,
        )


def _power_of_two(nbytes: int) -> int:
    return max(MIN_BYTES, 1 << (max(nbytes, 1).bit_length() - 1))


def make_request(
    devices: Iterable[str | int] | str | int | None,
    groups: Iterable[str] | str,
    engines: Iterable[str] | str,
    size: str | int | None,
    precision: str | float,
    budget: str | float | None,
    seed: int | None,
) -> LinksRequest:
    sizes = () if size is None else sizes_of(size, "size")
    if len(sizes) > 1:
        raise UsageError(
            f"size names {len(sizes)} sizes, and links are measured at one size: give one, such as 512MiB."
        )
    nbytes = sizes[0] if sizes else None
    if nbytes is not None and (nbytes < MIN_BYTES or nbytes % MIN_BYTES):
        raise UsageError(
            f"size {nbytes} is not a multiple of 16 KiB, and kernels copy in words: give one, such as 64KiB."
        )
    return LinksRequest(
        devices=_selectors(devices),
        groups=words_of(groups, links.GROUPS, "group"),
        engines=words_of(engines, links.COPY_ENGINES, "engine"),
        nbytes=nbytes,
        precision=share_of(precision, "precision"),
        budget_s=None if budget is None else seconds_of(budget, "budget"),
        seed=secrets.randbits(32) if seed is None else whole_of(seed, "seed", 0, 2**63 - 1, "42"),
    )


def _selectors(devices: Iterable[str | int] | str | int | None) -> tuple[str | int, ...]:
    if devices is None:
        return ()
    if isinstance(devices, str):
        found: list[str | int] = [text.strip() for text in devices.split(",")]
    else:
        found = list(devices) if isinstance(devices, Iterable) else [devices]
    if not found or any(selector == "" for selector in found):
        raise UsageError(f"device {devices!r:.80} has an empty item: write them as 0,1.")
    return tuple(found)


def traffics(given: links.LinksParameters, nodes: Sequence[int], *, brief: bool = False) -> list[TrafficPlan]:
    """Every traffic of a run. Together needs the copies alone, to compare with."""
    devices, groups = given.devices, set(given.groups)
    if brief:
        if len(devices) == 1:
            return [plan for plan in _host(given, "ce") if plan.case == "both"]
        plans = (*_host(given, "ce"), *_together(given, "ce"))
        return [*(plan for plan in plans if plan.case in ("h2d", "d2h")), _ring(given, "ce")]
    found: list[TrafficPlan] = []
    for engine in given.engines:
        if {"host", "together"} & groups:
            found += _host(given, engine)
        if "together" in groups and len(devices) > 1:
            found += _together(given, engine)
        if "pairs" in groups and len(devices) > 1:
            found += _pairs(given, engine)
        if "local" in groups:
            inside = [(FlowPlan(device, device, device, "local"),) for device in devices]
            found += [TrafficPlan("local", "copy", engine, given.local_bytes, flows) for flows in inside]
    if "numa" in groups and len(nodes) > 1:
        found += [
            TrafficPlan("numa", case, "ce", given.host_bytes, (make(device),), node=node)
            for device in devices
            for node in nodes
            for case, make in (("h2d", h2d), ("d2h", d2h))
        ]
    return found


def h2d(device: int) -> FlowPlan:
    return FlowPlan(links.HOST_END, device, device, "h2d")


def d2h(device: int) -> FlowPlan:
    return FlowPlan(device, links.HOST_END, device, "d2h")


def write(source: int, destination: int) -> FlowPlan:
    return FlowPlan(source, destination, source, "peer")


def read(source: int, destination: int) -> FlowPlan:
    return FlowPlan(source, destination, destination, "peer")


_HOST_CASES = {"h2d": (h2d,), "d2h": (d2h,), "both": (h2d, d2h)}


def _host(given: links.LinksParameters, engine: links.CopyEngine) -> Iterator[TrafficPlan]:
    for device in given.devices:
        for case, makers in _HOST_CASES.items():
            flows = tuple(make(device) for make in makers)
            yield TrafficPlan("host", case, engine, given.host_bytes, flows)


def _together(given: links.LinksParameters, engine: links.CopyEngine) -> Iterator[TrafficPlan]:
    for case, makers in _HOST_CASES.items():
        flows = tuple(make(device) for make in makers for device in given.devices)
        yield TrafficPlan("together", case, engine, given.host_bytes, flows)
    if len(given.devices) == 2 or engine != "ce":  # noqa: PLR2004 - two GPUs are the only pair
        return
    for pair in combinations(given.devices, 2):
        for case in ("h2d", "d2h"):
            flows = tuple(make(device) for make in _HOST_CASES[case] for device in pair)
            yield TrafficPlan("together", f"beside-{case}", engine, given.host_bytes, flows)


def _ring(given: links.LinksParameters, engine: links.CopyEngine) -> TrafficPlan:
    following = [*given.devices[1:], given.devices[0]]
    flows = tuple(write(one, other) for one, other in zip(given.devices, following, strict=True))
    return TrafficPlan("pairs", "ring", engine, given.peer_bytes, flows, peer_access=True)


def _pairs(given: links.LinksParameters, engine: links.CopyEngine) -> Iterator[TrafficPlan]:
    devices = given.devices

    def plan(case: str, *flows: FlowPlan, peer_access: bool = True) -> TrafficPlan:
        nbytes = given.peer_bytes if peer_access else given.host_bytes
        return TrafficPlan("pairs", case, engine, nbytes, flows, peer_access)

    for case, make in (("read", read), ("write", write)):
        yield from (plan(case, make(*pair)) for pair in permutations(devices, 2))
        for one, other in combinations(devices, 2):
            yield plan(f"both-{case}", make(one, other), make(other, one))
    if engine == "ce":
        yield from (plan("through-host", write(*pair), peer_access=False) for pair in permutations(devices, 2))
    if len(devices) == 2:  # noqa: PLR2004 - all other cases are the same as the pair
        return
    for case, make in (("read", read), ("write", write)):
        for device in devices:
            others = [other for other in devices if other != device]
            yield plan(f"all-to-one-{case}", *(make(other, device) for other in others))
            yield plan(f"one-to-all-{case}", *(make(device, other) for other in others))
    yield _ring(given, engine)
    if len(devices) * (len(devices) - 1) <= MAX_FLOWS:
        yield plan("all-pairs", *(write(*pair) for pair in permutations(devices, 2)))


LOADS = (0.0, 0.5, 1.0)


def latencies(given: links.LinksParameters, nodes: Sequence[int], *, brief: bool = False) -> list[LatencyPlan]:
    """Every latency of a run. The quick ones have few loads a launch, so that their spread is seen."""
    devices = given.devices
    if brief:
        return [LatencyPlan(device, links.HOST_END, large=False, quick=True) for device in devices]
    found: list[LatencyPlan] = []
    if "latency" in given.groups:
        for device in devices:
            peers = [other for other in devices if other != device]
            for target in (links.HOST_END, *peers, device):
                found += [LatencyPlan(device, target, large, quick=False) for large in (False, True)]
                loads = LOADS if target != device else LOADS[:1]
                found += [LatencyPlan(device, target, large=False, quick=True, load=load) for load in loads]
    if "numa" in given.groups and len(nodes) > 1:
        found += [
            LatencyPlan(device, links.HOST_END, large=False, quick=False, node=node)
            for device in devices
            for node in nodes
        ]
    return found
