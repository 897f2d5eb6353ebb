"""Runs and baselines as rows: made ready outside of any transaction, then written in one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Table, func, select

from pyxfer.baselines.fingerprint import fingerprint_of, identity
from pyxfer.json_text import to_bare_json
from pyxfer.model import Run
from pyxfer.model_baselines import Baseline

from . import limits
from .filling import Row, fill
from .packing import digest_of_parts, labels_to_text, packed_run
from .tables import BASELINE_RUNS, BASELINES, DOCUMENTS, RUNS


@dataclass(frozen=True)
class RunToStore:
    """A run with its key, its row and its document."""

    id: str
    run: Run
    row: Row
    document: bytes


@dataclass(frozen=True)
class BaselineToStore:
    """A baseline with its key, its row and its runs."""

    id: str
    row: Row
    runs: tuple[RunToStore, ...]


def run_to_store(run: Run, labels: Mapping[str, str]) -> RunToStore:
    """Check it and make its row."""
    limits.check_run(run)
    limits.check_labels(labels)
    sha256, document = packed_run(run)
    run_id, now = f"r-{secrets.token_hex(6)}", limits.now_text()
    row = {
        "id": run_id,
        "stored_at": now,
        "stored_s": limits.seconds_of(now),
        "taken_at": run.environment.taken_at,
        "taken_s": limits.seconds_of(run.environment.taken_at),
        "host": run.environment.host,
        "gpu": run.device.uuid.value,
        "device": run.device.name,
        "runtime": run.runtime,
        "identity": identity(fingerprint_of(run)),
        "labels": labels_to_text(dict(labels)),
        "sha256": sha256,
    }
    return RunToStore(run_id, run, row, document)


def baseline_to_store(baseline: Baseline) -> BaselineToStore:
    """The same of a baseline and its runs."""
    limits.check_baseline(baseline)
    baseline_id = f"b-{secrets.token_hex(6)}"
    row = {
        "id": baseline_id,
        "name": baseline.name,
        "identity": identity(baseline.fingerprint),
        "host": baseline.fingerprint.host,
        "fingerprint": to_bare_json(baseline.fingerprint).decode(),
        "made_at": baseline.made_at,
        "stored_at": limits.now_text(),
        "labels": labels_to_text(baseline.labels),
        "sha256": digest_of(baseline),
    }
    return BaselineToStore(baseline_id, row, tuple(run_to_store(run, {}) for run in baseline.runs))


def digest_of(baseline: Baseline) -> str:
    """What two baselines have in common only if they are the same."""
    fingerprint = to_bare_json(baseline.fingerprint).decode()
    runs = [to_bare_json(run) for run in baseline.runs]
    return digest_of_parts(baseline.name, fingerprint, baseline.made_at, baseline.labels, runs)


def append_run(connection: Connection, new: RunToStore) -> None:
    """Append a run and what was measured in it."""
    _insert_run(connection, new)


def _insert_run(connection: Connection, new: RunToStore) -> int:
    seq = _insert(connection, RUNS, new.row)
    connection.execute(DOCUMENTS.insert().values(run=seq, document=new.document))
    fill(connection, seq, new.run, new.row["taken_s"])
    return seq


def insert_baseline(connection: Connection, new: BaselineToStore) -> None:
    """Append a baseline and those of its runs that are not there."""
    # Before anything else, because a second attempt is to meet the first one here.
    seq = _insert(connection, BASELINES, new.row)
    for place, run in enumerate(new.runs):
        known = connection.execute(select(func.min(RUNS.c.seq)).where(RUNS.c.sha256 == run.row["sha256"])).scalar()
        number = _insert_run(connection, run) if known is None else known
        connection.execute(BASELINE_RUNS.insert().values(baseline=seq, place=place, run=number))


def _insert(connection: Connection, table: Table, row: Row) -> int:
    """The number that the row was given; not by RETURNING, which SQLite knows only from 3.35 on."""
    key = connection.execute(table.insert().values(row)).inserted_primary_key
    return int(key[0]) if key else 0


def is_run_there(connection: Connection, run_id: str) -> bool:
    """Whether a run of this key is stored."""
    return connection.execute(select(RUNS.c.seq).where(RUNS.c.id == run_id)).first() is not None


def is_baseline_there(connection: Connection, baseline_id: str) -> bool:
    """Whether a baseline of this key is stored."""
    return connection.execute(select(BASELINES.c.seq).where(BASELINES.c.id == baseline_id)).first() is not None
