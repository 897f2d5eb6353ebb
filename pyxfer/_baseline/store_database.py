"""The location of a store, its connections and its transactions; errors of the database become `StoreError`."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, func, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError

from pyxfer._baseline.store_tables import TABLES, VERSION, VERSIONS, now_text
from pyxfer._config import machine_setting
from pyxfer.errors import INSTALL, StoreError, UsageError

T = TypeVar("T")

APPLICATION_ID = 0x70797866  # "pyxf", in the header of an SQLite file
LOCK = 0x707978666572  # the key of pyxfer's advisory lock on PostgreSQL

VARIABLE = "PYXFER_STORE"
_NAME_ANOTHER = "name another store (--store on the command line, url in Python)"
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_LIKE_A_SERVER = re.compile(r"\s*postgres.*(?:@|//)", re.ASCII | re.DOTALL | re.IGNORECASE)
_EXAMPLES = "name a file, sqlite:////path/store.db, or postgresql+psycopg://user@server/database"


@dataclass(frozen=True)
class StoreLocation:
    """A file, or the URL of a server. `shown` has no password. The folder of the default file is created."""

    shown: str
    path: Path | None = None
    url: URL | None = None
    is_default: bool = False


def find_location(url: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> StoreLocation:
    """The location that `url` names, else that of `PYXFER_STORE`, of the user's files, or in the data directory."""
    if url is not None:
        return _location(os.fsdecode(url), "The store")
    if environ.get(VARIABLE):
        return _location(environ[VARIABLE], f"The store that {VARIABLE} names")
    if (setting := machine_setting("store")) is not None:
        return _location(setting.value, f"The store that {setting.where} names", setting.folder)
    path = _data_folder(environ) / "pyxfer" / "store.db"
    return StoreLocation(repr(str(path)), path, is_default=True)


def _data_folder(environ: Mapping[str, str]) -> Path:
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    if shared.is_absolute():  # the XDG Base Directory Specification ignores relative paths
        return shared
    return Path.home() / ".local" / "share"


def _location(text: str, what: str, folder: Path | None = None) -> StoreLocation:
    if not text.strip():
        raise UsageError(f"{what} has an empty name: {_EXAMPLES}.")
    scheme, is_url, _ = text.partition("://")
    if not is_url:
        if _LIKE_A_SERVER.match(text):  # a mistyped URL: as a path its password would be shown
            raise UsageError(f"{what}, 'postgresql...', is not a valid URL: {_EXAMPLES}.")
        return _file(text, folder)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the message must not contain the text, which may have a password
        raise UsageError(f"{what} is not a valid URL: {_EXAMPLES}.") from None
    dialect = scheme.lower()
    if dialect in _SQLITE:
        if not url.database or url.database == ":memory:":
            raise UsageError(f"{what} is in memory and would be lost with this process: {_EXAMPLES}.")
        if url.query or url.host:
            raise UsageError(f"{what} has options: write the path alone, such as sqlite:////path/store.db.")
        return _file(url.database, folder)
    if dialect in _POSTGRESQL:
        return _server(text, url, what)
    if dialect.startswith("postgresql+"):
        raise UsageError(f"{what} names the driver {scheme!r:.60}: {_EXAMPLES}.")
    raise UsageError(f"{what} is of the kind {scheme!r:.60}, and pyxfer supports SQLite and PostgreSQL: {_EXAMPLES}.")


def _file(text: str, folder: Path | None) -> StoreLocation:
    """The file; `folder`: that of the file that names it, from which a relative path begins."""
    path = Path(os.path.abspath(os.path.join(folder or "", os.path.expanduser(text))))
    return StoreLocation(repr(str(path)), path)


