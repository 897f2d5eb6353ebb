"""The store: runs and baselines of one host or many, which are appended and never changed."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, func, select

from pyxfer._baseline import store_rows, store_tables
from pyxfer._baseline.changes import MAX_CORRELATION, MIN_HISTORY, Changes, find_changes
from pyxfer._baseline.store_database import Database, check_location, find_location, open_database
from pyxfer._baseline.store_rows import KeptReport, StoredReport
from pyxfer._baseline.store_tables import (
    BASELINE_RUNS,
    BASELINES,
    CELLS,
    DOCUMENTS,
    HOST_REPORTS,
    MEASURED,
    RUNS,
)
from pyxfer._document import baselines as documents
from pyxfer._document.baselines import AnyRun, Baseline, KeptBaseline, StoredRun
from pyxfer._document.cells import Cell, CellPattern, parse_cell
from pyxfer._document.fleets import HostReport
from pyxfer._document.machines import Fact, Remark
from pyxfer._document.printing import ShortRepr
from pyxfer.errors import StoreError, UsageError
from pyxfer.units import first_of

AnyRow = Any  # a row of a query's result

MAX_POINTS = 10_000
_MAX_CELLS = 200
_MAX_NAMED = 3
_NEWEST_RUNS = 20
_REPORTS_AT_ONCE = 100
_JITTER_S = 2.0  # runs that are saved at the same time may be stored in either order

_KEPT = BASELINES.c.removed_at.is_(None)
_WHOLE_RUN = select(RUNS.c.id, RUNS.c.stored_at, RUNS.c.labels, RUNS.c.sha256, DOCUMENTS.c.document).join(
    DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq
)


class Store(ShortRepr):
    """Runs and baselines in one database, opened by `open_store`; not for several threads at once.

    Methods that add something raise a StoreError if it was not stored, or if the server was lost and it is not known
    whether it was. Methods that read something by its id raise one if there is none, or if it has changed since.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Store:
        return self

    def _summary(self) -> str:
        return self.shown

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()

    @property
    def shown(self) -> str:
        """The path or URL of the store, without a password."""
        return self._database.location.shown

    def add_run(self, run: AnyRun, labels: Mapping[str, str] = {}) -> str:
        """Append a run, also of links, and return its id.

        A run that is already stored with the same labels is not stored again.
        """
        new = store_rows.new_run(run, labels)
        return self._database.write(f"The run {new.row['id']}", lambda connection: store_rows.add_run(connection, new))

    def run(self, run_id: str) -> StoredRun:
        """The run with this id, as it was stored."""
        with self._database.reading() as connection:
            row = connection.execute(_WHOLE_RUN.where(RUNS.c.id == run_id)).first()
        if row is None:
            raise StoreError(f"The store {self.shown} has no run {run_id!r:.60}: see pyxfer history.")
        return _stored_run(row)

    def newest_raw_runs(self, host: str) -> list[StoredRun]:
        """The newest run with raw copies of each GPU of a host."""
        return self._newest_runs(host, CELLS.c.group == "raw")

    def newest_blocks_runs(self, host: str) -> list[StoredRun]:
        """The newest run of `pyxfer blocks` of each GPU of a host."""
        return self._newest_runs(host, CELLS.c.group == "blocks")

    def _newest_runs(self, host: str, of_cell: ColumnElement[bool]) -> list[StoredRun]:
        cells = select(CELLS.c.id).where(of_cell)
        newest = select(func.max(MEASURED.c.run)).join(RUNS, RUNS.c.seq == MEASURED.c.run).group_by(RUNS.c.gpu)
        newest = newest.where(MEASURED.c.host == host, MEASURED.c.cell.in_(cells), RUNS.c.gpu.is_not(None))
        runs = _WHOLE_RUN.where(RUNS.c.seq.in_(newest.scalar_subquery())).order_by(RUNS.c.gpu)
        with self._database.reading() as connection:
            return [_stored_run(row) for row in connection.execute(runs)]

    def add_baseline(self, baseline: Baseline) -> str:
        """Append a baseline and its runs in one transaction and return its id.

        It becomes the current baseline of its name and machine. If the current one is identical, nothing is stored.
        """
        row, runs = store_rows.new_baseline(baseline)
        what = f"The baseline {baseline.name!r:.80}"
        return self._database.write(what, lambda connection: store_rows.add_baseline(connection, row, runs))

    def baseline(self, name: str, identity: str) -> Baseline | None:
        """The current baseline of this name on the machine with this identity, or None."""
        found = select(BASELINES).where(BASELINES.c.identity == identity, BASELINES.c.name == name, _KEPT)
        with self._database.reading() as connection:
            return _whole_baseline(connection, found.order_by(BASELINES.c.seq.desc()).limit(1))

    def baseline_of_id(self, baseline_id: str) -> Baseline:
        """The baseline with this id, also if it is not the current one."""
        with self._database.reading() as connection:
            found = _whole_baseline(connection, select(BASELINES).where(BASELINES.c.id == baseline_id, _KEPT))
        if found is None:
            raise StoreError(f"The store {self.shown} has no baseline {baseline_id!r:.60}: see pyxfer baseline list.")
        return found

    def baselines(self, host: str | None = None) -> list[KeptBaseline]:
        """The current baselines of all hosts or of one, sorted by host and name."""
        counted = select(func.max(BASELINES.c.seq).label("seq"), func.count().label("count")).where(_KEPT)
        if host is not None:
            counted = counted.where(BASELINES.c.host == host)
        newest = counted.group_by(BASELINES.c.identity, BASELINES.c.name).subquery()
        with self._database.reading() as connection:
            found = select(BASELINES, newest.c.count.label("saves")).join(newest, newest.c.seq == BASELINES.c.seq)
            rows = connection.execute(found).all()
            runs = _run_ids(connection, select(newest.c.seq))
        kept = [_kept_baseline(row, runs.get(row.seq, ())) for row in rows]
        return sorted(kept, key=lambda row: (row.fingerprint.host, row.name, row.fingerprint.gpu.value or ""))

    def remove_baseline(self, name: str, identity: str) -> int:
        """Remove all baselines of this name on one machine and return their number. Their runs stay."""
        return self._remove(repr(name)[:80], BASELINES.c.identity == identity, BASELINES.c.name == name)

    def remove_baseline_of_id(self, baseline_id: str) -> bool:
        """Remove one baseline and return whether it existed. The one before it becomes the current one."""
        return self._remove(baseline_id, BASELINES.c.id == baseline_id) > 0

    def _remove(self, what: str, *which: ColumnElement[bool]) -> int:
        removed_at = store_tables.now_text()  # the same in every attempt, which counts the rows of an earlier one

        def remove(connection: Connection) -> int:
            connection.execute(BASELINES.update().where(*which, _KEPT).values(removed_at=removed_at))
            removed = select(func.count()).where(*which, BASELINES.c.removed_at == removed_at)
            return connection.execute(removed).scalar() or 0

        return self._database.write(f"The removal of {what}", remove)

    def history(
        self, cell: str | None = None, *, host: str | None = None, since: str | None = None, limit: int = MAX_POINTS
    ) -> documents.History:
        """The bandwidth over time: one group for each machine and cell, its oldest point first.

        `cell` is text such as `h2d:pinned:256MiB`; the default is pinned memory at the largest size of the newest run.
        `since` is `30d`, `12h` or a date. Of more than `limit` points the newest are returned, with a remark.

        Raises:
            UsageError: `cell` or `since` is not valid, or `cell` matches too many cells.
        """
        pattern = None if cell is None else parse_cell(cell)
        since_s = None if since is None else store_tables.parse_since(since)
        query = _Query(pattern, cell, host, since_s, limit)
        with self._database.reading() as connection:
            return _history(connection, query)

    def add_host_report(self, report: HostReport, host: str | None = None) -> str:
        """Append the document of a host and return its id. The same document is not stored again.

        `host` is its name if the document has none.

        Raises:
            UsageError: the document is larger than 16 MiB, or the host has no name.
        """
        row = store_rows.new_report(report, host)
        what = f"The document {row['id']}"
        return self._database.write(what, lambda connection: store_rows.add_report(connection, row))

    def moment(self, since: str) -> float:
        """The seconds since 1970 of a date, or of a time such as `2h` before now, by the store's clock.

        Raises:
            UsageError: `since` is not valid.
        """
        with self._database.reading() as connection:
            return store_tables.parse_since(since, store_rows.clock_s(connection))

    def host_reports(self, since_s: float) -> list[KeptReport]:
        """The documents of hosts that were stored since then, by the store's clock; the newest first."""
        wanted = select(HOST_REPORTS.c.id, HOST_REPORTS.c.host).where(HOST_REPORTS.c.stored_s >= since_s)
        with self._database.reading() as connection:
            return [KeptReport(*row) for row in connection.execute(wanted.order_by(HOST_REPORTS.c.seq.desc()))]

    def read_host_reports(self, ids: Sequence[str]) -> Iterator[StoredReport]:
        """The documents with these ids, in any order. One that cannot be read has the reason."""
        for start in range(0, len(ids), _REPORTS_AT_ONCE):
            with self._database.reading() as connection:
                yield from store_rows.read_reports(connection, ids[start : start + _REPORTS_AT_ONCE])

    def same_baseline(self, baseline: Baseline) -> str | None:
        """The id of an identical baseline, or None."""
        same = select(BASELINES.c.id).where(BASELINES.c.sha256 == store_rows.digest_of(baseline), _KEPT)
        with self._database.reading() as connection:
            return connection.execute(same.limit(1)).scalar()


