"""The steps from an empty database to the tables of today, in one transaction and one process at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, func, inspect, select, text

from pyxfer.errors import StoreError

from . import step_1, step_2
from .limits import now_text
from .sqlite_files import APPLICATION_ID

STEPS: tuple[Callable[[Connection], None], ...] = (step_1.upgrade, step_2.upgrade)
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
