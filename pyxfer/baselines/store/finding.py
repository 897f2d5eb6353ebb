"""Which baselines a store has, and each with its runs."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Select, func, select

from pyxfer.errors import StoreError
from pyxfer.model_baselines import Baseline, Fingerprint
from pyxfer.model_store import KeptBaseline

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


class Removal:
    """All baselines of a name on one machine, to be left out from now on."""

    def __init__(self, name: str, identity: str) -> None:
        self._these = (BASELINES.c.identity == identity, BASELINES.c.name == name, _KEPT)
        self.count = 0

    def mark(self, connection: Connection) -> None:
        """Mark them; `count` is how many they are."""
        self.count = connection.execute(BASELINES.update().where(*self._these).values(removed_at=now_text())).rowcount

    def is_marked(self, connection: Connection) -> bool:
        """Whether none is left."""
        return connection.execute(select(BASELINES.c.seq).where(*self._these)).first() is None


def kept(connection: Connection, host: str | None) -> list[KeptBaseline]:
    """The newest of each name on each machine, by host and name; how many earlier ones there are stands with it."""
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
    listed = [_kept(row, tuple(run_ids.get(row.seq, ())), row[-1] - 1) for row in rows]
    return sorted(listed, key=lambda each: (each.fingerprint.host, each.name, each.fingerprint.gpu.value or ""))


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


def _fingerprint(row: Any) -> Fingerprint:
    try:
        return msgspec.json.decode(row.fingerprint, type=Fingerprint)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"the baseline {row.id} in the store is damaged: its fingerprint cannot be read ({error}); remove it "
            "and save another"
        ) from error
