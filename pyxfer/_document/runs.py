"""The document: what a run holds, and nothing else defines it.

Units stand in the names: `_s` seconds, `_bytes` bytes, `_gbps` 1e9 bytes a second. What was not measured or could not
be read is null with the reason beside it, never left out and never zero.
"""

from __future__ import annotations

import math
import os
from typing import Literal, get_args

import msgspec

from pyxfer._document.machines import (
    NOT_STAGED,
    STAGED,
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
    Ring,
    RingSource,
    Runtime,
    Side,
    unknown,
)
from pyxfer.errors import UsageError

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


NOT_TRACED = "nobody traced it"
NOT_ASKED = "it was not asked for (--no-trace)"
UNTRACED = "the run ended before it was traced"
NO_TRIAL_TO_TRACE = "it has no trial that counts"
# Of runs that earlier versions have saved.
OUT_OF_TIME = "the budget was spent before it was traced: give a longer --budget"
OF_SIDES = "its two sides have theirs"
NO_FAULT: frozenset[str] = frozenset((NOT_TRACED, NOT_ASKED, UNTRACED, NO_TRIAL_TO_TRACE, OUT_OF_TIME, OF_SIDES))
"""Why a row may have no traced trial although nothing went wrong."""
# In the order in which they come about. What pyxfer cannot tell apart stays in the part that it began in.
PartName = Literal[
    "preparing", "waiting", "copying", "staging", "gaps", "kernels", "other copies", "returning", "finishing"
]
PARTS: tuple[PartName, ...] = get_args(PartName)
# Parts are sums of floating point numbers, and a document keeps every digit of them.
_ROUNDING = 1e-6


class Tracing(msgspec.Struct, frozen=True):
    """What the records come from."""

    library: str
    version: int


class Dma(msgspec.Struct, frozen=True):
    """What the copy engines did for one transfer.

    `seconds`: at least one copy in the route's direction was under way, in the traced trial nearest to the median of
    those only timed; the rest is of most of the traced trials. `source`: the memory that they met on the
    host's side, `pageable` or `pinned`, or both with a `+` between.
    """

    seconds: Fact[float]
    nbytes: int
    copies: float
    source: str
    trials: int

    def __post_init__(self) -> None:
        _check_amounts(seconds=self.seconds.value or 0.0, nbytes=self.nbytes, copies=self.copies)
        _check_trials(self.trials)

    @property
    def gbps(self) -> float | None:
        """1e9 bytes a second while the copy engines were at work."""
        return None if not self.seconds.value else self.nbytes / self.seconds.value / 1e9


class Part(msgspec.Struct, frozen=True):
    """A stretch of a trial, with its name."""

    name: PartName
    seconds: float

    def __post_init__(self) -> None:
        _check_amounts(seconds=self.seconds)


class Breakdown(msgspec.Struct, frozen=True):
    """Where the time of one transfer went, in the traced trial nearest to the median of those only timed.

    The parts sum to `elapsed_s`.

    `switches`: how often the calling thread waited for something; `preemptions`: how often the processor was taken
    from it. `left_out`: how many traced trials could not be broken down, beside the `trials` that could.
    """

    elapsed_s: float
    parts: tuple[Part, ...]
    dispatch_s: float
    wall_s: float
    faults: float
    switches: float
    preemptions: float
    trials: int
    left_out: int = 0

    def __post_init__(self) -> None:
        _check_amounts(elapsed_s=self.elapsed_s, dispatch_s=self.dispatch_s, wall_s=self.wall_s)
        _check_amounts(faults=self.faults, switches=self.switches, preemptions=self.preemptions)
        _check_amounts(left_out=self.left_out)
        _check_trials(self.trials)
        whole = sum(part.seconds for part in self.parts)
        if abs(whole - self.elapsed_s) > _ROUNDING * self.elapsed_s:
            raise ValueError(f"the parts of a breakdown sum to its elapsed_s; {whole:g} s is not {self.elapsed_s:g} s")

    def seconds(self, name: PartName) -> float:
        """How long a part took; nothing where there was none."""
        return sum(part.seconds for part in self.parts if part.name == name)


def _check_amounts(**amounts: float) -> None:
    for name, amount in amounts.items():
        if not 0 <= amount < math.inf:
            raise ValueError(f"{name} of a traced trial is zero or above, and finite; got {amount}")


def _check_trials(trials: int) -> None:
    if trials < 1:
        raise ValueError(f"what was traced has one trial at least; got {trials}")


Workload = Literal["copy", "image-batch"]
# When a call returns: when the bytes have arrived, when they have been copied to staging memory, or at once.
Returns = Literal["done", "staged", "queued"]
WorkerEnding = Literal["complete", "interrupted", "unavailable", "crashed", "hung", "failed"]


class Nature(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a framework's route says of itself; `staged`: threads fill or empty page-locked slots while it copies."""

    framework: str
    call: str
    host_copies: int
    dma: str
    returns: Returns
    usual: bool = False
    setting: str = ""
    inflation: float = 1.0
    staged: bool = False


class Worker(msgspec.Struct, frozen=True):
    """The process in which one framework was measured, and how it ended."""

    name: str
    framework: str
    setting: str
    version: Fact[str]
    cuda: Fact[str]
    settings: dict[str, str]
    ended: WorkerEnding
    reason: str | None
    log: tuple[str, ...]
    start_s: Fact[float]
    duration_s: float
    remarks: tuple[Remark, ...] = ()
    tracing: Fact[Tracing] = unknown(NOT_TRACED)


class Published(msgspec.Struct, frozen=True):
    """Figures that somebody else has published for a workload, in MB/s (1e6 bytes) by batch."""

    label: str
    route: str
    gpu: str
    mbps: dict[int, float]
    source: str


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
        from pyxfer._document import codec

        codec.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a saved run, of this or an earlier version."""
        from pyxfer._document import codec

        return codec.load(cls, path)

    def to_csv(self) -> str:
        """One row a measurement, numbers unrounded."""
        from pyxfer._document import exports

        return exports.run_csv(self)

    def to_markdown(self) -> str:
        """A table for people."""
        from pyxfer._document import exports

        return exports.run_markdown(self)
