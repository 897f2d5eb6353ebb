"""One database: transactions that happen once or not at all, and what is said where that cannot be known."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL, Transaction, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.pool import QueuePool

from pyxfer._baseline import store_schema
from pyxfer._baseline.store_schema import now_text
from pyxfer.errors import StoreDoubtError, StoreError, UsageError

STEPS: tuple[Callable[[Connection], None], ...] = (store_schema.upgrade_to_1, store_schema.upgrade_to_2)
"""What makes version n of version n - 1. They only go forward, and none is changed once it was released."""
NEWEST = len(STEPS)
# Any number will do that is the same in every pyxfer: this one is its name in ASCII.
LOCK = 0x707978666572

VERSIONS = Table(
    "pyxfer_schema",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("made_at", Text, nullable=False),
)


def version_of(connection: Connection) -> int:
    """The version of a store's tables; 0 where there are none."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    return connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0


def migrate(connection: Connection, steps: Sequence[Callable[[Connection], None]] = STEPS) -> None:
    """Take the steps that are missing, in the transaction that this connection is in; nothing where none is."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    else:  # its BEGIN IMMEDIATE has kept the others out
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
    version = version_of(connection)
    if version == 0:
        VERSIONS.create(connection)
    for number, step in enumerate(steps[version:], start=version + 1):
        step(connection)
        connection.execute(VERSIONS.insert(), {"version": number, "made_at": now_text()})


def check_version(version: int, shown: str) -> None:
    """Refuse a store that a later pyxfer has made."""
    if version > NEWEST:
        raise StoreError(
            f"the store {shown} has version {version}, made by a later pyxfer, and this one knows up to {NEWEST}; "
            "upgrade pyxfer (pip install --upgrade pyxfer)"
        )


BUSY_S = 30.0
APPLICATION_ID = 0x70797866  # "pyxf", at its place in the header, where file(1) finds it too
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_ID_AT = slice(68, 72)
# A write-ahead log needs memory that all who use the file share, so nothing but disks of this machine.
_LOCAL = {
    "bcachefs",
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "jfs",
    "overlay",
    "ramfs",
    "reiserfs",
    "tmpfs",
    "xfs",
    "zfs",
}
_MOUNTS = Path("/proc/self/mounts")
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


class SqliteFile:
    """One file, which is a store, or empty and to become one."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._path = place.path or Path()
        self._inode = 0

    def exists(self) -> bool:
        """Whether a store is there; `StoreError` where something else is."""
        try:
            with open(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                if not self._path.is_file():
                    raise StoreError(f"the store {self._place.shown} is no file; name another with --store")
                header = file.read(_HEADER_BYTES)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise self._refusal("cannot be opened", error, "check the path and who may read it") from error
        if not header:
            return False
        self._check(header)
        return True

    def create(self) -> None:
        """An empty file that nobody else may read, in a folder that nobody else may open where that is new."""
        try:
            if self._place.own:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            remedy = "make its folder first" if isinstance(error, FileNotFoundError) else "name another with --store"
            raise self._refusal("cannot be made", error, remedy) from error

    @property
    def may_write(self) -> bool:
        """Whether this user may: SQLite writes beside the file, too."""
        return os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK)

    def engine(self) -> Engine:
        """Connections to it; where it cannot be written, connections that only read."""
        self._inode = self._path.stat().st_ino
        address = f"file:{quote(os.fsencode(self._path))}?{self._mode()}"

        def connect() -> sqlite3.Connection:
            # Transactions are begun by us: Python's own way begins none before a SELECT, and never an IMMEDIATE one.
            return sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

        engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, hide_parameters=True)
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        return engine

    def check_same(self) -> None:
        """Refuse to go on where the file was removed or replaced: what is written to the old one nobody ever sees."""
        try:
            if self._path.stat().st_ino == self._inode:
                return
        except OSError:
            pass
        raise StoreError(f"the store {self._place.shown} was removed or replaced while it was open; open it again")

    def choose_journal(self, engine: Engine) -> None:
        """A write-ahead log, with which readers and the writer do not wait for each other, where that is safe."""
        wanted = "wal" if file_system_of(self._path) in _LOCAL else "delete"
        connection = engine.raw_connection()
        try:
            cursor = connection.cursor()
            if cursor.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
                with suppress(sqlite3.OperationalError):  # in use at this moment: the next that opens it will
                    cursor.execute(f"PRAGMA journal_mode={wanted}")
        finally:
            connection.close()

    def _mode(self) -> str:
        if self.may_write:
            return "mode=rw"
        log = Path(f"{self._path}-wal")
        # Without a log nobody is writing; and where the folder is read-only, SQLite could not make what a log needs.
        is_still = not log.exists() or log.stat().st_size == 0
        return "mode=ro&immutable=1" if is_still and not os.access(self._path.parent, os.W_OK) else "mode=ro"

    def _check(self, header: bytes) -> None:
        if not header.startswith(_MAGIC):
            raise StoreError(f"{self._place.shown} is no store: it is no SQLite database; name another with --store")
        if header[_ID_AT] != APPLICATION_ID.to_bytes(4, "big"):
            raise StoreError(
                f"{self._place.shown} is no store: it is an SQLite database of something else, and is left as it is; "
                "name another with --store"
            )

    def _refusal(self, what: str, error: OSError | ValueError, remedy: str) -> StoreError:
        why = getattr(error, "strerror", None) or str(error)
        return StoreError(f"the store {self._place.shown} {what} ({why}); {remedy}")


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of file system that holds a path, such as `ext4` or `nfs4`; empty where that cannot be told."""
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return ""
    real, kind, longest = os.fsencode(os.path.realpath(path)), "", -1
    for fields in (line.split() for line in lines):
        point = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), fields[1]).rstrip(b"/")
        if len(point) >= longest and (real == point or real.startswith(point + b"/")):
            kind, longest = fields[2].decode(errors="replace"), len(point)
    return kind


@contextmanager
def taking_any_text(connection: Connection) -> Iterator[None]:
    """Text that is no UTF-8 comes as its bytes, where it would end the reading of all rows; slow, so not always."""
    raw = connection.connection.dbapi_connection
    if not isinstance(raw, sqlite3.Connection):
        yield
        return
    usual, raw.text_factory = raw.text_factory, _text_or_bytes
    try:
        yield
    finally:
        raw.text_factory = usual


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _set_up(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: object) -> None:
    options = connection.get_execution_options()  # type: ignore[attr-defined]
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("pyxfer_writes") else "BEGIN")  # type: ignore[attr-defined]


_CONNECT_S = 10
_SILENT_MS = 30_000
LOCK_MS = 30_000
# libpq's names; the URL may say otherwise.
_DEFAULTS = {
    "connect_timeout": str(_CONNECT_S),
    "application_name": "pyxfer",
    "client_encoding": "utf8",  # else a database in SQL_ASCII hands out bytes
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": str(_SILENT_MS),
}


def engine_of(url: URL) -> Engine:
    """Connections to the server, each tried before it is used again."""
    chosen = {name: value for name, value in _DEFAULTS.items() if name not in url.query}
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={**chosen, "prepare_threshold": None},  # a pooler hands out another connection each time
        )
    except ImportError as error:
        raise StoreError(f"a store on PostgreSQL needs psycopg ({error}): pip install 'pyxfer[postgresql]'") from error


VARIABLE = "PYXFER_STORE"
_NAME = "store.db"
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_LIKE_A_SERVER = re.compile(r"\s*postgres.*(?:@|//)", re.ASCII | re.DOTALL | re.IGNORECASE)
_EXAMPLES = "name a file, sqlite:////path/store.db, or postgresql+psycopg://user@server/database"


@dataclass(frozen=True)
class Place:
    """A file, or the URL of a server; `shown` has no password. `own` is the file that nobody has named."""

    shown: str
    path: Path | None = None
    url: URL | None = None
    own: bool = False


def find_place(given: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> Place:
    """Where the store is: as given, else as `PYXFER_STORE` says, else in the user's data directory."""
    if given is not None:
        return _named(_text_of(given), "the store")
    if environ.get(VARIABLE):
        return _named(environ[VARIABLE], f"the store that {VARIABLE} names")
    path = _data_folder(environ) / "pyxfer" / _NAME
    return Place(repr(str(path)), path, own=True)


