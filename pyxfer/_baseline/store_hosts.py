"""The documents of hosts in a store, which each host has saved by itself."""

from __future__ import annotations

import hashlib
import secrets
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Double, Index, LargeBinary, MetaData, Table, Text, func, select

from pyxfer._baseline.store_fleets import without_nul
from pyxfer._baseline.store_schema import EscapedText, Number, Row, check_host
from pyxfer._document.codec import decode, to_sealed_json
from pyxfer._document.fleets import MOST_HOST_BYTES, HostReport
from pyxfer.errors import DocumentError, UsageError

TABLES_4 = MetaData()

HOST_REPORTS = Table(
    "pyxfer_host_reports",
    TABLES_4,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("stored_at", Text, nullable=False),
    Column("stored_s", Double, nullable=False),
    Column("host", EscapedText, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Column("document", LargeBinary, nullable=False),
    Index("pyxfer_host_reports_stored", "stored_s"),
    sqlite_autoincrement=True,
)
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


def upgrade_to_4(connection: Connection) -> None:
    """Create the table of hosts' documents."""
    TABLES_4.create_all(connection, checkfirst=False)


def new_report(report: HostReport, host: str | None) -> Row:
    """The row of a document, without the time of storing."""
    if not isinstance(report, HostReport):
        raise UsageError(f"expected a document that pyxfer fleet host writes; got a {type(report).__name__}")
    name = without_nul(report.host or host or "")
    check_host(name)
    data = to_sealed_json(report)
    if len(data) > MOST_HOST_BYTES:
        limit = f"{MOST_HOST_BYTES >> 20} MiB"
        raise UsageError(f"the document of a host has at most {limit}; this one has {len(data)} bytes")
    return {
        "id": f"h-{secrets.token_hex(6)}",
        "host": name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "document": zlib.compress(data),
    }


def add_report(connection: Connection, row: Row) -> str:
    """Store a document, unless it is already stored, and return its id."""
    same = (_COLUMNS.sha256 == row["sha256"], _COLUMNS.host == row["host"])
    known = connection.execute(select(_COLUMNS.id).where(*same).limit(1)).scalar()
    if known is not None:
        return str(known)
    stored_s = clock_s(connection)
    stored_at = datetime.fromtimestamp(stored_s, timezone.utc).isoformat(timespec="milliseconds")
    connection.execute(HOST_REPORTS.insert().values(**row, stored_s=stored_s, stored_at=stored_at))
    return str(row["id"])


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
    small = sa.case((func.length(_COLUMNS.document) <= MOST_HOST_BYTES, _COLUMNS.document))
    rows = select(_COLUMNS.id, _COLUMNS.host, _COLUMNS.sha256, small.label("document"))
    for row in connection.execute(rows.where(_COLUMNS.id.in_(ids))):
        report = _read(row.id, row.sha256, row.document)
        yield (
            StoredReport(row.id, row.host, None, report)
            if isinstance(report, str)
            else StoredReport(row.id, row.host, report, None)
        )


def _read(report_id: str, sha256: str, packed: bytes | None) -> HostReport | str:
    """A document, or the reason why it cannot be read."""
    what = f"the document {report_id} in the store"
    try:
        data = None if packed is None else zlib.decompressobj().decompress(packed, MOST_HOST_BYTES + 1)
    except zlib.error:
        data = b""
    if data is None or len(data) > MOST_HOST_BYTES:
        return f"{what} is larger than {MOST_HOST_BYTES >> 20} MiB"
    if hashlib.sha256(data).hexdigest() != sha256:
        return f"{what} is damaged: it has changed since it was stored"
    try:
        return decode(HostReport, data, what, recomputed=False)
    except DocumentError as error:
        return str(error)
