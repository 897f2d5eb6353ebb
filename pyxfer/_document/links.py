"""The document of `pyxfer links`: every link of a host, alone and together.

Ends of copies are numbers of CUDA; `HOST_END` is host memory. Rates are 1e9 bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, get_args

import msgspec

from pyxfer._document import checks, machines
from pyxfer._document.machines import Device, Environment, Fact, Link, Remark, SavedDocument, unknown
from pyxfer._document.printing import HasTable, ShortRepr
from pyxfer._document.runs import Ending, Rate, Share
from pyxfer.errors import UsageError
from pyxfer.units import format_gbps, format_size, joined

HOST_END = -1
LOAD_BYTES = 8
"""What one dependent load reads."""
MIN_OVERLAP = 0.95
"""Of the busy intervals of copies that run together. A trial below it is invalid."""
SHARED_BELOW = 0.95
"""A GPU that keeps less than this beside another one loses something that a reader may care about."""

LinkGroup = Literal["host", "together", "pairs", "local", "latency", "numa", "small"]
GROUPS: tuple[LinkGroup, ...] = get_args(LinkGroup)
CopyEngine = Literal["ce", "sm"]
COPY_ENGINES: tuple[CopyEngine, ...] = get_args(CopyEngine)
HostDirection = Literal["h2d", "d2h", "both"]
FlowSide = Literal["h2d", "d2h", "peer", "local"]
Trait = Literal["c2c", "integrated", "mig", "vgpu", "wsl2", "hmm", "no-tree"]
TreeVerdict = Literal["agrees", "differs", "hidden"]
Counter = Literal["pcie-sent", "pcie-received", "nvlink-sent", "nvlink-received"]


def end_name(end: int) -> str:
    """`host`, or the number of a GPU."""
    return "host" if end == HOST_END else str(end)


def end_names(ends: Sequence[int]) -> str:
    """`0, 1 and 2`."""
    return joined([end_name(end) for end in ends])


class LinkDevice(msgspec.Struct, frozen=True):
    """A GPU with its link to the host.

    `nvlink_gbps`: what its active NVLinks carry in one direction; `c2c_gbps`: the same of NVLink-C2C. `kernels_s`:
    seconds to load the copy kernels, or why they are not available. `traits`: in what it differs from a card in a
    slot.
    """

    device: Device
    link: Link
    node: Fact[int]
    pages_by_node: Fact[dict[str, int]]
    nvlinks: Fact[int]
    nvlink_gbps: Fact[float]
    c2c_gbps: Fact[float]
    kernels_s: Fact[float]
    traits: tuple[Trait, ...] = ()
    other_processes: Fact[tuple[int, ...]] = unknown("not read")

    def host_peak_gbps(self, side: FlowSide) -> Fact[float]:
        """The protocol peak of its link to the host in one direction; of NVLink-C2C what NVML says that it carries."""
        if self.link.kind == "c2c":
            return self.c2c_gbps
        return self.link.peak_gbps("h2d" if side == "h2d" else "d2h")


class PeerLink(msgspec.Struct, frozen=True):
    """The link from one GPU to another. `nvlinks`: the NVLinks that join the two directly or through a switch."""

    source: int
    destination: int
    access: Fact[bool]
    kind: machines.LinkKind
    nvlinks: Fact[int]
    peak_gbps: Fact[float]


class LinkTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stretch in which the copies ran at once.

    `seconds`: length of the interval in which all were busy; `nbytes`: what each of them copied in it, a copy that
    crosses an end of the interval in proportion; `overlap`: the time in which all were busy over that in which any was.
    """

    round: checks.Count
    seconds: checks.Amount
    nbytes: tuple[checks.Amount, ...]
    overlap: checks.Part = 1.0
    invalid: str | None = None


class FlowPlan(msgspec.Struct, frozen=True):
    """One stream of copies; `device` issues them."""

    source: int
    destination: int
    device: int
    side: FlowSide


class LinkFlow(FlowPlan, frozen=True):
    """One stream of copies of a traffic. `device` issues them: it reads, writes, or is the GPU of a host copy.

    `alone_share`: its rate over that of the same copies alone, in the same rounds.
    """

    rate: Fact[Rate]
    alone_share: Fact[Share]
    peak_share: Fact[float]
    verified: Fact[bool]

    @property
    def gbps(self) -> float | None:
        """Its rate; None without one."""
        return None if self.rate.value is None else self.rate.value.gbps


