"""Migrating a store of every earlier version to the newest."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from baseline.store import contents
from baseline.store.earlier import database, make_version
from baseline.store.making import make_baseline, run_at
from samples import make_run
from sqlalchemy import Connection, Engine, event, inspect, text

from pyxfer import StoreError
from pyxfer._baseline import store_database, store_fleets, store_hosts, store_schema
from pyxfer._baseline.cells import identity
from pyxfer._baseline.store import open_store

METADATA = (store_schema.TABLES_1, store_schema.TABLES_2, store_fleets.TABLES_3, store_hosts.TABLES_4)
EARLIER = range(1, store_database.NEWEST)


@pytest.mark.parametrize("version", EARLIER)
def test_a_migration_keeps_everything(store_url: str, version: int) -> None:
    make_version(store_url, version)
    with open_store(store_url, create=False) as store:
        baseline = make_baseline()
        assert store.baseline("default", identity(baseline.fingerprint)) == baseline
        assert [kept.run_ids for kept in store.baselines()] == [tuple(f"r-{n:012}" for n in range(3))]
        assert store.run("r-000000000001").labels == {"n": "\0"}
        (group,) = store.history("h2d:pinned:16MiB").groups
        assert [point.run_id for point in group.points] == [f"r-{n:012}" for n in range(3)]
    assert contents.rows(store_url, "SELECT MAX(version) FROM pyxfer_schema") == [(store_database.NEWEST,)]


@pytest.mark.parametrize("version", EARLIER)
def test_a_migrated_store_takes_new_runs(store_url: str, version: int) -> None:
    make_version(store_url, version)
    with open_store(store_url) as store:
        store.add_run(run_at(day=4))
        (group,) = store.history("h2d:pinned:16MiB").groups
        assert len(group.points) == 4


@pytest.mark.parametrize("version", EARLIER)
def test_a_failed_migration_leaves_the_store_unchanged(
    store_url: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_version(store_url, version)

    def fails_late(connection: Connection) -> None:
        store_database.STEPS[version](connection)
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))

    steps = (*store_database.STEPS[:version], fails_late)
    monkeypatch.setattr(store_database.migrate, "__defaults__", (steps,))
    with pytest.raises(StoreError, match="was not saved"):
        open_store(store_url)
    monkeypatch.undo()
    assert contents.rows(store_url, "SELECT MAX(version) FROM pyxfer_schema") == [(version,)]
    with open_store(store_url) as store:
        assert len(store.baselines()) == 1


def test_a_damaged_document_does_not_stop_a_migration(store_url: str) -> None:
    make_version(store_url, 1)
    with database(store_url) as connection:
        connection.execute(text("UPDATE pyxfer_runs SET sha256 = '0' WHERE id = 'r-000000000001'"))
    with open_store(store_url) as store:
        (group,) = store.history("h2d:pinned:16MiB").groups
        assert [point.run_id for point in group.points] == ["r-000000000000", "r-000000000002"]
        with pytest.raises(StoreError, match="r-000000000001 in the store is damaged"):
            store.run("r-000000000001")


def test_a_store_of_a_later_version_is_refused(store_url: str) -> None:
    open_store(store_url).close()
    with database(store_url) as connection:
        connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
    with pytest.raises(StoreError, match="has version 99"):
        open_store(store_url)


def test_an_open_store_refuses_a_save_after_a_later_pyxfer_has_migrated_it(store_url: str) -> None:
    with open_store(store_url) as store:
        with database(store_url) as connection:
            connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
        with pytest.raises(StoreError, match="has version 99"):
            store.add_run(make_run())
    assert contents.rows(store_url, "SELECT COUNT(*) FROM pyxfer_runs") == [(0,)]


def test_the_tables_have_the_columns_of_their_definitions(store_url: str) -> None:
    open_store(store_url).close()
    with database(store_url) as connection:
        found = inspect(connection)
        for metadata in METADATA:
            for table in metadata.tables.values():
                assert {column["name"] for column in found.get_columns(table.name)} == set(table.columns.keys())


def test_a_read_only_store_of_an_earlier_version_cannot_be_migrated(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    make_version(url, 1)

    def refuse(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA query_only=ON")

    event.listen(Engine, "connect", refuse)
    try:
        with pytest.raises(StoreError, match=r"version 4 of the tables \(they have version 1\) was not saved"):
            open_store(url)
    finally:
        event.remove(Engine, "connect", refuse)
    open_store(url).close()


def test_every_table_has_a_unique_name_with_a_prefix() -> None:
    tables = [*(table for each in METADATA for table in each.tables.values()), store_database.VERSIONS]
    assert len({table.name for table in tables}) == len(tables)
    assert all(table.name.startswith("pyxfer_") for table in tables), "a database on a server may have other tables"