def open_store(url: str | os.PathLike[str] | None = None, *, create: bool = True) -> Store:
    """Open the store at a URL or path; by default that of `PYXFER_STORE`, of a file of defaults, or of the user.

    Raises:
        UsageError: `url` is not valid.
        StoreError: it is not a store, cannot be reached, was made by a later pyxfer, or does not exist and `create` is
            false.
    """
    return Store(open_database(find_location(url), create=create))


def check_store(url: str | os.PathLike[str] | None = None) -> None:
    """Raise the error that `open_store` would raise, without leaving an empty store behind."""
    check_location(find_location(url))


def _stored_run(row: AnyRow) -> StoredRun:
    run = store_rows.read_run(row.id, row.sha256, row.document)
    return StoredRun(row.id, row.stored_at, json.loads(row.labels), run)


def _whole_baseline(connection: Connection, query: Select[Any]) -> Baseline | None:
    row = connection.execute(query).first()
    if row is None:
        return None
    labels = json.loads(row.labels)
    joined = select(RUNS.c.id, RUNS.c.sha256, DOCUMENTS.c.document).join(DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq)
    joined = joined.join(BASELINE_RUNS, BASELINE_RUNS.c.run == RUNS.c.seq).order_by(BASELINE_RUNS.c.place)
    runs = connection.execute(joined.where(BASELINE_RUNS.c.baseline == row.seq)).all()
    digests = [run.sha256 for run in runs]
    if row.sha256 != store_rows.digest_of_parts(row.name, row.fingerprint, row.made_at, labels, digests):
        raise StoreError(
            f"The baseline {row.id} ({row.name!r:.80} of {row.host!r:.80}) in the store is damaged, because it has "
            "changed since it was stored: restore the store from a backup, or remove the baseline in Python with "
            f"pyxfer.open_store().remove_baseline_of_id({row.id!r})."
        )
    decoded = [store_rows.read_run(run.id, run.sha256, run.document) for run in runs]
    return Baseline.of_processes(row.name, _fingerprint(row), row.made_at, labels, decoded)


