"""Which baselines a store has, and each with its runs."""

from __future__ import annotations

import re
import secrets
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, Table, bindparam, func, select, type_coerce
from sqlalchemy import Row as RowOf

from pyxfer._baseline import store_schema
from pyxfer._baseline.cells import CellPattern, cell_text, fingerprint_of, identity, is_raw
from pyxfer._baseline.samples import collect
from pyxfer._baseline.store_database import taking_any_text
from pyxfer._baseline.store_schema import (
    BASELINE_RUNS,
    BASELINES,
    CELLS,
    DOCUMENTS,
    FROM_A_BACKUP,
    MEASURED,
    RUNS,
    AnyText,
    Row,
    TextOrNot,
    decode_run,
    digest_of_parts,
    fill,
    labels_from_text,
    labels_to_text,
    now_text,
    packed_run,
    unpack,
)
from pyxfer._document import exports
from pyxfer._document.baselines import (
    Baseline,
    Cell,
    DamagedBaseline,
    Fingerprint,
    History,
    HistoryGroup,
    HistoryPoint,
    KeptBaseline,
)
from pyxfer._document.codec import to_bare_json
from pyxfer._document.runs import Fact, Remark, Run
from pyxfer.errors import DocumentError, StoreError, UsageError

MOST_POINTS = 10_000
_MOST_CELLS = 200
_LOOKED_AT = 20
_MOST_NAMED = 3
# Runs that are stored at the same moment may pass each other on the way.
_JITTER_S = 2.0
_NUMBERS, _NUMBERS_IF_KNOWN = ("taken_s", "stored_s", "gbps", "median_s"), ("low_gbps", "high_gbps")
_CELL_COLUMNS = tuple(CELLS.c[name] for name in Cell.__struct_fields__)


@dataclass(frozen=True)
class Asked:
    """Which cells (all that fit the pattern; None is the usual ones), of which host, since when, how many."""

    pattern: CellPattern | None
    text: str
    host: str | None
    since_s: float | None
    limit: int = MOST_POINTS


