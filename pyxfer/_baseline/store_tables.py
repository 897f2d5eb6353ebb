"""The tables of a store, what goes into their columns, and stored documents."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
import zlib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

import sqlalchemy as sa

from pyxfer._document.codec import decode, kind_of
from pyxfer.errors import DocumentError, StoreError, UsageError
from pyxfer.units import parse_moment

T = TypeVar("T")
Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows only in a column of type INTEGER
Row = dict[str, Any]

VERSION = 1
TABLES = sa.MetaData()


def _required(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _table(name: str, *parts: Any) -> sa.Table:
    """A table of rows that are appended, each with a number, an id, the time of storing and a digest."""
    return sa.Table(
        name,
        TABLES,
        sa.Column("seq", Number, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("stored_at", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False, index=True),
        *parts,
        sqlite_autoincrement=True,
    )


VERSIONS = sa.Table(
    "pyxfer_schema",
    TABLES,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    *_required(sa.Text, "made_at"),
)

RUNS = _table(
    "pyxfer_runs",
    *_required(sa.Double, "stored_s", "taken_s"),
    *_required(sa.Text, "taken_at", "host", "device", "runtime", "identity", "labels"),
    sa.Column("gpu", sa.Text),
    sa.Index("pyxfer_runs_of_host", "host", "seq"),
)

# In a separate table, so that a history does not read the pages of documents.
DOCUMENTS = sa.Table(
    "pyxfer_documents",
    TABLES,
    sa.Column("run", Number, sa.ForeignKey(RUNS.c.seq), primary_key=True, autoincrement=False),
    *_required(sa.LargeBinary, "document"),
)

BASELINES = _table(
    "pyxfer_baselines",
    *_required(sa.Text, "name", "identity", "host", "fingerprint", "made_at", "labels"),
    sa.Column("removed_at", sa.Text),
    sa.Index("pyxfer_baselines_current", "identity", "name", "seq"),
    sa.Index("pyxfer_baselines_of_host", "host", "name"),
)

BASELINE_RUNS = sa.Table(
    "pyxfer_baseline_runs",
    TABLES,
    sa.Column("baseline", Number, sa.ForeignKey(BASELINES.c.seq), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("run", Number, sa.ForeignKey(RUNS.c.seq), nullable=False),
)

CELLS = sa.Table(
    "pyxfer_cells",
    TABLES,
    sa.Column("id", Number, primary_key=True, autoincrement=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    *_required(sa.Text, "group", "cell"),  # the cell is JSON
)

MEASURED = sa.Table(
    "pyxfer_measured",
    TABLES,
    sa.Column("run", Number, sa.ForeignKey(RUNS.c.seq), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("cell", Number, sa.ForeignKey(CELLS.c.id), nullable=False),
    *_required(sa.Text, "host"),
    sa.Column("worker", sa.Text),
    *_required(sa.Double, "taken_s", "gbps", "median_s"),
    sa.Column("low_gbps", sa.Double),
    sa.Column("high_gbps", sa.Double),
    sa.Index("pyxfer_measured_cell", "cell", "taken_s"),
    sa.Index("pyxfer_measured_host", "host", "cell", "taken_s"),
)

HOST_REPORTS = _table(
    "pyxfer_host_reports",
    *_required(sa.Double, "stored_s"),
    *_required(sa.Text, "host"),
    *_required(sa.LargeBinary, "document"),
    sa.Index("pyxfer_host_reports_stored", "stored_s"),
)


# --- rows ------------------------------------------------------------------------------------------------------------


def new_id(letter: str) -> str:
    return f"{letter}-{secrets.token_hex(6)}"


def add_once(connection: sa.Connection, table: sa.Table, row: Row, *same: str) -> tuple[str, int | None]:
    """Insert a row, unless one is there with the same values in these columns.

    Returns the id of the row, and its number if it is new.
    """
    equal = (table.c[name] == row[name] for name in same)
    known = connection.execute(sa.select(table.c.id).where(*equal).limit(1)).scalar()
    return (str(known), None) if known is not None else (str(row["id"]), insert(connection, table, row))


def insert(connection: sa.Connection, table: sa.Table, row: Row) -> int:
    key = connection.execute(table.insert().values(row)).inserted_primary_key
    return int(key[0]) if key else 0


# --- stored documents ------------------------------------------------------------------------------------------------


def pack(data: bytes) -> Row:
    return {"sha256": sha256_of(data), "document": zlib.compress(data)}


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_document(structs: tuple[type[T], ...], what: str, sha256: str, packed: bytes | None, most_bytes: int = 0) -> T:
    """The document of a row, which was recomputed when it came into the store, and has not changed since.

    `packed` is None for one that was too large to read; 0 is no limit.
    """
    try:
        limit = most_bytes + 1 if most_bytes else 0
        data = None if packed is None else zlib.decompressobj().decompress(packed, limit)
    except zlib.error:
        data = b""
    if data is None or (most_bytes and len(data) > most_bytes):
        raise StoreError(f"{what} is larger than {most_bytes >> 20} MiB.")
    if sha256_of(data) != sha256:
        raise StoreError(
            f"{what} is damaged, because it has changed since it was stored: check the disk, and restore this one "
            "from a backup; the others can be read."
        )
    struct = kind_of(data).struct
    try:
        return decode(struct if struct in structs else structs[0], data, what, recomputed=False)
    except DocumentError as error:
        raise StoreError(str(error)) from error


# --- values of columns -----------------------------------------------------------------------------------------------


def without_nul(text: str) -> str:
    """The text without null characters, which PostgreSQL cannot store."""
    return text.replace("\x00", "\ufffd")


MAX_LABELS, MAX_VALUE = 64, 2000
MAX_HOST = 253
MAX_NAME = 200  # PostgreSQL limits an entry of an index to 2,704 bytes
_AGO = re.compile(r"([0-9]{1,6})\s*(min|h|d|w|y)", re.ASCII)
_SECONDS = {"min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365 * 86_400.0}


def check_type(value: object, types: tuple[type, ...], expected: str) -> None:
    if not isinstance(value, types):
        raise UsageError(f"Expected {expected}; got a {type(value).__name__}.")


def check_name(name: str) -> None:
    _check_text(name, "The name of a baseline", 1, MAX_NAME)


def check_host(name: str) -> None:
    _check_text(name, "The name of a host", 1, MAX_HOST)


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise UsageError(f"A run or baseline has up to {MAX_LABELS} labels, not {len(labels)}.")
    for name, value in labels.items():
        _check_text(name, "The name of a label", 1, MAX_NAME)
        _check_text(value, f"The value of the label {name!r:.80}", 0, MAX_VALUE)


def _check_text(value: object, what: str, shortest: int, longest: int) -> None:
    if not isinstance(value, str):
        raise UsageError(f"{what} is a {type(value).__name__}: give text.")
    if not shortest <= len(value) <= longest:
        raise UsageError(f"{what} has {shortest} to {longest} characters, and this one has {len(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not text: {value!r:.80} has bytes that are not UTF-8.") from None


def seconds_of(moment: str) -> float:
    return parse_moment(moment).timestamp()


def parse_since(text: str, now_s: float | None = None) -> float:
    """The seconds since 1970 of a date, or of a time such as `30d`, `12h`, `90min` or `2w` before now."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return (time.time() if now_s is None else now_s) - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return seconds_of(text.strip())
    except UsageError:
        raise UsageError(f"since {text!r:.60} is not a time: write 30d, 12h or a date such as 2026-01-31.") from None


def now_text() -> str:
    """The present time as in documents, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
