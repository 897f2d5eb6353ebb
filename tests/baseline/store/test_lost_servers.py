"""A PostgreSQL server that refuses a connection or a statement, or is lost during a save."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from baseline.store import making, postgres, writers
from baseline.store.making import make_baseline, run_at
from baseline.store.postgres import Proxy, dropping_after
from samples import make_run

from pyxfer import StoreError
from pyxfer._baseline import store_database
from pyxfer._baseline.store import Store, open_store

SECRET = "hush-hush"
ENDING_CONNECTION = """
CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$
"""
FAILING = """
CREATE FUNCTION failing() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END $$
"""


@pytest.fixture
def url(postgres_server: postgres.Server) -> Iterator[str]:
    made = postgres_server.new_database()
    yield made
    postgres_server.drop(made)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after one attempt."""
    monkeypatch.setattr(store_database, "PATIENCE_S", 0.1)


def run_sql(server: postgres.Server, url: str, *statements: str) -> None:
    with server.connect(postgres.name_of(url)) as connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def losing_answer(
    server: postgres.Server, url: str, statement: bytes = b"COMMIT", ends: bool = False
) -> Iterator[tuple[str, Proxy]]:
    """The same database through a proxy that drops the connection once, after this statement."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        dropping_after(statement, server.socket, Path(name)) as proxy,
    ):
        proxy.ends_after_drop = ends
        yield server.url(postgres.name_of(url), folder=Path(name)), proxy


def save(url: str, what: str) -> str:
    """Save a run or a baseline and return its id."""
    with open_store(url) as store:
        return store.add_run(make_run()) if what == "run" else store.add_baseline(make_baseline())


def user_with(server: postgres.Server, url: str, *grants: str) -> str:
    """The URL for a new user with these rights on all tables or sequences."""
    name = postgres.name_of(url)
    user = f"user_{name}"
    given = (f"GRANT {grant} IN SCHEMA public TO {user}" for grant in grants)
    run_sql(server, url, f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'", *given)
    return server.url(name, user, SECRET)


def test_a_wrong_password_is_an_error_without_the_password(postgres_server: postgres.Server) -> None:
    with pytest.raises(StoreError, match="check user and password") as caught:
        open_store(postgres_server.url("postgres", password=SECRET))
    assert SECRET not in str(caught.value)


def test_a_missing_database_is_an_error_with_a_remedy(postgres_server: postgres.Server) -> None:
    with pytest.raises(StoreError, match="create the database first"):
        open_store(postgres_server.url("nowhere"))


def test_an_unreachable_server_is_an_error_with_a_remedy() -> None:
    with pytest.raises(StoreError, match="check that the server runs"):
        open_store(f"postgresql+psycopg://user:{SECRET}@/db?host=/nowhere")


def test_a_restart_between_two_saves_is_not_an_error(postgres_server: postgres.Server, url: str) -> None:
    with open_store(url) as store:
        first = store.add_run(make_run())
        postgres_server.stop_at_once()
        postgres_server.start()
        store.add_run(make_run(), {"n": "2"})
        assert store.run(first).run == make_run()
    assert making.rows(url, "SELECT COUNT(*) FROM pyxfer_runs") == [(2,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "statement"),
    [("run", b"COMMIT"), ("run", b"INSERT INTO pyxfer_measured"), ("baseline", b"COMMIT")],
)
def test_a_save_that_loses_its_connection_is_repeated_and_stored_once(
    postgres_server: postgres.Server, url: str, what: str, statement: bytes
) -> None:
    open_store(url).close()
    with losing_answer(postgres_server, url, statement) as (lossy_url, proxy):
        saved = save(lossy_url, what)
        assert proxy.drops == 1
    assert making.rows(url, f"SELECT id FROM pyxfer_{what}s") == [(saved,)]


def test_a_removal_that_loses_its_connection_returns_the_number_removed(
    postgres_server: postgres.Server, url: str
) -> None:
    with open_store(url) as store:
        store.add_baseline(make_baseline())
        (kept,) = store.baselines()
    with losing_answer(postgres_server, url) as (lossy_url, proxy):
        with open_store(lossy_url) as store:
            assert store.remove_baseline(kept.name, kept.identity) == 1
        assert proxy.drops == 1


@pytest.mark.usefixtures("impatient")
def test_a_save_that_the_server_never_commits_is_an_error_and_not_stored(
    postgres_server: postgres.Server, url: str
) -> None:
    with open_store(url) as store:
        deferred = "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON pyxfer_runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        run_sql(postgres_server, url, ENDING_CONNECTION, f"{deferred} EXECUTE FUNCTION gone()")
        with pytest.raises(StoreError, match="may or may not have been saved"):
            store.add_run(make_run())
    assert making.rows(url, "SELECT id FROM pyxfer_runs") == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["run", "baseline"])
def test_saving_again_after_a_lost_commit_stores_nothing_twice(
    postgres_server: postgres.Server, url: str, what: str
) -> None:
    open_store(url).close()
    with (
        losing_answer(postgres_server, url, ends=True) as (lossy_url, _),
        pytest.raises(StoreError, match="may or may not have been saved, and saving it again is safe"),
    ):
        save(lossy_url, what)
    stored = making.rows(url, f"SELECT id FROM pyxfer_{what}s")
    assert len(stored) == 1
    assert [(save(url, what),)] == stored == making.rows(url, f"SELECT id FROM pyxfer_{what}s")


@pytest.mark.parametrize("code", ["53100", "25006", "55P03"])
def test_a_save_that_the_server_refuses_is_an_error_with_its_message(
    postgres_server: postgres.Server, url: str, code: str
) -> None:
    with open_store(url) as store:
        trigger = "CREATE TRIGGER t BEFORE INSERT ON pyxfer_runs EXECUTE FUNCTION failing()"
        run_sql(postgres_server, url, FAILING.format(code=code), trigger)
        with pytest.raises(StoreError, match=r"was not saved: .*it fails"):
            store.add_run(make_run())
    assert making.rows(url, "SELECT id FROM pyxfer_runs") == []


def test_a_user_with_the_right_to_read_can_read_and_not_save(postgres_server: postgres.Server, url: str) -> None:
    run_id = save(url, "run")
    with open_store(user_with(postgres_server, url, "SELECT ON ALL TABLES"), create=False) as store:
        assert store.run(run_id).run == make_run()
        with pytest.raises(StoreError, match=r"was not saved: .*grant this user the right"):
            store.add_run(make_run(), {"n": "2"})


# --- many writers ----------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.unsanitized(reason="it tests processes and databases, and does not use the engine")


def keys_by_ending(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    return {ending: [key for ended, key in lines if ended == ending] for ending in ("stored", "refused")}


@pytest.mark.slow
def test_many_processes_can_open_a_new_store_and_save_at_once(store_url: str) -> None:
    with writers.started(store_url, processes=16, saves=3) as process:
        saves = keys_by_ending(list(writers.lines_of(process)))
    assert len(saves["stored"]) == 48
    assert Counter(making.keys(store_url)) == Counter(saves["stored"])
    assert making.rows(store_url, "SELECT version FROM pyxfer_schema") == [(1,)]


def test_a_forked_child_and_its_parent_can_both_save(store: Store, store_url: str) -> None:
    store.add_run(run_at(1), {"key": "before"})
    child = os.fork()
    if child == 0:
        try:
            store.add_run(run_at(2), {"key": "child"})
        finally:
            os._exit(0)
    store.add_run(run_at(3), {"key": "parent"})
    os.waitpid(child, 0)
    store.add_run(run_at(4), {"key": "after"})
    assert set(making.keys(store_url)) == {"before", "child", "parent", "after"}


@pytest.mark.slow
def test_a_killed_server_loses_no_save_that_succeeded(
    postgres_server: postgres.Server,
) -> None:
    url = postgres_server.new_database()
    with writers.started(url, processes=6, saves=60) as process:
        lines = list(writers.lines_of(process, most=20))
        for end in (postgres_server.kill, postgres_server.stop_at_once) * 2:
            end()
            postgres_server.start()
            lines += writers.lines_of(process, most=30)
        lines += writers.lines_of(process)
    saves = keys_by_ending(lines)
    assert len(saves["stored"]) == 360
    assert Counter(making.keys(url)) == Counter(saves["stored"]), "every save is stored once, also a repeated one"
    postgres_server.drop(url)


@pytest.mark.slow
def test_killed_writers_leave_only_complete_saves(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    stored: list[str] = []
    for _ in range(4):
        with writers.started(url, processes=4, saves=1000) as process:
            stored += keys_by_ending(list(writers.lines_of(process, most=15)))["stored"]
            writers.kill(process)
            stored += keys_by_ending(list(writers.lines_of(process)))["stored"]
    assert making.rows(url, "PRAGMA integrity_check") == [("ok",)]
    assert set(stored) <= set(making.keys(url))
