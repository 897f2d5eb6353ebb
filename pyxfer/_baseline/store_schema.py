"""The tables of a store as they are after the last step."""

from __future__ import annotations

import hashlib
import json
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

from pyxfer._baseline.cells import cell_of
from pyxfer._document.baselines import Baseline, Cell
from pyxfer._document.codec import decode, to_bare_json
from pyxfer._document.files import MAX_READ_BYTES
from pyxfer._document.runs import Measurement, Run
from pyxfer.errors import DocumentError, StoreError, UsageError

__all__ = ["BASELINES", "BASELINE_RUNS", "CELLS", "DOCUMENTS", "MEASURED", "RUNS"]


# Twelve of these may stand for one character, and an index of PostgreSQL takes 2,704 bytes.
_TO_ESCAPE = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|[0-9a-f]{4})")

FROM_A_BACKUP = "check the disk, and take the store from a backup"

Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only by its own INTEGER


def escape(text: str) -> str:
    """Reversible, and equal for equal texts: a backslash doubled, what no database keeps as its code."""
    return _TO_ESCAPE.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPED.sub(lambda found: "\\" if found[1] == "\\" else chr(int(found[1], 16)), text)


class AnyText(TypeDecorator[str]):
    """Text that comes back exactly as it was given."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """As it is stored."""
        return None if value is None else escape(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """As it was given."""
        if value is not None and not isinstance(value, str):
            raise StoreError(f"the store is damaged: it has {type(value).__name__} where text is; {FROM_A_BACKUP}")
        return None if value is None else unescape(value)


class NoText(str):
    """What stands where text was stored and is none: it can be shown, and told from text."""


class TextOrNot(AnyText):
    """The same text, for a reader who has to name the row that has none."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """As it was given, or that it is no text."""
        if isinstance(value, bytes):
            return NoText(value.decode(errors="backslashreplace"))
        return super().process_result_value(value, dialect)


TABLES_1 = MetaData()

RUNS = Table(
    "pyxfer_runs",
    TABLES_1,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("stored_at", Text, nullable=False),
    Column("stored_s", Double, nullable=False),
    Column("taken_at", AnyText, nullable=False),
    Column("taken_s", Double, nullable=False),
    Column("host", AnyText, nullable=False),
    Column("gpu", AnyText),
    Column("device", AnyText, nullable=False),
    Column("runtime", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Index("pyxfer_runs_of_host", "host", "seq"),
    sqlite_autoincrement=True,
)

# Apart, so that a history does not turn the pages of documents that it does not read.
DOCUMENTS = Table(
    "pyxfer_documents",
    TABLES_1,
    Column("run", Number, ForeignKey(RUNS.c.seq), primary_key=True, autoincrement=False),
    Column("document", LargeBinary, nullable=False),
)

BASELINES = Table(
    "pyxfer_baselines",
    TABLES_1,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", AnyText, nullable=False),
    Column("identity", Text, nullable=False),
    Column("host", AnyText, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("made_at", AnyText, nullable=False),
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


def upgrade_to_1(connection: Connection) -> None:
    """Make the tables."""
    TABLES_1.create_all(connection, checkfirst=False)


TABLES_2 = MetaData()

CELLS = Table(
    "pyxfer_cells",
    TABLES_2,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False, unique=True),
    Column("route", AnyText, nullable=False),
    Column("direction", Text, nullable=False),
    Column("side", Text, nullable=False),
    Column("memory", AnyText, nullable=False),
    Column("mode", AnyText, nullable=False),
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
    Column("host", AnyText, nullable=False),
    Column("taken_s", Double, nullable=False),
    Column("worker", AnyText),
    Column("gbps", Double, nullable=False),
    Column("low_gbps", Double),
    Column("high_gbps", Double),
    Column("median_s", Double, nullable=False),
    Index("pyxfer_measured_cell", "cell", "taken_s"),
    Index("pyxfer_measured_host", "host", "cell", "taken_s"),
)


def upgrade_to_2(connection: Connection) -> None:
    """Make the tables, and fill them from the documents that are there."""
    TABLES_2.create_all(connection, checkfirst=False)
    fill_from_documents(connection)


Row = dict[str, Any]

_PAGE = 100
_MOST_KEYS = 500  # SQLite before 3.32 takes 999 values in one statement


def fill(connection: Connection, seq: int, run: Run, taken_s: float) -> None:
    """Write the rows of one run."""
    known = [(place, row, _figures(row)) for place, row in enumerate(run.measurements) if _says_something(row)]
    if not known:
        return
    ids = _cell_ids(connection, {cell_of(row) for _, row, _ in known})
    of_run = {"run": seq, "host": run.environment.host, "taken_s": taken_s}
    rows = [
        {**of_run, "place": place, "cell": ids[cell_of(row)], "worker": row.worker, **figures}
        for place, row, figures in known
    ]
    connection.execute(MEASURED.insert(), rows)


def _figures(row: Measurement) -> Row:
    rate = row.rate.value
    return {
        "gbps": row.gbps,
        "low_gbps": rate.low_gbps if rate else None,
        "high_gbps": rate.high_gbps if rate else None,
        "median_s": row.elapsed_s,
    }


def _says_something(row: Measurement) -> bool:
    """Whether it has a time that counts; wrong contents came in no time at all."""
    return bool(row.summary and row.gbps and row.gbps > 0) and row.verified.value is not False


def fill_from_documents(connection: Connection) -> None:
    """Write the rows of all runs that are there; a document that is damaged is told of when it is read."""
    for seq, taken_s, run in _stored(connection):
        fill(connection, seq, run, taken_s)


def _stored(connection: Connection) -> Iterator[tuple[int, float, Run]]:
    columns = (RUNS.c.seq, RUNS.c.id, RUNS.c.taken_s, RUNS.c.sha256, DOCUMENTS.c.document)
    joined = select(*columns).join(DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq).order_by(RUNS.c.seq).limit(_PAGE)
    last = 0
    while page := connection.execute(joined.where(RUNS.c.seq > last)).all():
        for seq, run_id, taken_s, sha256, packed in page:
            last = seq
            try:
                yield seq, taken_s, unpack_run(run_id, sha256, packed)
            except StoreError:
                continue


def _cell_ids(connection: Connection, cells: set[Cell]) -> dict[Cell, int]:
    """The number of each cell; those that are new are added, and another process may add the same at once."""
    keys = {_key(cell): cell for cell in cells}
    numbers = _numbers(connection, keys)
    missing = sorted(keys.keys() - numbers.keys())  # two that add in different orders would wait for each other
    if missing:
        new = [{"key": key, **msgspec.structs.asdict(keys[key])} for key in missing]
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        connection.execute(insert(CELLS).on_conflict_do_nothing(), new)
        numbers |= _numbers(connection, missing)
    return {keys[key]: number for key, number in numbers.items()}


def _numbers(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    wanted = list(keys)
    numbers: dict[str, int] = {}
    for begin in range(0, len(wanted), _MOST_KEYS):
        some = wanted[begin : begin + _MOST_KEYS]
        found = connection.execute(select(CELLS.c.key, CELLS.c.id).where(CELLS.c.key.in_(some)))
        numbers.update((key, number) for key, number in found)
    return numbers


def _key(cell: Cell) -> str:
    return hashlib.sha256(json.dumps(msgspec.structs.astuple(cell)).encode("ascii")).hexdigest()


# Of the digest of a baseline, whatever the documents of later ones have.
_DIGEST_VERSION = 1


def pack(data: bytes) -> tuple[str, bytes]:
    """The digest of a document, and what is stored of it."""
    return hashlib.sha256(data).hexdigest(), zlib.compress(data)


def packed_run(run: Run) -> tuple[str, bytes]:
    """The same of a run."""
    return pack(to_bare_json(run))


def unpack(run_id: str, sha256: str, packed: bytes) -> bytes:
    """The document of a run as it was stored; `StoreError` where the bytes have changed since."""
    data = _decompressed(packed)
    if data is None or hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(
            f"the document of the run {run_id} in the store is damaged: it is not what was stored. The others can "
            "still be read; check the disk, and take this one from a backup"
        )
    return data


def unpack_run(run_id: str, sha256: str, packed: bytes) -> Run:
    """The run that was stored; `StoreError` where the bytes have changed since."""
    return decode_run(run_id, unpack(run_id, sha256, packed))


def decode_run(run_id: str, data: bytes) -> Run:
    """The run in a document that is as it was stored."""
    try:
        return decode(Run, data, f"the run {run_id} in the store")
    except DocumentError as error:
        raise StoreError(str(error)) from error


def _decompressed(packed: bytes) -> bytes | None:
    """None where they are no such bytes, or more than any document has."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, MAX_READ_BYTES)
    except zlib.error:
        return None
    return data if unpacker.eof else None


