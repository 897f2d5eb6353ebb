"""Runs as they were stored."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select

from pyxfer.baselines.cells import RAW
from pyxfer.model_store import StoredRun

from .packing import labels_from_text, unpack_run
from .tables import CELLS, DOCUMENTS, MEASURED, RUNS

_WHOLE = select(RUNS.c.id, RUNS.c.stored_at, RUNS.c.labels, RUNS.c.sha256, DOCUMENTS.c.document).join(
    DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq
)


def of_id(connection: Connection, run_id: str) -> StoredRun | None:
    """The one with this id."""
    row = connection.execute(_WHOLE.where(RUNS.c.id == run_id)).first()
    return None if row is None else _stored(row)


def newest_raw(connection: Connection, host: str) -> list[StoredRun]:
    """The newest with raw copies, of each GPU."""
    raw = select(CELLS.c.id).where(CELLS.c.route.startswith(f"{RAW}.", autoescape=True))
    of_host = select(func.max(MEASURED.c.run)).join(RUNS, RUNS.c.seq == MEASURED.c.run)
    of_host = of_host.where(MEASURED.c.host == host, MEASURED.c.cell.in_(raw), RUNS.c.gpu.is_not(None))
    newest = of_host.group_by(RUNS.c.gpu).scalar_subquery()
    rows = connection.execute(_WHOLE.where(RUNS.c.seq.in_(newest)).order_by(RUNS.c.gpu))
    return [_stored(row) for row in rows]


def _stored(row: Any) -> StoredRun:
    run = unpack_run(row.id, row.sha256, row.document)
    return StoredRun(row.id, row.stored_at, labels_from_text(row.labels), run)
