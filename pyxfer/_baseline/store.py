"""The store: runs and baselines of one host or of many, appended and never rewritten."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, func, select

from pyxfer._baseline import store_schema
from pyxfer._baseline.cells import RAW, CellPattern, cell_text, is_raw, parse_cell
from pyxfer._baseline.store_database import Database, find_place, open_database
from pyxfer._baseline.store_schema import BASELINE_RUNS, BASELINES, CELLS, DOCUMENTS, MEASURED, RUNS
from pyxfer._document.baselines import (
    Baseline,
    Cell,
    Fingerprint,
    History,
    HistoryGroup,
    HistoryPoint,
    KeptBaseline,
    StoredRun,
)
from pyxfer._document.runs import Fact, Remark, Run
from pyxfer.errors import StoreError, UsageError

AnyRow = Any  # a row of a result

MOST_POINTS = 10_000
_MOST_CELLS = 200
_MOST_NAMED = 3
_NEWEST_RUNS = 20
_JITTER_S = 2.0  # runs that are stored at the same moment may be stored in either order

_KEPT = BASELINES.c.removed_at.is_(None)
_CELL_COLUMNS = tuple(CELLS.c[name] for name in Cell.__struct_fields__)
_WHOLE_RUN = select(RUNS.c.id, RUNS.c.stored_at, RUNS.c.labels, RUNS.c.sha256, DOCUMENTS.c.document).join(
    DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq
)


class Store:
    """Runs and baselines in one database; `open_store` makes it. It is for one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._database.close()

    @property
    def shown(self) -> str:
        """Where it is, without a password."""
        return self._database.place.shown

    def add_run(self, run: Run, labels: Mapping[str, str] = {}) -> str:
        """Append a run; its id. A run that is stored with the same labels is not stored again.

        Raises:
            StoreError: it was not stored, or the server was lost and it may have been; the text says which.

        """
        new = store_schema.new_run(run, labels)
        return self._database.write(
            f"the run {new.row['id']}", lambda connection: store_schema.add_run(connection, new)
        )

    def run(self, run_id: str) -> StoredRun:
        """The run with this id, as it was stored."""
        with self._database.reading() as connection:
            row = connection.execute(_WHOLE_RUN.where(RUNS.c.id == run_id)).first()
        if row is None:
            raise StoreError(
                f"the store {self.shown} has no run {run_id!r:.60}; pyxfer history shows those that it has"
            )
        return _stored_run(row)

    def newest_raw_runs(self, host: str) -> list[StoredRun]:
        """Of every GPU of a host the newest run that has raw copies."""
        raw = select(CELLS.c.id).where(CELLS.c.route.startswith(f"{RAW}.", autoescape=True))
        newest = select(func.max(MEASURED.c.run)).join(RUNS, RUNS.c.seq == MEASURED.c.run).group_by(RUNS.c.gpu)
        newest = newest.where(MEASURED.c.host == host, MEASURED.c.cell.in_(raw), RUNS.c.gpu.is_not(None))
        runs = _WHOLE_RUN.where(RUNS.c.seq.in_(newest.scalar_subquery())).order_by(RUNS.c.gpu)
        with self._database.reading() as connection:
            return [_stored_run(row) for row in connection.execute(runs)]

    def add_baseline(self, baseline: Baseline) -> str:
        """Append a baseline and its runs, all or nothing; its id. It becomes the current one of its name and machine.

        If the current one is the same in everything, nothing is stored.

        Raises:
            StoreError: it was not stored, or the server was lost and it may have been; the text says which.

        """
        row, runs = store_schema.new_baseline(baseline)
        what = f"the baseline {baseline.name!r:.80}"
        return self._database.write(what, lambda connection: store_schema.add_baseline(connection, row, runs))

    def baseline(self, name: str, identity: str) -> Baseline | None:
        """The current baseline of this name on the machine with this identity, or None."""
        store_schema.check_asked(name=name)
        found = select(BASELINES).where(BASELINES.c.identity == identity, BASELINES.c.name == name, _KEPT)
        with self._database.reading() as connection:
            return _whole_baseline(connection, found.order_by(BASELINES.c.seq.desc()).limit(1))

    def baseline_of_id(self, baseline_id: str) -> Baseline:
        """The baseline with this id, also if it is not the current one."""
        with self._database.reading() as connection:
            found = _whole_baseline(connection, select(BASELINES).where(BASELINES.c.id == baseline_id, _KEPT))
        if found is None:
            raise StoreError(
                f"the store {self.shown} has no baseline {baseline_id!r:.60}; pyxfer baseline list shows all"
            )
        return found

    def baselines(self, host: str | None = None) -> list[KeptBaseline]:
        """The current baselines of all hosts, or of one, by host and name."""
        store_schema.check_asked(host=host)
        counted = select(func.max(BASELINES.c.seq).label("seq"), func.count().label("count")).where(_KEPT)
        if host is not None:
            counted = counted.where(BASELINES.c.host == host)
        newest = counted.group_by(BASELINES.c.identity, BASELINES.c.name).subquery()
        with self._database.reading() as connection:
            found = select(BASELINES, newest.c.count.label("saves")).join(newest, newest.c.seq == BASELINES.c.seq)
            rows = connection.execute(found).all()
            runs = _run_ids(connection, select(newest.c.seq))
        kept = [_kept_baseline(row, runs.get(row.seq, ())) for row in rows]
        return sorted(kept, key=lambda each: (each.fingerprint.host, each.name, each.fingerprint.gpu.value or ""))

    def remove_baseline(self, name: str, identity: str) -> int:
        """Remove the baselines of this name on one machine; how many they were. Their runs stay."""
        return self._remove(repr(name)[:80], BASELINES.c.identity == identity, BASELINES.c.name == name)

    def remove_baseline_of_id(self, baseline_id: str) -> bool:
        """Remove this one alone; whether it was there. The one before it becomes the current one."""
        return self._remove(baseline_id, BASELINES.c.id == baseline_id) > 0

    def _remove(self, what: str, *which: ColumnElement[bool]) -> int:
        removed_at = store_schema.now_text()  # of every attempt: a second one counts what the first has removed

        def remove(connection: Connection) -> int:
            connection.execute(BASELINES.update().where(*which, _KEPT).values(removed_at=removed_at))
            removed = select(func.count()).where(*which, BASELINES.c.removed_at == removed_at)
            return connection.execute(removed).scalar() or 0

        return self._database.write(f"the removal of {what}", remove)

    def history(
        self,
        cell: str | None = None,
        *,
        host: str | None = None,
        since: str | None = None,
        limit: int = MOST_POINTS,
    ) -> History:
        """What was measured over time: one group for each machine and cell, the oldest first.

        `cell` is text such as `h2d:pinned:256MiB`; without one it is pinned memory at the largest size of the newest
        run. `since` is `30d`, `12h` or a date. If there are more points than the limit, the newest are taken, and a
        remark says so.
        """
        store_schema.check_asked(cell=cell, host=host, since=since)
        pattern = None if cell is None else parse_cell(cell)
        since_s = None if since is None else store_schema.parse_since(since)
        asked = _Asked(pattern, cell, host, since_s, limit)
        with self._database.reading() as connection:
            return _history(connection, asked)

    def same_baseline(self, baseline: Baseline) -> str | None:
        """The id of a baseline that is the same in everything, if the store has one."""
        same = select(BASELINES.c.id).where(BASELINES.c.sha256 == store_schema.digest_of(baseline), _KEPT)
        with self._database.reading() as connection:
            return connection.execute(same.limit(1)).scalar()


