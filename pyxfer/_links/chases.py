"""Dependent loads, alone and while the link is busy, as a subject of the sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.links import HOST_END, LatencyTrial
from pyxfer._document.machines import Remark, Side
from pyxfer._document.runs import Trial
from pyxfer._links.plan import LatencyPlan, TrafficPlan, h2d, read
from pyxfer._links.surroundings import MULTIPROCESSORS, attribute
from pyxfer._links.traffic import LinkSubject, copied_between
from pyxfer._measure.run import own_failure
from pyxfer.errors import MeasurementError

if TYPE_CHECKING:
    from pyxfer._links.resources import LinkResources
    from pyxfer.native._cuda import Flow, FlowStamps

# A page of a GPU is 2 MiB, so the small footprint is one entry of its TLB; the large ones are as far as memory allows.
# Both are read at 4096 places, 512 KiB of cache lines. If the memory is the GPU's own, these stay in its L2
# cache: large is the reach of the TLB. To miss the cache, a launch would have to begin where the last one has ended.
SMALL_FOOTPRINT = 2 << 20
LARGE_HOST_FOOTPRINT = 256 << 20
LARGE_DEVICE_FOOTPRINT = 1 << 30
FREE_PARTS = 8
"""The large footprint takes at most one part in this many of the free memory."""
PLACES = 4096
QUICK_HOPS = 16
PER_MULTIPROCESSOR_HOPS = 512
TRIAL_S = 0.025
DEPTH = 2
MIN_FOR_P99 = 100
PACED_BYTES = 1 << 20
"""Copies of a paced load: small, so that it is even."""
FULL_BYTES = 8 << 20
MULTIPROCESSOR_S = 0.0005
# The device's clock of nanoseconds may tick each 1 us. From this length on that is little, and cycles are not needed.
LONG_LAUNCH_NS = 50_000.0
NEIGHBOURS = 128
"""Launches over which the ticks average out, to a 500th of the shortest; together they last 2 ms."""
MAX_CLOCK_CHANGE = 0.02


@dataclass(eq=False)
class LatencySubject(LinkSubject):
    """One latency. `rate_alone` gives the rate of the loading copies alone, in GB/s; None if it is not known."""

    plan: LatencyPlan
    resources: LinkResources
    seed: int
    rate_alone: Callable[[LatencyPlan], float | None]
    most_load_bytes: int

    def __post_init__(self) -> None:
        self.trials: list[LatencyTrial] = []
        self.footprint, self.places = SMALL_FOOTPRINT, PLACES
        self.multiprocessors: list[tuple[int, float]] = []
        self.silent: list[int] = []
        """The numbers of multiprocessors on which no launch ran."""
        self._flows: list[Flow] = []
        self._first = self._load_bytes = 0

    @property
    def hops(self) -> int:
        return QUICK_HOPS if self.plan.quick else self.places

    def prepare(self) -> None:
        plan, resources = self.plan, self.resources
        with own_failure(self._give_up):
            resources.kernels(plan.device)
            self._allow_access()
            if plan.large and plan.target == HOST_END:
                self.footprint = LARGE_HOST_FOOTPRINT
            elif plan.large:
                wanted = min(LARGE_DEVICE_FOOTPRINT, resources.engine.memory_info(plan.target)[0] // FREE_PARTS)
                self.footprint = max(SMALL_FOOTPRINT, 1 << (wanted.bit_length() - 1))
            block = resources.memory.chased(plan.device, plan.target, self.footprint, plan.node)
            self._first = block.address
            if block.places is None:
                stride = self.footprint // PLACES
                cycle = block.address, self.footprint, stride, self.seed, plan.target
                block.places = resources.engine.make_cycle(*cycle)
            self.places = block.places
            flows = [self._chase(self.hops)]
            if plan.load:
                flows.append(self._load())
            self._flows = flows

    def _allow_access(self) -> None:
        if self.plan.target != HOST_END:
            self.resources.set_access(read(self.plan.target, self.plan.device), True)

    def _chase(self, hops: int, multiprocessor: int = -1) -> Flow:
        device, target = self.plan.device, self.plan.target
        return self.resources.any_flow(
            device=device,
            engine="chase",
            destination=0,
            source=self._first,
            nbytes=hops * 8,
            kernels=self.resources.kernels(device),
            depth=DEPTH,
            source_device=target,
            hops=hops,
            multiprocessor=multiprocessor,
        )

    def _load(self) -> Flow:
        plan = self.plan
        rate = self.rate_alone(plan)
        if rate is None and plan.load < 1:
            raise MeasurementError("the rate of the link alone is not known, so there is no share of it to copy")
        self._load_bytes = min(PACED_BYTES if plan.load < 1 else FULL_BYTES, self.most_load_bytes)
        copies = h2d(plan.device) if plan.target == HOST_END else read(plan.target, plan.device)
        memory, resources = self.resources.memory, self.resources
        return resources.any_flow(
            device=copies.device,
            engine="ce",
            destination=memory.landing(copies, None, self.most_load_bytes).address,
            source=memory.source(copies, None, self.most_load_bytes).address,
            nbytes=self._load_bytes,
            kernels=resources.known_kernels(copies.device, needed=False),
            depth=DEPTH,
            pace_bytes_per_s=0.0 if plan.load >= 1 else plan.load * (rate or 0.0) * 1e9,
            source_device=copies.source,
            destination_device=copies.destination,
        )

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self._allow_access()
        devices = {self.plan.device, *({self.plan.target} - {HOST_END})}
        stamps = self.resources.run(self._flows, sorted(devices), TRIAL_S)
        found = latency_trial(round_index, stamps, self.hops, self._load_bytes)
        self.trials.append(found)
        return {"sum": Trial(round_index, found.p50_ns / 1e9, invalid=found.invalid)}

    def measure_multiprocessors(self) -> None:
        count = attribute(self.resources.engine, self.plan.device, MULTIPROCESSORS) or 0
        for number in range(count):
            flow = self._chase(PER_MULTIPROCESSOR_HOPS, number)
            (stamps,) = self.resources.run([flow], [self.plan.device], MULTIPROCESSOR_S)
            self.resources.drop(flow)
            own = stamps.kernel_ns[stamps.multiprocessor == number]
            if own.size:
                self.multiprocessors.append((number, float(np.median(own)) / PER_MULTIPROCESSOR_HOPS))
            else:
                self.silent.append(number)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        if not self.silent:
            return ()
        asked = len(self.silent) + len(self.multiprocessors)
        missing = f"{len(self.silent)} of {asked} numbers of multiprocessors: {', '.join(map(str, self.silent))}"
        return (Remark("multiprocessors", f"No launch ran on {missing}. CUDA does not promise contiguous numbers."),)


def load_plan(plan: LatencyPlan, host_bytes: int, peer_bytes: int) -> TrafficPlan:
    if plan.target == HOST_END:
        return TrafficPlan("host", "h2d", "ce", host_bytes, (h2d(plan.device),))
    return TrafficPlan("pairs", "read", "ce", peer_bytes, (read(plan.target, plan.device),), peer_access=True)


def launch_ns(chase: FlowStamps, inside: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Nanoseconds of each of these launches, and the share by which the device's clock of cycles changed meanwhile.

    Short launches are counted in cycles, which do not tick. The length of a cycle is that of the launches around: of
    all launches it would be wrong for each one if the clock ramps.
    """
    ns = np.asarray(chase.kernel_ns[inside], dtype=np.float64)
    cycles = np.asarray(chase.cycles[inside], dtype=np.float64)
    if not cycles.size or np.any(cycles <= 0) or ns.sum() <= 0 or np.median(ns) >= LONG_LAUNCH_NS:
        return ns, 0.0
    count = min(NEIGHBOURS, cycles.size)
    ns_around, cycles_around = (
        np.lib.stride_tricks.sliding_window_view(each, count).sum(axis=1) for each in (ns, cycles)
    )
    lengths = ns_around / cycles_around
    own = lengths[np.clip(np.arange(cycles.size) - count // 2, 0, lengths.size - 1)]
    return cycles * own, float(np.ptp(lengths) / lengths.mean())


def latency_trial(number: int, stamps: Sequence[FlowStamps], hops: int, load_bytes: int) -> LatencyTrial:
    chase = stamps[0]
    inside = chase.multiprocessor >= 0  # a launch that found its multiprocessor
    load_gbps = None
    invalid = "the gate opened late" if any(stamp.late for stamp in stamps) else None
    if len(stamps) > 1 and chase.begin_ns.size and stamps[1].begin_ns.size:
        load = stamps[1]
        since, until = int(np.min(load.begin_ns)), int(np.max(load.end_ns))
        inside = (chase.begin_ns >= since) & (chase.end_ns <= until)
        load_gbps = copied_between(load.begin_ns, load.end_ns, load_bytes, since, until) / max(until - since, 1)
    launches, change = launch_ns(chase, inside)
    each = launches / hops
    if change > MAX_CLOCK_CHANGE:
        invalid = invalid or f"the GPU's clock changed by {100 * change:.0f} %"
    if not each.size:
        return LatencyTrial(number, 0, 0.0, None, load_gbps, invalid or "no launch ended while the link was busy")
    p99 = float(np.quantile(each, 0.99)) if each.size >= MIN_FOR_P99 else None
    return LatencyTrial(number, int(each.size), float(np.median(each)), p99, load_gbps, invalid)
