"""What a store answers with: the runs and baselines that it keeps, and the history of a cell."""

from __future__ import annotations

import msgspec

from pyxfer.model import Fact, Remark, Run, Runtime
from pyxfer.model_baselines import Cell, Fingerprint

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


class DamagedBaseline(msgspec.Struct, frozen=True):
    """One whose row in the store is no longer what was written; `why` says so, and what to do."""

    id: str
    name: str
    host: str
    why: str


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