def open_store(url: str | os.PathLike[str] | None = None, *, create: bool = True) -> Store:
    """The store at a URL or path; without one that of `PYXFER_STORE`, else the one in the user's data directory.

    Raises:
        StoreError: it is not a store, cannot be reached, or comes from a later pyxfer.

    """
    return Store(open_database(find_place(url), create=create))


def _stored_run(row: AnyRow) -> StoredRun:
    run = store_schema.decode_run(row.id, store_schema.unpack(row.id, row.sha256, row.document))
    try:
        labels = json.loads(row.labels)
    except ValueError as error:
        raise StoreError(f"the labels of the run {row.id} in the store are damaged: {error}") from error
    return StoredRun(row.id, row.stored_at, labels, run)


def _whole_baseline(connection: Connection, asked: Select[Any]) -> Baseline | None:
    row = connection.execute(asked).first()
    if row is None:
        return None
    fingerprint, labels = _decoded(row)
    joined = select(RUNS.c.id, RUNS.c.sha256, DOCUMENTS.c.document).join(DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq)
    joined = joined.join(BASELINE_RUNS, BASELINE_RUNS.c.run == RUNS.c.seq).order_by(BASELINE_RUNS.c.place)
    runs = connection.execute(joined.where(BASELINE_RUNS.c.baseline == row.seq)).all()
    stored = [store_schema.unpack(each.id, each.sha256, each.document) for each in runs]
    digest = store_schema.digest_of_parts(row.name, row.fingerprint, row.made_at, labels, stored)
    if not stored or (len(row.sha256) == len(digest) and row.sha256 != digest):
        raise _damaged(row, "it differs from what was stored")
    decoded = tuple(store_schema.decode_run(each.id, data) for each, data in zip(runs, stored, strict=True))
    return Baseline(name=row.name, fingerprint=fingerprint, made_at=row.made_at, labels=labels, runs=decoded)


