"""The document: what a run holds, and nothing else defines it.

Units stand in the names: `_s` seconds, `_bytes` bytes, `_gbps` 1e9 bytes a second. What was not measured or could not
be read is null with the reason beside it, never left out and never zero.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from pyxfer.errors import UsageError

SCHEMA_VERSION = 1

T = TypeVar("T")

Direction = Literal["h2d", "d2h", "both"]
Side = Literal["h2d", "d2h", "sum"]
Memory = Literal["pageable", "pinned", "registered", "write-combined"]
Bracket = Literal["gated", "stream", "drained"]
Variant = Literal["warm", "fresh"]
Runtime = Literal["cuda", "host"]
LinkKind = Literal["pcie", "c2c", "nvlink", "none", "unknown"]
Ending = Literal["complete", "interrupted", "failed"]


class Fact(msgspec.Struct, Generic[T], frozen=True):
    """A value, or null with the reason why there is none."""

    value: T | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a fact has a value, or a reason why it has none, and not both")


def unknown(reason: str) -> Fact[T]:
    """A fact that is missing, and why."""
    return Fact(reason=reason)


class Remark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something a reader must know, and the flag or step that would change it."""

    code: str
    text: str
    fix: str | None = None


# --- the machine -----------------------------------------------------------------------------------------------------


class Device(msgspec.Struct, frozen=True):
    """One device as CUDA counts them, CUDA_VISIBLE_DEVICES honoured."""

    index: int
    runtime: Runtime
    name: str
    memory_bytes: int
    uuid: Fact[str]
    pci: Fact[str]
    compute_capability: Fact[str]
    copy_engines: Fact[int]
    mig: Fact[bool]
    vgpu: Fact[bool]
    confidential: Fact[bool]


class LinkState(msgspec.Struct, frozen=True):
    """What two ends of a PCI Express link agreed on."""

    generation: int
    width: int


class Hop(msgspec.Struct, frozen=True):
    """One link on the way from the device up to the root, seen from its lower end."""

    pci: str
    now: Fact[LinkState]
    most: Fact[LinkState]


class Link(msgspec.Struct, frozen=True):
    """The way between host memory and the device, and what it could do on paper."""

    kind: LinkKind
    now: Fact[LinkState]
    under_load: Fact[LinkState]
    device_most: Fact[LinkState]
    system_most: Fact[LinkState]
    max_payload_bytes: Fact[int]
    max_read_request_bytes: Fact[int]
    relaxed_ordering: Fact[bool]
    hops: tuple[Hop, ...]
    narrowest_hop: Fact[Hop]
    raw_peak_gbps: Fact[float]
    h2d_peak_gbps: Fact[float]
    d2h_peak_gbps: Fact[float]
    remarks: tuple[Remark, ...] = ()

    def most_gbps(self, side: Side) -> float | None:
        """What no bandwidth of a side can exceed: its protocol peak, or where that is not known the raw one."""
        known = self.peak_gbps(side).value
        if known is not None or self.raw_peak_gbps.value is None:
            return known
        return self.raw_peak_gbps.value * (2 if side == "sum" else 1)

    def peak_gbps(self, side: Side) -> Fact[float]:
        """The protocol peak of a side; of `sum`, of both together."""
        if side == "h2d":
            return self.h2d_peak_gbps
        if side == "d2h":
            return self.d2h_peak_gbps
        if self.h2d_peak_gbps.value is None:
            return self.h2d_peak_gbps
        if self.d2h_peak_gbps.value is None:
            return self.d2h_peak_gbps
        return Fact(self.h2d_peak_gbps.value + self.d2h_peak_gbps.value)


class Placement(msgspec.Struct, frozen=True):
    """Where the measuring thread ran and where its host memory lay."""

    device_node: Fact[int]
    cpus: Fact[str]
    memory_node: Fact[int]
    pages_by_node: Fact[dict[str, int]]


class Clocks(msgspec.Struct, frozen=True):
    """GPU clocks, now and at most."""

    sm_mhz: int
    memory_mhz: int
    sm_most_mhz: int
    memory_most_mhz: int


class Environment(msgspec.Struct, frozen=True):
    """What a reader needs to believe a result, or to explain its difference from another."""

    host: str
    taken_at: str
    pyxfer: str
    python: str
    numpy: str
    cuda_runtime: str
    driver: Fact[str]
    driver_cuda: Fact[str]
    visible_devices: Fact[str]
    gpu_clocks: Fact[Clocks]
    throttle_reasons: Fact[tuple[str, ...]]
    performance_state: Fact[str]
    temperature_c: Fact[int]
    persistence: Fact[bool]
    other_gpu_processes: Fact[tuple[int, ...]]
    cpu_model: Fact[str]
    cpus_usable: int
    cpu_governor: Fact[str]
    memory_bytes: Fact[int]
    memory_available_bytes: Fact[int]
    transparent_huge_pages: Fact[str]
    iommu: Fact[str]
    kernel: str
    system: Fact[str]
    container: Fact[str]
    virtual_machine: Fact[str]


