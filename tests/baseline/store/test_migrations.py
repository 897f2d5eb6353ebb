"""A store of every earlier version is brought to the newest without losing anything."""

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
from pyxfer._baseline import store_database, store_schema
from pyxfer._baseline.cells import identity
from pyxfer._baseline.store import open_store

EARLIER = range(1, store_database.NEWEST)


@pytest.mark.parametrize("version", EARLIER)
def test_all_that_an_earlier_version_held_is_there_after_it(store_url: str, version: int) -> None:
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
def test_what_is_stored_after_it_is_as_in_a_new_store(store_url: str, version: int) -> None:
    make_version(store_url, version)
    with open_store(store_url) as store:
        store.add_run(run_at(day=4))
        (group,) = store.history("h2d:pinned:16MiB").groups
        assert len(group.points) == 4


@pytest.mark.parametrize("version", EARLIER)
def test_a_step_that_fails_leaves_the_store_as_it_was(
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


def test_a_store_of_a_later_version_is_refused_and_left_as_it_is(store_url: str) -> None:
    open_store(store_url).close()
    with database(store_url) as connection:
        connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
    with pytest.raises(StoreError, match="has version 99, made by a later pyxfer, and this one knows up to"):
        open_store(store_url)


def test_a_store_that_a_later_pyxfer_migrates_meanwhile_takes_nothing_more(store_url: str) -> None:
    with open_store(store_url) as store:
        with database(store_url) as connection:
            connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
        with pytest.raises(StoreError, match="made by a later pyxfer"):
            store.add_run(make_run())
    assert contents.rows(store_url, "SELECT COUNT(*) FROM pyxfer_runs") == [(0,)]


def test_the_tables_are_those_that_the_queries_expect(store_url: str) -> None:
    open_store(store_url).close()
    with database(store_url) as connection:
        found = inspect(connection)
        for metadata in (store_schema.TABLES_1, store_schema.TABLES_2):
            for table in metadata.tables.values():
                there = {column["name"] for column in found.get_columns(table.name)}
                assert there == {column.name for column in table.columns}


def test_an_earlier_store_that_may_only_be_read_says_that_it_cannot_be_brought_up_to_date(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    make_version(url, 1)

    def refuse(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA query_only=ON")

    event.listen(Engine, "connect", refuse)
    try:
        with pytest.raises(StoreError, match=r"version 2 of the tables \(they have version 1\) was not saved"):
            open_store(url)
    finally:
        event.remove(Engine, "connect", refuse)
    open_store(url).close()


def test_every_table_has_a_name_of_its_own() -> None:
    tables = [*store_schema.TABLES_1.tables.values(), *store_schema.TABLES_2.tables.values(), store_database.VERSIONS]
    assert len({table.name for table in tables}) == len(tables)
    assert all(table.name.startswith("pyxfer_") for table in tables), "a server's database may hold others' too"
