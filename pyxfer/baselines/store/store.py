"""The store: runs and baselines of one host or of many, appended and never rewritten."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType

from pyxfer.baselines.cells import parse_cell
from pyxfer.errors import StoreError
from pyxfer.model import Run
from pyxfer.model_baselines import Baseline
from pyxfer.model_store import DamagedBaseline, History, KeptBaseline, StoredRun

from . import finding, histories, inserting, stored_runs
from .database import Database
from .limits import check_asked, parse_since
from .opening import open_database
from .urls import find_place


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
        new = inserting.run_to_store(run, labels)
        self._database.write(
            f"the run {new.id}",
            lambda connection: inserting.append_run(connection, new),
            lambda connection: inserting.is_run_there(connection, new.id),
        )
        return new.id

    def run(self, run_id: str) -> StoredRun:
        """The run with this id, as it was stored."""
        found = self._database.read(lambda connection: stored_runs.of_id(connection, run_id))
        if found is None:
            raise StoreError(
                f"the store {self.shown} has no run {run_id!r:.60}; pyxfer history shows those that it has"
            )
        return found

    def newest_raw_runs(self, host: str) -> list[StoredRun]:
        """Of every GPU of a host the newest run that has raw copies."""
        return self._database.read(lambda connection: stored_runs.newest_raw(connection, host))

    def add_baseline(self, baseline: Baseline) -> str:
        """Append a baseline and its runs, all or nothing; its id. It is the current one of its name and machine.

        Raises:
            StoreError: it was not stored, or (`StoreDoubtError`) that is not known; the text says why.

        """
        new = inserting.baseline_to_store(baseline)
        self._database.write(
            f"the baseline {baseline.name!r:.80}",
            lambda connection: inserting.insert_baseline(connection, new),
            lambda connection: inserting.is_baseline_there(connection, new.id),
        )
        return new.id

    def baseline(self, name: str, identity: str) -> Baseline | None:
        """The current baseline of this name on the machine with this identity, or None."""
        return self._database.read(lambda connection: finding.current(connection, name, identity))

    def baseline_of_id(self, baseline_id: str) -> Baseline:
        """The baseline with this id, also where it is not the current one."""
        found = self._database.read(lambda connection: finding.of_id(connection, baseline_id))
        if found is None:
            raise StoreError(
                f"the store {self.shown} has no baseline {baseline_id!r:.60}; pyxfer baseline list shows all"
            )
        return found

    def baselines(self, host: str | None = None) -> list[KeptBaseline]:
        """The current baselines of all hosts, or of one, by host and name; those that are damaged are left out."""
        check_asked(host=host)
        return self._database.read(lambda connection: finding.kept(connection, host))

    def damaged_baselines(self, host: str | None = None) -> list[DamagedBaseline]:
        """The baselines that cannot be read any more, each with the reason; `remove_baseline_of_id` removes one."""
        check_asked(host=host)
        return self._database.read(lambda connection: finding.damaged(connection, host))

    def is_damaged(self, baseline_id: str) -> bool:
        """Whether there is a baseline with this id that cannot be read any more, its runs included."""
        return self._database.read(lambda connection: finding.is_damaged(connection, baseline_id))

    def remove_baseline(self, name: str, identity: str) -> int:
        """Remove the baselines of this name on one machine; how many they were. Their runs stay."""
        return self._remove(finding.Removal.of_name(name, identity), name)

    def remove_baseline_of_id(self, baseline_id: str) -> bool:
        """Remove one alone, also one that is damaged; whether it was there. The one before it is the current then."""
        return self._remove(finding.Removal.of_id(baseline_id), baseline_id) > 0

    def _remove(self, removal: finding.Removal, what: str) -> int:
        self._database.write(f"the removal of {what!r:.80}", removal.mark, removal.is_marked)
        return removal.count

    def history(
        self,
        cell: str | None = None,
        *,
        host: str | None = None,
        since: str | None = None,
        limit: int = histories.MOST_POINTS,
    ) -> History:
        """What was measured over time: one group for each machine and cell, the oldest first.

        `cell` is text such as `h2d:pinned:256MiB`; without one it is pinned memory at the largest size of the newest
        run. `since` is `30d`, `12h` or a date. Of more points than the limit the newest are taken, and that is said.
        """
        check_asked(cell=cell, host=host, since=since)
        pattern = None if cell is None else parse_cell(cell)
        since_s = None if since is None else parse_since(since)
        asked = histories.Asked(pattern, cell or "", host, since_s, limit)
        return self._database.read(lambda connection: histories.find(connection, asked))

    def same_baseline(self, baseline: Baseline) -> str | None:
        """The id of a baseline that is the same in everything, where the store has one already."""
        digest = inserting.digest_of(baseline)
        return self._database.read(lambda connection: finding.of_digest(connection, digest))


def open_store(url: str | os.PathLike[str] | None = None, *, create: bool = True) -> Store:
    """The store at a URL or path; without one where `PYXFER_STORE` says, else in the user's data directory.

    Raises:
        StoreError: it is none, cannot be reached, or comes from a later pyxfer.

    """
    return Store(open_database(find_place(url), create=create))