def _kept_baseline(row: AnyRow, run_ids: tuple[str, ...]) -> KeptBaseline:
    times, labels = (row.made_at, row.stored_at), json.loads(row.labels)
    return KeptBaseline(row.id, row.name, row.identity, _fingerprint(row), *times, labels, run_ids, row.saves - 1)


def _fingerprint(row: AnyRow) -> documents.Fingerprint:
    return msgspec.json.decode(row.fingerprint, type=documents.Fingerprint)


def _run_ids(connection: Connection, baselines: Select[Any]) -> dict[int, tuple[str, ...]]:
    query = select(BASELINE_RUNS.c.baseline, RUNS.c.id).join(RUNS, RUNS.c.seq == BASELINE_RUNS.c.run)
    query = query.where(BASELINE_RUNS.c.baseline.in_(baselines))
    found: dict[int, tuple[str, ...]] = {}
    for seq, run_id in connection.execute(query.order_by(BASELINE_RUNS.c.baseline, BASELINE_RUNS.c.place)):
        found[seq] = (*found.get(seq, ()), run_id)
    return found


@dataclass(frozen=True)
class _Query:
    """The parameters of `Store.history`, parsed; `text` is the text of the pattern."""

    pattern: CellPattern | None
    text: str | None
    host: str | None
    since_s: float | None
    limit: int