def _kept_baseline(row: AnyRow, run_ids: tuple[str, ...]) -> KeptBaseline:
    fingerprint, labels = _decoded(row)
    moments = row.made_at, row.stored_at
    return KeptBaseline(row.id, row.name, row.identity, fingerprint, *moments, labels, run_ids, row.saves - 1)


def _run_ids(connection: Connection, baselines: Select[Any]) -> dict[int, tuple[str, ...]]:
    asked = select(BASELINE_RUNS.c.baseline, RUNS.c.id).join(RUNS, RUNS.c.seq == BASELINE_RUNS.c.run)
    asked = asked.where(BASELINE_RUNS.c.baseline.in_(baselines))
    found: dict[int, tuple[str, ...]] = {}
    for seq, run_id in connection.execute(asked.order_by(BASELINE_RUNS.c.baseline, BASELINE_RUNS.c.place)):
        found[seq] = (*found.get(seq, ()), run_id)
    return found


def _decoded(row: AnyRow) -> tuple[Fingerprint, dict[str, str]]:
    try:
        return msgspec.json.decode(row.fingerprint, type=Fingerprint), json.loads(row.labels)
    except ValueError as error:
        raise _damaged(row, str(error)) from error


def _damaged(row: AnyRow, why: str) -> StoreError:
    return StoreError(
        f"the baseline {row.id} ({row.name!r:.80} of {row.host!r:.80}) in the store is damaged: {why}. Take the store "
        f"from a backup, or remove it in Python with pyxfer.open_store().remove_baseline_of_id({row.id!r})"
    )


@dataclass(frozen=True)
class _Asked:
    """Which cells (those that fit the pattern, or the usual ones), of which host, since when, and how many points."""

    pattern: CellPattern | None
    text: str | None
    host: str | None
    since_s: float | None
    limit: int


