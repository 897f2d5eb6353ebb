"""The documents of baselines, comparisons and histories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from pyxfer._document.cells import Cell
from pyxfer._document.checks import Chance, Count, Problems, not_positive, of_each
from pyxfer._document.links import Links, links_problems
from pyxfer._document.machines import Fact, Moment, Remark, Runtime, SavedDocument
from pyxfer._document.printing import HasTable
from pyxfer._document.runs import Run, run_problems

Verdict = Literal["SAME", "FAST", "SLOW", "AMBIGUOUS"]

AnyRun = Run | Links
"""What one process has measured."""


class Fingerprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The machine and link of a baseline. A null value could not be read, for the reason beside it.

    `gpus`: of a baseline of links, the UUID of each GPU by its number; the other fields then hold for all of them.
    """

    host: str
    runtime: Runtime
    gpu: Fact[str]
    device: str
    link_kind: str
    mig: Fact[bool]
    confidential: Fact[bool]
    virtual_machine: Fact[str]
    cpu: Fact[str]
    link_now: Fact[str]
    driver_major: Fact[int]
    runtime_major: Fact[int]
    gpus: dict[int, str] = {}

    @property
    def machine(self) -> str:
        """The host and its GPU, by the device's name if it has no UUID."""
        return f"{self.host}, {self.gpu.value or self.device}"


class Baseline(HasTable, SavedDocument, frozen=True):
    """The figures that a host has reached: those of several processes, one after the other.

    They are `runs` of the link of one device, or `links` of all GPUs.
    """

    DERIVED_BY: ClassVar[str] = "pyxfer._baseline.fingerprints:derive_baseline"

    name: str
    fingerprint: Fingerprint
    made_at: Moment
    labels: dict[str, str]
    runs: tuple[Run, ...] = ()
    kind: Literal["baseline"] = "baseline"
    schema_version: int = 1
    links: tuple[Links, ...] = ()

    @classmethod
    def of_processes(
        cls, name: str, fingerprint: Fingerprint, made_at: str, labels: dict[str, str], processes: Sequence[AnyRun]
    ) -> Baseline:
        """A baseline of what these processes have measured."""
        runs = tuple(each for each in processes if isinstance(each, Run))
        links = tuple(each for each in processes if isinstance(each, Links))
        return cls(name, fingerprint, made_at, labels, runs, links=links)

    @property
    def processes(self) -> tuple[AnyRun, ...]:
        """What each process has measured."""
        return (*self.runs, *self.links)

    def _summary(self) -> str:
        return f"{self.name!r} of {self.fingerprint.host}, {self.fingerprint.device}: {len(self.processes)} runs"


class CellComparison(msgspec.Struct, frozen=True):
    """The comparison of one cell. `ratio` is the time of B over that of A, with its interval `low` to `high`.

    `text` is the cell as `--cell` takes it. `confirmed`: a check has found the cell slow again, in most processes that
    measured it. It is false in a comparison of files. `assumed`: each side is one process, so the spread between
    processes is assumed, and only a change far beyond it is SLOW or FAST. `least_loss`: the smallest loss of bandwidth
    that is found in 95 of 100 cases if this cell alone has it; by a check, with all the processes that it may measure.
    `a_s` and `b_s`: seconds of one transfer; of a latency, of one load, whose rate is that of its 8 bytes.
    """

    cell: Cell
    text: str
    verdict: Verdict
    ratio: Fact[float]
    low: Fact[float]
    high: Fact[float]
    a_gbps: Fact[float]
    b_gbps: Fact[float]
    a_processes: Count
    b_processes: Count
    a_s: Fact[float]
    b_s: Fact[float]
    why: str
    confirmed: bool = False
    assumed: bool = False
    least_loss: float | None = None


class Difference(msgspec.Struct, frozen=True):
    """A difference between the two machines or their states. `matters`: it can cost bandwidth."""

    what: str
    a: str
    b: str
    matters: bool


class Cause(msgspec.Struct, frozen=True):
    """A likely cause of a slow cell, with its evidence."""

    code: str
    text: str
    evidence: str
    fix: str | None = None


