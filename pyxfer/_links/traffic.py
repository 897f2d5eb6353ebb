"""Copies that run at once, as a subject of the sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyxfer._document.links import HOST_END, MIN_OVERLAP, Counted, Counter, LinkTrial, seconds_a_gigabyte
from pyxfer._document.runs import Fact, Side, Trial, unknown
from pyxfer._links.plan import TrafficPlan
from pyxfer._links.stamps import make_trial
from pyxfer._machine.nvlink import counted_between
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

if TYPE_CHECKING:
    from pyxfer._links.resources import LinkResources
    from pyxfer.native._cuda import Flow, FlowStamps

    ReadCounters = Callable[[int], Mapping[Counter, Fact[int]]]

NOT_PREPARED = "the run ended before it was prepared"
WRONG = "the contents were wrong"

# Queued copies per stream. When the copies are told to stop, each stream still has these to do, so streams of different
# rates end at different times: few, where that shortens the time in which all are busy.
DEPTH = 4
DEPTH_TOGETHER = 2
CHECK_S = 0.002
_HOST_SIDES: Mapping[str, Side] = {"h2d": "h2d", "d2h": "d2h"}
LEAST_S = 0.02
MOST_S = 2.0
# A trial lasts this many items of the slowest stream; together that many times as long as the streams take to stop.
# Of slow links fewer items are enough.
ITEMS = 12
LEAST_ITEMS, ENOUGH_S = 3, 0.1
STOPPING_SHARE = 0.03
LONGER, MOST_LONGER = 1.5, 4.0


class TrafficSubject:
    """One traffic. `prepare` creates its flows, checks what arrives and chooses the length of a trial."""

    anchor: str | None = None
    ceiling_of: str | None = None

    def __init__(self, plan: TrafficPlan, resources: LinkResources) -> None:
        self.plan = plan
        self.unavailable: str | None = None
        self.verified: list[Fact[bool]] = [unknown(NOT_PREPARED) for _ in plan.flows]
        self.counted: list[Counted] = []
        self.pages: Fact[dict[str, int]] | None = None
        self.trials: list[LinkTrial] = []
        self._resources = resources
        self._flows: list[Flow] = []
        self._seconds = self._most_seconds = LEAST_S

    @property
    def key(self) -> str:
        return self.plan.name

    @property
    def is_ready(self) -> bool:
        return bool(self._flows)

    def prepare(self, read_counters: ReadCounters | None = None) -> None:
        """Make it ready, or note why it is not available.

        Raises:
            CudaError: no GPU is usable any more.

        """
        try:
            self._set_access()
            depth = DEPTH if len(self.plan.flows) == 1 else DEPTH_TOGETHER
            flows = [self._resources.flow(flow, self.plan, depth) for flow in self.plan.flows]
            self._note_pages()
            stamps = self._check(flows, read_counters)
        except (CudaUnavailableError, DeviceLostError):
            raise
        except (CudaError, MeasurementError) as error:
            self.unavailable = str(error)
            return
        if any(fact.value is False for fact in self.verified):
            self.unavailable = WRONG
            return
        self._seconds = trial_seconds([_median_item_s(stamp) for stamp in stamps], depth)
        self._most_seconds = MOST_LONGER * self._seconds
        self._flows = flows

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """Run it once, for equal times and not for equal bytes."""
        self._set_access()
        stamps = self._run(self._flows, self._seconds)
        found = make_trial(round_index, stamps, [self.plan.nbytes] * len(stamps))
        self.trials.append(found)
        if found.overlap < MIN_OVERLAP:  # the time in which the streams stop is longer than it seemed
            self._seconds = min(self._most_seconds, LONGER * self._seconds)
        return {side: self._as_trial(found, numbers) for side, numbers in self._sides().items()}

    def keep_busy(self, seconds: float) -> None:
        """Run it without a trial."""
        self._set_access()
        self._run(self._flows, seconds)

    def quick_rate(self) -> float | None:
        """The rate of a short run, in GB/s; None if nothing was copied."""
        self._set_access()
        stamps = self._run(self._flows, LEAST_S)
        seconds = seconds_a_gigabyte([make_trial(0, stamps, [self.plan.nbytes] * len(stamps))], [0])[0]
        return 1 / seconds if 0 < seconds < math.inf else None

    def _as_trial(self, found: LinkTrial, numbers: Sequence[int]) -> Trial:
        seconds = seconds_a_gigabyte([found], numbers)[0]
        return Trial(found.round, seconds if found.invalid is None else 0.0, invalid=found.invalid)

    def _sides(self) -> dict[Side, list[int]]:
        sides: dict[Side, list[int]] = {"sum": list(range(len(self.plan.flows)))}
        for number, flow in enumerate(self.plan.flows):
            side = _HOST_SIDES.get(flow.side)
            if side is not None:
                sides.setdefault(side, []).append(number)
        return sides

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
        before = self._counters(read_counters)
        stamps = self._run(flows, CHECK_S)
        self._note_counters(before, self._counters(read_counters), stamps)
        for number, flow in enumerate(self.plan.flows):
            seed = memory.source(flow, node, nbytes).seed
            if seed is None:
                raise RuntimeError("a source has no contents")
            self.verified[number] = Fact(memory.arrived(memory.landing(flow, node, nbytes), nbytes, seed))
        return stamps

    def _counters(self, read: ReadCounters | None) -> dict[int, Mapping[Counter, Fact[int]]]:
        return {} if read is None else {device: read(device) for device in sorted(self.plan.devices)}

    def _note_counters(
        self,
        before: Mapping[int, Mapping[Counter, Fact[int]]],
        after: Mapping[int, Mapping[Counter, Fact[int]]],
        stamps: Sequence[FlowStamps],
    ) -> None:
        for device in after:
            sent, received = (self._crossed(device, stamps, outwards=outwards) for outwards in (True, False))
            for counter, counted in counted_between(before[device], after[device]).items():
                amount = sent if counter.endswith("-sent") else received
                self.counted.append(Counted(device, counter, counted, amount))

    def _crossed(self, device: int, stamps: Sequence[FlowStamps], *, outwards: bool) -> int:
        """The bytes of copies that left a device, or came to it."""
        return sum(
            self.plan.nbytes * int(stamp.begin_ns.size)
            for flow, stamp in zip(self.plan.flows, stamps, strict=True)
            if (flow.source if outwards else flow.destination) == device and flow.source != flow.destination
        )


def trial_seconds(item_s: Sequence[float], depth: int) -> float:
    """How long a trial lasts: long against the items of the flows, and against the time in which the streams stop."""
    slowest_s = max(item_s)
    alone_s = min(ITEMS * slowest_s, max(ENOUGH_S, LEAST_ITEMS * slowest_s))
    needed_s = alone_s if len(item_s) == 1 else depth * slowest_s / STOPPING_SHARE
    return min(MOST_S, max(LEAST_S, needed_s))


def _median_item_s(stamps: FlowStamps) -> float:
    return float(np.median(stamps.end_ns - stamps.begin_ns)) / 1e9 if stamps.begin_ns.size else 0.0