def _server(text: str, url: URL, what: str) -> StoreLocation:
    """Refuses a URL from which a part of the password would be shown."""
    if text.count("@") > 1 or (url.username is None and "@" in text):
        raise UsageError(
            f"{what}, 'postgresql...', has an @ besides the one before the server: write it as %40, such as "
            "postgresql+psycopg://user:pass%40word@server/database."
        )
    if any("password" in name.lower() for name in url.query):
        raise UsageError(
            f"{what} has a password after the question mark, where it would be shown: write "
            "postgresql+psycopg://user:password@server/database, or use a passfile (~/.pgpass)."
        )
    server = url.set(drivername="postgresql+psycopg")
    return StoreLocation(repr(server.render_as_string(hide_password=True)), url=server)


BUSY_S = 30.0
LOCK_MS = 30_000
# Parameters of libpq, unless the URL sets them.
_CONNECT = {
    "connect_timeout": "10",
    "application_name": "pyxfer",
    "client_encoding": "utf8",  # a database in SQL_ASCII would return bytes
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def _make_engine(location: StoreLocation, create: bool) -> Engine:
    if location.url is None:
        return _file_engine(location, location.path or Path(), create)
    unset = {name: value for name, value in _CONNECT.items() if name not in location.url.query}
    connect = {**unset, "prepare_threshold": None}  # a pooler may use another connection for each transaction
    try:
        return create_engine(location.url, pool_pre_ping=True, hide_parameters=True, connect_args=connect)
    except ImportError as error:
        raise StoreError(f"A store on PostgreSQL needs psycopg ({error}): {INSTALL['psycopg']}.") from error


def _file_engine(location: StoreLocation, path: Path, create: bool) -> Engine:
    if not _is_store(location, path):
        if not create:
            raise _missing(location)
        _create_file(location, path)
    # Without an isolation level Python begins no transactions itself; `Database.write` begins them.
    connect = {"timeout": BUSY_S, "isolation_level": None}
    engine = create_engine(URL.create("sqlite", database=str(path)), hide_parameters=True, connect_args=connect)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))
    return engine


