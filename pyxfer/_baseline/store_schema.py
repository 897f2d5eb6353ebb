"""The tables of a store, the steps that create them, and the rows of runs and baselines."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Column, Connection, Double, ForeignKey, Index, Integer, MetaData, Table, Text, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

from pyxfer._baseline.cells import fingerprint_of, identity
from pyxfer._baseline.figures import Figure, figures_of
from pyxfer._document import codec
from pyxfer._document.baselines import AnyRun, Baseline, Cell
from pyxfer._document.codec import decode, to_bare_json, to_sealed_json
from pyxfer._document.links import Links
from pyxfer._document.runs import Run
from pyxfer.errors import DocumentError, StoreError, UsageError
from pyxfer.units import parse_moment

Number = sa.BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in a column of type INTEGER
Row = dict[str, Any]


class EscapedText(TypeDecorator[str]):
    """Text with each backslash doubled, as in every store since version 1."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """The text as it is stored."""
        return None if value is None else value.replace("\\", "\\\\")

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> str | None:
        """The text as the caller gave it."""
        return None if value is None else value.replace("\\\\", "\\")


TABLES_1 = MetaData()

RUNS = Table(
    "pyxfer_runs",
    TABLES_1,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("stored_at", Text, nullable=False),
    Column("stored_s", Double, nullable=False),
    Column("taken_at", EscapedText, nullable=False),
    Column("taken_s", Double, nullable=False),
    Column("host", EscapedText, nullable=False),
    Column("gpu", EscapedText),
    Column("device", EscapedText, nullable=False),
    Column("runtime", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Index("pyxfer_runs_of_host", "host", "seq"),
    sqlite_autoincrement=True,
)

# In a separate table, so that a history does not read the pages of documents.
DOCUMENTS = Table(
    "pyxfer_documents",
    TABLES_1,
    Column("run", Number, ForeignKey(RUNS.c.seq), primary_key=True, autoincrement=False),
    Column("document", sa.LargeBinary, nullable=False),
)

BASELINES = Table(
    "pyxfer_baselines",
    TABLES_1,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", EscapedText, nullable=False),
    Column("identity", Text, nullable=False),
    Column("host", EscapedText, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("made_at", EscapedText, nullable=False),
    Column("stored_at", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Column("removed_at", Text),
    Index("pyxfer_baselines_current", "identity", "name", "seq"),
    Index("pyxfer_baselines_of_host", "host", "name"),
    sqlite_autoincrement=True,
)

BASELINE_RUNS = Table(
    "pyxfer_baseline_runs",
    TABLES_1,
    Column("baseline", Number, ForeignKey(BASELINES.c.seq), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("run", Number, ForeignKey(RUNS.c.seq), nullable=False),
)

TABLES_2 = MetaData()

CELLS = Table(
    "pyxfer_cells",
    TABLES_2,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False, unique=True),
    Column("route", EscapedText, nullable=False),
    Column("direction", Text, nullable=False),
    Column("side", Text, nullable=False),
    Column("memory", EscapedText, nullable=False),
    Column("mode", EscapedText, nullable=False),
    Column("variant", Text, nullable=False),
    Column("nbytes", Number, nullable=False),
    Column("batch", Number),
)

MEASURED = Table(
    "pyxfer_measured",
    TABLES_2,
    Column("run", Number, ForeignKey(RUNS.c.seq), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("cell", Number, ForeignKey(CELLS.c.id), nullable=False),
    Column("host", EscapedText, nullable=False),
    Column("taken_s", Double, nullable=False),
    Column("worker", EscapedText),
    Column("gbps", Double, nullable=False),
    Column("low_gbps", Double),
    Column("high_gbps", Double),
    Column("median_s", Double, nullable=False),
    Index("pyxfer_measured_cell", "cell", "taken_s"),
    Index("pyxfer_measured_host", "host", "cell", "taken_s"),
)


def upgrade_to_1(connection: Connection) -> None:
    """Create the tables of runs and baselines."""
    TABLES_1.create_all(connection, checkfirst=False)


def upgrade_to_2(connection: Connection) -> None:
    """Create the tables of a history, and fill them from the documents, except those that cannot be read."""
    TABLES_2.create_all(connection, checkfirst=False)
    columns = (RUNS.c.seq, RUNS.c.id, RUNS.c.taken_s, RUNS.c.sha256, DOCUMENTS.c.document)
    joined = select(*columns).join(DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq).order_by(RUNS.c.seq).limit(100)
    last = 0
    while page := connection.execute(joined.where(RUNS.c.seq > last)).all():
        for row in page:
            last = row.seq
            with suppress(StoreError):
                run = decode_run(row.id, unpack(row.id, row.sha256, row.document))
                _insert_measured(connection, row.seq, run, row.taken_s)


@dataclass(frozen=True)
class NewRun:
    """A run with its row and its compressed document."""

    row: Row
    run: AnyRun
    document: bytes


def new_run(run: AnyRun, labels: Mapping[str, str]) -> NewRun:
    check_run(run)
    check_labels(labels)
    sha256, document = packed_run(run)
    now = now_text()
    fingerprint = fingerprint_of(run)
    row = {
        "id": f"r-{secrets.token_hex(6)}",
        "stored_at": now,
        "stored_s": seconds_of(now),
        "taken_at": run.environment.taken_at,
        "taken_s": seconds_of(run.environment.taken_at),
        "host": run.environment.host,
        "gpu": fingerprint.gpu.value,
        "device": fingerprint.device,
        "runtime": run.runtime,
        "identity": identity(fingerprint),
        "labels": json.dumps(dict(labels)),
        "sha256": sha256,
    }
    return NewRun(row, run, document)


def new_baseline(baseline: Baseline) -> tuple[Row, list[NewRun]]:
    check_baseline(baseline)
    row = {
        "id": f"b-{secrets.token_hex(6)}",
        "name": baseline.name,
        "identity": identity(baseline.fingerprint),
        "host": baseline.fingerprint.host,
        "fingerprint": to_bare_json(baseline.fingerprint).decode(),
        "made_at": baseline.made_at,
        "stored_at": now_text(),
        "labels": json.dumps(baseline.labels),
        "sha256": digest_of(baseline),
    }
    return row, [new_run(run, {}) for run in baseline.processes]


def add_run(connection: Connection, new: NewRun) -> str:
    """Store a run, unless it is already stored with the same labels, and return its id."""
    same = (RUNS.c.sha256 == new.row["sha256"], RUNS.c.labels == new.row["labels"])
    known = connection.execute(select(RUNS.c.id).where(*same).limit(1)).scalar()
    if known is None:
        _insert_run(connection, new)
    return str(known or new.row["id"])


def add_baseline(connection: Connection, row: Row, runs: Sequence[NewRun]) -> str:
    """Store a baseline and its new runs, unless the same baseline is the current one, and return its id."""
    of_name = BASELINES.c.identity == row["identity"], BASELINES.c.name == row["name"], BASELINES.c.removed_at.is_(None)
    newest = select(func.max(BASELINES.c.seq)).where(*of_name).scalar_subquery()
    is_current = (BASELINES.c.seq == newest) & (BASELINES.c.sha256 == row["sha256"])
    known = connection.execute(select(BASELINES.c.id).where(sa.or_(BASELINES.c.id == row["id"], is_current))).scalar()
    if known is not None:
        return str(known)
    seq = _insert(connection, BASELINES, row)
    for place, run in enumerate(runs):
        stored = connection.execute(select(func.min(RUNS.c.seq)).where(RUNS.c.sha256 == run.row["sha256"])).scalar()
        number = _insert_run(connection, run) if stored is None else stored
        connection.execute(BASELINE_RUNS.insert().values(baseline=seq, place=place, run=number))
    return str(row["id"])


def _insert_run(connection: Connection, new: NewRun) -> int:
    seq = _insert(connection, RUNS, new.row)
    connection.execute(DOCUMENTS.insert().values(run=seq, document=new.document))
    _insert_measured(connection, seq, new.run, new.row["taken_s"])
    return seq


def _insert(connection: Connection, table: Table, row: Row) -> int:
    key = connection.execute(table.insert().values(row)).inserted_primary_key
    return int(key[0]) if key else 0


def _insert_measured(connection: Connection, seq: int, run: AnyRun, taken_s: float) -> None:
    known = [(place, figure) for place, figure in enumerate(figures_of(run)) if _has_rate(figure)]
    if not known:
        return
    cells = _cell_ids(connection, {figure.cell for _, figure in known})
    of_run = {"run": seq, "host": run.environment.host, "taken_s": taken_s}
    rows = [{**of_run, "place": place, "cell": cells[figure.cell], **_columns(figure)} for place, figure in known]
    connection.execute(MEASURED.insert(), rows)


def _has_rate(figure: Figure) -> bool:
    return bool(figure.seconds and figure.gbps and figure.gbps > 0) and not figure.wrong


def _columns(figure: Figure) -> Row:
    low, high = (figure.rate.low_gbps, figure.rate.high_gbps) if figure.rate else (None, None)
    ends = {"low_gbps": low, "high_gbps": high}
    return {"worker": figure.worker, "gbps": figure.gbps, **ends, "median_s": figure.seconds}


def _cell_ids(connection: Connection, cells: set[Cell]) -> dict[Cell, int]:
    """The number of each cell. Another process may add the same cells at the same time."""
    keys = {_key(cell): cell for cell in cells}
    numbers = _numbers(connection)
    missing = sorted(keys.keys() - numbers.keys())  # in one order, so that two processes cannot deadlock
    if missing:
        new = [{"key": key, **msgspec.structs.asdict(keys[key])} for key in missing]
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        connection.execute(insert(CELLS).on_conflict_do_nothing(), new)
        numbers = _numbers(connection)
    return {cell: numbers[key] for key, cell in keys.items()}


def _numbers(connection: Connection) -> dict[str, int]:
    return {row.key: row.id for row in connection.execute(select(CELLS.c.key, CELLS.c.id))}


def _key(cell: Cell) -> str:
    return hashlib.sha256(json.dumps(msgspec.structs.astuple(cell)).encode("ascii")).hexdigest()


def packed_run(run: AnyRun) -> tuple[str, bytes]:
    """The digest of a run's document, and the compressed document."""
    data = to_sealed_json(run)
    return hashlib.sha256(data).hexdigest(), zlib.compress(data)


