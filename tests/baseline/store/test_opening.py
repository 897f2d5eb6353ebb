"""The location of a store, by path, URL, variable or default; its tables, and a store of a later version."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest
from baseline.store import making
from baseline.store.making import database
from samples import make_run
from sqlalchemy import Connection, Engine, event, inspect, text

from pyxfer import StoreError, UsageError
from pyxfer._baseline import store_database, store_tables
from pyxfer._baseline.store import open_store
from pyxfer._baseline.store_database import find_location


def test_the_default_is_a_file_in_the_data_directory() -> None:
    assert find_location(None, {"XDG_DATA_HOME": "/data"}).path == Path("/data/pyxfer/store.db")
    home = Path.home() / ".local/share/pyxfer/store.db"
    assert find_location(None, {}).path == home
    assert find_location(None, {"XDG_DATA_HOME": "relative"}).path == home, "the specification ignores relative paths"
    environ = {"PYXFER_STORE": "/here/a.db"}
    assert find_location(None, environ).path == Path("/here/a.db")
    assert find_location("/there/b.db", environ).path == Path("/there/b.db")
    with pytest.raises(UsageError, match="PYXFER_STORE names"):
        find_location(None, {"PYXFER_STORE": "mysql://server/db"})


@pytest.mark.parametrize(
    "text", ["sqlite:////here/a.db", "SQLite+pysqlite:////here/a.db", "/here/a.db", "/here/./a.db"]
)
def test_a_path_or_a_url_names_a_file(text: str) -> None:
    assert find_location(text).path == Path("/here/a.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_a_server_is_connected_to_by_psycopg(scheme: str) -> None:
    place = find_location(f"{scheme}://user:hush@server:5433/db")
    assert place.url is not None
    assert place.url.drivername == "postgresql+psycopg"
    assert place.shown == "'postgresql+psycopg://user:***@server:5433/db'"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" ", "empty name"),
        ("sqlite://", "in memory"),
        ("sqlite:////a.db?mode=ro", "write the path alone"),
        ("mysql://server/db", "is of the kind 'mysql'"),
        ("postgresql+asyncpg://server/db", "the driver 'postgresql\\+asyncpg'; write postgresql\\+psycopg://"),
        ("postgresql://user:hush@server:port/db", "not a valid URL"),
        ("postgresql://server/db?password=hush", "where it would be shown"),
        ("postgresql://user:secret@hush@server:1/db", "has an @ besides the one before the server.*%40"),
        ("postgresql://us/er:hush@server/db", "has an @ besides the one"),
        ("postgresql:/user:hush@server/db", "the store, 'postgresql...', is not a valid URL"),
        (" Postgres:user:hush@server/db", "is not a valid URL"),
    ],
)
def test_an_invalid_name_is_refused_without_its_password(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        find_location(text)
    assert "hush" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "/store.db" in str(caught.value) or "postgresql+psycopg://" in str(caught.value)


def test_a_password_may_have_an_escaped_at_sign() -> None:
    place = find_location("postgresql://user:a%40b@server/db")
    assert place.url is not None
    assert (place.url.password, place.url.host) == ("a@b", "server")


def test_a_path_may_be_an_object(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        assert store.shown == repr(str(tmp_path / "a.db"))
        assert repr(store) == f"<Store {store.shown}>"


def test_without_psycopg_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'pyxfer\[postgresql\]'"):
        open_store("postgresql://server/db")


def test_a_missing_store_is_created_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(StoreError, match=r"does not exist yet.*--store.*url in Python"):
        open_store(str(path), create=False)
    assert not path.exists()
    open_store(str(path)).close()
    open_store(str(path), create=False).close()


# --- tables -----------------------------------------------------------------------------------------------------------


def test_the_tables_have_the_columns_of_their_definitions(store_url: str) -> None:
    open_store(store_url).close()
    assert making.rows(store_url, "SELECT version FROM pyxfer_schema") == [(store_tables.VERSION,)]
    with database(store_url) as connection:
        found = inspect(connection)
        for table in store_tables.TABLES.tables.values():
            assert table.name.startswith("pyxfer_"), "a database on a server may have other tables"
            assert {column["name"] for column in found.get_columns(table.name)} == set(table.columns.keys())


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


def test_an_open_store_refuses_a_save_after_a_later_pyxfer_has_changed_it(store_url: str) -> None:
    with open_store(store_url) as store:
        with database(store_url) as connection:
            connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
        with pytest.raises(StoreError, match="has version 99"):
            store.add_run(make_run())
    with pytest.raises(StoreError, match="has version 99"):
        open_store(store_url)
    assert making.rows(store_url, "SELECT COUNT(*) FROM pyxfer_runs") == [(0,)]
