"""One database: transactions that happen once or not at all, and what is said where that cannot be known."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, func, select, text
from sqlalchemy.engine import Transaction
from sqlalchemy.exc import DBAPIError

from pyxfer.errors import StoreDoubtError, StoreError

from . import migrations, troubles
from .postgresql_server import LOCK_MS
from .sqlite_files import SqliteFile
from .urls import Place

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
                if not (troubles.may_pass(error) and attempts.pause()):
                    raise StoreError(troubles.explain(error, self.place)) from error

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
                in_doubt = in_doubt or (committing and troubles.leaves_doubt(error))
                again = troubles.may_pass(error) or (in_doubt and troubles.is_duplicate(error))
                if not (again and attempts.pause()):
                    self._give_up(what, error, in_doubt, is_there)
                    return

    def migrate(self, version: int) -> None:
        """Bring the tables to the newest version; done twice, or by several at once, it does no harm."""
        what = f"version {migrations.NEWEST} of its tables, which are of version {version}, cannot be made"
        self.check_writable(what)
        attempts = _Attempts(patiently=True)
        while True:
            try:
                with self._transaction() as (connection, transaction):
                    migrations.migrate(connection)
                    transaction.commit()
                return
            except DBAPIError as error:
                if not (troubles.may_pass(error) and attempts.pause()):
                    raise StoreError(f"{troubles.explain(error, self.place)}; {what}") from error

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
            connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": migrations.LOCK})
        version = connection.execute(select(func.max(migrations.VERSIONS.c.version))).scalar() or 0
        migrations.check_version(version, self.place.shown)

    def _give_up(self, what: str, error: DBAPIError, in_doubt: bool, is_there: Work[bool]) -> None:
        """Say that it is not stored, or that nobody knows; return where it is stored after all."""
        why = troubles.explain(error, self.place)
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