def find(connection: Connection, asked: Asked) -> History:
    """The newest points of each cell that was asked for."""
    cells = _cells(connection, asked)
    if not cells:
        return History((), (Remark("nothing", _nothing(connection, asked)),))
    most = max(1, asked.limit // len(cells))
    groups: list[HistoryGroup] = []
    cut = False
    for number, cell in cells.items():
        rows = _history_rows(connection, number, asked, most + 1)
        cut = cut or len(rows) > most
        groups.extend(_groups(cell, rows[:most]))
    groups.sort(key=lambda group: (group.host, group.gpu.value or "", group.cell, group.worker or ""))
    return History(tuple(groups), (*_of_all(groups, asked), *_said_of_limit(cut, asked)))


def _cells(connection: Connection, asked: Asked) -> dict[int, Cell]:
    if asked.pattern is None:
        return _usual(connection, asked.host)
    found = connection.execute(select(CELLS.c.id, *_CELL_COLUMNS)).all()
    cells = {number: cell for number, *fields in found if asked.pattern.matches(cell := _cell(number, fields))}
    if len(cells) > _MOST_CELLS:
        raise UsageError(
            f"--cell {asked.text!r:.80} names {len(cells)} cells, and {_MOST_CELLS} are shown; name its memory and size"
        )
    return cells


def _usual(connection: Connection, host: str | None) -> dict[int, Cell]:
    """Pinned memory each way at the largest size of the newest runs, or else the first that they have."""
    has_cells = select(MEASURED.c.run).where(MEASURED.c.run == RUNS.c.seq).exists()
    newest = select(RUNS.c.seq).where(has_cells).order_by(RUNS.c.seq.desc()).limit(_LOOKED_AT)
    runs = connection.execute(newest if host is None else newest.where(RUNS.c.host == host)).scalars().all()
    for run in runs:
        cells = dict(_cells_of_run(connection, run))
        pinned = {number: cell for number, cell in cells.items() if _is_usual(cell)}
        largest = max((cell.nbytes for cell in pinned.values()), default=0)
        if pinned:
            return {number: cell for number, cell in pinned.items() if cell.nbytes == largest}
        if cells:
            number = next(iter(cells))
            return {number: cells[number]}
    return {}


def _cells_of_run(connection: Connection, run: int) -> Iterable[tuple[int, Cell]]:
    joined = select(CELLS.c.id, *_CELL_COLUMNS).join(MEASURED, MEASURED.c.cell == CELLS.c.id)
    for number, *fields in connection.execute(joined.where(MEASURED.c.run == run).order_by(MEASURED.c.place)):
        yield number, _cell(number, fields)


def _cell(number: int, fields: Iterable[object]) -> Cell:
    try:
        return msgspec.convert(dict(zip(Cell.__struct_fields__, fields, strict=True)), Cell)
    except msgspec.ValidationError as error:
        raise StoreError(f"the store is damaged: its cell {number} is none ({error}); {FROM_A_BACKUP}") from error


def _is_usual(cell: Cell) -> bool:
    one_way = cell.side == cell.direction and cell.direction in ("h2d", "d2h")
    return is_raw(cell) and one_way and cell.memory == "pinned" and cell.mode == "async" and cell.variant == "warm"


def _history_rows(connection: Connection, cell: int, asked: Asked, most: int) -> Sequence[RowOf[Any]]:
    columns = (MEASURED.c[name] for name in ("host", "worker", "gbps", "low_gbps", "high_gbps", "median_s", "run"))
    newest = select(MEASURED.c.taken_s, *columns).where(MEASURED.c.cell == cell)
    if asked.host is not None:
        newest = newest.where(MEASURED.c.host == asked.host)
    if asked.since_s is not None:
        newest = newest.where(MEASURED.c.taken_s >= asked.since_s)
    some = newest.order_by(MEASURED.c.taken_s.desc()).limit(bindparam("most", most)).subquery()
    of_run = (RUNS.c.seq, RUNS.c.id, RUNS.c.gpu, RUNS.c.device, RUNS.c.runtime, RUNS.c.taken_at, RUNS.c.stored_s)
    joined = select(some, *of_run).join(RUNS, RUNS.c.seq == some.c.run)
    rows = connection.execute(joined.order_by(some.c.taken_s.desc())).all()
    for row in rows:
        _check_numbers(row)
    return rows


def _check_numbers(row: RowOf[Any]) -> None:
    """Refuse what somebody has changed: SQLite keeps text in a column of numbers, too."""
    values = row._mapping
    known = [name for name in _NUMBERS_IF_KNOWN if values[name] is not None]
    wrong = next((name for name in (*_NUMBERS, *known) if not isinstance(values[name], (int, float))), None)
    if wrong is not None:
        raise StoreError(
            f"the store is damaged: {wrong} of the run {row.id} is {values[wrong]!r:.40} and no number; {FROM_A_BACKUP}"
        )


def _groups(cell: Cell, rows: Iterable[RowOf[Any]]) -> list[HistoryGroup]:
    together: dict[tuple[str | None, ...], list[RowOf[Any]]] = {}
    for row in rows:
        # Drivers have renamed devices, so the name counts only where there is no UUID.
        which = (row.gpu, None) if row.gpu is not None else (None, row.device)
        together.setdefault((row.host, row.runtime, *which, row.worker), []).append(row)
    return [_group(cell, members) for members in together.values()]


def _group(cell: Cell, rows: list[RowOf[Any]]) -> HistoryGroup:
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


def _point(row: RowOf[Any], median_gbps: float) -> HistoryPoint:
    return HistoryPoint(
        run_id=row.id,
        taken_at=row.taken_at,
        gbps=row.gbps,
        low_gbps=row.low_gbps,
        high_gbps=row.high_gbps,
        median_s=row.median_s,
        change=row.gbps / median_gbps if median_gbps else 1.0,
    )


def _put_in_order(rows: list[RowOf[Any]]) -> tuple[Remark, ...]:
    """By the time they were taken, unless the host's clock cannot be trusted; then in the order they were stored.

    Each row has two readings of that clock. A run that was stored later with an earlier reading, or before it was
    taken, shows that the clock went back; one that was taken long ago and stored only now does not.
    """
    rows.sort(key=lambda row: (row.seq, row.run))
    pairs = pairwise(rows)
    went_back = any(later.stored_s < earlier.stored_s - _JITTER_S for earlier, later in pairs)
    if went_back or any(row.stored_s < row.taken_s - _JITTER_S for row in rows):
        text = (
            "this host's clock has gone back: these are in the order in which they were stored, and not by their times"
        )
        return (Remark("clock", text, "keep it right with NTP or chrony"),)
    rows.sort(key=lambda row: (row.taken_s, row.seq))
    return ()


def _of_all(groups: Sequence[HistoryGroup], asked: Asked) -> list[Remark]:
    gpus: dict[str, set[str | None]] = {}
    for group in groups:
        gpus.setdefault(group.host, set()).add(group.gpu.value)
    several = [host for host, found in gpus.items() if len(found) > 1]
    if not groups:
        return [Remark("nothing", f"nothing is stored of that{_limits(asked)}")]
    if not several:
        return []
    rest = len(several) - _MOST_NAMED
    named = ", ".join(map(repr, several[:_MOST_NAMED])) + (f" and {rest} more" if rest > 0 else "")
    return [Remark("same-name", f"under the host name {named} there is more than one GPU; each is a group of its own")]


def _said_of_limit(cut: bool, asked: Asked) -> list[Remark]:
    if not cut:
        return []
    text = f"there is more than the newest {asked.limit} points that are shown here"
    return [Remark("limit", text, "name a host, a cell or a later time: --host, --cell, --since")]


def _nothing(connection: Connection, asked: Asked) -> str:
    runs = connection.execute(select(func.count()).select_from(RUNS)).scalar() or 0
    if not runs:
        return "the store has no run yet; pyxfer baseline save stores some"
    if connection.execute(select(MEASURED.c.run).limit(1)).first() is None:
        what = "1 run, with nothing measured in it" if runs == 1 else f"{runs} runs, with nothing measured in them"
        return f"the store has {what}; pyxfer baseline save stores some"
    return f"nothing is stored of that{_limits(asked)}"


def _limits(asked: Asked) -> str:
    parts = ((asked.text, "the cell"), (asked.host, "the host"))
    words = [f"{what} {value!r:.80}" for value, what in parts if value]
    since = [] if asked.since_s is None else ["since then"]
    return f" ({', '.join([*words, *since])})" if words or since else ""


@dataclass(frozen=True)
class RunToStore:
    """A run with its key, its row and its document."""

    id: str
    run: Run
    row: Row
    document: bytes


@dataclass(frozen=True)
class BaselineToStore:
    """A baseline with its key, its row and its runs."""

    id: str
    row: Row
    runs: tuple[RunToStore, ...]


def run_to_store(run: Run, labels: Mapping[str, str]) -> RunToStore:
    """Check it and make its row."""
    store_schema.check_run(run)
    store_schema.check_labels(labels)
    sha256, document = packed_run(run)
    run_id, now = f"r-{secrets.token_hex(6)}", store_schema.now_text()
    row = {
        "id": run_id,
        "stored_at": now,
        "stored_s": store_schema.seconds_of(now),
        "taken_at": run.environment.taken_at,
        "taken_s": store_schema.seconds_of(run.environment.taken_at),
        "host": run.environment.host,
        "gpu": run.device.uuid.value,
        "device": run.device.name,
        "runtime": run.runtime,
        "identity": identity(fingerprint_of(run)),
        "labels": labels_to_text(dict(labels)),
        "sha256": sha256,
    }
    return RunToStore(run_id, run, row, document)


def baseline_to_store(baseline: Baseline) -> BaselineToStore:
    """The same of a baseline and its runs."""
    store_schema.check_baseline(baseline)
    baseline_id = f"b-{secrets.token_hex(6)}"
    row = {
        "id": baseline_id,
        "name": baseline.name,
        "identity": identity(baseline.fingerprint),
        "host": baseline.fingerprint.host,
        "fingerprint": to_bare_json(baseline.fingerprint).decode(),
        "made_at": baseline.made_at,
        "stored_at": store_schema.now_text(),
        "labels": labels_to_text(baseline.labels),
        "sha256": digest_of(baseline),
    }
    return BaselineToStore(baseline_id, row, tuple(run_to_store(run, {}) for run in baseline.runs))


def digest_of(baseline: Baseline) -> str:
    """What two baselines have in common only if they are the same."""
    fingerprint = to_bare_json(baseline.fingerprint).decode()
    runs = [to_bare_json(run) for run in baseline.runs]
    return digest_of_parts(baseline.name, fingerprint, baseline.made_at, baseline.labels, runs)


def append_run(connection: Connection, new: RunToStore) -> None:
    """Append a run and what was measured in it."""
    _insert_run(connection, new)


def _insert_run(connection: Connection, new: RunToStore) -> int:
    seq = _insert(connection, RUNS, new.row)
    connection.execute(DOCUMENTS.insert().values(run=seq, document=new.document))
    fill(connection, seq, new.run, new.row["taken_s"])
    return seq


def insert_baseline(connection: Connection, new: BaselineToStore) -> None:
    """Append a baseline and those of its runs that are not there."""
    # Before anything else, because a second attempt is to meet the first one here.
    seq = _insert(connection, BASELINES, new.row)
    for place, run in enumerate(new.runs):
        known = connection.execute(select(func.min(RUNS.c.seq)).where(RUNS.c.sha256 == run.row["sha256"])).scalar()
        number = _insert_run(connection, run) if known is None else known
        connection.execute(BASELINE_RUNS.insert().values(baseline=seq, place=place, run=number))


def _insert(connection: Connection, table: Table, row: Row) -> int:
    """The number that the row was given; not by RETURNING, which SQLite knows only from 3.35 on."""
    key = connection.execute(table.insert().values(row)).inserted_primary_key
    return int(key[0]) if key else 0


def is_run_there(connection: Connection, run_id: str) -> bool:
    """Whether a run of this key is stored."""
    return connection.execute(select(RUNS.c.seq).where(RUNS.c.id == run_id)).first() is not None


def is_baseline_there(connection: Connection, baseline_id: str) -> bool:
    """Whether a baseline of this key is stored."""
    return connection.execute(select(BASELINES.c.seq).where(BASELINES.c.id == baseline_id)).first() is not None


def check_import(baseline: Baseline, source: str) -> None:
    """Refuse what pyxfer has not exported: sizes beyond all bounds, runs of another machine, and no times."""
    try:
        store_schema.check_baseline(baseline)
        for run in baseline.runs:
            store_schema.check_run(run)
    except UsageError as error:
        raise DocumentError(f"{source} is not what pyxfer baseline export writes: {error}") from error
    said, found = baseline.fingerprint, [fingerprint_of(run) for run in baseline.runs]
    if said not in found or any(identity(each) != identity(said) for each in found):
        raise DocumentError(
            f"{source} names another machine than its runs are of: it has been changed since pyxfer baseline export "
            "wrote it; export it again"
        )
    if not any(series.n for series in collect(baseline.runs).values()):
        raise DocumentError(
            f"{source} has no time of any cell that a copy can take, so there is nothing to compare with later; export "
            "it again from where it was saved"
        )


_HEADER = (
    *("host", "runtime", "device", "gpu", "cell", "worker", "taken_at", "run"),
    *("gbps", "low_gbps", "high_gbps", "median_s", "to_median"),
)


def to_csv(history: History) -> str:
    """One row a point, numbers unrounded."""
    rows: list[tuple[exports.Cell, ...]] = [
        (
            *(
                group.host,
                group.runtime,
                group.device,
                group.gpu.value,
                group.cell_text,
                group.worker,
                point.taken_at,
                point.run_id,
            ),
            *(point.gbps, point.low_gbps, point.high_gbps, point.median_s, point.change),
        )
        for group in history.groups
        for point in group.points
    ]
    return exports.csv_table(_HEADER, rows)


_KEPT = BASELINES.c.removed_at.is_(None)
# One row that is damaged must not take the others with it, as a column that refuses it would.
_COLUMNS = [
    type_coerce(column, TextOrNot).label(column.name) if isinstance(column.type, AnyText) else column
    for column in BASELINES.c
]
_TEXTS = ("name", "host", "identity", "made_at", "stored_at", "labels", "sha256")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def current(connection: Connection, name: str, identity: str) -> Baseline | None:
    """The newest of a name on one machine."""
    found = select(*_COLUMNS).where(BASELINES.c.identity == identity, BASELINES.c.name == name, _KEPT)
    return _whole(connection, found.order_by(BASELINES.c.seq.desc()).limit(1))


def of_id(connection: Connection, baseline_id: str) -> Baseline | None:
    """The one with this id, as long as it is not removed."""
    return _whole(connection, select(*_COLUMNS).where(BASELINES.c.id == baseline_id, _KEPT))


def is_damaged(connection: Connection, baseline_id: str) -> bool:
    """Whether there is one with this id that is no longer what was stored."""
    try:
        of_id(connection, baseline_id)
    except StoreError:
        return True
    return False


def of_digest(connection: Connection, sha256: str) -> str | None:
    """The id of a baseline that is kept, has this digest and can be read: a damaged one may be imported anew."""
    found = connection.execute(select(BASELINES.c.id).where(BASELINES.c.sha256 == sha256, _KEPT)).scalars().all()
    return next((str(each) for each in found if not is_damaged(connection, each)), None)


@dataclass
class Removal:
    """Some baselines, to be left out from now on."""

    which: tuple[ColumnElement[bool], ...]
    count: int = 0

    @classmethod
    def of_name(cls, name: str, identity: str) -> Removal:
        """All of a name on one machine."""
        return cls((BASELINES.c.identity == identity, BASELINES.c.name == name, _KEPT))

    @classmethod
    def of_id(cls, baseline_id: str) -> Removal:
        """One alone."""
        return cls((BASELINES.c.id == baseline_id, _KEPT))

    def mark(self, connection: Connection) -> None:
        """Mark them; `count` is how many they are."""
        self.count = connection.execute(BASELINES.update().where(*self.which).values(removed_at=now_text())).rowcount

    def is_marked(self, connection: Connection) -> bool:
        """Whether none is left."""
        return connection.execute(select(BASELINES.c.seq).where(*self.which)).first() is None


def kept(connection: Connection, host: str | None) -> list[KeptBaseline]:
    """The newest of each name on each machine, by host and name; how many earlier ones there are stands with it.

    One that is damaged is left out: it is no reason to lose sight of the others.
    """
    counted = select(func.max(BASELINES.c.seq).label("seq"), func.count().label("count")).where(_KEPT)
    if host is not None:
        counted = counted.where(BASELINES.c.host == host)
    newest = counted.group_by(BASELINES.c.identity, BASELINES.c.name).subquery()
    rows = _rows(connection, select(*_COLUMNS, newest.c.count).join(newest, newest.c.seq == BASELINES.c.seq))
    runs = _runs_of(connection, select(newest.c.seq))
    listed = [
        _kept(row, tuple(runs[row.seq].values()), row[-1] - 1)
        for row in rows
        if _damage(row, runs.get(row.seq)) is None
    ]
    return sorted(listed, key=lambda each: (each.fingerprint.host, each.name, each.fingerprint.gpu.value or ""))


def damaged(connection: Connection, host: str | None) -> list[DamagedBaseline]:
    """Those that cannot be read any more, also where they are not the newest.

    What only a look into all of their documents would show is not looked for; `_whole` finds it.
    """
    which = (_KEPT,) if host is None else (_KEPT, BASELINES.c.host == host)
    rows = _rows(connection, select(*_COLUMNS).where(*which).order_by(BASELINES.c.seq))
    runs = _runs_of(connection, select(BASELINES.c.seq).where(*which))
    found = ((row, _damage(row, runs.get(row.seq))) for row in rows)
    return [DamagedBaseline(row.id, row.name, row.host, why) for row, why in found if why is not None]


def _rows(connection: Connection, asked: Select[Any]) -> Sequence[Any]:
    with taking_any_text(connection):
        return connection.execute(asked).all()


def _runs_of(connection: Connection, baselines: Select[Any]) -> dict[int, dict[int, str]]:
    """Of each of these baselines the ids of the runs that are there, by their places in it."""
    asked = (
        select(BASELINE_RUNS.c.baseline, BASELINE_RUNS.c.place, RUNS.c.id)
        .join(RUNS, RUNS.c.seq == BASELINE_RUNS.c.run)
        .where(BASELINE_RUNS.c.baseline.in_(baselines))
        .order_by(BASELINE_RUNS.c.baseline, BASELINE_RUNS.c.place)
    )
    found: dict[int, dict[int, str]] = {}
    for seq, place, run_id in connection.execute(asked):
        found.setdefault(seq, {})[place] = run_id
    return found


def _whole(connection: Connection, asked: Select[Any]) -> Baseline | None:
    """With its runs; `StoreError` where it is no longer what was stored."""
    row = next(iter(_rows(connection, asked)), None)
    if row is None:
        return None
    joined = (
        select(BASELINE_RUNS.c.place, RUNS.c.id, RUNS.c.sha256, DOCUMENTS.c.document)
        .join(DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq)
        .join(BASELINE_RUNS, BASELINE_RUNS.c.run == RUNS.c.seq)
    )
    found = connection.execute(joined.where(BASELINE_RUNS.c.baseline == row.seq).order_by(BASELINE_RUNS.c.place)).all()
    why = _damage(row, {each.place: each.id for each in found})
    if why is not None:
        raise StoreError(why)
    stored = [unpack(each.id, each.sha256, each.document) for each in found]
    labels = labels_from_text(row.labels)
    if not _is_as_stored(row, labels, stored):
        raise StoreError(_damaged(row, "it is not what was stored"))
    return Baseline(
        name=row.name,
        fingerprint=_fingerprint(row),
        made_at=row.made_at,
        labels=labels,
        runs=tuple(decode_run(each.id, data) for each, data in zip(found, stored, strict=True)),
    )


def _is_as_stored(row: Any, labels: dict[str, str], runs: Sequence[bytes]) -> bool:
    """By its digest; where what stands there is none of ours, by its runs alone, which `_damage` has counted."""
    if not _DIGEST.fullmatch(row.sha256):
        return True
    try:
        return bool(digest_of_parts(row.name, row.fingerprint, row.made_at, labels, runs) == row.sha256)
    except UnicodeEncodeError:  # half of a character, which was never stored
        return False


def _kept(row: Any, run_ids: tuple[str, ...], earlier: int) -> KeptBaseline:
    return KeptBaseline(
        id=row.id,
        name=row.name,
        identity=row.identity,
        fingerprint=_fingerprint(row),
        made_at=row.made_at,
        stored_at=row.stored_at,
        labels=labels_from_text(row.labels),
        run_ids=run_ids,
        earlier=earlier,
    )


def _damage(row: Any, runs: Mapping[int, str] | None) -> str | None:
    """Why a baseline cannot be read, as far as its own row and the places of its runs show it, or None."""
    try:
        _fingerprint(row)
    except StoreError as error:
        return str(error)
    unreadable = [name for name in _TEXTS if type(getattr(row, name)) is not str]
    if unreadable:
        return _damaged(row, f"its {unreadable[0]} is no text")
    if not runs:
        return _damaged(row, "its runs are gone")
    if list(runs) != list(range(len(runs))):
        return _damaged(row, "some of its runs are gone")
    return None


def _fingerprint(row: Any) -> Fingerprint:
    try:
        return msgspec.json.decode(row.fingerprint, type=Fingerprint)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise StoreError(_damaged(row, f"its fingerprint cannot be read ({error})")) from error


def _damaged(row: Any, why: str) -> str:
    return (
        f"the baseline {row.id} ({row.name!r:.80} of {row.host!r:.80}) in the store is damaged: {why}; "
        f"remove it with pyxfer baseline remove {row.id}, and save another"
    )
