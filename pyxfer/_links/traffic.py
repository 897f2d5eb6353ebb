"""Copies as subjects of the sampler: large ones that run at once, and many small ones in one call or in one each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pyxfer._ceiling.arena import PLACE_BYTES
from pyxfer._ceiling.plans import BATCH_API, BATCH_CALL
from pyxfer._document.links import HOST_END, MIN_OVERLAP, Counted, Counter, LinkTrial, seconds_a_gigabyte
from pyxfer._document.machines import Fact, Side, unknown
from pyxfer._document.runs import Trial
from pyxfer._links.plan import LatencyPlan, TrafficPlan
from pyxfer._machine.nvlink import counted_between
from pyxfer._measure.run import own_failure
from pyxfer._trace.records import levels, total_ns, union
from pyxfer.errors import MeasurementError
from pyxfer.units import format_percent, format_seconds

if TYPE_CHECKING:
    from pyxfer._links.resources import LinkResources
    from pyxfer.native._cuda import Flow, FlowStamps, Lane

    ReadCounters = Callable[[int], Mapping[Counter, Fact[int]]]

Nanoseconds = NDArray[np.int64]

NOT_PREPARED = "the run ended before it was prepared"
WRONG = "the contents were wrong"

# Queued copies per stream. When the copies are told to stop, each stream still has these to do, so streams of different
# rates end at different times: few, where that shortens the time in which all are busy.
DEPTH = 4
DEPTH_TOGETHER = 2
CHECK_S = 0.002
MIN_S = 0.02
MAX_S = 2.0
# A trial lasts this many items of the slowest stream; together that many times as long as the streams take to stop.
# Of slow links fewer items are enough.
ITEMS = 12
MIN_ITEMS, ENOUGH_S = 3, 0.1
STOPPING_SHARE = 0.03
LONGER, MAX_LONGER = 1.5, 4.0


class LinkSubject:
    """A subject whose flows run again in each trial; a `SmallSubject` has a lane instead of these."""

    anchor: str | None = None
    ceiling_of: str | None = None
    unavailable: str | None = None
    plan: TrafficPlan | LatencyPlan
    _flows: list[Flow]

    @property
    def key(self) -> str:
        return self.plan.name

    @property
    def is_ready(self) -> bool:
        return bool(self._flows)

    def _give_up(self, error: Exception) -> None:
        self.unavailable = str(error)


class TrafficSubject(LinkSubject):
    def __init__(self, plan: TrafficPlan, resources: LinkResources) -> None:
        self.plan: TrafficPlan = plan
        self.verified: list[Fact[bool]] = [unknown(NOT_PREPARED) for _ in plan.flows]
        self.counted: list[Counted] = []
        self.pages: Fact[dict[str, int]] | None = None
        self.trials: list[LinkTrial] = []
        self._resources = resources
        self._flows: list[Flow] = []
        self._seconds = self._most_seconds = MIN_S

    def prepare(self, read_counters: ReadCounters | None = None) -> None:
        with own_failure(self._give_up):
            self._set_access()
            depth = DEPTH if len(self.plan.flows) == 1 else DEPTH_TOGETHER
            flows = [self._resources.flow(flow, self.plan, depth) for flow in self.plan.flows]
            self._note_pages()
            stamps = self._check(flows, read_counters)
            if any(fact.value is False for fact in self.verified):
                raise MeasurementError(WRONG)
            items = [stamp.end_ns - stamp.begin_ns for stamp in stamps]
            self._seconds = trial_seconds([float(np.median(each)) / 1e9 if each.size else 0.0 for each in items], depth)
            self._most_seconds = MAX_LONGER * self._seconds
            self._flows = flows

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """Run it once, for equal times and not for equal bytes."""
        stamps = self.run(self._seconds)
        found = make_trial(round_index, stamps, [self.plan.nbytes] * len(stamps))
        self.trials.append(found)
        if found.overlap < MIN_OVERLAP:  # the time in which the streams stop is longer than it seemed
            self._seconds = min(self._most_seconds, LONGER * self._seconds)
        sides: dict[Side, list[int]] = {"sum": list(range(len(self.plan.flows)))}
        for number, flow in enumerate(self.plan.flows):
            if flow.side in ("h2d", "d2h"):
                sides.setdefault(flow.side, []).append(number)
        seconds = {side: seconds_a_gigabyte([found], numbers)[0] for side, numbers in sides.items()}
        is_valid = found.invalid is None
        return {side: Trial(round_index, s if is_valid else 0.0, invalid=found.invalid) for side, s in seconds.items()}

    def run(self, seconds: float) -> list[FlowStamps]:
        self._set_access()
        return self._run(self._flows, seconds)

    def quick_rate(self) -> float | None:
        stamps = self.run(MIN_S)
        seconds = seconds_a_gigabyte([make_trial(0, stamps, [self.plan.nbytes] * len(stamps))], [0])[0]
        return 1 / seconds if 0 < seconds < math.inf else None

    def _run(self, flows: Sequence[Flow], seconds: float) -> list[FlowStamps]:
        # A call that copies through the host waits for the earlier work of its stream, so it would wait for the gate.
        gated = self.plan.peer_access is not False
        return self._resources.run(flows, sorted(self.plan.devices), seconds, gated=gated)

    def _set_access(self) -> None:
        if self.plan.peer_access is not None:
            for flow in self.plan.flows:
                self._resources.set_access(flow, self.plan.peer_access)

    def _note_pages(self) -> None:
        if self.plan.node is not None:
            memory, flow = self._resources.memory, self.plan.flows[0]
            find = memory.source if flow.source == HOST_END else memory.landing
            self.pages = memory.pages(find(flow, self.plan.node, self.plan.nbytes))

    def _check(self, flows: Sequence[Flow], read_counters: ReadCounters | None) -> list[FlowStamps]:
        """Run it over poisoned memory, compare what arrives, and take the counters around it."""
        memory, node, nbytes = self._resources.memory, self.plan.node, self.plan.nbytes
        for flow in self.plan.flows:
            memory.poison(memory.landing(flow, node, nbytes), nbytes)
        devices, read = sorted(self.plan.devices), read_counters or (lambda _: {})
        before = list(map(read, devices))
        stamps = self._run(flows, CHECK_S)
        for device, *readings in zip(devices, before, list(map(read, devices)), strict=True):
            sent, received = (self._crossed(device, stamps, outwards=outwards) for outwards in (True, False))
            for counter, counted in counted_between(*readings).items():
                self.counted.append(Counted(device, counter, counted, sent if counter.endswith("-sent") else received))
        for number, flow in enumerate(self.plan.flows):
            seed = memory.source(flow, node, nbytes).seed
            if seed is None:
                raise RuntimeError("a source has no contents")
            self.verified[number] = Fact(memory.arrived(memory.landing(flow, node, nbytes), nbytes, seed))
        return stamps

    def _crossed(self, device: int, stamps: Sequence[FlowStamps], *, outwards: bool) -> int:
        return sum(
            self.plan.nbytes * int(stamp.begin_ns.size)
            for flow, stamp in zip(self.plan.flows, stamps, strict=True)
            if (flow.source if outwards else flow.destination) == device and flow.source != flow.destination
        )


def trial_seconds(item_s: Sequence[float], depth: int) -> float:
    """How long a trial lasts: long against the items of the flows, and against the time in which the streams stop."""
    slowest_s = max(item_s)
    alone_s = min(ITEMS * slowest_s, max(ENOUGH_S, MIN_ITEMS * slowest_s))
    needed_s = alone_s if len(item_s) == 1 else depth * slowest_s / STOPPING_SHARE
    return min(MAX_S, max(MIN_S, needed_s))


# --- trials from stamps -----------------------------------------------------------------------------------------------

# Between two queued items a stream pauses for microseconds. A longer pause means that it had nothing to do.
MIN_PAUSE_NS = 50_000
PAUSE_SHARE = 0.1
MAX_CLOCK_ERROR = 0.01
"""Of the common interval. Stamps of different devices that are further apart bound no overlap."""


def busy(begin_ns: Nanoseconds, end_ns: Nanoseconds) -> Nanoseconds:
    """The intervals in which a flow was busy; its items may follow each other with short pauses."""
    order = np.argsort(begin_ns, kind="stable")
    begins, ends = begin_ns[order], np.maximum.accumulate(end_ns[order])
    pause_ns = max(MIN_PAUSE_NS, PAUSE_SHARE * float(np.median(ends - begins)))
    new = np.flatnonzero(begins[1:] - ends[:-1] > pause_ns) + 1
    return np.column_stack((begins[np.concatenate(([0], new))], ends[np.concatenate((new - 1, [ends.size - 1]))]))


def overlap(flows: Sequence[Nanoseconds]) -> float:
    """The time in which all flows were busy over that in which any was; 0 to 1. Intervals of one flow are disjoint."""
    whole_ns = total_ns(union(*flows))
    return levels(np.concatenate(flows)).get(len(flows), 0) / whole_ns if whole_ns else 0.0


def copied_between(begin_ns: Nanoseconds, end_ns: Nanoseconds, nbytes: int, since_ns: int, until_ns: int) -> float:
    """Bytes of the items inside an interval; an item that crosses an end of it counts in proportion to its time."""
    inside = np.minimum(end_ns, until_ns) - np.maximum(begin_ns, since_ns)
    lengths = np.maximum(end_ns - begin_ns, 1)
    return float(nbytes * (np.clip(inside, 0, None) / lengths).sum())


def make_trial(number: int, flows: Sequence[FlowStamps], sizes: Sequence[int]) -> LinkTrial:
    if any(flow.begin_ns.size == 0 for flow in flows):
        return LinkTrial(number, 0.0, (0.0,) * len(flows), 0.0, "a stream finished no copy")
    since_ns = max(int(np.min(flow.begin_ns)) for flow in flows)
    until_ns = min(int(np.max(flow.end_ns)) for flow in flows)
    found = overlap([busy(flow.begin_ns, flow.end_ns) for flow in flows])
    if until_ns <= since_ns:
        return LinkTrial(number, 0.0, (0.0,) * len(flows), found, "at no time were all streams busy")
    copied = tuple(
        copied_between(flow.begin_ns, flow.end_ns, size, since_ns, until_ns)
        for flow, size in zip(flows, sizes, strict=True)
    )
    invalid = _fault(flows, found, until_ns - since_ns)
    return LinkTrial(number, (until_ns - since_ns) / 1e9, copied, found, invalid)


def _fault(flows: Sequence[FlowStamps], found: float, common_ns: int) -> str | None:
    if any(flow.late for flow in flows):
        return "the gate opened late, so the copies did not begin together"
    if len(flows) == 1:
        return None
    error_ns = sum(sorted(flow.clock_error_ns for flow in flows)[-2:])
    if error_ns > MAX_CLOCK_ERROR * common_ns:
        return f"the clocks of the devices are known within {format_seconds(error_ns / 1e9)} only"
    if found < MIN_OVERLAP:
        return f"all streams were busy in {format_percent(found)} of the time only"
    return None


# --- small copies -----------------------------------------------------------------------------------------------------

SIZES = (4 << 10, 64 << 10, 1 << 20)
WINDOW_BYTES = 32 << 20
# A gate holds only few calls: see docs/measuring.md.
MAX_QUEUED = 18
MAX_IN_BATCH = 256
NO_BATCH = "cudaMemcpyBatchAsync needs CUDA 12.8 and a driver that has it"


@dataclass(eq=False)
class SmallSubject(LinkSubject):
    device: int
    direction: Literal["h2d", "d2h"]
    mode: Literal["batch", "queue"]
    nbytes: int
    resources: LinkResources
    seconds: list[float] = field(default_factory=list)
    caller_seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        # No driver can merge copies with gaps between them into one large copy.
        self._stride = self.nbytes + PLACE_BYTES
        self._slots = WINDOW_BYTES // self._stride
        self.caller_copies = min(MAX_IN_BATCH, self._slots)
        self.copies = min(MAX_QUEUED, self.caller_copies) if self.mode == "queue" else self.caller_copies
        self.verified: Fact[bool] = unknown(NOT_PREPARED)
        self._lane: Lane | None = None

    @property
    def key(self) -> str:
        return f"small {self.device} {self.direction} {self.mode} {self.nbytes}"

    @property
    def is_ready(self) -> bool:
        return self._lane is not None

    def prepare(self, seed: int) -> None:
        with own_failure(self._give_up):
            engine = self.resources.engine
            if self.mode == "batch" and not engine.driver_has(BATCH_CALL, BATCH_API):
                raise MeasurementError(NO_BATCH)
            host, device, scratch = self.resources.memory.small(self.device, WINDOW_BYTES)
            addresses = host.address, device.address
            lane = engine.Lane(self.direction, *addresses, self.nbytes, self._stride, self._slots)
            self.verified = Fact(self._arrives(lane, seed, (scratch.address, scratch.nbytes)))
            if not self.verified.value:
                raise MeasurementError(WRONG)
            self._lane = lane

    def _arrives(self, lane: Lane, seed: int, scratch: tuple[int, int]) -> bool:
        """Whether the first and the last copy of a window arrive, behind a gate and without one."""
        engine, copier = self.resources.engine, self.resources.copier(self.device)
        windows: tuple[tuple[int, Callable[[], object]], ...] = (
            (self.copies, lambda: copier.gated(self._call, lane, self.copies, 0, 0)),
            (self.caller_copies, lambda: copier.on_stream(self._call, lane, 0, self.caller_copies)),
        )
        for copies, run in windows:
            for slot in (0, copies - 1):
                engine.prepare_check(self.device, lane, slot, seed, scratch)
                run()
                if engine.first_wrong(self.device, lane, slot, seed, scratch, False) is not None:
                    return False
        return True

    @property
    def _call(self) -> str:
        return "batch" if self.mode == "batch" else "async"

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        if self._lane is None:
            raise MeasurementError(NOT_PREPARED)
        copier = self.resources.copier(self.device)
        sample = copier.gated(self._call, self._lane, self.copies, 1, 0)
        issued = copier.on_stream(self._call, self._lane, 0, self.caller_copies)
        invalid = sample.invalid or None
        if invalid is None:
            self.seconds.append(sample.elapsed_s)
        if issued.wall_s is not None:
            self.caller_seconds.append(issued.wall_s)
        return {self.direction: Trial(round_index, sample.elapsed_s, wall_s=issued.wall_s, invalid=invalid)}
