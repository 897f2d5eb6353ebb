"""A store in a file: told apart from other files before SQLite touches it, made for its user alone, kept safely."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from pyxfer.errors import StoreError

from .urls import Place

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
