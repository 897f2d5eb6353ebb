"""The document of a run.

Names end in their units: `_s` seconds, `_bytes` bytes, `_gbps` 1e9 bytes per second. A value that was not measured or
could not be read is null with the reason beside it, never left out and never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, get_args

import msgspec

from pyxfer._document import checks, machines
from pyxfer._document.checks import Amount, AtLeastOne, Count, Positive, Problems
from pyxfer._document.machines import Device, Environment, Fact, Link, Remark, Runtime, SavedDocument, Side, unknown
from pyxfer._document.printing import HasTable, ShortRepr
from pyxfer.errors import UsageError
from pyxfer.units import format_gbps, format_percent, format_size, size_of, word_of

LEFT_OUT = "it was left out, because the budget was spent before it was prepared"
# Reasons for a row without traced trials. They are compared with those in saved documents.
NOT_TRACED = "not traced"
NOT_ASKED = "tracing was left out"
UNTRACED = "the run ended before it was traced"
NOT_WATCHED = "its memory was not watched"
NO_TRIAL_TO_TRACE = "it has no trial that counts"
OF_SIDES = "its two sides have theirs"
NO_FAULT: frozenset[str] = frozenset((NOT_TRACED, NOT_ASKED, UNTRACED, NO_TRIAL_TO_TRACE, OF_SIDES))
"""The reasons that are not failures."""
# In order of time. Time that cannot be assigned stays in the part that it began in.
PartName = Literal[
    "preparing", "waiting", "copying", "staging", "gaps", "kernels", "other copies", "returning", "finishing"
]
PARTS: tuple[PartName, ...] = get_args(PartName)
# The parts are sums of floating-point numbers.
_ROUNDING = 1e-6


class Tracing(msgspec.Struct, frozen=True):
    """The library that the device's records come from."""

    library: str
    version: int


# A framework also sends a few bytes besides the data, such as a shape or a scalar. More than this gets a remark.
IGNORED_SHARE = 0.01
IGNORED_BYTES = 256
INFLATED = "inflated"


class Dma(msgspec.Struct, frozen=True):
    """The work of the copy engines for one transfer.

    `seconds`: how long at least one copy in the route's direction was running, in the traced trial nearest to the
    median of the timed ones. The other values are medians of the traced trials. `source`: the host memory of the
    copies, `pageable` or `pinned`, or both with a `+` between them.
    """

    seconds: Fact[float]
    nbytes: Count
    copies: Amount
    source: str
    trials: AtLeastOne

    @property
    def gbps(self) -> float | None:
        """1e9 bytes per second while the copy engines were busy."""
        return None if not self.seconds.value else self.nbytes / self.seconds.value / 1e9


class Part(msgspec.Struct, frozen=True):
    """A named part of a trial's time."""

    name: PartName
    seconds: Amount


class Breakdown(msgspec.Struct, frozen=True):
    """Where the time of one transfer went, in the traced trial nearest to the median of the timed ones.

    The parts sum to `elapsed_s`.

    `switches`: how often the calling thread waited; `preemptions`: how often it lost the processor. `trials`: number of
    traced trials that could be broken down; `left_out`: number of those that could not. `page_bytes`: what a page fault
    maps.
    """

    elapsed_s: Amount
    parts: tuple[Part, ...]
    dispatch_s: Amount
    wall_s: Amount
    faults: Amount
    switches: Amount
    preemptions: Amount
    trials: AtLeastOne
    left_out: Count = 0
    page_bytes: Count = 4096

    def __post_init__(self) -> None:
        whole = sum(part.seconds for part in self.parts)
        if abs(whole - self.elapsed_s) > _ROUNDING * self.elapsed_s:
            raise ValueError(f"the parts of a breakdown sum to its elapsed_s; {whole:g} s is not {self.elapsed_s:g} s")

    def seconds(self, name: PartName) -> float:
        """The length of a part; 0 if the trial has no such part."""
        return sum(part.seconds for part in self.parts if part.name == name)


Workload = Literal["copy", "image-batch"]
# When a call returns: when the bytes have arrived, when they have been copied to staging memory, or at once.
Returns = Literal["done", "staged", "queued"]
WorkerEnding = Literal["complete", "interrupted", "unavailable", "crashed", "hung", "failed"]


class RouteInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A route's own description. `staged`: threads fill or empty page-locked slots while it copies."""

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
    """The process in which one framework or loader was measured, and how it ended.

    `host_peak_bytes`, `device_peak_bytes`: the most memory that its first load of files took beside what it had before.
    """

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
    host_peak_bytes: Fact[int] = unknown(NOT_WATCHED)
    device_peak_bytes: Fact[int] = unknown(NOT_WATCHED)


