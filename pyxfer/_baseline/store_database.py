"""Where a store is, its connections, and its transactions. Every error of the database becomes a `StoreError`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError

from pyxfer._baseline import store_schema
from pyxfer.errors import StoreError, UsageError

T = TypeVar("T")

APPLICATION_ID = 0x70797866  # "pyxf" in the header of an SQLite file, where file(1) finds it too
LOCK = 0x707978666572  # of PostgreSQL's advisory locks: any number that is the same in every pyxfer

VARIABLE = "PYXFER_STORE"
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_LIKE_A_SERVER = re.compile(r"\s*postgres.*(?:@|//)", re.ASCII | re.DOTALL | re.IGNORECASE)
_EXAMPLES = "name a file, sqlite:////path/store.db, or postgresql+psycopg://user@server/database"


@dataclass(frozen=True)
class Place:
    """A file, or the URL of a server. `shown` has no password; `own` is the default file, whose folder is made."""

    shown: str
    path: Path | None = None
    url: URL | None = None
    own: bool = False


def find_place(given: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> Place:
    """Where the store is: as given, else as `PYXFER_STORE` says, else in the user's data directory."""
    if given is not None:
        try:
            return _place(os.fsdecode(given), "the store")
        except TypeError:
            kind = type(given).__name__
            raise UsageError(f"a store is named by text or a path, and not by {kind}; {_EXAMPLES}") from None
    if environ.get(VARIABLE):
        return _place(environ[VARIABLE], f"the store that {VARIABLE} names")
    path = _data_folder(environ) / "pyxfer" / "store.db"
    return Place(repr(str(path)), path, own=True)


def _data_folder(environ: Mapping[str, str]) -> Path:
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    if shared.is_absolute():  # the XDG Base Directory Specification ignores a relative one
        return shared
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError:
        raise StoreError(f"this user has no home directory; name a file with --store or {VARIABLE}") from None


def _place(text: str, what: str) -> Place:
    if not text.strip() or "\0" in text:
        raise UsageError(f"{what} is {'empty' if not text.strip() else 'a name with a null character'}; {_EXAMPLES}")
    scheme, is_url, _ = text.partition("://")
    unreadable = f"is not a URL that can be read; {_EXAMPLES}"
    if not is_url:
        if _LIKE_A_SERVER.match(text):  # a mistyped URL: as a path its password would be shown
            raise UsageError(f"{what}, 'postgresql...', {unreadable}")
        return _file(text)
    try:
        text.encode()
        url = make_url(text)
    except (ArgumentError, ValueError):  # without its text, which may hold a password
        raise UsageError(f"{what} {unreadable}") from None
    kind = scheme.lower()
    if kind in _SQLITE:
        return _file_of(url, what)
    if kind in _POSTGRESQL:
        return _server(text, url, what)
    if kind.startswith("postgresql+"):
        raise UsageError(f"{what} names the driver {scheme!r:.60}; write postgresql+psycopg://")
    raise UsageError(f"{what} is of the kind {scheme!r:.60}, and there are SQLite and PostgreSQL; {_EXAMPLES}")


def _file(text: str) -> Place:
    path = Path(os.path.abspath(os.path.expanduser(text)))
    return Place(repr(str(path)), path)


def _file_of(url: URL, what: str) -> Place:
    if not url.database or url.database == ":memory:":
        raise UsageError(f"{what} is in memory and would end with this process; {_EXAMPLES}")
    if url.query or url.host or url.database.startswith("file:"):
        raise UsageError(f"{what} has options; write the path alone, such as sqlite:////path/store.db")
    return _file(url.database)


def _server(text: str, url: URL, what: str) -> Place:
    """A server, unless a part of its password would be shown."""
    if text.count("@") > 1 or (url.username is None and "@" in text):
        raise UsageError(
            f"{what}, 'postgresql...', has an @ besides the one before the server; write it as %40, such as "
            "postgresql+psycopg://user:pass%40word@server/database"
        )
    if any("password" in name.lower() for name in url.query):
        raise UsageError(
            f"{what} has a password after the question mark, where it would be shown; write "
            "postgresql+psycopg://user:password@server/database, or use a passfile (~/.pgpass)"
        )
    server = url.set(drivername="postgresql+psycopg")
    return Place(repr(server.render_as_string(hide_password=True)), url=server)