class Counted(msgspec.Struct, frozen=True):
    """The bytes that NVML counted on a link of a device while `sent` bytes were copied over it or past it."""

    device: int
    counter: Counter
    counted: Fact[int]
    sent: int


class TrafficPlan(msgspec.Struct, frozen=True):
    """Copies that run at once, or one stream of them; the fields are those of `Traffic`."""

    group: LinkGroup
    case: str
    engine: CopyEngine
    nbytes: int
    flows: tuple[FlowPlan, ...]
    peer_access: bool | None = None
    node: int | None = None


class Traffic(ShortRepr, TrafficPlan, frozen=True, kw_only=True):
    """Copies that ran at once, or one stream of them. `nbytes`: size of each copy.

    `total`: bytes of all flows in the interval in which all were busy. `sum_alone_gbps`: the sum of separate runs,
    which is not a total. `slowest_gbps`: the rate of the slowest flow. `node`: NUMA node of the host memory, if chosen.
    """

    flows: tuple[LinkFlow, ...]
    total: Fact[Rate]
    sum_alone_gbps: Fact[float]
    slowest_gbps: Fact[float]
    pages_by_node: Fact[dict[str, int]] | None = None
    counted: tuple[Counted, ...] = ()
    trials: tuple[LinkTrial, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def _summary(self) -> str:
        ends = ", ".join(f"{end_name(flow.source)}>{end_name(flow.destination)}" for flow in self.flows)
        figure = f"no rate: {self.total.reason}" if self.gbps is None else format_gbps(self.gbps)
        return f"{self.group} {self.case} {self.engine} {ends} {format_size(self.nbytes)}: {figure}"

    @property
    def gbps(self) -> float | None:
        """The total rate; None without one."""
        return None if self.total.value is None else self.total.value.gbps

    @property
    def valid(self) -> tuple[LinkTrial, ...]:
        """The trials that count."""
        return tuple(trial for trial in self.trials if trial.invalid is None)

    @property
    def least_overlap(self) -> float | None:
        """The least overlap of a valid trial; None without one."""
        return min((trial.overlap for trial in self.valid), default=None)

    def key(self, number: int) -> tuple[object, ...]:
        """What identifies a flow's copies: the same alone and together."""
        flow = self.flows[number]
        access = self.peer_access if flow.side == "peer" else None
        ends = (flow.source, flow.destination, flow.device)
        return *ends, self.engine, self.nbytes, access, self.node


class LatencyTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """The quantiles of one stretch of launches, in nanoseconds a load. `load_gbps`: what was copied beside it."""

    round: int
    launches: int
    p50_ns: float
    p99_ns: float | None = None
    load_gbps: float | None = None
    invalid: str | None = None


def p99_of(valid: Sequence[LatencyTrial]) -> list[float]:
    """The p99 of each of these trials; none if one has none, because that of the others could be below the p50."""
    known = [trial.p99_ns for trial in valid if trial.p99_ns is not None]
    return known if len(known) == len(valid) else []


class Chased(msgspec.Struct, frozen=True):
    """Nanoseconds a load with an interval."""

    ns: float
    low_ns: float | None
    high_ns: float | None


class Latency(ShortRepr, msgspec.Struct, frozen=True):
    """Dependent loads of a GPU from memory, one after the other.

    `target`: where the memory is. `footprint_bytes`: how far the loads spread, `places` of them, in a random order that
    visits each once. `hops`: the loads of one launch, whose mean is one sample. `load`: the share of the link's rate
    alone that was copied in the direction of the loaded bytes. `p99`: null if a trial has too few launches.
    """

    device: int
    target: int
    footprint_bytes: checks.AtLeastOne
    places: checks.AtLeastOne
    hops: checks.AtLeastOne
    load: checks.Part
    p50: Fact[Chased]
    p99: Fact[Chased]
    load_gbps: Fact[float]
    fastest: Fact[Chased]
    slowest: Fact[Chased]
    multiprocessor_ns: tuple[tuple[int, float], ...] = ()
    node: int | None = None
    trials: tuple[LatencyTrial, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def _summary(self) -> str:
        found = self.p50.value
        figure = f"no latency: {self.p50.reason}" if found is None else f"{found.ns:.0f} ns"
        busy = f" at {self.load * 100:.0f} % load" if self.load else ""
        return f"GPU {self.device} from {end_name(self.target)}, {format_size(self.footprint_bytes)}{busy}: {figure}"

    @property
    def ns(self) -> float | None:
        """The median; None without one."""
        return None if self.p50.value is None else self.p50.value.ns


class SmallCopies(msgspec.Struct, frozen=True):
    """Many small copies at once: in one call (`batch`), or one call each (`queue`).

    `rate`: the device's, of `copies` that were issued before the first began. `caller_rate`: the caller's, of
    `caller_copies` from the first call to the end of the last copy. `seconds`, `caller_seconds`: of one copy, by trial.
    """

    device: int
    direction: Literal["h2d", "d2h"]
    mode: Literal["batch", "queue"]
    nbytes: checks.AtLeastOne
    copies: checks.AtLeastOne
    rate: Fact[Rate]
    verified: Fact[bool]
    seconds: tuple[checks.Amount, ...] = ()
    caller_copies: checks.Count = 0
    caller_rate: Fact[Rate] = unknown("not measured")
    caller_seconds: tuple[checks.Amount, ...] = ()

    @property
    def gbps(self) -> float | None:
        """The rate by the device's clock; None without one."""
        return None if self.rate.value is None else self.rate.value.gbps

    @property
    def caller_gbps(self) -> float | None:
        """The rate by the caller's clock, with the time of the calls; None without one."""
        return None if self.caller_rate.value is None else self.caller_rate.value.gbps


class Keep(msgspec.Struct, frozen=True):
    """What a GPU keeps of its rate alone while another one copies in the same direction."""

    direction: HostDirection
    device: int
    beside: int
    share: Fact[Share]


class SharedGroup(msgspec.Struct, frozen=True):
    """GPUs that slow each other down: they share an uplink, or something beyond it.

    `keeps`: the median share that one of them keeps beside another. `tree`: whether the PCIe tree shows the same.
    """

    direction: HostDirection
    devices: tuple[int, ...]
    keeps: float
    tree: TreeVerdict


class SlowLink(msgspec.Struct, frozen=True):
    """A link that is slower than the others of its kind: their median is `usual_gbps`."""

    case: str
    source: int
    destination: int
    gbps: float
    usual_gbps: float


class LinksSharing(msgspec.Struct, frozen=True):
    """What the interference says about the wiring.

    `error_rate`: chance that a map of independent links shows any group or slow link. `tree`: GPUs below one port of
    the PCIe tree, where the machine shows it. `pairs_measured` of `pairs` were measured.
    """

    keeps: tuple[Keep, ...]
    groups: Fact[tuple[SharedGroup, ...]]
    slow: Fact[tuple[SlowLink, ...]]
    tree: Fact[tuple[tuple[int, ...], ...]]
    error_rate: checks.Chance
    pairs_measured: int
    pairs: int

    def keep(self, device: int, beside: int, direction: HostDirection = "h2d") -> float | None:
        """The share that a GPU keeps beside another one; None if it is not known."""
        for keep in self.keeps:
            if (keep.device, keep.beside, keep.direction) == (device, beside, direction):
                return None if keep.share.value is None else keep.share.value.value
        return None


class LinksParameters(msgspec.Struct, frozen=True):
    """The settings of a run, which suffice to repeat it."""

    devices: tuple[int, ...]
    groups: tuple[LinkGroup, ...]
    engines: tuple[CopyEngine, ...]
    host_bytes: int
    peer_bytes: int
    local_bytes: int
    precision: checks.Positive
    budget_s: checks.Positive
    seed: int


class Links(HasTable, SavedDocument, frozen=True):
    """The document of `pyxfer links`."""

    DERIVED_BY: ClassVar[str] = "pyxfer._links.derived:derive_links"

    kind: Literal["links"]
    ended: Ending
    runtime: machines.Runtime
    runtime_reason: str
    parameters: LinksParameters
    environment: Environment
    devices: tuple[LinkDevice, ...]
    peers: tuple[PeerLink, ...] = ()
    traffics: tuple[Traffic, ...] = ()
    latencies: tuple[Latency, ...] = ()
    small: tuple[SmallCopies, ...] = ()
    sharing: LinksSharing | None = None
    duration_s: checks.Amount = 0.0
    environment_after: Environment | None = None
    remarks: tuple[Remark, ...] = ()
    failure: str | None = None
    schema_version: int = 1

    def _summary(self) -> str:
        count = len(self.traffics) + len(self.latencies) + len(self.small)
        parts = [f"links of {len(self.devices)} {'GPU' if len(self.devices) == 1 else 'GPUs'}: {count} rows"]
        for direction in ("h2d", "d2h"):
            rows = self._rows("together", direction, "ce")
            parts += [f"together {direction} {format_gbps(row.gbps)}" for row in rows[:1] if row.gbps is not None]
        return ", ".join(parts)

    def _rows(self, group: LinkGroup, case: str, engine: CopyEngine) -> list[Traffic]:
        return [row for row in self.traffics if (row.group, row.case, row.engine) == (group, case, engine)]

    def pair(
        self, source: int, destination: int, access: Literal["read", "write"] = "write", engine: CopyEngine = "ce"
    ) -> Traffic:
        """Copies from one GPU to another alone, read by the destination or written by the source.

        Raises:
            UsageError: the run has no such row; the text says which pairs it has.
        """
        rows = self._rows("pairs", access, engine)
        for row in rows:
            if (row.flows[0].source, row.flows[0].destination) == (source, destination):
                return row
        known = ", ".join(f"{row.flows[0].source} to {row.flows[0].destination}" for row in rows)
        raise UsageError(
            f"This run has no {engine} {access} from GPU {source} to {destination}; it has {known or 'none'}."
        )

    def together(self, direction: HostDirection, engine: CopyEngine = "ce") -> Traffic:
        """The copies between the host and all GPUs at once.

        Raises:
            UsageError: the run has no such row.
        """
        for row in self._rows("together", direction, engine):
            return row
        raise UsageError(
            f"This run has no {engine} row of {direction} with all GPUs together; it takes two GPUs and the group "
            "together."
        )

    def latency(self, target: Literal["host", "peer", "self"], device: int | None = None, load: float = 0.0) -> Latency:
        """The loads of a GPU, by default the first, from the host, a peer or itself; of the smallest footprint.

        Raises:
            UsageError: the run has no such row.
        """
        for row in sorted(self.latencies, key=lambda row: row.footprint_bytes):
            place = "host" if row.target == HOST_END else "self" if row.target == row.device else "peer"
            if place == target and row.node is None and row.load == load and device in (None, row.device):
                return row
        raise UsageError(f"This run has no latency from {target} at {load * 100:g} % load; measure the group latency.")

    @property
    def interference(self) -> LinksSharing:
        """What each GPU keeps beside each other one, and which of them share an uplink.

        Raises:
            UsageError: the run has none.
        """
        if self.sharing is None:
            raise UsageError("This run has no interference map; it takes two GPUs and the group together.")
        return self.sharing


def seconds_a_gigabyte(trials: Sequence[LinkTrial], numbers: Sequence[int]) -> list[float]:
    """Seconds that these flows together took for 1e9 bytes, by trial; infinite where nothing was copied."""
    amounts = [(trial.seconds, math.fsum(trial.nbytes[number] for number in numbers)) for trial in trials]
    return [seconds * 1e9 / nbytes if nbytes > 0 else math.inf for seconds, nbytes in amounts]


Alone = Mapping[tuple[object, ...], Traffic]


def alone_by_key(traffics: Sequence[Traffic]) -> Alone:
    """The traffics that have one stream of copies, by what identifies these."""
    return {row.key(0): row for row in traffics if len(row.flows) == 1}


def alone_of(traffic: Traffic, number: int, alone: Alone) -> Traffic | None:
    """The traffic that has nothing but the copies of this flow."""
    found = alone.get(traffic.key(number))
    return None if found is traffic else found


def links_problems(run: Links) -> checks.Problems:
    known = [each.device.index for each in run.devices]
    if not known or len(set(known)) != len(known) or tuple(known) != run.parameters.devices:
        yield "devices", "are not those of the parameters, each once"
    yield from checks.of_each(
        "devices", run.devices, lambda each: checks.within("link", machines.link_problems(each.link))
    )
    yield from checks.repeated("small", [(row.device, row.direction, row.mode, row.nbytes) for row in run.small])
    for i, row in enumerate(run.small):
        if row.device not in known:
            yield f"small[{i}].device", "is none of the devices"
