"""What was measured in a run as rows: written with the run, and by the step that made their tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from pyxfer.baselines.cells import cell_of
from pyxfer.errors import StoreError
from pyxfer.model import Measurement, Run
from pyxfer.model_baselines import Cell

from .packing import unpack_run
from .step_1 import DOCUMENTS, RUNS
from .step_2 import CELLS, MEASURED

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
