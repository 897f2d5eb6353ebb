"""The document of a watch: where the time of the user's program went, and its copies over the link.

Names end in their units. Values that need the device's records are null without them; `Watched.activity` has the
reason.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, ClassVar, Literal, get_args

import msgspec

from pyxfer._document import machines
from pyxfer._document.checks import Amount, AtLeastOne, Count, Problems, within
from pyxfer._document.machines import Device, Environment, Fact, Link, Moment, Remark, Runtime
from pyxfer._document.printing import HasTables
from pyxfer._document.runs import Summary, Tracing
from pyxfer.units import format_seconds

# Every instant belongs to the first part that applies. In the last three the device is idle.
StepPartName = Literal["kernels", "h2d", "d2h", "other copies", "input", "idle", "host"]
STEP_PARTS: tuple[StepPartName, ...] = get_args(StepPartName)
# The parts are means of whole nanoseconds, and a document may have been rounded.
_ROUNDING = 0.01
_TICK_S = 1e-9


class Parts(msgspec.Struct, frozen=True):
    """Where the time of one period went. The parts sum to `period_s`.

    kernels: a kernel runs, or memory is being set. h2d, d2h, other copies: a copy runs and no kernel does. In the
    others the device is idle. input: the host is between steps. idle: the step's thread waits inside a call. host: it
    does not. `hidden_*`: copies during kernels, which are not in the sum. `input_s` is null without steps, and if only
    their ends are known; its time is in idle and host then.
    """

    period_s: Amount
    kernels_s: Amount | None
    h2d_s: Amount | None
    d2h_s: Amount | None
    other_copies_s: Amount | None
    input_s: Amount | None
    idle_s: Amount | None
    host_s: Amount
    hidden_h2d_s: Amount | None = None
    hidden_d2h_s: Amount | None = None

    def named(self) -> tuple[tuple[StepPartName, float], ...]:
        """The known parts in their order."""
        values = [(name, getattr(self, f"{name.replace(' ', '_')}_s")) for name in STEP_PARTS]
        return tuple((name, value) for name, value in values if value is not None)

    def share(self, *names: StepPartName) -> float:
        """The share of the period that these parts have together; 0 if the period is 0 s long."""
        if self.period_s <= 0:
            return 0.0
        return sum(value for name, value in self.named() if name in names) / self.period_s


class WatchedStep(msgspec.Struct, frozen=True):
    """One step, from the end of the step before it to its own. `at_s`: its beginning, after that of the window."""

    number: int
    at_s: float
    thread: int
    parts: Parts
    slow: bool = False


class SlowSteps(msgspec.Struct, frozen=True):
    """The steps that took far longer than the others, the usual ones.

    `more_s`: the time that they took in sum beyond that of as many usual steps. `share`: `more_s` over the time of all
    steps. `mostly`: the part with at least half of `more_s`; null if no part has, or if parts are not known.
    """

    count: AtLeastOne
    longest_s: Annotated[float, msgspec.Meta(gt=0)]
    more_s: Annotated[float, msgspec.Meta(gt=0)]
    share: Annotated[float, msgspec.Meta(gt=0, le=1)]
    mostly: StepPartName | None


# The kinds of steps that are found in an unchanged script: calls of the function that was named, batches of Keras fit,
# steps of PyTorch's optimizers, calls of functions that tf.function or jax.jit has compiled.
StepFinder = Literal["named", "keras", "optimizer", "compiled"]


class Steps(msgspec.Struct, frozen=True):
    """The steps of the window. Failed and unclosed steps are only counted.

    `between_s`: the host's time between two steps, in which the input is made; `inside_s`: from a step's beginning to
    its end. Both are null if only the ends are known. `waiting_s`: time in calls that wait for the device. These three
    and `Watched.parts` are means of the usual steps, that is without the slow ones. `period` and `each` are of all
    steps. Slow are also first steps that warm up: they take more than twice the median of the steps after them.
    `finder`: how the steps were found; null if the program marks them, or without any. `functions`: the names of
    the functions whose calls are the steps.
    """

    watched: Count
    skipped: Count
    failed: Count
    unclosed: Count
    failure: str | None
    period: Fact[Summary]
    between_s: Amount | None = None
    inside_s: Amount | None = None
    waiting_s: Amount | None = None
    each: tuple[WatchedStep, ...] = ()
    slow: SlowSteps | None = None
    finder: StepFinder | None = None
    functions: tuple[str, ...] = ()

    @property
    def usual(self) -> int:
        """The number of steps that are not slow."""
        return self.watched - (0 if self.slow is None else self.slow.count)


# complete: all requested steps were watched; ended: the program or its block ended before; failed: with an error.
WatchEnding = Literal["complete", "ended", "failed"]
CopyDirectionName = Literal["h2d", "d2h", "d2d", "p2p", "h2h", "other"]
BoundBy = Literal["input", "link", "output", "host", "device", "unknown"]
Degree = Literal["", "moderately"]
# Why a call is listed: it fetched data, waited, returned only after its copy, or allocated memory.
SurpriseKind = Literal["d2h", "wait", "blocking copy", "allocation"]
RangeSource = Literal["mark", "nvtx"]
MIN_OF_CEILING = 4 << 10
"""Bytes. The driver sends a smaller copy inside a command, as fast as it issues commands, so it has no ceiling."""
MIN_COMPARABLE = 256 << 10
"""Bytes. The ceiling of smaller copies includes the time of issuing them, which the device's records do not."""
CEILING_PRECISION = 0.02
FIRST_STEPS = "first-steps"
"""The code of the remark on first steps that the verdict, the parts and the predictions leave out."""
NO_GPU_WATCHED = "no GPU was watched, and what other libraries do without one is not seen"


