"""The document: what a run holds, and nothing else defines it.

Units stand in the names: `_s` seconds, `_bytes` bytes, `_gbps` 1e9 bytes a second. What was not measured or could not
be read is null with the reason beside it, never left out and never zero.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from pyxfer.errors import UsageError
from pyxfer.model_machine import (
    Clocks,
    Device,
    Environment,
    Fact,
    Hop,
    Link,
    LinkKind,
    LinkState,
    Placement,
    Remark,
    Runtime,
    Side,
    unknown,
)
from pyxfer.model_ring import NOT_STAGED, STAGED, Ring, RingSource
from pyxfer.model_routes import Nature, Published, Returns, Worker, WorkerEnding, Workload
from pyxfer.model_trace import NOT_TRACED, Breakdown, Dma, Part, PartName, Tracing

__all__ = [
    "SCHEMA_VERSION",
    "STAGED",
    "Bracket",
    "Breakdown",
    "Clocks",
    "Curve",
    "Device",
    "Direction",
    "Dma",
    "Ending",
    "Environment",
    "Fact",
    "Hop",
    "Link",
    "LinkKind",
    "LinkState",
    "LockingCost",
    "Measurement",
    "Memory",
    "Nature",
    "Parameters",
    "Part",
    "PartName",
    "Placement",
    "Published",
    "Rate",
    "Remark",
    "Returns",
    "Ring",
    "RingSource",
    "Run",
    "Runtime",
    "Share",
    "Side",
    "Summary",
    "Tracing",
    "Trial",
    "Variant",
    "Worker",
    "WorkerEnding",
    "Workload",
    "unknown",
]

SCHEMA_VERSION = 3

# `ingest` is not a way over the link: NumPy to a framework's own tensor in host memory.
Direction = Literal["h2d", "d2h", "both", "ingest"]
Memory = Literal["pageable", "pinned", "registered", "write-combined"]
Bracket = Literal["gated", "stream", "drained", "host"]
Variant = Literal["warm", "fresh"]
Ending = Literal["complete", "interrupted", "failed"]


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One timed execution. In a window of several copies every time is that of one copy, the window's divided."""

    round: int
    elapsed_s: float
    dispatch_s: float | None = None
    wall_s: float | None = None
    copies: int = 1
    invalid: str | None = None
    faults: float | None = None


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
    worker: str | None = None
    nature: Nature | None = None
    batch: int | None = None
    dma: Fact[Dma] = unknown(NOT_TRACED)
    breakdown: Fact[Breakdown] = unknown(NOT_TRACED)

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

    @property
    def may_be_ceiling(self) -> bool:
        """Whether it is a copy of the driver's own, and of no framework or ring; a first touch is no part of one."""
        return self.nature is None and self.mode != STAGED and self.variant == "warm"

    @property
    def overhead_s(self) -> float | None:
        """Median seconds beyond what the ceiling's copy took in the same rounds."""
        if self.elapsed_s is None or self.of_ceiling is None:
            return None
        return self.elapsed_s * (1 - self.of_ceiling)

    @property
    def dma_s(self) -> float | None:
        """Median seconds that the copy engines were at work for one transfer, by the device's own records."""
        return None if self.dma.value is None else self.dma.value.seconds.value

    @property
    def dma_gbps(self) -> float | None:
        """1e9 bytes a second while the copy engines were at work, by the device's own records."""
        return None if self.dma.value is None else self.dma.value.gbps

    @property
    def faults(self) -> float | None:
        """Median page faults of one transfer, the whole process's."""
        known = sorted(trial.faults for trial in self.trials if trial.faults is not None and trial.invalid is None)
        return known[len(known) // 2] if known else None


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
    frameworks: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    workload: Workload = "copy"
    batches: tuple[int, ...] = ()
    explained: str = ""


class Run(msgspec.Struct, frozen=True):
    """One document: where, how, and what came out."""

    kind: Literal["ceiling", "measure", "frameworks", "explain"]
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
    workers: tuple[Worker, ...] = ()
    published: tuple[Published, ...] = ()
    tracing: Fact[Tracing] = unknown(NOT_TRACED)
    ring: Fact[Ring] = unknown(NOT_STAGED)
    schema_version: int = SCHEMA_VERSION

    def ceiling(self, direction: Direction, nbytes: int) -> Measurement:
        """The best raw measurement of a direction at a size that is not staged; of `both`, the sum of its sides.

        Raises:
            UsageError: this run has none; the text says which sizes it has.

        """
        side: Side = "sum" if direction == "both" else direction
        raw = [each for each in self.measurements if each.may_be_ceiling]
        fitting = [each for each in raw if each.direction == direction and each.side == side]
        known = [each for each in fitting if each.nbytes == nbytes and each.gbps is not None]
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
