"""The store: runs and baselines of one host or of many, appended and never rewritten."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, func, select

from pyxfer._baseline import store_database, store_queries
from pyxfer._baseline.cells import RAW, parse_cell
from pyxfer._baseline.store_database import Database, Place, SqliteFile, engine_of, find_place
from pyxfer._baseline.store_schema import (
    CELLS,
    DOCUMENTS,
    MEASURED,
    RUNS,
    check_asked,
    labels_from_text,
    parse_since,
    unpack_run,
)
from pyxfer._document.baselines import Baseline, DamagedBaseline, History, KeptBaseline, StoredRun
from pyxfer._document.runs import Run
from pyxfer.errors import StoreError


def open_database(place: Place, *, create: bool) -> Database:
    """The store at a place.

    Raises:
        StoreError: it is none, cannot be reached, or comes from a later pyxfer; or it is not there and is not to be.

    """
    file = None if place.path is None else _file(place, create)
    if file is not None:
        engine = file.engine()
    elif place.url is not None:
        engine = engine_of(place.url)
    else:
        raise AssertionError("a place is a file or a URL")
    database = Database(place, engine, file)
    try:
        _bring_up_to_date(database, create)
    except BaseException:
        database.close()
        raise
    return database


def _file(place: Place, create: bool) -> SqliteFile:
    file = SqliteFile(place)
    if not file.exists():
        if not create:
            raise _missing(place)
        file.create()
    return file


def _bring_up_to_date(database: Database, create: bool) -> None:
    version = database.read(store_database.version_of, patiently=False)
    store_database.check_version(version, database.place.shown)
    if version == 0 and not create:
        raise _missing(database.place)
    if version < store_database.NEWEST:
        database.migrate(version)
    if database.file is not None and database.file.may_write:
        database.file.choose_journal(database.engine)


def _missing(place: Place) -> StoreError:
    return StoreError(
        f"there is no store at {place.shown} yet: the first pyxfer baseline save makes it; name another with --store"
    )


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


_MOST_NAMED = 8


def choose(store: Store, wanted: str, host: str | None = None) -> KeptBaseline:
    """The one of that name or id; `StoreError` where there is none, it is damaged, or more than one machine has it.

    Where no host was named and several have it, this host's is meant.
    """
    kept = store.baselines(host)
    if not any(wanted in (each.id, each.name) for each in kept):
        for damaged in store.damaged_baselines(host):
            if wanted in (damaged.id, damaged.name):
                raise StoreError(damaged.why)
    return _choose_among(kept, wanted, host, store.shown)


def machine(kept: KeptBaseline) -> str:
    """The host, and which GPU of it."""
    gpu = kept.fingerprint.gpu.value
    return f"{kept.fingerprint.host}, {gpu or kept.fingerprint.device}"


def _choose_among(kept: Sequence[KeptBaseline], wanted: str, host: str | None, shown: str) -> KeptBaseline:
    of_id = [each for each in kept if each.id == wanted]
    named = of_id or [each for each in kept if each.name == wanted]
    if host is None and len(named) > 1:
        named = [each for each in named if each.fingerprint.host == platform.node()] or named
    if not named:
        raise StoreError(f"the store {shown} has no baseline {wanted!r:.80}{_of(host)}; {_there(kept)}")
    if len(named) > 1:
        machines = _listed([f"{each.id} ({machine(each)})" for each in named])
        raise StoreError(
            f"{len(named)} machines have a baseline {wanted!r:.80}{_of(host)}: name one by its id, {machines}"
        )
    return named[0]


def _of(host: str | None) -> str:
    return "" if host is None else f" of the host {host!r:.80}"


def _there(kept: Sequence[KeptBaseline]) -> str:
    if not kept:
        return "it has none; pyxfer baseline save makes one"
    return f"it has {_listed(sorted({repr(each.name) for each in kept}))}"


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


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
        """Let go of its connections."""
        self._database.close()

    @property
    def shown(self) -> str:
        """Where it is, without a password."""
        return self._database.place.shown

    def add_run(self, run: Run, labels: Mapping[str, str] = {}) -> str:
        """Append a run; its id.

        Raises:
            StoreError: it was not stored, or (`StoreDoubtError`) that is not known; the text says why.

        """
        new = store_queries.run_to_store(run, labels)
        self._database.write(
            f"the run {new.id}",
            lambda connection: store_queries.append_run(connection, new),
            lambda connection: store_queries.is_run_there(connection, new.id),
        )
        return new.id

    def run(self, run_id: str) -> StoredRun:
        """The run with this id, as it was stored."""
        found = self._database.read(lambda connection: of_id(connection, run_id))
        if found is None:
            raise StoreError(
                f"the store {self.shown} has no run {run_id!r:.60}; pyxfer history shows those that it has"
            )
        return found

    def newest_raw_runs(self, host: str) -> list[StoredRun]:
        """Of every GPU of a host the newest run that has raw copies."""
        return self._database.read(lambda connection: newest_raw(connection, host))

    def add_baseline(self, baseline: Baseline) -> str:
        """Append a baseline and its runs, all or nothing; its id. It is the current one of its name and machine.

        Raises:
            StoreError: it was not stored, or (`StoreDoubtError`) that is not known; the text says why.

        """
        new = store_queries.baseline_to_store(baseline)
        self._database.write(
            f"the baseline {baseline.name!r:.80}",
            lambda connection: store_queries.insert_baseline(connection, new),
            lambda connection: store_queries.is_baseline_there(connection, new.id),
        )
        return new.id

    def baseline(self, name: str, identity: str) -> Baseline | None:
        """The current baseline of this name on the machine with this identity, or None."""
        return self._database.read(lambda connection: store_queries.current(connection, name, identity))

    def baseline_of_id(self, baseline_id: str) -> Baseline:
        """The baseline with this id, also where it is not the current one."""
        found = self._database.read(lambda connection: store_queries.of_id(connection, baseline_id))
        if found is None:
            raise StoreError(
                f"the store {self.shown} has no baseline {baseline_id!r:.60}; pyxfer baseline list shows all"
            )
        return found

    def baselines(self, host: str | None = None) -> list[KeptBaseline]:
        """The current baselines of all hosts, or of one, by host and name; those that are damaged are left out."""
        check_asked(host=host)
        return self._database.read(lambda connection: store_queries.kept(connection, host))

    def damaged_baselines(self, host: str | None = None) -> list[DamagedBaseline]:
        """The baselines that cannot be read any more, each with the reason; `remove_baseline_of_id` removes one."""
        check_asked(host=host)
        return self._database.read(lambda connection: store_queries.damaged(connection, host))

    def is_damaged(self, baseline_id: str) -> bool:
        """Whether there is a baseline with this id that cannot be read any more, its runs included."""
        return self._database.read(lambda connection: store_queries.is_damaged(connection, baseline_id))

    def remove_baseline(self, name: str, identity: str) -> int:
        """Remove the baselines of this name on one machine; how many they were. Their runs stay."""
        return self._remove(store_queries.Removal.of_name(name, identity), name)

    def remove_baseline_of_id(self, baseline_id: str) -> bool:
        """Remove one alone, also one that is damaged; whether it was there. The one before it is the current then."""
        return self._remove(store_queries.Removal.of_id(baseline_id), baseline_id) > 0

    def _remove(self, removal: store_queries.Removal, what: str) -> int:
        self._database.write(f"the removal of {what!r:.80}", removal.mark, removal.is_marked)
        return removal.count

    def history(
        self,
        cell: str | None = None,
        *,
        host: str | None = None,
        since: str | None = None,
        limit: int = store_queries.MOST_POINTS,
    ) -> History:
        """What was measured over time: one group for each machine and cell, the oldest first.

        `cell` is text such as `h2d:pinned:256MiB`; without one it is pinned memory at the largest size of the newest
        run. `since` is `30d`, `12h` or a date. Of more points than the limit the newest are taken, and that is said.
        """
        check_asked(cell=cell, host=host, since=since)
        pattern = None if cell is None else parse_cell(cell)
        since_s = None if since is None else parse_since(since)
        asked = store_queries.Asked(pattern, cell or "", host, since_s, limit)
        return self._database.read(lambda connection: store_queries.find(connection, asked))

    def same_baseline(self, baseline: Baseline) -> str | None:
        """The id of a baseline that is the same in everything, where the store has one already."""
        digest = store_queries.digest_of(baseline)
        return self._database.read(lambda connection: store_queries.of_digest(connection, digest))


def open_store(url: str | os.PathLike[str] | None = None, *, create: bool = True) -> Store:
    """The store at a URL or path; without one where `PYXFER_STORE` says, else in the user's data directory.

    Raises:
        StoreError: it is none, cannot be reached, or comes from a later pyxfer.

    """
    return Store(open_database(find_place(url), create=create))
