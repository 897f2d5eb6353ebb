"""Which baselines a store has, and each with its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, func, select

from pyxfer.errors import StoreError
from pyxfer.model_baselines import Baseline, Fingerprint
from pyxfer.model_store import DamagedBaseline, KeptBaseline

from .limits import now_text
from .packing import labels_from_text, unpack_run
from .tables import BASELINE_RUNS, BASELINES, DOCUMENTS, RUNS

_KEPT = BASELINES.c.removed_at.is_(None)


def current(connection: Connection, name: str, identity: str) -> Baseline | None:
    """The newest of a name on one machine."""
    found = select(BASELINES).where(BASELINES.c.identity == identity, BASELINES.c.name == name, _KEPT)
    return _whole(connection, found.order_by(BASELINES.c.seq.desc()).limit(1))


def of_id(connection: Connection, baseline_id: str) -> Baseline | None:
    """The one with this id, as long as it is not removed."""
    return _whole(connection, select(BASELINES).where(BASELINES.c.id == baseline_id, _KEPT))


def of_digest(connection: Connection, sha256: str) -> str | None:
    """The id of a baseline that is kept and has this digest."""
    found = connection.execute(select(BASELINES.c.id).where(BASELINES.c.sha256 == sha256, _KEPT)).first()
    return None if found is None else str(found.id)


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
    rows = connection.execute(select(BASELINES, newest.c.count).join(newest, newest.c.seq == BASELINES.c.seq)).all()
    of_newest = (
        select(BASELINE_RUNS.c.baseline, RUNS.c.id)
        .join(RUNS, RUNS.c.seq == BASELINE_RUNS.c.run)
        .join(newest, newest.c.seq == BASELINE_RUNS.c.baseline)
        .order_by(BASELINE_RUNS.c.baseline, BASELINE_RUNS.c.place)
    )
    run_ids: dict[int, list[str]] = {}
    for seq, run_id in connection.execute(of_newest):
        run_ids.setdefault(seq, []).append(run_id)
    listed = [_kept(row, tuple(run_ids.get(row.seq, ())), row[-1] - 1) for row in rows if _damage(row) is None]
    return sorted(listed, key=lambda each: (each.fingerprint.host, each.name, each.fingerprint.gpu.value or ""))


def damaged(connection: Connection, host: str | None) -> list[DamagedBaseline]:
    """Those that cannot be read any more, also where they are not the newest."""
    asked = select(BASELINES).where(_KEPT).order_by(BASELINES.c.seq)
    rows = connection.execute(asked if host is None else asked.where(BASELINES.c.host == host))
    found = ((row, _damage(row)) for row in rows)
    return [DamagedBaseline(row.id, row.name, row.host, why) for row, why in found if why is not None]


def _whole(connection: Connection, asked: Select[Any]) -> Baseline | None:
    row = connection.execute(asked).first()
    if row is None:
        return None
    joined = (
        select(RUNS.c.id, RUNS.c.sha256, DOCUMENTS.c.document)
        .join(DOCUMENTS, DOCUMENTS.c.run == RUNS.c.seq)
        .join(BASELINE_RUNS, BASELINE_RUNS.c.run == RUNS.c.seq)
    )
    runs = connection.execute(joined.where(BASELINE_RUNS.c.baseline == row.seq).order_by(BASELINE_RUNS.c.place))
    return Baseline(
        name=row.name,
        fingerprint=_fingerprint(row),
        made_at=row.made_at,
        labels=labels_from_text(row.labels),
        runs=tuple(unpack_run(each.id, each.sha256, each.document) for each in runs),
    )


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


def _damage(row: Any) -> str | None:
    """Why a baseline cannot be read, or None."""
    try:
        _fingerprint(row)
    except StoreError as error:
        return str(error)
    return None


def _fingerprint(row: Any) -> Fingerprint:
    try:
        return msgspec.json.decode(row.fingerprint, type=Fingerprint)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise StoreError(
            f"the baseline {row.id} ({row.name!r:.80} of {row.host!r:.80}) in the store is damaged: its fingerprint "
            f"cannot be read ({error}); remove it with pyxfer baseline remove {row.id}, and save another"
        ) from error
