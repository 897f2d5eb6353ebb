"""What a store has of some cells over time, one group for each machine and cell."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, func, select

from pyxfer.baselines.cells import CellPattern, cell_text, is_raw
from pyxfer.errors import StoreError, UsageError
from pyxfer.model import Fact, Remark
from pyxfer.model_baselines import Cell
from pyxfer.model_store import History, HistoryGroup, HistoryPoint

from .columns import FROM_A_BACKUP
from .tables import CELLS, MEASURED, RUNS

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
        rows = _rows(connection, number, asked, most + 1)
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


def _rows(connection: Connection, cell: int, asked: Asked, most: int) -> Sequence[Row[Any]]:
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


def _check_numbers(row: Row[Any]) -> None:
    """Refuse what somebody has changed: SQLite keeps text in a column of numbers, too."""
    values = row._mapping
    known = [name for name in _NUMBERS_IF_KNOWN if values[name] is not None]
    wrong = next((name for name in (*_NUMBERS, *known) if not isinstance(values[name], (int, float))), None)
    if wrong is not None:
        raise StoreError(
            f"the store is damaged: {wrong} of the run {row.id} is {values[wrong]!r:.40} and no number; {FROM_A_BACKUP}"
        )


def _groups(cell: Cell, rows: Iterable[Row[Any]]) -> list[HistoryGroup]:
    together: dict[tuple[str | None, ...], list[Row[Any]]] = {}
    for row in rows:
        # Drivers have renamed devices, so the name counts only where there is no UUID.
        which = (row.gpu, None) if row.gpu is not None else (None, row.device)
        together.setdefault((row.host, row.runtime, *which, row.worker), []).append(row)
    return [_group(cell, members) for members in together.values()]


def _group(cell: Cell, rows: list[Row[Any]]) -> HistoryGroup:
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


def _point(row: Row[Any], median_gbps: float) -> HistoryPoint:
    return HistoryPoint(
        run_id=row.id,
        taken_at=row.taken_at,
        gbps=row.gbps,
        low_gbps=row.low_gbps,
        high_gbps=row.high_gbps,
        median_s=row.median_s,
        change=row.gbps / median_gbps if median_gbps else 1.0,
    )


def _put_in_order(rows: list[Row[Any]]) -> tuple[Remark, ...]:
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
