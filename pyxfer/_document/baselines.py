"""What is kept of a host, and what a comparison says: baselines, their cells, and verdicts."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from pyxfer._document.machines import Fact, Runtime
from pyxfer._document.runs import Direction, Remark, Run, Side, Variant

BASELINE_SCHEMA_VERSION = 1
COMPARISON_SCHEMA_VERSION = 1

Verdict = Literal["SAME", "FAST", "SLOW", "AMBIGUOUS"]


class Fingerprint(msgspec.Struct, frozen=True):
    """The machine and link that a baseline is of. What is null could not be read there, for the reason beside it."""

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


class Cell(msgspec.Struct, frozen=True, order=True):
    """What is measured again and again: one route at one size."""

    route: str
    direction: Direction
    side: Side
    memory: str
    mode: str
    variant: Variant
    nbytes: int
    batch: int | None = None


class Spread(msgspec.Struct, frozen=True):
    """The median seconds of one cell in each of several processes, with each one's own interval where there is one."""

    medians_s: tuple[float, ...]
    lows_s: tuple[float | None, ...]
    highs_s: tuple[float | None, ...]


class Baseline(msgspec.Struct, frozen=True):
    """What a host has reached: the runs of several processes, taken one after the other."""

    name: str
    fingerprint: Fingerprint
    made_at: str
    labels: dict[str, str]
    runs: tuple[Run, ...]
    kind: Literal["baseline"] = "baseline"
    schema_version: int = BASELINE_SCHEMA_VERSION

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it with its runs as JSON, whole or not at all."""
        from pyxfer._document import codec

        codec.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Baseline:
        """Read a saved baseline, of this or an earlier version."""
        from pyxfer._document import codec

        return codec.load(cls, path)


class CellComparison(msgspec.Struct, frozen=True):
    """One cell of two sides: how much longer B takes than A, 1.0 being as long, and what may be said of it.

    `text` is the cell as `--cell` takes it. `confirmed`: a check has found it slow again, in most processes that
    measured it; a comparison of files never is. `assumed`: each side is one process, so the spread between processes
    is assumed, and the verdict is SAME or AMBIGUOUS. `least_loss`: the smallest loss of bandwidth that would have been
    SLOW here.
    """

    cell: Cell
    text: str
    verdict: Verdict
    ratio: Fact[float]
    low: Fact[float]
    high: Fact[float]
    a_gbps: Fact[float]
    b_gbps: Fact[float]
    a_processes: int
    b_processes: int
    why: str
    confirmed: bool = False
    assumed: bool = False
    least_loss: float | None = None


class Difference(msgspec.Struct, frozen=True):
    """Something about the two machines or their state that is not the same, and whether it can cost bandwidth."""

    what: str
    a: str
    b: str
    matters: bool


class Cause(msgspec.Struct, frozen=True):
    """What is likely to have made it slow, by what was seen."""

    code: str
    text: str
    evidence: str
    fix: str | None = None


class Comparison(msgspec.Struct, frozen=True):
    """All cells of two sides, above them what differs between the two.

    `verdict` is of the whole: SLOW where a cell is, SAME where all are that could be compared, FAST where some are and
    the others the SAME, else AMBIGUOUS.
    """

    a: str
    b: str
    tolerance: float
    verdict: Verdict
    differences: tuple[Difference, ...]
    cells: tuple[CellComparison, ...]
    overall: Fact[float]
    overall_low: Fact[float]
    overall_high: Fact[float]
    causes: tuple[Cause, ...] = ()
    remarks: tuple[Remark, ...] = ()
    kind: Literal["comparison"] = "comparison"
    schema_version: int = COMPARISON_SCHEMA_VERSION


HISTORY_SCHEMA_VERSION = 1


class StoredRun(msgspec.Struct, frozen=True):
    """A run as it was stored; it is never changed."""

    id: str
    stored_at: str
    labels: dict[str, str]
    run: Run


class KeptBaseline(msgspec.Struct, frozen=True):
    """What a list says of a baseline without its runs. `earlier` ones are of its name and machine, and not in use."""

    id: str
    name: str
    identity: str
    fingerprint: Fingerprint
    made_at: str
    stored_at: str
    labels: dict[str, str]
    run_ids: tuple[str, ...]
    earlier: int = 0


class HistoryPoint(msgspec.Struct, frozen=True):
    """One measurement of a cell. `change` is its bandwidth over the median of its group, 1.0 being the same."""

    run_id: str
    taken_at: str
    gbps: float
    low_gbps: float | None
    high_gbps: float | None
    median_s: float
    change: float


class HistoryGroup(msgspec.Struct, frozen=True):
    """One cell on one machine over time, the oldest first. `worker` is the framework's process, where it was in one."""

    host: str
    runtime: Runtime
    device: str
    gpu: Fact[str]
    cell: Cell
    cell_text: str
    worker: str | None
    median_gbps: float
    points: tuple[HistoryPoint, ...]
    remarks: tuple[Remark, ...] = ()


class History(msgspec.Struct, frozen=True):
    """What a store has of the cells that were asked for."""

    groups: tuple[HistoryGroup, ...]
    remarks: tuple[Remark, ...] = ()
    schema_version: int = HISTORY_SCHEMA_VERSION
