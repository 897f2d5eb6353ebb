"""The location and the tables of a store, and a store in a file: permissions, locks and errors of the disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from baseline.store import making
from baseline.store.making import database, make_baseline
from command_line import COMMAND, environment
from samples import make_run
from sqlalchemy import Connection, Engine, event, inspect, text
from typer.testing import CliRunner

from pyxfer import StoreError, UsageError
from pyxfer._baseline import store_database, store_tables
from pyxfer._baseline.store import open_store
from pyxfer._baseline.store_database import find_location
from pyxfer._cli.main import app


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
        ("postgresql+asyncpg://server/db", "the driver 'postgresql\\+asyncpg': name a file"),
        ("postgresql://user:hush@server:port/db", "not a valid URL"),
        ("postgresql://server/db?password=hush", "where it would be shown"),
        ("postgresql://user:secret@hush@server:1/db", "has an @ besides the one before the server.*%40"),
        ("postgresql://us/er:hush@server/db", "has an @ besides the one"),
        ("postgresql:/user:hush@server/db", "The store, 'postgresql...', is not a valid URL"),
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
    with pytest.raises(StoreError, match=r"pip install 'psycopg\[binary\]'"):
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


@contextmanager
def every_connection(statement: str) -> Iterator[None]:
    """Connections to files begin with this statement."""

    def execute(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(statement)

    event.listen(Engine, "connect", execute)
    try:
        yield
    finally:
        event.remove(Engine, "connect", execute)


def test_a_read_only_store_without_tables_is_refused(path: Path) -> None:
    refused = pytest.raises(StoreError, match="The schema of the store was not saved")
    with every_connection("PRAGMA query_only=ON"), refused:
        open_store(str(path))
    open_store(str(path)).close()


def test_an_open_store_refuses_a_save_after_a_later_pyxfer_has_changed_it(store_url: str) -> None:
    with open_store(store_url) as store:
        with database(store_url) as connection:
            connection.execute(text("INSERT INTO pyxfer_schema VALUES (99, 'later')"))
        with pytest.raises(StoreError, match="has version 99"):
            store.add_run(make_run())
    with pytest.raises(StoreError, match="has version 99"):
        open_store(store_url)
    assert making.rows(store_url, "SELECT COUNT(*) FROM pyxfer_runs") == [(0,)]


# --- a store in a file -----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def run_unprivileged(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command under the permissions of files, which root ignores."""
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root ignores permissions, and setpriv is not installed")
        command = (setpriv, "--bounding-set=-dac_override,-dac_read_search", *command)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())


def test_only_its_user_can_read_the_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("PYXFER_STORE", raising=False)
    with open_store() as store:
        store.add_run(make_run())
        folder = tmp_path / "data" / "pyxfer"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("content", [b"not a database", b"\x89PNG" * 1000, b"SQLite format 3\0"])
def test_another_file_is_refused_and_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is not a pyxfer store"):
        open_store(str(path))
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with open_store(str(path)) as store:
        assert store.run(store.add_run(make_run())).run == make_run()


@pytest.mark.parametrize("name", [b"\xff?mode=memory#%41 .db", "naïve.db".encode(), b"two\nlines.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    with open_store(str(path)) as store:
        store.add_run(make_run())
    assert path.is_file()


@pytest.mark.parametrize(("name", "words"), [("", "cannot be opened"), ("nowhere/store.db", "create its folder first")])
def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        open_store(tmp_path / name)


def test_a_fifo_is_refused_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreError, match="not a regular file"):
        open_store(path)


def test_a_locked_store_can_be_read_and_refuses_a_save(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_database, "BUSY_S", 0.05)
    with open_store(str(path)) as store:
        run_id = store.add_run(make_run())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"was not saved: .*another program uses it"):
            store.add_run(make_run(), {"n": "2"})
        assert store.run(run_id).run == make_run()
        other.close()
        store.add_run(make_run(), {"n": "2"})
    assert making.rows(str(path), "SELECT COUNT(*) FROM pyxfer_runs") == [(2,)]


@pytest.mark.parametrize("replaced", [False, True])
def test_an_open_store_whose_file_was_moved_refuses_a_save(path: Path, replaced: bool) -> None:
    with open_store(str(path)) as store:
        store.add_run(make_run())
        path.rename(path.with_suffix(".old"))
        if replaced:
            open_store(str(path)).close()
        with pytest.raises(StoreError, match="was not saved: "):
            store.add_run(make_run(), {"n": "2"})