def _data_folder(environ: Mapping[str, str]) -> Path:
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    if shared.is_absolute():  # any other is to be ignored: XDG Base Directory Specification
        return shared
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError:
        raise StoreError(f"this user has no home to keep a store in; name a file with --store or {VARIABLE}") from None


def _text_of(given: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(given)
    except TypeError:
        raise UsageError(
            f"a store is named by text or a path, and not by {type(given).__name__}; {_EXAMPLES}"
        ) from None


def _named(text: str, what: str) -> Place:
    if not text.strip():
        raise UsageError(f"{what} is empty; {_EXAMPLES}")
    if "\0" in text:
        raise UsageError(f"{what} has a null character in its name; {_EXAMPLES}")
    scheme, url_like, _ = text.partition("://")
    if not url_like:
        return _file_at(text, what)
    # What cannot be read as a URL may hold a password all the same, so it is not shown.
    try:
        text.encode()
        url = make_url(text)
    except (ArgumentError, ValueError, UnicodeError):
        raise UsageError(f"{what} is no URL that can be read; {_EXAMPLES}") from None
    kind = scheme.lower()
    if kind in _SQLITE:
        return _file_of(url, what)
    if kind in _POSTGRESQL:
        _check_one_at(text, url, what)
        server = url.set(drivername="postgresql+psycopg")
        return Place(repr(server.render_as_string(hide_password=True)), url=_without_query_secrets(server, what))
    if kind.startswith("postgresql+"):
        raise UsageError(f"{what} names the driver {scheme!r:.60}; write postgresql+psycopg://, the one that is used")
    raise UsageError(f"{what} is of the kind {scheme!r:.60}, and there are SQLite and PostgreSQL; {_EXAMPLES}")


def _file_at(text: str, what: str) -> Place:
    """A file, unless it is a server's URL with a slip in it, whose password would be shown as a part of the path."""
    if _LIKE_A_SERVER.match(text):
        raise UsageError(f"{what}, 'postgresql...', is no URL that can be read; {_EXAMPLES}")
    return _file(text)


def _check_one_at(text: str, url: URL, what: str) -> None:
    """Refuse what leaves open where a password ends: the rest of it would be taken for a server, and shown."""
    count = text.count("@")
    if count > 1 or (count == 1 and url.username is None):
        raise UsageError(
            f"{what}, 'postgresql...', has an @ that is not the one in front of the server; write that of a user, a "
            "password or a name as %40, such as postgresql+psycopg://user:pass%40word@server/database"
        )


def _file_of(url: URL, what: str) -> Place:
    if not url.database or url.database == ":memory:":
        raise UsageError(f"{what} would be gone with this process; {_EXAMPLES}")
    if url.query or url.host or url.database.startswith("file:"):
        raise UsageError(f"{what} is more than a file; write its path alone, such as sqlite:////path/store.db")
    return _file(url.database)


def _file(text: str) -> Place:
    path = Path(os.path.abspath(os.path.expanduser(text)))
    return Place(repr(str(path)), path)


def _without_query_secrets(url: URL, what: str) -> URL:
    """Refuse a password where it would be shown; libpq takes one there, and nobody hides it."""
    if any("password" in name.lower() for name in url.query):
        raise UsageError(
            f"{what} has a password behind the question mark, where it would be shown; write "
            "postgresql+psycopg://user:password@server/database, or use a passfile (~/.pgpass)"
        )
    return url


# SQLite by its own words, because Python 3.10 hands on no code.
_SQLITE_TROUBLES = {
    "locked": "another program holds it locked; end that, or try again",
    "readonly": "it is read-only here; name a store that may be written to with --store",
    "read-only": "it is read-only here; name a store that may be written to with --store",
    "unable to open": "it cannot be opened; check the path and who may read and write it",
    "is full": "the disk is full; free some space, or name a store on another disk with --store",
    "disk i/o": "the disk refused to read or write; check its space, its limits (ulimit -f, quota) and its health",
    "not a database": "it is no SQLite database; name another file with --store",
    "malformed": "it is damaged; copy it, and what can be saved of it comes with: sqlite3 FILE .recover",
}
_SERVER = {
    "25006": "it is read-only, as a standby is; name the server that may be written to",
    "28000": "the server refused the user; check user and password",
    "28P01": "the server refused the password; check user and password, or the passfile (~/.pgpass)",
    "3D000": "the server has no such database; make it first, with: createdb NAME",
    "42501": "this user may not do that there; grant it, or name another user",
    "53100": "the server's disk is full; free some space there",
    "53300": "the server has no connection left; try again, or raise its max_connections",
    "55P03": "another program holds it locked; end that, or try again",
    "57014": "the server ended the statement; try again",
    "57P03": "the server is starting or stopping; try again",
    "XX001": "the server reports damaged data; restore it from a backup",
}
_AUTHENTICATION = {
    "password authentication failed": _SERVER["28P01"],
    "no password supplied": "the server wants a password; write it into the URL, or into the passfile (~/.pgpass)",
    "does not exist": "the server has no such database or user; make it first",
    "starting up": _SERVER["57P03"],
    "shutting down": _SERVER["57P03"],
    "invalid connection option": "the URL has an option that PostgreSQL does not know; leave it out",
    "too many clients": _SERVER["53300"],
    "remaining connection slots": _SERVER["53300"],
}
_UNREACHABLE = "the server cannot be reached; check that it runs, its name and port, and the network"
_GONE = "the server has dropped the connection; check that it runs, and try again"
_TO_TRY_AGAIN = {"40001", "40P01", "57P01", "57P02", "57P03"}
_LONGEST = 300


def explain(error: DBAPIError, place: Place) -> str:
    """What happened to the store at that place, and what to do."""
    words = _words(error)
    return f"the store {place.shown}: {_advice(error, words, place)} ({words})"


def may_pass(error: DBAPIError) -> bool:
    """Whether the same once more, on a new connection, may go well: a server that restarts, a deadlock, a drop."""
    if error.connection_invalidated or _state(error) in _TO_TRY_AGAIN:
        return True
    return _is_no_connection(error) and _in(_AUTHENTICATION, _words(error).lower()) in (None, _SERVER["57P03"])


def leaves_doubt(error: DBAPIError) -> bool:
    """Whether a commit that ended so may have been carried out."""
    return error.connection_invalidated or "disk i/o" in _words(error).lower()


def is_duplicate(error: DBAPIError) -> bool:
    """Whether a row with the same key is there already."""
    return isinstance(error, IntegrityError)


def _advice(error: DBAPIError, words: str, place: Place) -> str:
    if place.path is not None:
        return _in(_SQLITE_TROUBLES, words.lower()) or "it cannot be used"
    known = _SERVER.get(_state(error) or "")
    if known:
        return known
    if _is_no_connection(error):
        return _in(_AUTHENTICATION, words.lower()) or _UNREACHABLE
    return _GONE if error.connection_invalidated else "the server refused"


def _is_no_connection(error: DBAPIError) -> bool:
    """Whether a server was not reached: only then there is no statement to tell, and no code."""
    if isinstance(error.orig, sqlite3.Error):
        return False
    return error.statement is None and _state(error) is None and not error.connection_invalidated


def _state(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return state if isinstance(state, str) else None


def _words(error: DBAPIError) -> str:
    """The driver's first lines without SQLAlchemy's, which would repeat what was to be stored."""
    return " ".join(str(error.orig).split())[:_LONGEST]


def _in(table: dict[str, str], words: str) -> str | None:
    return next((advice for part, advice in table.items() if part in words), None)


T = TypeVar("T")
Work = Callable[[Connection], T]

# A server that was killed is back after a second or two.
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)
_PATIENCE_S = 15.0


class Database:
    """The tables at one place. Every error of it is a `StoreError`."""

    def __init__(self, place: Place, engine: Engine, file: SqliteFile | None) -> None:
        self.place = place
        self.file = file
        self._engine = engine
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        """Let go of all connections, and make no other."""
        if not self._is_closed:
            self.engine.dispose()
        self._is_closed = True

    @property
    def engine(self) -> Engine:
        """Its connections; each serves the process that has made it."""
        if self._is_closed:
            raise StoreError(f"the store {self.place.shown} is closed; open it again")
        if os.getpid() != self._process:
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    def read(self, work: Work[T], patiently: bool = True) -> T:
        """What the work finds, once more where the connection was lost meanwhile."""
        attempts = _Attempts(patiently)
        while True:
            try:
                with self.engine.connect() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not (may_pass(error) and attempts.pause()):
                    raise StoreError(explain(error, self.place)) from error

    def write(self, what: str, work: Work[None], is_there: Work[bool]) -> None:
        """Do the work and commit it. Where a commit may have arrived or not, look, and do it again if it has not.

        The work has made its keys before, so that done twice it cannot be there twice: while a commit that was lost
        is still under way, a second one of the same key waits for it.

        Raises:
            StoreError: it was not stored; the text says why.
            StoreDoubtError: the store was lost at the commit and did not come back.

        """
        self.check_writable(f"{what} was not stored")
        attempts, in_doubt = _Attempts(patiently=True), False
        while True:
            committing = False
            try:
                with self._transaction() as (connection, transaction):
                    self._enter(connection)
                    if in_doubt and is_there(connection):
                        return
                    work(connection)
                    committing = True
                    transaction.commit()
                return
            except DBAPIError as error:
                in_doubt = in_doubt or (committing and leaves_doubt(error))
                again = may_pass(error) or (in_doubt and is_duplicate(error))
                if not (again and attempts.pause()):
                    self._give_up(what, error, in_doubt, is_there)
                    return

    def migrate(self, version: int) -> None:
        """Bring the tables to the newest version; done twice, or by several at once, it does no harm."""
        what = f"version {NEWEST} of its tables, which are of version {version}, cannot be made"
        self.check_writable(what)
        attempts = _Attempts(patiently=True)
        while True:
            try:
                with self._transaction() as (connection, transaction):
                    migrate(connection)
                    transaction.commit()
                return
            except DBAPIError as error:
                if not (may_pass(error) and attempts.pause()):
                    raise StoreError(f"{explain(error, self.place)}; {what}") from error

    def check_writable(self, otherwise: str) -> None:
        """Refuse what a file that is gone, or may only be read, cannot take."""
        if self.file is None:
            return
        self.file.check_same()
        if not self.file.may_write:
            raise StoreError(
                f"{otherwise}: the store {self.place.shown} is read-only here; name one that may be written to with "
                "--store"
            )

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Connection, Transaction]]:
        with self.engine.connect().execution_options(pyxfer_writes=True) as connection, connection.begin() as begun:
            yield connection, begun

    def _enter(self, connection: Connection) -> None:
        """Keep migrations out until the end of this transaction, and refuse what one has changed meanwhile."""
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_MS}"))
            connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": LOCK})
        version = connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0
        check_version(version, self.place.shown)

    def _give_up(self, what: str, error: DBAPIError, in_doubt: bool, is_there: Work[bool]) -> None:
        """Say that it is not stored, or that nobody knows; return where it is stored after all."""
        why = explain(error, self.place)
        if in_doubt:
            try:
                if self.read(is_there, patiently=False):
                    return
            except StoreError:
                raise StoreDoubtError(
                    f"whether {what} is stored is not known, because the connection was lost at the commit and the "
                    f"store did not come back: {why}"
                ) from error
        raise StoreError(f"{what} was not stored: {why}") from error


class _Attempts:
    """How often, and for how long, the same is tried again."""

    def __init__(self, patiently: bool) -> None:
        self._pauses = list(_PAUSES_S if patiently else ())
        self._deadline = time.monotonic() + _PATIENCE_S

    def pause(self) -> bool:
        """Wait for the next attempt; False where there is none."""
        if not self._pauses or time.monotonic() > self._deadline:
            return False
        time.sleep(self._pauses.pop(0))
        return True