def _is_store(location: StoreLocation, path: Path) -> bool:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a FIFO would be waited for
            raise OSError(errno.EINVAL, "not a regular file")
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            f"The store {location.shown} cannot be opened ({error.strerror}): check the path and its permissions."
        ) from error
    if header and not header.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{location.shown} is not a pyxfer store (not an SQLite file): {_NAME_ANOTHER}.")
    if header and header[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise StoreError(
            f"{location.shown} is not a pyxfer store (an SQLite file of another program): {_NAME_ANOTHER}."
        )
    return bool(header)


def _create_file(location: StoreLocation, path: Path) -> None:
    try:
        if location.is_default:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        remedy = "create its folder first" if isinstance(error, FileNotFoundError) else _NAME_ANOTHER
        raise StoreError(f"The store {location.shown} cannot be created ({error.strerror}): {remedy}.") from error


def check_location(location: StoreLocation) -> None:
    """Raise the error that `open_database` would raise. A file that does not exist is not created."""
    if location.path is None or location.path.exists():
        open_database(location, create=True).close()
    else:
        _create_file(location, location.path)
        location.path.unlink()


def _missing(location: StoreLocation) -> StoreError:
    return StoreError(
        f"The store {location.shown} does not exist yet: save something first, e.g. with pyxfer baseline save, or "
        f"{_NAME_ANOTHER}."
    )


def version_of(connection: Connection) -> int:
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    return connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0


def create_tables(connection: Connection) -> None:
    """Create the tables, unless another process has done so, in a transaction that has the write lock on SQLite."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    else:
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
    if version_of(connection) == 0:
        TABLES.create_all(connection, checkfirst=False)
        connection.execute(VERSIONS.insert(), {"version": VERSION, "made_at": now_text()})


# Drivers give no code when a connection fails, and SQLite none before Python 3.11.
_REMEDIES = {
    "locked": "another program uses it; end that program, or try again",
    "readonly|unable to open": f"check the permissions of the file and its folder, or {_NAME_ANOTHER}",
    "disk is full|disk i/o": f"free space on the disk, or {_NAME_ANOTHER} on another disk",
    "malformed|not a database": "the file is damaged; copy it, and recover its rows with: sqlite3 FILE .recover",
    "password": "check user and password, in the URL or in the passfile (~/.pgpass)",
    "permission denied": "grant this user the right, or name another user",
    'database ".*" does not exist': "create the database first, with: createdb NAME",
}
_UNREACHABLE = "check that the server runs, its name and port, and the network"
_MAX_CHARACTERS = 300
_PAUSE_S = 0.25
PATIENCE_S = 8.0  # a killed server restarts within a second or two
# The classes of SQLSTATE after which another attempt may succeed.
_NO_CONNECTION, _ROLLED_BACK, _STOPPING = "08", "40", "57P"


class Database:
    def __init__(self, location: StoreLocation, engine: Engine) -> None:
        self.location = location
        self._engine = engine
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        if not self._is_closed:
            self.engine.dispose()
        self._is_closed = True

    @property
    def engine(self) -> Engine:
        if self._is_closed:
            raise StoreError(f"The store {self.location.shown} is closed: open it again.")
        if os.getpid() != self._process:
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(self._explain(error)) from error

    def write(self, what: str, work: Callable[[Connection], T], *, is_creation: bool = False) -> T:
        """Run `work` in a transaction, and repeat it if the server was lost.

        The commit may have succeeded although the server was lost, so `work` must look for its rows before it adds
        them.
        """
        deadline, lost = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                with self.engine.connect() as connection, connection.begin():
                    self._lock(connection, is_creation)
                    return work(connection)
            except DBAPIError as error:
                lost = lost or error.connection_invalidated
                if not self._can_retry(error, lost) or time.monotonic() > deadline:
                    unsure = "may or may not have been saved, and saving it again is safe"
                    raise StoreError(f"{what} {unsure if lost else 'was not saved'}: {self._explain(error)}") from error
            time.sleep(_PAUSE_S)

    def _lock(self, connection: Connection, is_creation: bool) -> None:
        """Wait for other writers on SQLite and for new tables on PostgreSQL, and check the version again."""
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif not is_creation:
            connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_MS}"))
            connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": LOCK})
        if not is_creation:
            self.check_version(connection.execute(select(func.max(VERSIONS.c.version))).scalar() or 0)

    def check_version(self, version: int) -> None:
        if version > VERSION:
            raise StoreError(
                f"The store {self.location.shown} has version {version}, and this pyxfer knows versions up to "
                f"{VERSION}: upgrade pyxfer."
            )

    def _can_retry(self, error: DBAPIError, lost: bool) -> bool:
        """Whether another attempt may succeed: the server restarts, or has rolled the transaction back."""
        if isinstance(error, IntegrityError):
            return lost  # the earlier attempt was committed
        if self.location.url is None or not isinstance(error, (InterfaceError, OperationalError)):
            return False
        state = getattr(error.orig, "sqlstate", None) or _NO_CONNECTION  # None if no server has answered
        return str(state).startswith((_NO_CONNECTION, _ROLLED_BACK, _STOPPING))

    def _explain(self, error: DBAPIError) -> str:
        """The database's own message with a remedy; SQLAlchemy's would repeat the values that were to be stored."""
        words = " ".join(str(error.orig).split())[:_MAX_CHARACTERS]
        remedy = next((remedy for said, remedy in _REMEDIES.items() if re.search(said, words, re.IGNORECASE)), "")
        if not remedy and self._can_retry(error, lost=False):
            remedy = _UNREACHABLE
        return f"The store {self.location.shown} failed ({words})" + (f": {remedy}." if remedy else ".")


def open_database(location: StoreLocation, *, create: bool) -> Database:
    database = Database(location, _make_engine(location, create))
    try:
        with database.reading() as connection:
            version = version_of(connection)
        database.check_version(version)
        if version == 0 and not create:
            raise _missing(location)
        if version == 0:
            database.write("The schema of the store", create_tables, is_creation=True)
    except BaseException:
        database.close()
        raise
    return database
