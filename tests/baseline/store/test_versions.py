"""The tables of a store, and a store of a later version."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from baseline.store import contents
from baseline.store.contents import database
from samples import make_run
from sqlalchemy import Connection, Engine, event, inspect, text

from pyxfer import StoreError
from pyxfer._baseline import store_database, store_tables
from pyxfer._baseline.store import open_store


def test_the_tables_have_the_columns_of_their_definitions(store_url: str) -> None:
    open_store(store_url).close()
    assert contents.rows(store_url, "SELECT version FROM pyxfer_schema") == [(store_tables.VERSION,)]
    with database(store_url) as connection:
        found = inspect(connection)
        for table in store_tables.TABLES.tables.values():
            assert {column["name"] for column in found.get_columns(table.name)} == set(table.columns.keys())


def test_every_table_has_a_name_with_a_prefix() -> None:
    names = store_tables.TABLES.tables
    assert all(name.startswith("pyxfer_") for name in names), "a database on a server may have other tables"


def test_a_failed_creation_leaves_no_tables(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create = store_database.create_tables

    def fails_late(connection: Connection) -> None:
        create(connection)
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))

    monkeypatch.setattr(store_database, "create_tables", fails_late)
    with pytest.raises(StoreError, match="was not saved"):
        open_store(store_url)
    monkeypatch.undo()
    with database(store_url) as connection:
        assert not inspect(connection).has_table("pyxfer_schema")
    open_store(store_url).close()


def test_a_read_only_store_without_tables_is_refused(tmp_path: Path) -> None:
    def refuse(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA query_only=ON")

    event.listen(Engine, "connect", refuse)
    try:
        with pytest.raises(StoreError, match="the schema of the store was not saved"):
            open_store(str(tmp_path / "store.db"))
    finally:
        event.remove(Engine, "connect", refuse)
    open_store(str(tmp_path / "store.db")).close()


def test_a_store_of_a_later_version_is_refused(store_url: str) -> None:
    open_store(store_url).close()
    with database(store_url) as connection:
        connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
    with pytest.raises(StoreError, match="has version 99"):
        open_store(store_url)


def test_an_open_store_refuses_a_save_after_a_later_pyxfer_has_changed_it(store_url: str) -> None:
    with open_store(store_url) as store:
        with database(store_url) as connection:
            connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
        with pytest.raises(StoreError, match="has version 99"):
            store.add_run(make_run())
    assert contents.rows(store_url, "SELECT COUNT(*) FROM pyxfer_runs") == [(0,)]
