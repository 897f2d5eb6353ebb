"""Which baselines a store has, and each with its runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, func, select, type_coerce

from pyxfer.errors import StoreError
from pyxfer.model_baselines import Baseline, Fingerprint
from pyxfer.model_store import DamagedBaseline, KeptBaseline

from .columns import AnyText, TextOrNot
from .limits import now_text
from .packing import decode_run, digest_of_parts, labels_from_text, unpack
from .sqlite_files import taking_any_text
from .tables import BASELINE_RUNS, BASELINES, DOCUMENTS, RUNS

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