class Verdict(msgspec.Struct, frozen=True):
    """What limits the period, with the evidence; `share` is the share of the period that it takes."""

    bound_by: BoundBy
    degree: Degree
    share: Fact[float]
    text: str
    evidence: tuple[str, ...]


class CopyClass(msgspec.Struct, frozen=True):
    """Copies of one direction, host memory and size class, from `least_bytes` to below `below_bytes` (null: no limit).

    `seconds`: the sum of their times; `timed_bytes`: the bytes of the copies that the device gave a time for.
    `ceiling_share`: the time that they would take at the ceiling of their sizes, over `seconds`.
    """

    direction: CopyDirectionName
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
        if share is None or self.least_bytes < MIN_OF_CEILING or share > 1 + CEILING_PRECISION:
            return None
        return min(share, 1.0)


class Overlap(msgspec.Struct, frozen=True):
    """Concurrent work over the window.

    `busy_share`: the share in which the device did anything. `hidden_share`: the share of the time of all copies that
    was during kernels. `kernels_at_once`: their mean number while any ran; `kernels_share`: the share of that time with
    two or more. `copies_*`: the same for copies. `kernels_s` and `copies_s`: the seconds with one, two, three and more
    at once.
    """

    busy_share: float
    hidden_share: Fact[float]
    kernels: int
    kernels_at_once: Fact[float]
    kernels_share: Fact[float]
    copies_at_once: int
    copies_share: Fact[float]
    kernels_s: tuple[float, ...]
    copies_s: tuple[float, ...]


class StreamUse(msgspec.Struct, frozen=True):
    """The work of one stream."""

    device: int
    context: int
    stream: int
    copies: int
    copied_bytes: int
    copies_s: float
    kernels: int
    kernels_s: float


class Pageable(msgspec.Struct, frozen=True):
    """Copies between the device and pageable memory. `pinned_s`: their time with pinned memory at the ceiling.

    `saves_s`: the difference, which is negative where these copies were faster than the ceiling.
    `saves_per_step_s`: mean saving of a usual step; null without steps or without a ceiling. `other_saves_s`: the
    saving of the other copies.
    """

    direction: CopyDirectionName
    count: int
    nbytes: int
    seconds: float
    pinned_s: Fact[float]
    saves_s: Fact[float]
    saves_per_step_s: float | None = None
    other_saves_s: float | None = None


class CallSums(msgspec.Struct, frozen=True, array_like=True):
    """Calls that began in one stretch of the window."""

    count: int
    seconds: float
    nbytes: int


class Surprise(msgspec.Struct, frozen=True):
    """Calls of one name, line and range inside steps, which may be unintended.

    `per_step`: their number per step. `over_time`: the same calls in each stretch of the window.
    """

    what: SurpriseKind
    call: str
    line: Fact[str]
    range: str | None
    count: Count
    seconds: Amount
    nbytes: Count
    per_step: float | None
    over_time: tuple[CallSums, ...]


class Allocated(msgspec.Struct, frozen=True):
    """Allocations and releases of one kind of memory."""

    memory: str
    allocations: int
    allocated_bytes: int
    releases: int
    released_bytes: int


class AllocationSums(msgspec.Struct, frozen=True, array_like=True):
    """Allocations and releases in one stretch of the window."""

    allocations: int
    allocated_bytes: int
    releases: int
    released_bytes: int


