"""The documents of hosts in a store, which each host has saved by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import sqlalchemy as sa
from sqlalchemy import Connection, func, select

from pyxfer._baseline.store_tables import (
    HOST_REPORTS,
    Row,
    add_once,
    check_host,
    decode_stored,
    new_id,
    pack,
    unpack,
    without_nul,
)
from pyxfer._document.codec import to_sealed_json
from pyxfer._document.fleets import MAX_HOST_BYTES, HostReport
from pyxfer.errors import StoreError, UsageError

_COLUMNS = HOST_REPORTS.c


@dataclass(frozen=True)
class KeptReport:
    """The row of a stored document."""

    id: str
    host: str


@dataclass(frozen=True)
class StoredReport:
    """A stored document, or the reason why it cannot be read."""

    id: str
    host: str
    report: HostReport | None
    reason: str | None


def new_report(report: HostReport, host: str | None) -> Row:
    """The row of a document, without the time of storing."""
    if not isinstance(report, HostReport):
        raise UsageError(f"expected a document that pyxfer fleet host writes; got a {type(report).__name__}")
    name = without_nul(report.host or host or "")
    check_host(name)
    data = to_sealed_json(report)
    if len(data) > MAX_HOST_BYTES:
        limit = f"{MAX_HOST_BYTES >> 20} MiB"
        raise UsageError(f"the document of a host has at most {limit}; this one has {len(data)} bytes")
    return {"id": new_id("h"), "host": name, **pack(data)}


def add_report(connection: Connection, row: Row) -> str:
    """Store a document, unless it is already stored, and return its id."""
    stored_s = clock_s(connection)
    stored_at = datetime.fromtimestamp(stored_s, timezone.utc).isoformat(timespec="milliseconds")
    row = {**row, "stored_s": stored_s, "stored_at": stored_at}
    return add_once(connection, HOST_REPORTS, row, "sha256", "host")[0]


def clock_s(connection: Connection) -> float:
    """The present time in seconds since 1970 by the server's clock: those of hosts may be wrong."""
    if connection.dialect.name != "postgresql":
        return time.time()
    return float(connection.execute(select(sa.extract("epoch", func.clock_timestamp()))).scalar_one())


def find_reports(connection: Connection, since_s: float) -> list[KeptReport]:
    """The rows of the documents that were stored since then, the newest first."""
    rows = select(_COLUMNS.id, _COLUMNS.host).where(_COLUMNS.stored_s >= since_s).order_by(_COLUMNS.seq.desc())
    return [KeptReport(*row) for row in connection.execute(rows)]


def read_reports(connection: Connection, ids: Sequence[str]) -> Iterator[StoredReport]:
    """The documents with these ids."""
    small = sa.case((func.length(_COLUMNS.document) <= MAX_HOST_BYTES, _COLUMNS.document))
    rows = select(_COLUMNS.id, _COLUMNS.host, _COLUMNS.sha256, small.label("document"))
    for row in connection.execute(rows.where(_COLUMNS.id.in_(ids))):
        what = f"the document {row.id} in the store"
        try:
            data = unpack(what, row.sha256, row.document, MAX_HOST_BYTES)
            yield StoredReport(row.id, row.host, decode_stored(HostReport, data, what), None)
        except StoreError as error:
            yield StoredReport(row.id, row.host, None, str(error))