BUSY_S = 30.0
_READ_ONLY = {"mode": "ro", "immutable": "1", "uri": "true"}
LOCK_MS = 30_000
# libpq's names; the URL may set others.
_CONNECT = {
    "connect_timeout": "10",
    "application_name": "pyxfer",
    "client_encoding": "utf8",  # a database in SQL_ASCII would return bytes
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def _make_engine(place: Place, create: bool) -> Engine:
    if place.url is None:
        return _file_engine(place, place.path or Path(), create)
    chosen = {name: value for name, value in _CONNECT.items() if name not in place.url.query}
    connect = {**chosen, "prepare_threshold": None}  # a pooler may use another connection for each transaction
    try:
        return create_engine(place.url, pool_pre_ping=True, hide_parameters=True, connect_args=connect)
    except ImportError as error:
        raise StoreError(f"a store on PostgreSQL needs psycopg ({error}): pip install 'pyxfer[postgresql]'") from error


def _file_engine(place: Place, path: Path, create: bool) -> Engine:
    header = _read_header(place, path)
    if not header:
        if not create:
            raise _missing(place)
        _create_file(place, path)
    url = URL.create("sqlite", database=str(path))
    # Stores of earlier versions have a write-ahead log, for which SQLite makes files even to read.
    if header[18:19] == b"\2" and not os.access(path.parent, os.W_OK) and not os.path.exists(f"{path}-wal"):
        url = URL.create("sqlite", database=f"file:{quote(os.fsencode(path))}", query=_READ_ONLY)
    # Without an isolation level Python begins no transactions of its own; `Database.write` begins them.
    connect = {"timeout": BUSY_S, "isolation_level": None}
    engine = create_engine(url, hide_parameters=True, connect_args=connect)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))
    return engine