MAX_STRETCHES = 10


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of the window, of which all are equally long.

    `busy_s`: how long the device did anything. `copied_bytes`: by direction, of the copies that began in it.
    `allocated`: by memory. A record without a time counts in the first stretch.
    """

    busy_s: float
    copied_bytes: dict[CopyDirectionName, int]
    allocated: dict[str, AllocationSums]


LaneName = Literal["kernels", "h2d", "d2h", "other copies"]


class Lane(msgspec.Struct, frozen=True):
    """When one kind of work ran, as the beginnings and ends of spans in order.

    `busy_s`: how long it ran, by all records. The spans together are longer if gaps between them are left out.
    """

    what: LaneName
    busy_s: float
    spans: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        ends = [moment for span in self.spans for moment in span]
        if any(late < early for early, late in itertools.pairwise(ends)):
            raise ValueError(f"the spans of {self.what} are in order and do not overlap")
        if not 0 <= self.busy_s <= (1 + _ROUNDING) * self.drawn_s:
            raise ValueError(f"{self.what} ran only in its spans, {self.drawn_s:g} s; got busy_s {self.busy_s:g}")

    @property
    def drawn_s(self) -> float:
        """The length of all spans."""
        return math.fsum(end - begin for begin, end in self.spans)


class StepSpan(msgspec.Struct, frozen=True):
    """A step from its beginning to its end. Its input is made before."""

    number: int
    begin_s: float
    end_s: float


class Timeline(msgspec.Struct, frozen=True):
    """When the device worked in a few steps of median length, or in a whole window without steps.

    Times are seconds after the beginning of the window. `merged_s`: gaps up to this length are left out, so that the
    number of spans is bounded; 0 if none is.
    """

    begin_s: Amount
    end_s: Amount
    merged_s: Amount
    steps: tuple[StepSpan, ...]
    lanes: tuple[Lane, ...]

    def __post_init__(self) -> None:
        if self.end_s < self.begin_s:
            raise ValueError(f"a timeline ends after its begin_s {self.begin_s:g}; got end_s {self.end_s:g}")
        for lane in self.lanes:
            if not self.merged_s and not math.isclose(lane.busy_s, lane.drawn_s, rel_tol=_ROUNDING, abs_tol=_TICK_S):
                raise ValueError(f"no gap of {lane.what} is left out, so its busy_s is that of its spans")

    def share(self, lane: Lane) -> float:
        """The share of the stretch in which this kind of work ran."""
        return lane.busy_s / (self.end_s - self.begin_s) if self.end_s > self.begin_s else 0.0


class Activity(msgspec.Struct, frozen=True):
    """The contents of the device's records. `others`: copies and kernels of other devices, which no figure includes.

    `timeline`: null if it was not kept. `stretches`: sums over equal stretches of the window.
    """

    copies: tuple[CopyClass, ...]
    overlap: Overlap
    streams: tuple[StreamUse, ...]
    pageable: tuple[Pageable, ...]
    surprises: tuple[Surprise, ...]
    allocated: tuple[Allocated, ...]
    stretches: tuple[Stretch, ...]
    dropped: dict[str, int]
    untimed: int
    others: int
    clock_error_s: float
    clock_drift_s: float
    timeline: Timeline | None = None


class RangeSums(msgspec.Struct, frozen=True, array_like=True):
    """Ranges of one name in one stretch of the window.

    `count` and `seconds` are of the ranges that began in it. `covered_s`: how long at least one of them was open.
    """

    count: int
    seconds: float
    covered_s: float
    busy_s: float | None
    h2d_bytes: int | None
    d2h_bytes: int | None


class NamedRange(msgspec.Struct, frozen=True):
    """All ranges of one name. `share`: their share of the window.

    `busy_s`: how long the device did anything inside them; `*_bytes`: bytes of the copies that calls inside them made.
    `over_time`: the same in each stretch of the window.
    """

    name: str
    source: RangeSource
    count: Count
    seconds: Amount
    share: Amount
    busy_s: Amount | None
    h2d_bytes: Count | None
    d2h_bytes: Count | None
    over_time: tuple[RangeSums, ...]


class LineUse(msgspec.Struct, frozen=True):
    """A source line of the program that samples of a thread saw. `share`: of all samples of this thread."""

    thread: str
    line: str
    samples: int
    share: float


class Advice(msgspec.Struct, frozen=True):
    """A change and its predicted gain per period, which is calculated from the figures of this window."""

    code: str
    text: str
    gain_s: float
    gain_share: float
    predicted_s: float
    worked_out: str


class CeilingSource(msgspec.Struct, frozen=True):
    """The ceilings that copies are compared with: `measured` after the window, or from a `saved` run.

    `points`: by direction, sizes in ascending order with the seconds of the best raw copy from pinned memory.
    """

    source: Literal["measured", "saved"]
    device: str
    host: str
    taken_at: Moment
    points: dict[CopyDirectionName, tuple[tuple[int, float], ...]] = {}


class Watched(HasTables, machines.SavedDocument, frozen=True):
    """The document of a watch: one window of a program.

    `outside_s`: the part of the window that is in no step of the thread whose steps take the most of it.
    """

    DERIVED_BY: ClassVar[str] = "pyxfer._watch.derived:derive_watch"

    ended: WatchEnding
    runtime: Runtime
    runtime_reason: str
    device: Device
    link: Link
    environment: Environment
    tracing: Fact[Tracing]
    window_s: Amount
    outside_s: Amount
    steps: Steps
    parts: Parts
    verdict: Verdict
    activity: Fact[Activity]
    ranges: tuple[NamedRange, ...]
    used_before_bytes: Fact[int]
    used_after_bytes: Fact[int]
    advice: tuple[Advice, ...]
    remarks: tuple[Remark, ...]
    ceiling_source: Fact[CeilingSource]
    lines: tuple[LineUse, ...] = ()
    kind: Literal["watch"] = "watch"
    schema_version: int = 1

    def _summary(self) -> str:
        steps = f"{self.steps.watched} steps of {format_seconds(self.parts.period_s)}"
        what = steps if self.steps.watched else format_seconds(self.window_s)
        return f"{what} on {self.device.name}: {self.verdict.text}"


def watch_problems(watched: Watched) -> Problems:
    return within("link", machines.link_problems(watched.link))
