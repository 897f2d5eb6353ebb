"""The document of a watch: what the user's own program did with its time, and what crossed the link in it.

Units stand in the names, as in `pyxfer.model`. What only the device's records tell is null where there are none, and
`Watched.activity` has the reason.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from pyxfer.model import Device, Environment, Fact, Link, Remark, Runtime, unknown
from pyxfer.model_steps import STEP_PARTS, Parts, SlowSteps, StepPartName, Steps, WatchedStep, check_amounts
from pyxfer.model_trace import Tracing

__all__ = [
    "LEAST_OF_CEILING",
    "NO_GPU_WATCHED",
    "STEP_PARTS",
    "WATCH_SCHEMA_VERSION",
    "Activity",
    "Advice",
    "Allocated",
    "BoundBy",
    "CeilingSource",
    "CopyClass",
    "CopyWayName",
    "Degree",
    "NamedRange",
    "Overlap",
    "Pageable",
    "Parts",
    "RangeSource",
    "SlowSteps",
    "StepPartName",
    "Steps",
    "StreamUse",
    "Surprise",
    "SurpriseKind",
    "ThreadUse",
    "Verdict",
    "WatchEnding",
    "Watched",
    "WatchedStep",
]

WATCH_SCHEMA_VERSION = 1

# complete: all that was asked for; ended: the program or its block came to an end before; failed: with an error.
WatchEnding = Literal["complete", "ended", "failed"]
# Between which sides a copy went.
CopyWayName = Literal["h2d", "d2h", "d2d", "p2p", "h2h", "other"]
BoundBy = Literal["input", "link", "output", "host", "device", "unknown"]
Degree = Literal["", "moderately"]
# What a call did for which it is listed: fetched data, waited, copied without returning before, or asked for memory.
SurpriseKind = Literal["d2h", "wait", "blocking copy", "allocation"]
RangeSource = Literal["mark", "nvtx"]
LEAST_OF_CEILING = 4 << 10
"""Bytes: a smaller copy goes within a command, which takes no longer than issuing it, and no ceiling is above it."""
NO_GPU_WATCHED = "no GPU was watched, and what other libraries do without one is not seen"


class Verdict(msgspec.Struct, frozen=True):
    """What the period is bound by, and the figures that say so; `share` is theirs."""

    bound_by: BoundBy
    degree: Degree
    share: Fact[float]
    text: str
    evidence: tuple[str, ...]


class CopyClass(msgspec.Struct, frozen=True):
    """Copies of one way, host memory and size class, `least_bytes` to below `below_bytes` (null: no end).

    `seconds` are their own times, summed; `timed_bytes` the bytes of those that the device gave a time for.
    `ceiling_share`: what they would have taken at the ceiling of their sizes, as a share of that.
    """

    way: CopyWayName
    memory: str
    least_bytes: int
    below_bytes: int | None
    count: int
    nbytes: int
    timed_bytes: int
    seconds: float
    gbps: Fact[float]
    ceiling_share: Fact[float]
    hidden_share: Fact[float]

    @property
    def of_ceiling(self) -> float | None:
        """The share of the ceiling; none of copies too small for one, also where an earlier pyxfer kept a figure."""
        return None if self.least_bytes < LEAST_OF_CEILING else self.ceiling_share.value


class Overlap(msgspec.Struct, frozen=True):
    """How much went on at once, over the window.

    `busy_share`: the device did anything. `hidden_share`: of the time of all copies, under kernels. `kernels_at_once`:
    the mean while any runs; `kernels_share`: of that time, with two or more. `copies_*`: the same of copies.
    """

    busy_share: float
    hidden_share: Fact[float]
    kernels: int
    kernels_at_once: Fact[float]
    kernels_share: Fact[float]
    copies_at_once: int
    copies_share: Fact[float]


class StreamUse(msgspec.Struct, frozen=True):
    """What one stream was used for."""

    device: int
    context: int
    stream: int
    copies: int
    copied_bytes: int
    copies_s: float
    kernels: int
    kernels_s: float


class Pageable(msgspec.Struct, frozen=True):
    """Copies between the device and pageable memory, and what they would take from pinned memory at the ceiling.

    `saves_per_step_s`: what the usual steps' own would save in the mean one; null without steps, or without a ceiling.
    """

    way: CopyWayName
    count: int
    nbytes: int
    seconds: float
    pinned_s: Fact[float]
    saves_s: Fact[float]
    saves_per_step_s: float | None = None


class Surprise(msgspec.Struct, frozen=True):
    """Calls of one name, line and range inside steps that a program may not know it makes. `per_step`: how many."""

    what: SurpriseKind
    call: str
    line: Fact[str]
    range: str | None
    count: int
    seconds: float
    nbytes: int
    per_step: float | None


class Allocated(msgspec.Struct, frozen=True):
    """Memory of one kind that was asked for and given back."""

    memory: str
    allocations: int
    allocated_bytes: int
    releases: int
    released_bytes: int


class Activity(msgspec.Struct, frozen=True):
    """What the records say. `others`: copies and kernels of other devices, which are in no figure."""

    copies: tuple[CopyClass, ...]
    overlap: Overlap
    streams: tuple[StreamUse, ...]
    pageable: tuple[Pageable, ...]
    surprises: tuple[Surprise, ...]
    allocated: tuple[Allocated, ...]
    allocation_calls_in_steps: int
    dropped: dict[str, int]
    untimed: int
    others: int
    clock_error_s: float
    clock_drift_s: float


class NamedRange(msgspec.Struct, frozen=True):
    """All stretches of one name. `share` is of the window.

    `busy_s`: the device did anything meanwhile; `*_bytes`: of the copies that calls inside asked for.
    """

    name: str
    source: RangeSource
    count: int
    seconds: float
    share: float
    busy_s: float | None
    h2d_bytes: int | None
    d2h_bytes: int | None

    def __post_init__(self) -> None:
        check_amounts("a range", count=self.count, seconds=self.seconds, share=self.share)
        check_amounts("a range", busy_s=self.busy_s, h2d_bytes=self.h2d_bytes, d2h_bytes=self.d2h_bytes)


class ThreadUse(msgspec.Struct, frozen=True):
    """A thread of the program that made calls or steps."""

    thread: int
    name: str
    calls: int
    calls_s: float
    steps: int


class Advice(msgspec.Struct, frozen=True):
    """A change, and what it is predicted to gain a period, worked out from this window's own figures."""

    code: str
    text: str
    gain_s: float
    gain_share: float
    predicted_s: float
    worked_out: str