def _read_header(place: Place, path: Path) -> bytes:
    """Empty if there is no file or an empty one; a file of something else is refused before SQLite opens it."""
    try:
        if path.exists() and not path.is_file():
            raise StoreError(f"the store {place.shown} is not a file; name another with --store")
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(
            f"the store {place.shown} cannot be opened ({error.strerror}); check the path and its permissions"
        ) from error
    if header and not header.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{place.shown} is not a pyxfer store (not an SQLite file); name another with --store")
    if header and header[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise StoreError(
            f"{place.shown} is not a pyxfer store (an SQLite file of another program); name another with --store"
        )
    return header


def _create_file(place: Place, path: Path) -> None:
    try:
        if place.own:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        remedy = "make its folder first" if isinstance(error, FileNotFoundError) else "name another with --store"
        raise StoreError(f"the store {place.shown} cannot be made ({error.strerror}); {remedy}") from error


def _missing(place: Place) -> StoreError:
    return StoreError(
        f"there is no store at {place.shown} yet: the first pyxfer baseline save makes it; name another with --store"
    )


VERSIONS = Table(
    "pyxfer_schema",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("made_at", Text, nullable=False),
)

STEPS: tuple[Callable[[Connection], None], ...] = (store_schema.upgrade_to_1, store_schema.upgrade_to_2)
"""Step n makes version n of version n - 1. A step is not changed after its release."""
NEWEST = len(STEPS)


def version_of(connection: Connection) -> int:
    """The version of a store's tables; 0 if there are none."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    return connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0


def migrate(connection: Connection, steps: Sequence[Callable[[Connection], None]] = STEPS) -> None:
    """Take the missing steps in the current transaction, which has the write lock on SQLite."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    else:
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
    version = version_of(connection)
    if version == 0:
        VERSIONS.create(connection)
    for number, step in enumerate(steps[version:], start=version + 1):
        step(connection)
        connection.execute(VERSIONS.insert(), {"version": number, "made_at": store_schema.now_text()})


# Drivers give no code when a connection fails, and SQLite none before Python 3.11.
_REMEDIES = {
    "locked": "another program uses it; end that program, or try again",
    "readonly|unable to open": "check who may write to the file and its folder, or name another with --store",
    "disk is full|disk i/o": "free space on the disk, or name a store on another one with --store",
    "malformed|not a database": "the file is damaged; copy it, and save what can be read with: sqlite3 FILE .recover",
    "password": "check user and password, in the URL or in the passfile (~/.pgpass)",
    "permission denied": "grant this user the right, or name another user",
    'database ".*" does not exist': "make the database first, with: createdb NAME",
}
_UNREACHABLE = "check that the server runs, its name and port, and the network"
_MOST_CHARACTERS = 300
_PAUSE_S = 0.25
PATIENCE_S = 8.0  # a server that was killed is back after a second or two


# The classes of SQLSTATE after which another attempt may succeed.
_NO_CONNECTION, _ROLLED_BACK, _STOPPING = "08", "40", "57P"


def _state(error: DBAPIError) -> str | None:
    """PostgreSQL's SQLSTATE; None if no server has answered."""
    return getattr(error.orig, "sqlstate", None)


class Database:
    """The tables at one place."""

    def __init__(self, place: Place, engine: Engine) -> None:
        self.place = place
        self._engine = engine
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        """Close all connections, and open no other."""
        if not self._is_closed:
            self.engine.dispose()
        self._is_closed = True

    @property
    def engine(self) -> Engine:
        """The connections of this process; a forked child leaves those of its parent alone."""
        if self._is_closed:
            raise StoreError(f"the store {self.place.shown} is closed; open it again")
        if os.getpid() != self._process:
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading."""
        try:
            with self.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(self._explain(error)) from error

    def write(self, what: str, work: Callable[[Connection], T], *, is_migration: bool = False) -> T:
        """Do the work in a transaction, and again if the server was lost.

        The commit of a lost server may have succeeded, so the work looks for its own rows before it adds them.
        """
        deadline, lost = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                with self.engine.connect() as connection, connection.begin():
                    self._lock(connection, is_migration)
                    return work(connection)
            except DBAPIError as error:
                lost = lost or error.connection_invalidated
                if not self._may_pass(error, lost) or time.monotonic() > deadline:
                    doubt = "may or may not have been saved, and saving it again is safe"
                    raise StoreError(f"{what} {doubt if lost else 'was not saved'}: {self._explain(error)}") from error
            time.sleep(_PAUSE_S)

    def _lock(self, connection: Connection, is_migration: bool) -> None:
        """Wait for other writers on SQLite, and for a migration on PostgreSQL; refuse a store of a later version."""
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif not is_migration:
            connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_MS}"))
            connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": LOCK})
        if not is_migration:
            self.check_version(connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0)

    def check_version(self, version: int) -> None:
        """Refuse a store that a later pyxfer has made."""
        if version > NEWEST:
            raise StoreError(
                f"the store {self.place.shown} has version {version}, made by a later pyxfer, and this one knows up to "
                f"{NEWEST}; upgrade pyxfer (pip install --upgrade pyxfer)"
            )

    def _may_pass(self, error: DBAPIError, lost: bool) -> bool:
        """Whether another attempt may succeed: the server restarts, or has rolled the transaction back."""
        if isinstance(error, IntegrityError):
            return lost  # the attempt before has been committed after all
        if self.place.url is None or not isinstance(error, (InterfaceError, OperationalError)):
            return False
        return (_state(error) or _NO_CONNECTION).startswith((_NO_CONNECTION, _ROLLED_BACK, _STOPPING))

    def _explain(self, error: DBAPIError) -> str:
        """The store, what to do, and the database's own words; not SQLAlchemy's, which repeat what was to be stored."""
        words = " ".join(str(error.orig).split())[:_MOST_CHARACTERS]
        remedy = next((remedy for said, remedy in _REMEDIES.items() if re.search(said, words, re.IGNORECASE)), "")
        if not remedy and self._may_pass(error, lost=False):
            remedy = _UNREACHABLE
        return f"the store {self.place.shown}: {words}" + (f"; {remedy}" if remedy else "")


def open_database(place: Place, *, create: bool) -> Database:
    """The store at a place, with tables of the newest version.

    Raises:
        StoreError: there is none and `create` is false, it cannot be used, or a later pyxfer has made it.

    """
    database = Database(place, _make_engine(place, create))
    try:
        with database.reading() as connection:
            version = version_of(connection)
        database.check_version(version)
        if version == 0 and not create:
            raise _missing(place)
        if version < NEWEST:
            what = f"version {NEWEST} of the tables (they have version {version})"
            database.write(what, migrate, is_migration=True)
    except BaseException:
        database.close()
        raise
    return database