class Comparison(HasTable, SavedDocument, frozen=True):
    """The comparison of all cells of A and B, with the differences between the two.

    `verdict` is SLOW if any cell is, SAME if all compared cells are, FAST if some are and the others are SAME, and
    AMBIGUOUS otherwise.
    """

    DERIVED_BY: ClassVar[str] = "pyxfer._baseline.compare:derive_comparison"

    a: str
    b: str
    tolerance: Chance
    verdict: Verdict
    differences: tuple[Difference, ...]
    cells: tuple[CellComparison, ...]
    overall: Fact[float]
    overall_low: Fact[float]
    overall_high: Fact[float]
    causes: tuple[Cause, ...] = ()
    remarks: tuple[Remark, ...] = ()
    kind: Literal["comparison"] = "comparison"
    schema_version: int = 1

    def _summary(self) -> str:
        slow = sum(row.verdict == "SLOW" for row in self.cells)
        return f"{self.a} with {self.b}: {self.verdict}, {slow} of {len(self.cells)} cells slow"


class StoredRun(msgspec.Struct, frozen=True):
    """A run in a store. Stored runs never change."""

    id: str
    stored_at: Moment
    labels: dict[str, str]
    run: AnyRun


class KeptBaseline(msgspec.Struct, frozen=True):
    """A stored baseline without its runs. `earlier`: number of replaced baselines of the same name and machine."""

    id: str
    name: str
    identity: str
    fingerprint: Fingerprint
    made_at: Moment
    stored_at: Moment
    labels: dict[str, str]
    run_ids: tuple[str, ...]
    earlier: int = 0


class HistoryPoint(msgspec.Struct, frozen=True):
    """One measurement of a cell. `change` is its bandwidth over the median bandwidth of its group."""

    run_id: str
    taken_at: Moment
    gbps: float
    low_gbps: float | None
    high_gbps: float | None
    median_s: float
    change: float


class HistoryChange(msgspec.Struct, frozen=True):
    """From this run on the bandwidth is another one. The rates are medians of the runs from change to change."""

    run_id: str
    taken_at: Moment
    before_gbps: float
    after_gbps: float

    @property
    def share(self) -> float:
        """The change as a share of the bandwidth before; negative if it got slower."""
        return self.after_gbps / self.before_gbps - 1


class HistoryLimit(msgspec.Struct, frozen=True):
    """The smallest loss that this many runs, or more, would have shown in 95 % of cases."""

    loss: float
    runs: int


class HistoryGroup(msgspec.Struct, frozen=True):
    """One cell on one machine over time, the oldest first. `worker`: the framework's process, if one measured it.

    `changes`: in order; a slow time that has ended is two of them. `drift`: by which share the bandwidth rises from the
    first to the last run, if a line describes the runs better than changes do.
    """

    host: str
    runtime: Runtime
    device: str
    gpu: Fact[str]
    cell: Cell
    cell_text: str
    worker: str | None
    median_gbps: float
    points: tuple[HistoryPoint, ...]
    limit: Fact[HistoryLimit]
    remarks: tuple[Remark, ...] = ()
    changes: tuple[HistoryChange, ...] = ()
    drift: float | None = None


class History(msgspec.Struct, frozen=True):
    """The stored measurements of the selected cells."""

    groups: tuple[HistoryGroup, ...]
    remarks: tuple[Remark, ...] = ()
    schema_version: int = 1


MAX_RUNS = 1000
"""In one baseline."""


def baseline_problems(baseline: Baseline) -> Problems:
    if not 1 <= len(baseline.processes) <= MAX_RUNS or (baseline.runs and baseline.links):
        yield "runs", f"are {len(baseline.processes)}; a baseline has 1 to {MAX_RUNS}, of one link or of all links"
    yield from of_each("runs", baseline.runs, run_problems)
    yield from of_each("links", baseline.links, links_problems)


def comparison_problems(comparison: Comparison) -> Problems:
    low, mean, high = (getattr(comparison, name).value for name in ("overall_low", "overall", "overall_high"))
    yield from _ratio_problems("overall", low, mean, high)
    yield from of_each("cells", comparison.cells, _compared_problems)


def _compared_problems(row: CellComparison) -> Problems:
    yield from _ratio_problems("ratio", row.low.value, row.ratio.value, row.high.value)
    yield from not_positive(*((name, getattr(row, name).value) for name in ("a_gbps", "b_gbps", "a_s", "b_s")))


def _ratio_problems(name: str, low: float | None, ratio: float | None, high: float | None) -> Problems:
    known = [each for each in (low, ratio, high) if each is not None]
    if len(known) not in (0, 3):
        yield name, "is not there with both ends of its interval"
    elif known and not 0 < known[0] <= known[1] <= known[2] < math.inf:
        yield name, f"is {known[1]:g}, from {known[0]:g} to {known[2]:g}"