def digest_of_parts(name: str, fingerprint: str, made_at: str, labels: dict[str, str], runs: Sequence[bytes]) -> str:
    """The digest of a baseline, of the very bytes that were stored.

    Made of the runs as they are read today it would be another one as soon as a later pyxfer adds a field to them.
    """
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


def labels_to_text(labels: dict[str, str]) -> str:
    """ASCII alone: a null character, and half of a surrogate pair, come back as they were."""
    return json.dumps(labels)


def labels_from_text(text: str) -> dict[str, str]:
    """What was given, or what can be read of it where somebody has changed it."""
    try:
        labels: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}


DEFAULT_NAME = "default"
MOST_LABELS = 64
LONGEST_NAME, LONGEST_VALUE = 200, 2000
LONGEST_HOST = 255
_LONGEST_WORD = 200
_MOST_MEASUREMENTS = 100_000
_MOST_NUMBER = 2**63 - 1
_MOST_GBPS = 1e6
_AGO = re.compile(r"([0-9]{1,6})\s*(min|h|d|w|y)", re.ASCII)
_SECONDS = {"min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365 * 86_400.0}


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a baseline."""
    _check_text(name, "the name of a baseline")
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UsageError(f"the name of a baseline has 1 to {LONGEST_NAME} characters, and this one has {len(name)}")


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse what are no labels, and more or longer ones than are kept."""
    if not isinstance(labels, Mapping):
        raise UsageError(f"labels are names with their values, such as {{'slot': '3'}}, and not {_kind(labels)}")
    if len(labels) > MOST_LABELS:
        raise UsageError(f"a run or baseline has up to {MOST_LABELS} labels, and these are {len(labels)}")
    for name, value in labels.items():
        _check_text(name, "the name of a label")
        _check_text(value, f"the value of the label {name!r:.80}")
        if not 1 <= len(name) <= LONGEST_NAME:
            raise UsageError(f"the name of a label has 1 to {LONGEST_NAME} characters, and one has {len(name)}")
        if len(value) > LONGEST_VALUE:
            raise UsageError(
                f"the value of a label has up to {LONGEST_VALUE} characters, and that of {name!r:.80} has {len(value)}"
            )


def _check_text(value: object, what: str) -> None:
    """Refuse numbers, and bytes that were no text where they were typed: a file could not hold them."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is text, and this is {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not text: {value!r:.80} has bytes that are no UTF-8; write it in UTF-8") from None


def _kind(value: object) -> str:
    return f"of the type {type(value).__name__}"


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """The labels of `--label k=v`, each name once."""
    labels: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--label {text!r:.80} is no label; write a name and a value, such as --label slot=3")
        if name in labels:
            raise UsageError(f"--label {name!r:.80} is given twice; a label has one value")
        labels[name] = value
    check_labels(labels)
    return labels


def seconds_of(moment: str) -> float:
    """A moment as it stands in a document, in seconds since 1970; `UsageError` where it is none."""
    try:
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00"))
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)
        return aware.timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"{moment!r:.60} is no moment; write one such as 2026-01-31T12:00:00+00:00") from None


def parse_since(text: str, now_s: float | None = None) -> float:
    """The moment that `30d`, `12h`, `90min`, `2w` ago was, or that a date is, in seconds since 1970."""
    ago = _AGO.fullmatch(text.strip())
    if ago is None:
        try:
            return seconds_of(text.strip())
        except UsageError:
            raise UsageError(
                f"--since {text!r:.60} is no time: write 30d, 12h, 2w, or a date such as 2026-01-31"
            ) from None
    return (time.time() if now_s is None else now_s) - int(ago[1]) * _SECONDS[ago[2]]


def now_text() -> str:
    """This moment, as documents write it, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def check_run(run: Run) -> None:
    """Refuse what is no run, or one that no pyxfer has measured and that a database could not keep."""
    if not isinstance(run, Run):
        raise UsageError(f"a store takes runs, such as pyxfer.Run.load gives, and not what is {_kind(run)}")
    if len(run.environment.host) > LONGEST_HOST:
        raise UsageError(f"the run's host has a name of more than {LONGEST_HOST} characters, which none has")
    if len(run.measurements) > _MOST_MEASUREMENTS:
        raise UsageError(f"the run has more than {_MOST_MEASUREMENTS} measurements, which none has")
    seconds_of(run.environment.taken_at)
    for row in run.measurements:
        words = (row.route, row.memory, row.mode, row.worker or "", run.device.uuid.value or "", run.device.name)
        if max(map(len, words)) > _LONGEST_WORD:
            raise UsageError(
                f"the run has a route, memory, mode, worker or GPU with a name of more than {_LONGEST_WORD} characters"
            )
        if not (0 <= row.nbytes <= _MOST_NUMBER and 0 <= (row.batch or 0) <= _MOST_NUMBER):
            raise UsageError("the run has a size or batch that no machine has")
        if not (row.gbps or 0.0) <= _MOST_GBPS:
            raise UsageError("the run has a bandwidth that no machine has")


def check_baseline(baseline: Baseline) -> None:
    """Refuse what is no baseline, has no run, or has a name, labels or a moment that are not kept; not its runs."""
    if not isinstance(baseline, Baseline):
        raise UsageError(
            f"a store takes baselines, such as pyxfer.Baseline.load gives, and not what is {_kind(baseline)}"
        )
    check_name(baseline.name)
    check_labels(baseline.labels)
    if not baseline.runs:
        raise UsageError("a baseline is of one run or more, and this one has none")
    seconds_of(baseline.made_at)


def check_asked(**asked: object) -> None:
    """Refuse what is asked for otherwise than in words."""
    for name, value in asked.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name}= is text, and this is {_kind(value)}")