class CeilingSource(msgspec.Struct, frozen=True):
    """The raw copies that a window's are compared with: `measured` after it in the same place, or of a `saved` run."""

    source: Literal["measured", "saved"]
    device: str
    host: str
    taken_at: str


class Watched(msgspec.Struct, frozen=True):
    """One document: a window of a program, and what it says."""

    ended: WatchEnding
    runtime: Runtime
    runtime_reason: str
    device: Device
    link: Link
    environment: Environment
    tracing: Fact[Tracing]
    window_s: float
    steps: Steps
    parts: Parts
    verdict: Verdict
    activity: Fact[Activity]
    ranges: tuple[NamedRange, ...]
    threads: tuple[ThreadUse, ...]
    used_before_bytes: Fact[int]
    used_after_bytes: Fact[int]
    advice: tuple[Advice, ...]
    remarks: tuple[Remark, ...]
    ceiling_source: Fact[CeilingSource] = unknown("it was not kept")
    kind: Literal["watch"] = "watch"
    schema_version: int = WATCH_SCHEMA_VERSION

    def __post_init__(self) -> None:
        check_amounts("a watch", window_s=self.window_s)
        slow, stepping = self.steps.slow, [use.steps for use in self.threads if use.steps]
        # Slow are those of a thread, which may be shorter than what another thread takes for a usual one.
        if slow is not None and stepping == [self.steps.watched] and slow.longest_s <= self.parts.period_s:
            raise ValueError(
                f"slow steps are longer than usual ones; the longest took {slow.longest_s:g} s, and a usual one takes "
                f"{self.parts.period_s:g} s"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, whole or not at all."""
        from pyxfer import watch_documents

        watch_documents.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Watched:
        """Read a saved watch, of this or an earlier version."""
        from pyxfer import watch_documents

        return watch_documents.load(path)

    def to_csv(self, table: str = "steps") -> str:
        """One table of it: `steps`, `copies`, `calls` or `ranges`; numbers unrounded."""
        from pyxfer import watch_documents

        return watch_documents.to_csv(self, table)

    def to_markdown(self) -> str:
        """Its tables for people."""
        from pyxfer import watch_documents

        return watch_documents.to_markdown(self)