def _history(connection: Connection, query: _Query) -> documents.History:
    cells = _usual_cells(connection, query.host) if query.pattern is None else _matching_cells(connection, query)
    most = max(1, query.limit // max(1, len(cells)))
    groups: list[documents.HistoryGroup] = []
    remarks: list[Remark] = []
    for number, cell in cells.items():
        rows = connection.execute(_points(number, query, most + 1)).all()
        groups.extend(_groups(cell, rows[:most]))
        if len(rows) > most and not remarks:
            text = f"there are more points than the newest {query.limit}, which are shown"
            remarks.append(Remark("limit", text, "name a host, a cell or a later time"))
    groups.sort(key=lambda group: (group.host, group.gpu.value or "", group.cell.order, group.worker or ""))
    if not groups:
        remarks.append(Remark("nothing", _empty_text(connection, query)))
    return documents.History(tuple(groups), (*_same_names(groups), *remarks))


def _matching_cells(connection: Connection, query: _Query) -> dict[int, Cell]:
    every = _cells(connection, select(CELLS.c.id, CELLS.c.cell))
    cells = {number: cell for number, cell in every.items() if query.pattern and query.pattern.matches(cell)}
    if len(cells) > _MAX_CELLS:
        raise UsageError(
            f"The cell {query.text!r:.80} matches {len(cells)} cells, and at most {_MAX_CELLS} are shown: add a "
            "memory and a size."
        )
    return cells


def _usual_cells(connection: Connection, host: str | None) -> dict[int, Cell]:
    has_cells = select(MEASURED.c.run).where(MEASURED.c.run == RUNS.c.seq).exists()
    newest = select(RUNS.c.seq).where(has_cells).order_by(RUNS.c.seq.desc()).limit(_NEWEST_RUNS)
    of_run = select(CELLS.c.id, CELLS.c.cell).join(MEASURED, MEASURED.c.cell == CELLS.c.id).order_by(MEASURED.c.place)
    for run in connection.execute(newest if host is None else newest.where(RUNS.c.host == host)).scalars().all():
        cells = _cells(connection, of_run.where(MEASURED.c.run == run))
        pinned = {number: cell for number, cell in cells.items() if _is_usual(cell)}
        largest = max((cell.nbytes for cell in pinned.values()), default=0)
        return {number: cell for number, cell in pinned.items() if cell.nbytes == largest} or dict([*cells.items()][:1])
    return {}


def _cells(connection: Connection, query: Select[Any]) -> dict[int, Cell]:
    return {number: msgspec.json.decode(cell, type=Cell) for number, cell in connection.execute(query)}


def _is_usual(cell: Cell) -> bool:
    if not cell.is_alone or cell.memory != "pinned" or cell.variant != "warm":
        return False
    return cell.engine == "ce" if cell.is_of_links else cell.mode == "async"


def _points(cell: int, query: _Query, most: int) -> Select[Any]:
    columns = (MEASURED.c[name] for name in ("host", "worker", "gbps", "low_gbps", "high_gbps", "median_s", "run"))
    newest = select(MEASURED.c.taken_s, *columns).where(MEASURED.c.cell == cell)
    if query.host is not None:
        newest = newest.where(MEASURED.c.host == query.host)
    if query.since_s is not None:
        newest = newest.where(MEASURED.c.taken_s >= query.since_s)
    some = newest.order_by(MEASURED.c.taken_s.desc()).limit(most).subquery()
    of_run = (RUNS.c.seq, RUNS.c.id, RUNS.c.gpu, RUNS.c.device, RUNS.c.runtime, RUNS.c.taken_at, RUNS.c.stored_s)
    return select(some, *of_run).join(RUNS, RUNS.c.seq == some.c.run).order_by(some.c.taken_s.desc())


def _groups(cell: Cell, rows: Iterable[AnyRow]) -> list[documents.HistoryGroup]:
    together: dict[tuple[str | None, ...], list[AnyRow]] = {}
    for row in rows:
        # Drivers have renamed devices, so the name counts only if there is no UUID.
        device = None if row.gpu is not None else row.device
        together.setdefault((row.host, row.runtime, row.gpu, device, row.worker), []).append(row)
    return [_group(cell, members) for members in together.values()]


def _group(cell: Cell, rows: list[AnyRow]) -> documents.HistoryGroup:
    remarks = _put_in_order(rows)
    median_gbps = statistics.median(row.gbps for row in rows)
    newest = rows[-1]
    points = tuple(
        documents.HistoryPoint(row.id, row.taken_at, row.gbps, row.low_gbps, row.high_gbps, row.median_s, change)
        for row in rows
        for change in (row.gbps / median_gbps if median_gbps else 1.0,)
    )
    found = find_changes([row.gbps for row in rows])
    if found.correlation > MAX_CORRELATION:  # by chance in more than 1 in 20 of such histories
        text = f"neighbouring runs are alike (correlation {found.correlation:.2f}): a small change may be a coincidence"
        remarks = (*remarks, Remark("correlated", text))
    return documents.HistoryGroup(
        host=newest.host,
        runtime="host" if newest.runtime == "host" else "cuda",
        device=newest.device,
        gpu=Fact(newest.gpu) if newest.gpu is not None else Fact(reason="its runs have no UUID"),
        cell=cell,
        cell_text=cell.text,
        worker=newest.worker,
        median_gbps=median_gbps,
        points=points,
        limit=_limit(found, len(points)),
        remarks=tuple(remarks),
        changes=_changes(points, found.places),
        drift=found.drift,
    )


def _changes(points: Sequence[documents.HistoryPoint], places: Sequence[int]) -> tuple[documents.HistoryChange, ...]:
    rates = [point.gbps for point in points]
    medians = [statistics.median(rates[a:b]) for a, b in pairwise([0, *places, len(rates)])] if places else []
    return tuple(
        documents.HistoryChange(points[place].run_id, points[place].taken_at, before, after)
        for place, (before, after) in zip(places, pairwise(medians), strict=True)
    )


def _limit(found: Changes, runs: int) -> Fact[documents.HistoryLimit]:
    if found.limit is not None:
        return Fact(found.limit)
    if runs < MIN_HISTORY:
        return Fact(reason=f"{MIN_HISTORY} runs are needed")
    return Fact(reason="the runs are too few, too irregular or have several modes")


def _put_in_order(rows: list[AnyRow]) -> tuple[Remark, ...]:
    """Sort by the time of measurement, or if the host's clock went back, by the order of storing.

    The clock went back if a run was stored after another with an earlier time, or stored before it was measured.
    """
    rows.sort(key=lambda row: (row.seq, row.run))
    went_back = any(later.stored_s < earlier.stored_s - _JITTER_S for earlier, later in pairwise(rows))
    if went_back or any(row.stored_s < row.taken_s - _JITTER_S for row in rows):
        text = "this host's clock has gone back: the points are in the order in which they were stored"
        return (Remark("clock", text, "synchronise it with NTP or chrony"),)
    rows.sort(key=lambda row: (row.taken_s, row.seq))
    return ()


def _same_names(groups: Sequence[documents.HistoryGroup]) -> list[Remark]:
    gpus: dict[str, set[str | None]] = {}
    for group in groups:
        gpus.setdefault(group.host, set()).add(group.gpu.value)
    several = [repr(host) for host, found in gpus.items() if len(found) > 1]
    text = f"the host name {first_of(several, _MAX_NAMED)} has more than one GPU; each is a separate group"
    return [Remark("same-name", text)] if several else []


def _empty_text(connection: Connection, query: _Query) -> str:
    runs = connection.execute(select(func.count()).select_from(RUNS)).scalar() or 0
    if not runs:
        return "the store has no run yet; pyxfer baseline save stores some"
    if connection.execute(select(MEASURED.c.run).limit(1)).first() is None:
        what = "1 run, without measurements" if runs == 1 else f"{runs} runs, without measurements"
        return f"the store has {what}; pyxfer baseline save stores some"
    words = [f"{what} {value!r:.80}" for what, value in (("the cell", query.text), ("the host", query.host)) if value]
    words += [] if query.since_s is None else ["stored since then"]
    return "no stored measurement matches" + (f" ({', '.join(words)})" if words else "")
