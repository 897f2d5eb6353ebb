"""The rows of runs and baselines with their measurements, and of documents of hosts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import sqlalchemy as sa
from sqlalchemy import Connection, func, select
from sqlalchemy.dialects import postgresql, sqlite

from pyxfer._baseline import store_tables as tables
from pyxfer._baseline.figures import Figure, figures_of
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._document.baselines import AnyRun, Baseline
from pyxfer._document.cells import Cell
from pyxfer._document.codec import to_bare_json, to_sealed_json
from pyxfer._document.fleets import MAX_HOST_BYTES, HostReport
from pyxfer._document.links import Links
from pyxfer._document.runs import Run
from pyxfer.errors import StoreError, UsageError


@dataclass(frozen=True)
class NewRun:
    row: tables.Row
    run: AnyRun
    document: bytes


def new_run(run: AnyRun, labels: Mapping[str, str]) -> NewRun:
    tables.check_type(run, (Run, Links), "a run, such as pyxfer.Run.load returns")
    tables.seconds_of(run.environment.taken_at)
    tables.check_labels(labels)
    packed = tables.pack(to_sealed_json(run))
    now = tables.now_text()
    fingerprint = fingerprint_of(run)
    row = {
        "id": tables.new_id("r"),
        "stored_at": now,
        "stored_s": tables.seconds_of(now),
        "taken_at": run.environment.taken_at,
        "taken_s": tables.seconds_of(run.environment.taken_at),
        "host": run.environment.host,
        "gpu": fingerprint.gpu.value,
        "device": fingerprint.device,
        "runtime": run.runtime,
        "identity": identity(fingerprint),
        "labels": json.dumps(dict(labels)),
        "sha256": packed["sha256"],
    }
    return NewRun(row, run, packed["document"])


def new_baseline(baseline: Baseline) -> tuple[tables.Row, list[NewRun]]:
    tables.check_type(baseline, (Baseline,), "a baseline, such as pyxfer.Baseline.load returns")
    tables.check_name(baseline.name)
    tables.check_labels(baseline.labels)
    if not baseline.processes:
        raise UsageError("A baseline has one run or more, and this one has none.")
    tables.seconds_of(baseline.made_at)
    row = {
        "id": tables.new_id("b"),
        "name": baseline.name,
        "identity": identity(baseline.fingerprint),
        "host": baseline.fingerprint.host,
        "fingerprint": to_bare_json(baseline.fingerprint).decode(),
        "made_at": baseline.made_at,
        "stored_at": tables.now_text(),
        "labels": json.dumps(baseline.labels),
        "sha256": digest_of(baseline),
    }
    return row, [new_run(run, {}) for run in baseline.processes]


def add_run(connection: Connection, new: NewRun) -> str:
    run_id, seq = tables.add_once(connection, tables.RUNS, new.row, "sha256", "labels")
    if seq is not None:
        _insert_contents(connection, seq, new)
    return run_id


def add_baseline(connection: Connection, row: tables.Row, runs: Sequence[NewRun]) -> str:
    of_name = (
        tables.BASELINES.c.identity == row["identity"],
        tables.BASELINES.c.name == row["name"],
        tables.BASELINES.c.removed_at.is_(None),
    )
    newest = select(func.max(tables.BASELINES.c.seq)).where(*of_name).scalar_subquery()
    is_current = (tables.BASELINES.c.seq == newest) & (tables.BASELINES.c.sha256 == row["sha256"])
    known = connection.execute(
        select(tables.BASELINES.c.id).where(sa.or_(tables.BASELINES.c.id == row["id"], is_current))
    ).scalar()
    if known is not None:
        return str(known)
    seq = tables.insert(connection, tables.BASELINES, row)
    for place, run in enumerate(runs):
        stored = connection.execute(
            select(func.min(tables.RUNS.c.seq)).where(tables.RUNS.c.sha256 == run.row["sha256"])
        ).scalar()
        if stored is None:
            stored = tables.insert(connection, tables.RUNS, run.row)
            _insert_contents(connection, stored, run)
        connection.execute(tables.BASELINE_RUNS.insert().values(baseline=seq, place=place, run=stored))
    return str(row["id"])


def _insert_contents(connection: Connection, seq: int, new: NewRun) -> None:
    connection.execute(tables.DOCUMENTS.insert().values(run=seq, document=new.document))
    known = [(place, figure) for place, figure in enumerate(figures_of(new.run)) if _has_rate(figure)]
    if not known:
        return
    cells = _cell_ids(connection, {figure.cell for _, figure in known})
    of_run = {"run": seq, "host": new.row["host"], "taken_s": new.row["taken_s"]}
    rows = [{**of_run, "place": place, "cell": cells[figure.cell], **_columns(figure)} for place, figure in known]
    connection.execute(tables.MEASURED.insert(), rows)


def _has_rate(figure: Figure) -> bool:
    return bool(figure.seconds and figure.gbps and figure.gbps > 0) and not figure.wrong


def _columns(figure: Figure) -> tables.Row:
    low, high = (figure.rate.low_gbps, figure.rate.high_gbps) if figure.rate else (None, None)
    ends = {"low_gbps": low, "high_gbps": high}
    return {"worker": figure.worker, "gbps": figure.gbps, **ends, "median_s": figure.seconds}


def _cell_ids(connection: Connection, cells: set[Cell]) -> dict[Cell, int]:
    """The number of each cell. Another process may add the same cells at the same time."""
    keys = {tables.sha256_of(to_bare_json(cell)): cell for cell in cells}
    numbers = _numbers(connection)
    missing = sorted(keys.keys() - numbers.keys())  # in one order, so that two processes cannot deadlock
    if missing:
        new = [{"key": key, "group": keys[key].group, "cell": to_bare_json(keys[key]).decode()} for key in missing]
        insert_some = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        connection.execute(insert_some(tables.CELLS).on_conflict_do_nothing(), new)
        numbers = _numbers(connection)
    return {cell: numbers[key] for key, cell in keys.items()}


def _numbers(connection: Connection) -> dict[str, int]:
    return {row.key: row.id for row in connection.execute(select(tables.CELLS.c.key, tables.CELLS.c.id))}


def read_run(run_id: str, sha256: str, packed: bytes) -> AnyRun:
    structs: tuple[type[AnyRun], ...] = (Run, Links)
    return tables.read_document(structs, f"The run {run_id} in the store", sha256, packed)


def digest_of(baseline: Baseline) -> str:
    """The digest by which the store recognises the same baseline."""
    fingerprint = to_bare_json(baseline.fingerprint).decode()
    runs = [tables.sha256_of(to_sealed_json(run)) for run in baseline.processes]
    return digest_of_parts(baseline.name, fingerprint, baseline.made_at, baseline.labels, runs)


def digest_of_parts(name: str, fingerprint: str, made_at: str, labels: dict[str, str], runs: Sequence[str]) -> str:
    return tables.sha256_of(to_bare_json([name, fingerprint, made_at, labels, runs]))


@dataclass(frozen=True)
class KeptReport:
    id: str
    host: str


@dataclass(frozen=True)
class StoredReport:
    """A stored document, or the reason why it cannot be read."""

    id: str
    host: str
    report: HostReport | None
    reason: str | None


def new_report(report: HostReport, host: str | None) -> tables.Row:
    tables.check_type(report, (HostReport,), "a document that pyxfer fleet host writes")
    name = tables.without_nul(report.host or host or "")
    tables.check_host(name)
    data = to_sealed_json(report)
    if len(data) > MAX_HOST_BYTES:
        limit = f"{MAX_HOST_BYTES >> 20} MiB"
        raise UsageError(f"The document of a host has at most {limit}, and this one has {len(data)} bytes.")
    return {"id": tables.new_id("h"), "host": name, **tables.pack(data)}


def add_report(connection: Connection, row: tables.Row) -> str:
    stored_s = clock_s(connection)
    stored_at = datetime.fromtimestamp(stored_s, timezone.utc).isoformat(timespec="milliseconds")
    row = {**row, "stored_s": stored_s, "stored_at": stored_at}
    return tables.add_once(connection, tables.HOST_REPORTS, row, "sha256", "host")[0]


def clock_s(connection: Connection) -> float:
    """The present time in seconds since 1970 by the server's clock: those of hosts may be wrong."""
    if connection.dialect.name != "postgresql":
        return time.time()
    return float(connection.execute(select(sa.extract("epoch", func.clock_timestamp()))).scalar_one())


def read_reports(connection: Connection, ids: Sequence[str]) -> Iterator[StoredReport]:
    small = sa.case((func.length(tables.HOST_REPORTS.c.document) <= MAX_HOST_BYTES, tables.HOST_REPORTS.c.document))
    rows = select(
        tables.HOST_REPORTS.c.id, tables.HOST_REPORTS.c.host, tables.HOST_REPORTS.c.sha256, small.label("document")
    )
    for row in connection.execute(rows.where(tables.HOST_REPORTS.c.id.in_(ids))):
        what = f"The document {row.id} in the store"
        try:
            report = tables.read_document((HostReport,), what, row.sha256, row.document, MAX_HOST_BYTES)
            yield StoredReport(row.id, row.host, report, None)
        except StoreError as error:
            yield StoredReport(row.id, row.host, None, str(error))