def _history(connection: Connection, asked: _Asked) -> History:
    cells = _usual_cells(connection, asked.host) if asked.pattern is None else _matching_cells(connection, asked)
    most = max(1, asked.limit // max(1, len(cells)))
    groups: list[HistoryGroup] = []
    remarks: list[Remark] = []
    for number, cell in cells.items():
        rows = connection.execute(_points(number, asked, most + 1)).all()
        groups.extend(_groups(cell, rows[:most]))
        if len(rows) > most and not remarks:
            text = f"there is more than the newest {asked.limit} points that are shown here"
            remarks.append(Remark("limit", text, "name a host, a cell or a later time: --host, --cell, --since"))
    groups.sort(key=lambda group: (group.host, group.gpu.value or "", group.cell, group.worker or ""))
    if not groups:
        remarks.append(Remark("nothing", _nothing(connection, asked)))
    return History(tuple(groups), (*_same_names(groups), *remarks))


def _matching_cells(connection: Connection, asked: _Asked) -> dict[int, Cell]:
    every = _cells(connection, select(CELLS.c.id, *_CELL_COLUMNS))
    cells = {number: cell for number, cell in every.items() if asked.pattern and asked.pattern.matches(cell)}
    if len(cells) > _MOST_CELLS:
        raise UsageError(
            f"--cell {asked.text!r:.80} names {len(cells)} cells, and {_MOST_CELLS} are shown; name its memory and size"
        )
    return cells


def _usual_cells(connection: Connection, host: str | None) -> dict[int, Cell]:
    """Pinned memory in each direction at the largest size of the newest run that has any; else one cell of a run."""
    has_cells = select(MEASURED.c.run).where(MEASURED.c.run == RUNS.c.seq).exists()
    newest = select(RUNS.c.seq).where(has_cells).order_by(RUNS.c.seq.desc()).limit(_NEWEST_RUNS)
    of_run = select(CELLS.c.id, *_CELL_COLUMNS).join(MEASURED, MEASURED.c.cell == CELLS.c.id).order_by(MEASURED.c.place)
    for run in connection.execute(newest if host is None else newest.where(RUNS.c.host == host)).scalars().all():
        cells = _cells(connection, of_run.where(MEASURED.c.run == run))
        pinned = {number: cell for number, cell in cells.items() if _is_usual(cell)}
        largest = max((cell.nbytes for cell in pinned.values()), default=0)
        return {number: cell for number, cell in pinned.items() if cell.nbytes == largest} or dict([*cells.items()][:1])
    return {}


def _cells(connection: Connection, asked: Select[Any]) -> dict[int, Cell]:
    cells: dict[int, Cell] = {}
    for number, *fields in connection.execute(asked):
        try:
            cells[number] = msgspec.convert(dict(zip(Cell.__struct_fields__, fields, strict=True)), Cell)
        except msgspec.ValidationError as error:
            raise StoreError(f"the cell {number} in the store is damaged: {error}; use a backup") from error
    return cells


def _is_usual(cell: Cell) -> bool:
    one_way = cell.side == cell.direction and cell.direction in ("h2d", "d2h")
    return is_raw(cell) and one_way and cell.memory == "pinned" and cell.mode == "async" and cell.variant == "warm"


def _points(cell: int, asked: _Asked, most: int) -> Select[Any]:
    columns = (MEASURED.c[name] for name in ("host", "worker", "gbps", "low_gbps", "high_gbps", "median_s", "run"))
    newest = select(MEASURED.c.taken_s, *columns).where(MEASURED.c.cell == cell)
    if asked.host is not None:
        newest = newest.where(MEASURED.c.host == asked.host)
    if asked.since_s is not None:
        newest = newest.where(MEASURED.c.taken_s >= asked.since_s)
    some = newest.order_by(MEASURED.c.taken_s.desc()).limit(most).subquery()
    of_run = (RUNS.c.seq, RUNS.c.id, RUNS.c.gpu, RUNS.c.device, RUNS.c.runtime, RUNS.c.taken_at, RUNS.c.stored_s)
    return select(some, *of_run).join(RUNS, RUNS.c.seq == some.c.run).order_by(some.c.taken_s.desc())


def _groups(cell: Cell, rows: Iterable[AnyRow]) -> list[HistoryGroup]:
    together: dict[tuple[str | None, ...], list[AnyRow]] = {}
    for row in rows:
        # Drivers have renamed devices, so the name counts only if there is no UUID.
        device = None if row.gpu is not None else row.device
        together.setdefault((row.host, row.runtime, row.gpu, device, row.worker), []).append(row)
    return [_group(cell, members) for members in together.values()]


def _group(cell: Cell, rows: list[AnyRow]) -> HistoryGroup:
    remarks = _put_in_order(rows)
    median_gbps = statistics.median(row.gbps for row in rows)
    newest = rows[-1]
    return HistoryGroup(
        host=newest.host,
        runtime="host" if newest.runtime == "host" else "cuda",
        device=newest.device,
        gpu=Fact(newest.gpu) if newest.gpu is not None else Fact(reason="its runs name no UUID"),
        cell=cell,
        cell_text=cell_text(cell),
        worker=newest.worker,
        median_gbps=median_gbps,
        points=tuple(_point(row, median_gbps) for row in rows),
        remarks=remarks,
    )


def _point(row: AnyRow, median_gbps: float) -> HistoryPoint:
    change = row.gbps / median_gbps if median_gbps else 1.0
    return HistoryPoint(row.id, row.taken_at, row.gbps, row.low_gbps, row.high_gbps, row.median_s, change)


def _put_in_order(rows: list[AnyRow]) -> tuple[Remark, ...]:
    """By the time of the measurement, unless the host's clock went back; then in the order in which they were stored.

    The clock went back if a run was stored later with an earlier reading, or stored before it was taken.
    """
    rows.sort(key=lambda row: (row.seq, row.run))
    went_back = any(later.stored_s < earlier.stored_s - _JITTER_S for earlier, later in pairwise(rows))
    if went_back or any(row.stored_s < row.taken_s - _JITTER_S for row in rows):
        text = (
            "this host's clock has gone back: these are in the order in which they were stored, and not by their times"
        )
        return (Remark("clock", text, "keep it right with NTP or chrony"),)
    rows.sort(key=lambda row: (row.taken_s, row.seq))
    return ()


def _same_names(groups: Sequence[HistoryGroup]) -> list[Remark]:
    gpus: dict[str, set[str | None]] = {}
    for group in groups:
        gpus.setdefault(group.host, set()).add(group.gpu.value)
    several = [repr(host) for host, found in gpus.items() if len(found) > 1]
    rest = f" and {len(several) - _MOST_NAMED} more" if len(several) > _MOST_NAMED else ""
    named = ", ".join(several[:_MOST_NAMED]) + rest
    text = f"under the host name {named} there is more than one GPU; each is a group of its own"
    return [Remark("same-name", text)] if several else []


def _nothing(connection: Connection, asked: _Asked) -> str:
    runs = connection.execute(select(func.count()).select_from(RUNS)).scalar() or 0
    if not runs:
        return "the store has no run yet; pyxfer baseline save stores some"
    if connection.execute(select(MEASURED.c.run).limit(1)).first() is None:
        what = "1 run, with nothing measured in it" if runs == 1 else f"{runs} runs, with nothing measured in them"
        return f"the store has {what}; pyxfer baseline save stores some"
    words = [f"{what} {value!r:.80}" for what, value in (("the cell", asked.text), ("the host", asked.host)) if value]
    words += [] if asked.since_s is None else ["since then"]
    return "nothing is stored of that" + (f" ({', '.join(words)})" if words else "")
