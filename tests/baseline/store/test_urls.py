"""The place of a store, by path, URL, variable or default."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyxfer import StoreError, UsageError
from pyxfer._baseline.store import open_store
from pyxfer._baseline.store_database import find_location


def test_the_default_is_a_file_in_the_data_directory() -> None:
    assert find_location(None, {"XDG_DATA_HOME": "/data"}).path == Path("/data/pyxfer/store.db")
    home = Path.home() / ".local/share/pyxfer/store.db"
    assert find_location(None, {}).path == home
    assert find_location(None, {"XDG_DATA_HOME": "relative"}).path == home, "the specification ignores relative paths"


def test_an_argument_has_precedence_over_the_variable() -> None:
    environ = {"PYXFER_STORE": "/here/a.db"}
    assert find_location(None, environ).path == Path("/here/a.db")
    assert find_location("/there/b.db", environ).path == Path("/there/b.db")
    assert find_location(None, {"PYXFER_STORE": "", "XDG_DATA_HOME": "/data"}).path == Path("/data/pyxfer/store.db")


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
        ("", "empty name"),
        (" ", "empty name"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:////a.db?mode=ro", "write the path alone"),
        ("mysql://server/db", "is of the kind 'mysql'"),
        ("postgresql+asyncpg://server/db", "the driver 'postgresql\\+asyncpg'; write postgresql\\+psycopg://"),
        ("postgresql://user:hush@server:port/db", "not a valid URL"),
        ("postgresql://server/db?password=hush", "where it would be shown"),
        ("postgresql://server/db?sslpassword=hush", "where it would be shown"),
        ("postgresql://user:secret@hush@server:1/db", "has an @ besides the one before the server.*%40"),
        ("postgresql://user:a@b/hush@server/db", "has an @ besides the one"),
        ("postgresql://user:a@b?hush@server/db", "has an @ besides the one"),
        ("postgresql://us/er:hush@server/db", "has an @ besides the one"),
        ("postgresql:/user:hush@server/db", "the store, 'postgresql...', is not a valid URL"),
        ("postgresql//user:hush@server/db", "is not a valid URL"),
        (" Postgres:user:hush@server/db", "is not a valid URL"),
        ("postgresql//user:hush://x@server/db", "is not a valid URL"),
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


def test_an_error_in_the_variable_names_the_variable() -> None:
    with pytest.raises(UsageError, match="PYXFER_STORE names"):
        find_location(None, {"PYXFER_STORE": "mysql://server/db"})


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