class LoadedFiles(msgspec.Struct, frozen=True):
    """The files of a run of `pyxfer files`. `nbytes`: those of their arrays. `filesystem`: its type, such as ext4."""

    paths: tuple[str, ...]
    nbytes: AtLeastOne
    arrays: AtLeastOne
    filesystem: Fact[str]


class Published(msgspec.Struct, frozen=True):
    """Published figures of others for a workload, in MB/s (1e6 bytes) by batch."""

    label: str
    route: str
    gpu: str
    mbps: dict[int, float]
    source: str


# `ingest` does not cross the link: NumPy to a framework's own tensor in host memory.
Direction = Literal["h2d", "d2h", "both", "ingest"]
Memory = Literal["pageable", "pinned", "registered", "write-combined"]
FrameworkName = Literal["torch", "tensorflow", "jax", "cupy"]
OneWay = Literal["h2d", "d2h"]
LinkDirection = Literal["h2d", "d2h", "both"]
# What users write for several directions or memories; "h2d,d2h" is the form of the command line.
Directions = Literal["h2d,d2h", "h2d,both", "d2h,both", "h2d,d2h,both"] | LinkDirection | Sequence[LinkDirection]
OneWayDirections = Literal["h2d,d2h"] | OneWay | Sequence[OneWay]
Memories = Literal["pageable,pinned", "pinned,pageable"] | Memory | Sequence[Memory]
Bracket = Literal["gated", "stream", "drained", "host"]
BlockOrder = Literal["ordered", "runs", "random"]
Form = Literal["nhwc-uint8", "nhwc-float16", "nhwc-float32", "nchw-uint8", "nchw-float16", "nchw-float32"]
"""The layout and the dtype that images have on the GPU."""
FORMS: tuple[Form, ...] = get_args(Form)
Layout = Literal["nhwc", "nchw"]
ImageDtype = Literal["uint8", "float16", "float32"]
Place = Literal["host", "device"]
"""Where images are cast or permuted."""
# Of copies and loads, the places of blocks, and the forms of images.
Variant = Literal["warm", "fresh", "cold", BlockOrder, Form]
ORDERS: tuple[BlockOrder, ...] = get_args(BlockOrder)
BLOCKS: Literal["blocks"] = "blocks"
"""The owner of the routes of blocks: `blocks.pinned-kernel`."""
FILE = "file"
"""The memory of what is read from files."""
Ending = Literal["complete", "interrupted", "failed"]


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One timed execution. If `copies` were timed together, each time is divided by their number.

    `wall_s`: the caller's clock, from the first call to the end of the last copy. Behind a gate the calls do not count,
    so a gated trial has it from as many copies without a gate, right after those of `elapsed_s`, or not at all.
    """

    round: Count
    elapsed_s: Amount
    dispatch_s: Amount | None = None
    wall_s: Amount | None = None
    copies: AtLeastOne = 1
    invalid: str | None = None
    faults: Amount | None = None


class Summary(msgspec.Struct, frozen=True):
    """Statistics of the valid trials of a measurement, in seconds."""

    n: AtLeastOne
    median_s: float
    low_s: float | None
    high_s: float | None
    q1_s: float
    q3_s: float
    mad_s: float
    min_s: float
    max_s: float
    confidence: float = 0.95
    rule: str | None = None
    """Name of the rule that made the interval from the trials."""

    @property
    def relative_half_width(self) -> float | None:
        """Half of the interval as a fraction of the median; `--precision` sets its target."""
        if self.low_s is None or self.high_s is None or self.median_s <= 0:
            return None
        return (self.high_s - self.low_s) / 2 / self.median_s

    @property
    def iqr_s(self) -> float:
        """The interquartile range."""
        return self.q3_s - self.q1_s


class Rate(msgspec.Struct, frozen=True):
    """The bandwidth at the median, and at the ends of its interval."""

    gbps: float
    low_gbps: float | None
    high_gbps: float | None


class Share(msgspec.Struct, frozen=True):
    """A fraction of one with its interval."""

    value: float
    low: float | None
    high: float | None


NOT_BESIDE = "the run ended before it was measured"


Work = Literal["copy", "compute"]


class WorkBeside(msgspec.Struct, frozen=True):
    """How long a kernel takes, alone and while blocks move beside it, round by round.

    `work`: whether it copies memory of the GPU or computes in registers. `multiprocessors`: the most that the moving
    kernel has a block of threads on; 0 without a kernel. `times`: how many times as long it takes beside them.
    """

    direction: Literal["h2d", "d2h", "both"]
    method: str
    block_bytes: AtLeastOne
    count: AtLeastOne
    multiprocessors: Count
    alone_s: tuple[Positive, ...]
    beside_s: tuple[Positive, ...]
    times: Share
    work: Work = "copy"


class BlockPools(msgspec.Struct, frozen=True):
    """The pools of a run of `pyxfer blocks`. `trial_bytes`: the most that a trial moves each way."""

    pool_bytes: AtLeastOne
    trial_bytes: AtLeastOne
    beside: Fact[tuple[WorkBeside, ...]] = unknown(NOT_BESIDE)


class Measurement(ShortRepr, msgspec.Struct, frozen=True):
    """The trials of one route at one size, with their statistics.

    A copy in both directions at once makes three measurements: the sides `h2d`, `d2h` and their `sum`.

    `nbytes`: the size of a copy; `moved_bytes`: what one transfer moves in all. `variant`: `fresh` if each copy goes to
    memory that was just allocated, `cold` if files are read that the page cache does not hold; of blocks their order,
    and of an order of work the form in which images arrive.
    `bracket`: how trials are timed. `verified`: whether the contents arrived. `first_s`: the first transfer of all,
    which does not count as a trial. `summary`: the times by the device's events; `dispatch`: until the calls returned;
    `wall`: by the caller's clock. A framework's route has `route_info`, `worker` and `batch`; rows of blocks have their
    number as the `batch`, and the caller's times as the `summary`.
    """

    route: str
    direction: Direction
    side: Side
    memory: str
    mode: str
    variant: Variant
    bracket: Bracket
    nbytes: Count
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
    route_info: RouteInfo | None = None
    batch: AtLeastOne | None = None
    dma: Fact[Dma] = unknown(NOT_TRACED)
    breakdown: Fact[Breakdown] = unknown(NOT_TRACED)

    def _summary(self) -> str:
        figure = f"no bandwidth: {self.rate.reason}" if self.gbps is None else format_gbps(self.gbps)
        share = "" if self.of_ceiling is None else f", {format_percent(self.of_ceiling)} of the ceiling"
        return f"{self.route} {self.side} {format_size(self.nbytes)}: {figure}{share}"

    @property
    def gbps(self) -> float | None:
        """Bandwidth at the median in 1e9 bytes per second; None without one (`rate.reason` says why)."""
        return None if self.rate.value is None else self.rate.value.gbps

    @property
    def elapsed_s(self) -> float | None:
        """Median seconds of one transfer, between the two events."""
        return None if self.summary is None else self.summary.median_s

    @property
    def dispatch_s(self) -> float | None:
        """Median seconds until the call returned."""
        return None if self.dispatch is None else self.dispatch.median_s

    @property
    def wall_s(self) -> float | None:
        """Median seconds by the caller's clock until the transfer was done; None if the row has no such times."""
        return None if self.wall is None else self.wall.median_s

    @property
    def caller_gbps(self) -> float | None:
        """Bandwidth by the caller's clock, with the time of the calls; None without such times or any bandwidth."""
        return None if self.gbps is None or not self.wall_s else self.moved_bytes / self.wall_s / 1e9

    @property
    def has_both_clocks(self) -> bool:
        """Whether it was timed behind a gate, by the device, and also without one, by the caller."""
        return self.bracket == "gated" and self.caller_gbps is not None

    @property
    def of_ceiling(self) -> float | None:
        """Share of the ceiling of the same direction and size, from the same rounds; None if not known."""
        return None if self.ceiling_share.value is None else self.ceiling_share.value.value

    @property
    def of_peak(self) -> float | None:
        """Share of the link's protocol peak; None if not known."""
        return self.peak_share.value

    @property
    def is_raw(self) -> bool:
        """Whether it is a raw copy, by the driver or through a ring, and not a route of a framework or the user's."""
        return self.route.startswith("raw.")

    @property
    def block_bytes(self) -> int | None:
        """The size of a block; None of a row that moves no blocks."""
        is_of_blocks = self.route.startswith(f"{BLOCKS}.") and self.batch is not None
        return self.nbytes // self.batch if is_of_blocks and self.batch else None

    @property
    def form(self) -> Form | None:
        """The form in which an order of work brings images to the GPU; None of any other row."""
        return next((form for form in FORMS if form == self.variant), None)

    @property
    def may_be_ceiling(self) -> bool:
        """Whether this is a raw copy that is neither staged nor into a fresh destination."""
        return self.route_info is None and self.mode != machines.STAGED and self.variant == "warm"

    @property
    def overhead_s(self) -> float | None:
        """Median seconds more than the ceiling's copy took in the same rounds; None if not known."""
        if self.elapsed_s is None or self.of_ceiling is None:
            return None
        return self.elapsed_s * (1 - self.of_ceiling)

    @property
    def dma_s(self) -> float | None:
        """Seconds of one transfer in which the copy engines were busy, by the device's records; None if not known."""
        return None if self.dma.value is None else self.dma.value.seconds.value

    @property
    def dma_gbps(self) -> float | None:
        """1e9 bytes per second while the copy engines were busy, by the device's records; None if not known."""
        return None if self.dma.value is None else self.dma.value.gbps

    @property
    def faults(self) -> float | None:
        """Median page faults of the process during one transfer; None if not counted."""
        known = sorted(trial.faults for trial in self.trials if trial.faults is not None and trial.invalid is None)
        return known[len(known) // 2] if known else None


class Curve(msgspec.Struct, frozen=True):
    """`t = t0 + n/B` over the sizes of one route: fixed cost, asymptote, and the bytes that reach half of it.

    The bytes n of the side `sum` are those of both ways. `worst_misfit`: the distance of the farthest median from the
    line, as a share of that median.
    """

    route: str
    direction: Direction
    side: Side
    variant: Variant
    latency_s: Fact[float]
    asymptote_gbps: Fact[float]
    half_bytes: Fact[float]
    worst_misfit: Fact[float]

    @property
    def ways(self) -> int:
        """How many copies of the same size the side has at once."""
        return 2 if self.side == "sum" else 1

    @property
    def half_size(self) -> Fact[float]:
        """The size of a copy, one way, at which the route reaches half of its asymptote."""
        half = self.half_bytes.value
        return self.half_bytes if half is None else Fact(half / self.ways)


class LockingCost(msgspec.Struct, frozen=True):
    """The cost of page-locking host memory, and the number of transfers after which it pays."""

    memory: Memory
    nbytes: AtLeastOne
    summary: Summary | None
    s_per_gib: Fact[float]
    pays_after_transfers: Fact[int]
    pays_direction: Direction = "h2d"


class Parameters(msgspec.Struct, frozen=True):
    """The settings of a run, which suffice to repeat it."""

    device: str
    directions: tuple[Direction, ...]
    memories: tuple[Memory, ...]
    modes: tuple[str, ...]
    sizes_bytes: tuple[AtLeastOne, ...]
    fresh: bool
    precision: Positive
    budget_s: Positive
    seed: int
    min_rounds: int
    frameworks: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    workload: Workload = "copy"
    batches: tuple[AtLeastOne, ...] = ()
    explained: str = ""
    forms: tuple[Form, ...] = ()
    casts: tuple[Place, ...] = ()


RunKind = Literal["ceiling", "measure", "frameworks", "explain", "files", "blocks"]


class Run(HasTable, SavedDocument, frozen=True):
    """The document of a run: machine, parameters and measurements."""

    DERIVED_BY: ClassVar[str] = "pyxfer._frameworks.registry:derive_run"

    kind: RunKind
    ended: Ending
    runtime: Runtime
    runtime_reason: str
    parameters: Parameters
    device: Device
    link: Link
    placement: machines.Placement
    environment: Environment
    environment_after: Environment | None = None
    duration_s: Amount = 0.0
    measurements: tuple[Measurement, ...] = ()
    curves: tuple[Curve, ...] = ()
    locking: tuple[LockingCost, ...] = ()
    remarks: tuple[Remark, ...] = ()
    failure: str | None = None
    workers: tuple[Worker, ...] = ()
    published: tuple[Published, ...] = ()
    files: LoadedFiles | None = None
    blocks: BlockPools | None = None
    tracing: Fact[Tracing] = unknown(NOT_TRACED)
    ring: Fact[machines.Ring] = unknown(machines.NOT_STAGED)
    schema_version: int = 1

    def _summary(self) -> str:
        text = f"{self.kind} of {self.device.name}: {len(self.measurements)} measurements"
        known = [row for row in self.measurements if row.gbps is not None and row.side != "sum"]
        rows = [row for row in known if row.direction != "ingest"] or known
        own = [row for row in rows if row.route == self.parameters.explained] or [row for row in rows if row.route_info]
        main = max(own or rows, key=lambda row: row.gbps or 0.0, default=None)
        return text if main is None else f"{text}, {main._summary()}"

    def __len__(self) -> int:
        """The number of measurements."""
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        """Yield the measurements, in the order of the document."""
        return iter(self.measurements)

    def ceiling(self, direction: Direction, nbytes: str | int | None = None) -> Measurement:
        """The fastest raw measurement of a direction and size, without staged copies; for `both`, of the `sum`.

        The size is a number of bytes or text such as `64MiB`; by default the largest that the run has.

        Raises:
            UsageError: the run has none; the text says which sizes it has.
        """
        direction = word_of(direction, get_args(Direction), "direction")
        side: Side = "sum" if direction == "both" else direction
        raw = [row for row in self.measurements if row.may_be_ceiling and row.gbps is not None]
        fitting = [row for row in raw if row.direction == direction and row.side == side]
        sizes = sorted({row.nbytes for row in fitting})
        wanted = size_of(nbytes, "nbytes") if nbytes is not None else sizes[-1] if sizes else None
        known = [row for row in fitting if row.nbytes == wanted]
        if not known:
            at = "" if wanted is None else f" at {format_size(wanted)}"
            listed = ", ".join(map(format_size, sizes)) or "none"
            raise UsageError(f"This run has no ceiling for {direction}{at}; it has {listed}.")
        return max(known, key=lambda row: row.gbps or 0.0)


def limits_beside(row: Measurement, rows: Sequence[Measurement]) -> list[Measurement]:
    """What may limit a load of files: the link, and reads of the disk or of the page cache; for as many bytes."""
    limits = [each for each in rows if each.worker is None and (each.is_raw or each.variant == row.variant)]
    return [_scaled(each, row.nbytes) for each in limits]


def links_beside(row: Measurement, rows: Sequence[Measurement]) -> list[Measurement]:
    """The ceiling of blocks: page-locked copies of the same direction and side, for as many bytes."""
    links = [each for each in rows if each.is_raw and (each.direction, each.side) == (row.direction, row.side)]
    return [_scaled(each, row.nbytes) for each in links]


def _scaled(row: Measurement, nbytes: int) -> Measurement:
    """The row with the seconds of as many bytes."""
    scale = nbytes / row.nbytes
    trials = (msgspec.structs.replace(trial, elapsed_s=trial.elapsed_s * scale) for trial in row.trials)
    return msgspec.structs.replace(row, trials=tuple(trials))


def limit_of(limits: Sequence[Measurement]) -> Measurement | None:
    """The slowest of what a load needs: the link, and the fastest of the reads."""
    known = [each for each in limits if each.gbps is not None]
    links, reads = ([each for each in known if each.is_raw == is_link] for is_link in (True, False))
    fastest = [max(each, key=lambda row: row.gbps or 0.0) for each in (links, reads) if each]
    return min(fastest, key=lambda row: row.gbps or 0.0, default=None)


def run_problems(run: Run) -> Problems:
    """Each row is there once, its direction was asked for, and its rate is one that the link can carry."""
    rows = run.measurements
    for i, each in enumerate((run.blocks and run.blocks.beside.value) or ()):
        if not each.alone_s or len(each.alone_s) != len(each.beside_s):
            yield f"blocks.beside.value[{i}]", "has not as many times alone as beside blocks"
    yield from checks.within("link", machines.link_problems(run.link))
    keys = [(row.route, row.direction, row.side, row.variant, row.nbytes, row.batch, row.worker) for row in rows]
    yield from checks.repeated("measurements", keys)
    yield from _form_problems(run)
    for i, row in enumerate(rows):
        if row.direction not in run.parameters.directions:
            yield f"measurements[{i}].direction", f"is {row.direction}, which the run was not asked for"
        if row.block_bytes is not None:
            for value, known, name in (
                (row.block_bytes, run.parameters.sizes_bytes, "nbytes"),
                (row.batch, run.parameters.batches, "batch"),
            ):
                if value not in known:
                    yield f"measurements[{i}].{name}", "is of blocks that the run was not asked for"
        most = run.link.most_gbps(row.side)
        if most is not None and (row.gbps or 0.0) > most:
            yield f"measurements[{i}].rate.gbps", f"is {row.gbps:g}, above the {most:g} that the link can carry"


def _form_problems(run: Run) -> Problems:
    if run.parameters.forms and run.parameters.workload != "image-batch":
        yield "parameters.workload", f"is {run.parameters.workload}, which has no forms of images"
    for i, row in enumerate(run.measurements):
        if row.form is not None and row.form not in run.parameters.forms:
            yield f"measurements[{i}].variant", f"is {row.form}, a form that the run was not asked for"