# --- the measurements ------------------------------------------------------------------------------------------------


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One timed execution. In a window of several copies every time is that of one copy, the window's divided."""

    round: int
    elapsed_s: float
    dispatch_s: float | None = None
    wall_s: float | None = None
    copies: int = 1
    invalid: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """What the valid trials of a measurement say together, in seconds."""

    n: int
    median_s: float
    low_s: float | None
    high_s: float | None
    q1_s: float
    q3_s: float
    mad_s: float
    min_s: float
    max_s: float
    confidence: float = 0.95

    @property
    def relative_half_width(self) -> float | None:
        """Half of the interval as a fraction of the median: what `--precision` is about."""
        if self.low_s is None or self.high_s is None or self.median_s <= 0:
            return None
        return (self.high_s - self.low_s) / 2 / self.median_s

    @property
    def iqr_s(self) -> float:
        """The width of the middle half."""
        return self.q3_s - self.q1_s


class Rate(msgspec.Struct, frozen=True):
    """Bytes a second of the median, and of the ends of its interval."""

    gbps: float
    low_gbps: float | None
    high_gbps: float | None


class Share(msgspec.Struct, frozen=True):
    """A fraction, 1.0 being the whole, with its interval."""

    value: float
    low: float | None
    high: float | None


class Measurement(msgspec.Struct, frozen=True):
    """The trials of one route at one size, with their statistics.

    A copy in both directions at once makes three of them: the side `h2d`, the side `d2h`, and their `sum`.
    """

    route: str
    direction: Direction
    side: Side
    memory: str
    mode: str
    variant: Variant
    bracket: Bracket
    nbytes: int
    moved_bytes: int
    rate: Fact[Rate]
    peak_share: Fact[float]
    ceiling_share: Fact[Share]
    verified: Fact[bool]
    first_s: Fact[float]
    summary: Summary | None = None
    dispatch: Summary | None = None
    wall: Summary | None = None
    trials: tuple[Trial, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def gbps(self) -> float | None:
        """The headline: 1e9 bytes a second at the median, or None (`rate.reason` says why)."""
        return None if self.rate.value is None else self.rate.value.gbps

    @property
    def elapsed_s(self) -> float | None:
        """Median seconds between the two events, of one transfer."""
        return None if self.summary is None else self.summary.median_s

    @property
    def dispatch_s(self) -> float | None:
        """Median seconds that the caller's thread paid."""
        return None if self.dispatch is None else self.dispatch.median_s

    @property
    def wall_s(self) -> float | None:
        """Median seconds on the host's clock, where the bracket is host-paced."""
        return None if self.wall is None else self.wall.median_s

    @property
    def of_ceiling(self) -> float | None:
        """The share of the ceiling of the same direction and size, from the same rounds."""
        return None if self.ceiling_share.value is None else self.ceiling_share.value.value

    @property
    def of_peak(self) -> float | None:
        """The share of the link's protocol peak."""
        return self.peak_share.value


class Curve(msgspec.Struct, frozen=True):
    """`t = t0 + n/B` over the sizes of one route: fixed cost, asymptote, size that reaches half of it."""

    route: str
    direction: Direction
    side: Side
    variant: Variant
    latency_s: Fact[float]
    asymptote_gbps: Fact[float]
    half_bytes: Fact[float]
    worst_misfit: Fact[float]


class LockingCost(msgspec.Struct, frozen=True):
    """What it costs to page-lock host memory, and after how many transfers that has paid."""

    memory: Memory
    nbytes: int
    summary: Summary | None
    s_per_gib: Fact[float]
    pays_after_transfers: Fact[int]
    pays_direction: Direction = "h2d"


class Parameters(msgspec.Struct, frozen=True):
    """What was asked for; enough to ask for it again."""

    device: str
    directions: tuple[Direction, ...]
    memories: tuple[Memory, ...]
    modes: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    fresh: bool
    precision: float
    budget_s: float
    seed: int
    min_rounds: int


class Run(msgspec.Struct, frozen=True):
    """One document: where, how, and what came out."""

    kind: Literal["ceiling", "measure"]
    ended: Ending
    runtime: Runtime
    runtime_reason: str
    parameters: Parameters
    device: Device
    link: Link
    placement: Placement
    environment: Environment
    environment_after: Environment | None = None
    duration_s: float = 0.0
    measurements: tuple[Measurement, ...] = ()
    curves: tuple[Curve, ...] = ()
    locking: tuple[LockingCost, ...] = ()
    remarks: tuple[Remark, ...] = ()
    failure: str | None = None
    schema_version: int = SCHEMA_VERSION

    def ceiling(self, direction: Direction, nbytes: int) -> Measurement:
        """The best raw measurement of a direction at a size; of `both`, the sum of its sides.

        Raises:
            UsageError: this run has none; the text says which sizes it has.

        """
        side: Side = "sum" if direction == "both" else direction
        fitting = [each for each in self.measurements if each.direction == direction and each.side == side]
        known = [each for each in fitting if each.nbytes == nbytes and each.gbps is not None and each.variant == "warm"]
        if not known:
            sizes = ", ".join(str(size) for size in sorted({each.nbytes for each in fitting if each.gbps is not None}))
            raise UsageError(f"This run has no ceiling for {direction} at {nbytes} bytes; it has {sizes or 'none'}.")
        return max(known, key=lambda each: each.gbps or 0.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, whole or not at all."""
        from pyxfer import documents

        documents.save(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a saved run, of this or an earlier version."""
        from pyxfer import documents

        return documents.load(Path(path))

    def to_csv(self) -> str:
        """One row a measurement, numbers unrounded."""
        from pyxfer import documents

        return documents.to_csv(self)

    def to_markdown(self) -> str:
        """A table for people."""
        from pyxfer import documents

        return documents.to_markdown(self)