def unpack(run_id: str, sha256: str, packed: bytes) -> bytes:
    """The document of a stored run.

    Raises:
        StoreError: it has changed since it was stored.

    """
    try:
        data = zlib.decompress(packed)
    except zlib.error:
        data = b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(
            f"the document of the run {run_id} in the store is damaged: it has changed since it was stored. The "
            "other runs can be read; check the disk, and restore this one from a backup"
        )
    return data


def decode_run(run_id: str, data: bytes) -> AnyRun:
    source = f"the run {run_id} in the store"
    try:
        # It was recomputed when it came into the store, and has not changed since.
        kind: type[AnyRun] = Links if codec.kind_of(data) is codec.LINKS else Run
        return decode(kind, data, source, recomputed=False)
    except DocumentError as error:
        raise StoreError(str(error)) from error


_DIGEST_VERSION = 1  # of a baseline's digest; the schema version of its document may change


def digest_of(baseline: Baseline) -> str:
    """The digest by which the store recognises the same baseline."""
    fingerprint = to_bare_json(baseline.fingerprint).decode()
    runs = [to_sealed_json(run) for run in baseline.processes]
    return digest_of_parts(baseline.name, fingerprint, baseline.made_at, baseline.labels, runs)


def digest_of_parts(name: str, fingerprint: str, made_at: str, labels: dict[str, str], runs: Sequence[bytes]) -> str:
    """The digest of stored parts; the runs are bytes, because another version of pyxfer may encode a run otherwise."""
    document = {
        "name": msgspec.Raw(to_bare_json(name)),
        "fingerprint": msgspec.Raw(fingerprint.encode()),
        "made_at": msgspec.Raw(to_bare_json(made_at)),
        "labels": msgspec.Raw(to_bare_json(labels)),
        "runs": [msgspec.Raw(run) for run in runs],
        "kind": "baseline",
        "schema_version": _DIGEST_VERSION,
    }
    return hashlib.sha256(msgspec.json.encode(document)).hexdigest()


