"""Version 1 of a store's tables: runs and their documents, baselines, and which runs a baseline is made of.

What was once released is not changed any more: a later version has a step of its own.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Double, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

from .columns import AnyText, Number

METADATA = MetaData()

RUNS = Table(
    "pyxfer_runs",
    METADATA,
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
    METADATA,
    Column("run", Number, ForeignKey(RUNS.c.seq), primary_key=True, autoincrement=False),
    Column("document", LargeBinary, nullable=False),
)

BASELINES = Table(
    "pyxfer_baselines",
    METADATA,
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
    METADATA,
    Column("baseline", Number, ForeignKey(BASELINES.c.seq), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("run", Number, ForeignKey(RUNS.c.seq), nullable=False),
)


def upgrade(connection: Connection) -> None:
    """Make the tables."""
    METADATA.create_all(connection, checkfirst=False)
