"""Where a store is, and how it is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pyxfer import StoreError, UsageError
from pyxfer._baseline.store import open_store
from pyxfer._baseline.store_database import find_place


def test_without_a_name_it_is_a_file_in_the_users_data_directory() -> None:
    assert find_place(None, {"XDG_DATA_HOME": "/data"}).path == Path("/data/pyxfer/store.db")
    home = Path.home() / ".local/share/pyxfer/store.db"
    assert find_place(None, {}).path == home
    assert find_place(None, {"XDG_DATA_HOME": "relative"}).path == home, "which the specification wants ignored"


def test_the_variable_names_one_and_the_option_another() -> None:
    environ = {"PYXFER_STORE": "/here/a.db"}
    assert find_place(None, environ).path == Path("/here/a.db")
    assert find_place("/there/b.db", environ).path == Path("/there/b.db")
    assert find_place(None, {"PYXFER_STORE": "", "XDG_DATA_HOME": "/data"}).path == Path("/data/pyxfer/store.db")


@pytest.mark.parametrize(
    "text", ["sqlite:////here/a.db", "SQLite+pysqlite:////here/a.db", "/here/a.db", "/here/./a.db"]
)
def test_a_file_is_named_by_its_path_or_url(text: str) -> None:
    assert find_place(text).path == Path("/here/a.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_a_server_is_spoken_to_by_psycopg(scheme: str) -> None:
    place = find_place(f"{scheme}://user:hush@server:5433/db")
    assert place.url is not None
    assert place.url.drivername == "postgresql+psycopg"
    assert place.shown == "'postgresql+psycopg://user:***@server:5433/db'"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("a\0b", "null character"),
        ("sqlite://", "would end with this process"),
        ("sqlite:///:memory:", "would end with this process"),
        ("sqlite:////a.db?mode=ro", "write the path alone"),
        ("mysql://server/db", "is of the kind 'mysql', and there are SQLite and PostgreSQL"),
        ("postgresql+asyncpg://server/db", "the driver 'postgresql\\+asyncpg'; write postgresql\\+psycopg://"),
        ("postgresql://user:hush@server:port/db", "not a URL that can be read"),
        ("postgresql://\udcff/db", "not a URL that can be read"),
        ("postgresql://server/db?sslpassword=hush", "where it would be shown"),
        ("postgresql://user:secret@hush@server:1/db", "has an @ besides the one before the server.*%40"),
        ("postgresql://user:a@b/hush@server/db", "has an @ besides the one"),
        ("postgresql://user:a@b?hush@server/db", "has an @ besides the one"),
        ("postgresql://us/er:hush@server/db", "has an @ besides the one"),
        ("postgresql:/user:hush@server/db", "the store, 'postgresql...', is not a URL"),
        ("postgresql//user:hush@server/db", "the store, 'postgresql...', is not a URL"),
        (" Postgres:user:hush@server/db", "the store, 'postgresql...', is not a URL"),
        ("postgresql//user:hush://x@server/db", "is not a URL"),
    ],
)
def test_what_names_no_store_is_refused_with_an_example(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        find_place(text)
    assert "hush" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "/store.db" in str(caught.value) or "postgresql+psycopg://" in str(caught.value)


def test_a_password_with_an_escaped_at_sign_is_one() -> None:
    place = find_place("postgresql://user:a%40b@server/db")
    assert place.url is not None
    assert (place.url.password, place.url.host) == ("a@b", "server")


def test_a_path_names_a_file_like_its_text(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        assert store.shown == repr(str(tmp_path / "a.db"))
    number: Any = 3
    with pytest.raises(UsageError, match="by text or a path, and not by int"):
        open_store(number)


def test_the_variable_is_named_where_it_is_wrong() -> None:
    with pytest.raises(UsageError, match="PYXFER_STORE names"):
        find_place(None, {"PYXFER_STORE": "mysql://server/db"})


def test_without_psycopg_it_is_said_how_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'pyxfer\[postgresql\]'"):
        open_store("postgresql://server/db")


def test_a_store_that_is_not_there_is_made_only_where_something_is_to_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(StoreError, match=r"there is no store at .* yet: the first pyxfer baseline save makes it"):
        open_store(str(path), create=False)
    assert not path.exists()
    open_store(str(path)).close()
    open_store(str(path), create=False).close()