MOST_LABELS, LONGEST_VALUE = 64, 2000
LONGEST_HOST = 253
LONGEST_NAME = 200  # PostgreSQL limits an entry of an index to 2,704 bytes
_AGO = re.compile(r"([0-9]{1,6})\s*(min|h|d|w|y)", re.ASCII)
_SECONDS = {"min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365 * 86_400.0}


def check_name(name: str) -> None:
    _check_text(name, "the name of a baseline", 1, LONGEST_NAME)


def check_host(name: str) -> None:
    _check_text(name, "the name of a host", 1, LONGEST_HOST)


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MOST_LABELS:
        raise UsageError(f"a run or baseline has up to {MOST_LABELS} labels, and not {len(labels)}")
    for name, value in labels.items():
        _check_text(name, "the name of a label", 1, LONGEST_NAME)
        _check_text(value, f"the value of the label {name!r:.80}", 0, LONGEST_VALUE)


def _check_text(value: object, what: str, shortest: int, longest: int) -> None:
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, and is a {type(value).__name__}")
    if not shortest <= len(value) <= longest:
        raise UsageError(f"{what} has {shortest} to {longest} characters, and this one has {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not text: {value!r:.80} has bytes that are not UTF-8") from None


def check_run(run: AnyRun) -> None:
    if not isinstance(run, (Run, Links)):
        raise UsageError(f"expected a run, such as pyxfer.Run.load returns, and got a {type(run).__name__}")
    seconds_of(run.environment.taken_at)


def check_baseline(baseline: Baseline) -> None:
    """Refuse a baseline without runs, or with a name, labels or a time that cannot be stored."""
    if not isinstance(baseline, Baseline):
        kind = type(baseline).__name__
        raise UsageError(f"expected a baseline, such as pyxfer.Baseline.load returns, and got a {kind}")
    check_name(baseline.name)
    check_labels(baseline.labels)
    if not baseline.processes:
        raise UsageError("a baseline has one run or more, and this one has none")
    seconds_of(baseline.made_at)


def seconds_of(moment: str) -> float:
    """The seconds since 1970 of a time in a document."""
    return parse_moment(moment).timestamp()


def parse_since(text: str, now_s: float | None = None) -> float:
    """The seconds since 1970 of a date, or of a time such as `30d`, `12h`, `90min` or `2w` before now."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return (time.time() if now_s is None else now_s) - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return seconds_of(text.strip())
    except UsageError:
        raise UsageError(f"since {text!r:.60} is not a time: write 30d, 12h or a date such as 2026-01-31") from None


def now_text() -> str:
    """The present time as in documents, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
