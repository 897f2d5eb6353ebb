"""Version 2 of a store's tables: what was measured, one row a measurement, so that a history reads no documents."""

from __future__ import annotations

from sqlalchemy import Column, Connection, Double, ForeignKey, Index, Integer, MetaData, Table, Text

from .columns import AnyText, Number
from .step_1 import RUNS

METADATA = MetaData()

CELLS = Table(
    "pyxfer_cells",
    METADATA,
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
    METADATA,
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


def upgrade(connection: Connection) -> None:
    """Make the tables, and fill them from the documents that are there."""
    from .filling import fill_from_documents  # which needs the tables above

    METADATA.create_all(connection, checkfirst=False)
    fill_from_documents(connection)
