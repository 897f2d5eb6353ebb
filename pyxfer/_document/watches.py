"""The document of a watch: what the user's own program did with its time, and what crossed the link in it.

Names end in their units. What only the records of the device contain is null where there are none,
and `Watched.activity` has the reason.
"""

from __future__ import annotations

import math
import os
from typing import Literal, get_args

import msgspec

from pyxfer._document.runs import Device, Environment, Fact, Link, Remark, Runtime, Summary, Tracing, unknown

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


# In this order every instant belongs to the first that holds; at the last three the device does nothing.
StepPartName = Literal["kernels", "h2d", "d2h", "other copies", "input", "idle", "host"]
STEP_PARTS: tuple[StepPartName, ...] = get_args(StepPartName)
# Parts are means of whole nanoseconds, and a document may have been rounded.
_ROUNDING = 0.01


class Parts(msgspec.Struct, frozen=True):
    """Where the seconds of one period went; they sum to `period_s`.

    kernels: one is running, or memory is being set. h2d, d2h, other copies: one is under way and no kernel runs. The
    device does nothing: input, and the host is between steps; idle, and the step's thread is inside a call that waits;
    host, and it is not. `hidden_*`: copies under kernels, counted beside. `input_s` is null without steps, and where
    only their ends are known: it is in idle and host then.
    """

    period_s: float
    kernels_s: float | None
    h2d_s: float | None
    d2h_s: float | None
    other_copies_s: float | None
    input_s: float | None
    idle_s: float | None
    host_s: float
    hidden_h2d_s: float | None = None
    hidden_d2h_s: float | None = None

    def __post_init__(self) -> None:
        hidden = {"hidden_h2d_s": self.hidden_h2d_s, "hidden_d2h_s": self.hidden_d2h_s}
        named = {f"{name.replace(' ', '_')}_s": seconds for name, seconds in self.named()}
        check_amounts("a period", period_s=self.period_s, **named, **hidden)
        most_s = max(sum(named.values()), *(seconds or 0.0 for seconds in hidden.values()))
        if most_s > (1 + _ROUNDING) * self.period_s:
            raise ValueError(f"the parts of a period sum to its period_s; {most_s:g} s exceeds {self.period_s:g} s")

    def named(self) -> tuple[tuple[StepPartName, float], ...]:
        """Those that are known, in their order."""
        each = (
            *(self.kernels_s, self.h2d_s, self.d2h_s, self.other_copies_s),
            *(self.input_s, self.idle_s, self.host_s),
        )
        return tuple((name, value) for name, value in zip(STEP_PARTS, each, strict=True) if value is not None)

    def share(self, *names: StepPartName) -> float:
        """What part of the period these are together; 0 of a period without length."""
        if self.period_s <= 0:
            return 0.0
        return sum(value for name, value in self.named() if name in names) / self.period_s


class WatchedStep(msgspec.Struct, frozen=True):
    """One step, from the end of the one before to its own; `at_s` from the beginning of the window to its own."""

    number: int
    at_s: float
    thread: int
    parts: Parts
    slow: bool = False


class SlowSteps(msgspec.Struct, frozen=True):
    """The steps that lie far beyond the others. What else is said of a step is of the others, the usual ones.

    `more_s`: what they took beyond as many usual steps, in sum; `share`: that, of the time of all steps. `mostly`: the
    part that most of it lies in; null where none holds half of it, or where parts are not known.
    """

    count: int
    longest_s: float
    more_s: float
    share: float
    mostly: StepPartName | None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"slow steps are one at least; got {self.count}")
        if not (0 < self.more_s < math.inf and 0 < self.longest_s < math.inf and 0 < self.share <= 1):
            raise ValueError("slow steps took longer than others, and a share of the time; their seconds are finite")


class Steps(msgspec.Struct, frozen=True):
    """The steps of the window. Those that failed or were not closed are counted and in no other figure.

    `between_s`: the host between two steps, which is where the input is made; `inside_s`: from a step's beginning to
    its end; both null where only ends are known. `waiting_s`: in calls that wait for the device. These three are of
    the mean of the usual steps, as `Watched.parts` is: of all but the slow ones. `period` and `each` are of all.
    """

    watched: int
    skipped: int
    failed: int
    unclosed: int
    failure: str | None
    period: Fact[Summary]
    between_s: float | None = None
    inside_s: float | None = None
    waiting_s: float | None = None
    each: tuple[WatchedStep, ...] = ()
    slow: SlowSteps | None = None

    def __post_init__(self) -> None:
        check_amounts("a watch", watched=self.watched, skipped=self.skipped, failed=self.failed, unclosed=self.unclosed)
        check_amounts("a step", between_s=self.between_s, inside_s=self.inside_s, waiting_s=self.waiting_s)
        if self.slow is not None and self.usual < 1:
            raise ValueError(f"most steps are usual ones; got {self.slow.count} slow steps of {self.watched}")
        if len(self.each) == self.watched:
            self._check_those_listed()
        if self.slow is not None and self.period.value is not None:
            least_s, most_s = self.period.value.min_s, self.period.value.max_s
            if not least_s < self.slow.longest_s <= (1 + _ROUNDING) * most_s:
                raise ValueError(
                    f"the longest slow step is above the shortest of all steps, {least_s:g} s, and none is above "
                    f"{most_s:g} s; got {self.slow.longest_s:g} s"
                )

    def _check_those_listed(self) -> None:
        listed = [step.parts.period_s for step in self.each if step.slow]
        count = 0 if self.slow is None else self.slow.count
        if len(listed) != count:
            raise ValueError(f"every slow step is listed as one; got {count} slow steps, and {len(listed)} listed so")

    @property
    def usual(self) -> int:
        """How many are not slow."""
        return self.watched - (0 if self.slow is None else self.slow.count)


def check_amounts(of: str, **amounts: float | None) -> None:
    """Refuse what no time and no count can be; what is not known is no amount."""
    for name, amount in amounts.items():
        if amount is not None and not 0 <= amount < math.inf:
            raise ValueError(f"{name} of {of} is zero or above, and finite; got {amount}")


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
LEAST_COMPARABLE = 256 << 10
"""Bytes: the ceiling of smaller copies contains the time of issuing them, which the device's records do not contain."""
CEILING_PRECISION = 0.02
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
        """The share of the ceiling, at most 1; none of copies too small for one or faster than the ceiling."""
        share = self.ceiling_share.value
        if share is None or self.least_bytes < LEAST_OF_CEILING or share > 1 + CEILING_PRECISION:
            return None
        return min(share, 1.0)


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
        from pyxfer._document import codec

        codec.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Watched:
        """Read a saved watch, of this or an earlier version."""
        from pyxfer._document import codec

        return codec.load(cls, path)

    def to_csv(self, table: str = "steps") -> str:
        """One table of it: `steps`, `copies`, `calls` or `ranges`; numbers unrounded."""
        from pyxfer._document import exports

        return exports.watch_csv(self, table)

    def to_markdown(self) -> str:
        """Its tables for people."""
        from pyxfer._document import exports

        return exports.watch_markdown(self)
