"""The rows of runs and baselines, and of their measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, func, select
from sqlalchemy.dialects import postgresql, sqlite

from pyxfer._baseline.figures import Figure, figures_of
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.store_tables import (
    BASELINE_RUNS,
    BASELINES,
    CELLS,
    DOCUMENTS,
    MEASURED,
    RUNS,
    Row,
    add_once,
    check_labels,
    check_name,
    decode_stored,
    insert,
    new_id,
    now_text,
    pack,
    seconds_of,
    sha256_of,
    unpack,
)
from pyxfer._document import codec
from pyxfer._document.baselines import AnyRun, Baseline
from pyxfer._document.cells import Cell
from pyxfer._document.codec import to_bare_json, to_sealed_json
from pyxfer._document.links import Links
from pyxfer._document.runs import Run
from pyxfer.errors import UsageError


@dataclass(frozen=True)
class NewRun:
    """A run with its row and its compressed document."""

    row: Row
    run: AnyRun
    document: bytes


def new_run(run: AnyRun, labels: Mapping[str, str]) -> NewRun:
    check_run(run)
    check_labels(labels)
    packed = pack(to_sealed_json(run))
    now = now_text()
    fingerprint = fingerprint_of(run)
    row = {
        "id": new_id("r"),
        "stored_at": now,
        "stored_s": seconds_of(now),
        "taken_at": run.environment.taken_at,
        "taken_s": seconds_of(run.environment.taken_at),
        "host": run.environment.host,
        "gpu": fingerprint.gpu.value,
        "device": fingerprint.device,
        "runtime": run.runtime,
        "identity": identity(fingerprint),
        "labels": json.dumps(dict(labels)),
        "sha256": packed["sha256"],
    }
    return NewRun(row, run, packed["document"])


def new_baseline(baseline: Baseline) -> tuple[Row, list[NewRun]]:
    check_baseline(baseline)
    row = {
        "id": new_id("b"),
        "name": baseline.name,
        "identity": identity(baseline.fingerprint),
        "host": baseline.fingerprint.host,
        "fingerprint": to_bare_json(baseline.fingerprint).decode(),
        "made_at": baseline.made_at,
        "stored_at": now_text(),
        "labels": json.dumps(baseline.labels),
        "sha256": digest_of(baseline),
    }
    return row, [new_run(run, {}) for run in baseline.processes]


def add_run(connection: Connection, new: NewRun) -> str:
    """Store a run, unless it is already stored with the same labels, and return its id."""
    run_id, seq = add_once(connection, RUNS, new.row, "sha256", "labels")
    if seq is not None:
        _insert_contents(connection, seq, new)
    return run_id


def add_baseline(connection: Connection, row: Row, runs: Sequence[NewRun]) -> str:
    """Store a baseline and its new runs, unless the same baseline is the current one, and return its id."""
    of_name = BASELINES.c.identity == row["identity"], BASELINES.c.name == row["name"], BASELINES.c.removed_at.is_(None)
    newest = select(func.max(BASELINES.c.seq)).where(*of_name).scalar_subquery()
    is_current = (BASELINES.c.seq == newest) & (BASELINES.c.sha256 == row["sha256"])
    known = connection.execute(select(BASELINES.c.id).where(sa.or_(BASELINES.c.id == row["id"], is_current))).scalar()
    if known is not None:
        return str(known)
    seq = insert(connection, BASELINES, row)
    for place, run in enumerate(runs):
        stored = connection.execute(select(func.min(RUNS.c.seq)).where(RUNS.c.sha256 == run.row["sha256"])).scalar()
        number = _insert_run(connection, run) if stored is None else stored
        connection.execute(BASELINE_RUNS.insert().values(baseline=seq, place=place, run=number))
    return str(row["id"])


def _insert_run(connection: Connection, new: NewRun) -> int:
    seq = insert(connection, RUNS, new.row)
    _insert_contents(connection, seq, new)
    return seq


def _insert_contents(connection: Connection, seq: int, new: NewRun) -> None:
    connection.execute(DOCUMENTS.insert().values(run=seq, document=new.document))
    _insert_measured(connection, seq, new.run, new.row["taken_s"])


def _insert_measured(connection: Connection, seq: int, run: AnyRun, taken_s: float) -> None:
    known = [(place, figure) for place, figure in enumerate(figures_of(run)) if _has_rate(figure)]
    if not known:
        return
    cells = _cell_ids(connection, {figure.cell for _, figure in known})
    of_run = {"run": seq, "host": run.environment.host, "taken_s": taken_s}
    rows = [{**of_run, "place": place, "cell": cells[figure.cell], **_columns(figure)} for place, figure in known]
    connection.execute(MEASURED.insert(), rows)


def _has_rate(figure: Figure) -> bool:
    return bool(figure.seconds and figure.gbps and figure.gbps > 0) and not figure.wrong


def _columns(figure: Figure) -> Row:
    low, high = (figure.rate.low_gbps, figure.rate.high_gbps) if figure.rate else (None, None)
    ends = {"low_gbps": low, "high_gbps": high}
    return {"worker": figure.worker, "gbps": figure.gbps, **ends, "median_s": figure.seconds}


def _cell_ids(connection: Connection, cells: set[Cell]) -> dict[Cell, int]:
    """The number of each cell. Another process may add the same cells at the same time."""
    keys = {_key(cell): cell for cell in cells}
    numbers = _numbers(connection)
    missing = sorted(keys.keys() - numbers.keys())  # in one order, so that two processes cannot deadlock
    if missing:
        new = [{"key": key, **_cell_row(keys[key])} for key in missing]
        insert_some = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        connection.execute(insert_some(CELLS).on_conflict_do_nothing(), new)
        numbers = _numbers(connection)
    return {cell: numbers[key] for key, cell in keys.items()}


def _numbers(connection: Connection) -> dict[str, int]:
    return {row.key: row.id for row in connection.execute(select(CELLS.c.key, CELLS.c.id))}


def _key(cell: Cell) -> str:
    return sha256_of(to_bare_json(_cell_row(cell)))


def _cell_row(cell: Cell) -> Row:
    ends = {"source": json.dumps(cell.source), "destination": json.dumps(cell.destination)}
    return {**msgspec.structs.asdict(cell), **ends}


def read_cell(columns: Sequence[Any]) -> Cell:
    """A cell from the columns with the names of its fields."""
    fields = dict(zip(Cell.__struct_fields__, columns, strict=True))
    ends = {name: tuple(json.loads(fields[name])) for name in ("source", "destination")}
    return Cell(**{**fields, **ends})


def read_run(run_id: str, sha256: str, packed: bytes) -> AnyRun:
    """A stored run."""
    what = f"the run {run_id} in the store"
    data = unpack(what, sha256, packed)
    kind: type[AnyRun] = Links if codec.kind_of(data) is codec.LINKS else Run
    return decode_stored(kind, data, what)


def digest_of(baseline: Baseline) -> str:
    """The digest by which the store recognises the same baseline."""
    fingerprint = to_bare_json(baseline.fingerprint).decode()
    runs = [sha256_of(to_sealed_json(run)) for run in baseline.processes]
    return digest_of_parts(baseline.name, fingerprint, baseline.made_at, baseline.labels, runs)


def digest_of_parts(name: str, fingerprint: str, made_at: str, labels: dict[str, str], runs: Sequence[str]) -> str:
    """The digest of a row and the digests of its runs."""
    return sha256_of(to_bare_json([name, fingerprint, made_at, labels, runs]))


def check_run(run: AnyRun) -> None:
    if not isinstance(run, (Run, Links)):
        raise UsageError(f"expected a run, such as pyxfer.Run.load returns, and got a {type(run).__name__}")
    seconds_of(run.environment.taken_at)


def check_baseline(baseline: Baseline) -> None:
    """Refuse a baseline without runs, or with a name, labels or a time that cannot be stored."""
    if not isinstance(baseline, Baseline):
        kind = type(baseline).__name__
        raise UsageError(f"expected a baseline, such as pyxfer.Baseline.load returns, and got a {kind}")
    check_name(baseline.name)
    check_labels(baseline.labels)
    if not baseline.processes:
        raise UsageError("a baseline has one run or more, and this one has none")
    seconds_of(baseline.made_at)