def test_a_full_disk_loses_no_stored_run(path: Path) -> None:
    stored: list[str] = []
    full = pytest.raises(StoreError, match=r"was not saved: .*free space on the disk")
    with every_connection("PRAGMA max_page_count = 60"), open_store(str(path)) as store, full:
        stored.extend(store.add_run(make_run(), {"n": str(n)}) for n in range(1000))
    assert making.rows(str(path), "SELECT id FROM pyxfer_runs ORDER BY seq") == [(run_id,) for run_id in stored]
    assert len(stored) > 3


@pytest.mark.slow
def test_a_store_without_write_permission_can_be_read_and_refuses_a_save(path: Path, tmp_path: Path) -> None:
    with open_store(str(path)) as store:
        run_id = store.add_run(make_run())
    exported = tmp_path / "run.json"
    make_run().save(exported)
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        read = run_unprivileged(*COMMAND, "history", "--store", str(path), "--export-csv", "-")
        assert read.returncode == 0, read.stderr
        assert run_id in read.stdout
        script = f"from pyxfer import *; open_store({str(path)!r}).add_run(Run.load({str(exported)!r}), {{'n': '2'}})"
        written = run_unprivileged(sys.executable, "-c", script)
        assert "was not saved: " in written.stderr
        assert "check the permissions of the file and its folder" in written.stderr
    finally:
        tmp_path.chmod(0o700)


# --- changed rows ----------------------------------------------------------------------------------------------------


NEWEST = "(SELECT MAX(seq) FROM pyxfer_baselines)"


@pytest.fixture
def kept_twice(tmp_path: Path) -> str:
    """A file with two baselines."""
    made = str(tmp_path / "store.db")
    with open_store(made) as store:
        store.add_baseline(make_baseline("good"))
        store.add_baseline(make_baseline("bad", labels={"n": "1"}))
        store.add_baseline(make_baseline("bad", labels={"n": "2"}))
    return made


def id_of_bad(kept_twice: str) -> str:
    with open_store(kept_twice) as store:
        return next(kept.id for kept in store.baselines() if kept.name == "bad")


def change_row(kept_twice: str, statement: str, value: object = None) -> None:
    with database(kept_twice) as connection:
        connection.execute(text(statement), {"value": value} if ":value" in statement else {})


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST}",
        f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST} AND place = 2",
        f"UPDATE pyxfer_baselines SET made_at = '2020-01-01T00:00:00+00:00' WHERE seq = {NEWEST}",
        f"UPDATE pyxfer_baselines SET labels = '{{}}' WHERE seq = {NEWEST}",
    ],
)
def test_a_changed_baseline_is_an_error_that_names_it(kept_twice: str, statement: str, tmp_path: Path) -> None:
    bad = id_of_bad(kept_twice)
    change_row(kept_twice, statement)
    for arguments in (
        ("baseline", "show", "bad"),
        ("baseline", "export", bad, str(tmp_path / "bad.json")),
        ("compare", "baseline:bad", "baseline:good"),
    ):
        result = CliRunner().invoke(app, [*arguments, "--store", kept_twice])
        assert result.exit_code == 2
        assert f"The baseline {bad} ('bad' of 'node-7') in the store is damaged" in result.output


def test_a_changed_baseline_can_be_removed_by_its_id(kept_twice: str) -> None:
    bad = id_of_bad(kept_twice)
    change_row(kept_twice, f"DELETE FROM pyxfer_baseline_runs WHERE baseline = {NEWEST}")
    with open_store(kept_twice) as store:
        assert store.remove_baseline_of_id(bad)
        assert [(kept.name, kept.labels) for kept in store.baselines()] == [("bad", {"n": "1"}), ("good", {})]


def test_a_changed_document_is_an_error_that_names_its_run(kept_twice: str) -> None:
    with open_store(kept_twice) as store:
        run_id = next(kept.run_ids[1] for kept in store.baselines() if kept.name == "bad")
        of_run = f"(SELECT seq FROM pyxfer_runs WHERE id = '{run_id}')"
        change_row(kept_twice, f"UPDATE pyxfer_documents SET document = :value WHERE run = {of_run}", b"")
        for read in (lambda: store.run(run_id), lambda: store.baseline_of_id(id_of_bad(kept_twice))):
            with pytest.raises(StoreError, match=f"The run {run_id} .* is damaged"):
                read()
