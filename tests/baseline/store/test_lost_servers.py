"""A PostgreSQL server that refuses, goes away, or is gone just when it was to answer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from baseline.store import contents, postgres
from baseline.store.dropping import dropping_after
from baseline.store.making import make_baseline
from samples import make_run

from pyxfer import StoreError, UsageError
from pyxfer._baseline import store_database
from pyxfer._baseline.store import open_store

SECRET = "hush-hush"
ENDING_ITSELF = """
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
def folder() -> Iterator[Path]:
    """A folder whose name is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon."""
    monkeypatch.setattr(store_database, "PATIENCE_S", 0.1)


def run_sql(server: postgres.Server, url: str, *statements: str) -> None:
    with server.connect(postgres.name_of(url)) as connection:
        for statement in statements:
            connection.execute(statement)


def through(folder: Path, server: postgres.Server, url: str) -> str:
    """The same database, by way of the folder."""
    return server.url(postgres.name_of(url), folder=folder)


def test_a_wrong_password_is_told_and_not_shown(postgres_server: postgres.Server) -> None:
    with pytest.raises(StoreError, match="check user and password") as caught:
        open_store(postgres_server.url("postgres", password=SECRET))
    assert SECRET not in str(caught.value)


def test_the_password_is_never_shown(postgres_server: postgres.Server, url: str) -> None:
    with open_store(url) as store:
        assert "***" in store.shown
        assert "secret" not in store.shown


def test_a_password_where_it_would_be_shown_is_refused() -> None:
    with pytest.raises(UsageError, match="where it would be shown") as caught:
        open_store(f"postgresql+psycopg://server/db?password={SECRET}")
    assert SECRET not in str(caught.value)


def test_a_database_that_is_not_there_is_told(postgres_server: postgres.Server) -> None:
    with pytest.raises(StoreError, match="make the database first"):
        open_store(postgres_server.url("nowhere"))


def test_a_server_that_cannot_be_reached_is_told(folder: Path) -> None:
    with pytest.raises(StoreError, match="check that the server runs"):
        open_store(f"postgresql+psycopg://user:{SECRET}@/db?host={folder}")


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_server_that_has_gone_is_told_with_what_was_not_stored(postgres_server: postgres.Server, url: str) -> None:
    with open_store(url) as store:
        store.add_run(make_run(), {"n": "1"})
        postgres_server.kill()
        try:
            with pytest.raises(StoreError, match=r"the run r-\w+ .*check that the server runs"):
                store.add_run(make_run(), {"n": "2"})
        finally:
            postgres_server.start()
        store.add_run(make_run(), {"n": "2"})
    assert contents.rows(url, "SELECT COUNT(*) FROM pyxfer_runs") == [(2,)]


def test_a_restart_between_two_saves_is_not_noticed(postgres_server: postgres.Server, url: str) -> None:
    with open_store(url) as store:
        first = store.add_run(make_run())
        postgres_server.stop_at_once()
        postgres_server.start()
        store.add_run(make_run(), {"n": "2"})
        assert store.run(first).run == make_run()
    assert contents.rows(url, "SELECT COUNT(*) FROM pyxfer_runs") == [(2,)]


def test_a_commit_whose_answer_was_lost_is_found_and_not_stored_twice(
    postgres_server: postgres.Server, url: str, folder: Path
) -> None:
    open_store(url).close()
    with dropping_after(b"COMMIT", postgres_server.socket, folder) as way:
        with open_store(through(folder, postgres_server, url)) as store:
            run_id = store.add_run(make_run())
        assert way.drops == 1
    assert contents.rows(url, "SELECT id FROM pyxfer_runs") == [(run_id,)]


def test_a_connection_that_is_lost_within_a_save_is_made_again(
    postgres_server: postgres.Server, url: str, folder: Path
) -> None:
    open_store(url).close()
    with dropping_after(b"INSERT INTO pyxfer_measured", postgres_server.socket, folder) as way:
        with open_store(through(folder, postgres_server, url)) as store:
            run_id = store.add_run(make_run())
        assert way.drops == 1
    assert contents.rows(url, "SELECT id FROM pyxfer_runs") == [(run_id,)]


def test_a_commit_of_a_baseline_whose_answer_was_lost_is_found_and_not_stored_twice(
    postgres_server: postgres.Server, url: str, folder: Path
) -> None:
    open_store(url).close()
    with dropping_after(b"COMMIT", postgres_server.socket, folder) as way:
        with open_store(through(folder, postgres_server, url)) as store:
            baseline_id = store.add_baseline(make_baseline())
        assert way.drops == 1
    assert contents.rows(url, "SELECT id FROM pyxfer_baselines") == [(baseline_id,)]


def test_a_removal_whose_answer_was_lost_is_counted_all_the_same(
    postgres_server: postgres.Server, url: str, folder: Path
) -> None:
    with open_store(url) as store:
        store.add_baseline(make_baseline())
        (kept,) = store.baselines()
    with dropping_after(b"COMMIT", postgres_server.socket, folder) as way:
        with open_store(through(folder, postgres_server, url)) as store:
            assert store.remove_baseline(kept.name, kept.identity) == 1
        assert way.drops == 1


@pytest.mark.usefixtures("impatient")
def test_what_is_never_committed_is_an_error_and_not_stored(postgres_server: postgres.Server, url: str) -> None:
    with open_store(url) as store:
        deferred = "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON pyxfer_runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        run_sql(postgres_server, url, ENDING_ITSELF, f"{deferred} EXECUTE FUNCTION gone()")
        with pytest.raises(StoreError, match="may or may not have been saved"):
            store.add_run(make_run())
    assert contents.rows(url, "SELECT id FROM pyxfer_runs") == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["run", "baseline"])
def test_what_is_saved_again_after_a_lost_commit_is_stored_once(
    postgres_server: postgres.Server, url: str, folder: Path, what: str
) -> None:
    def save(where: str) -> str:
        with open_store(where) as store:
            return store.add_run(make_run()) if what == "run" else store.add_baseline(make_baseline())

    open_store(url).close()
    with dropping_after(b"COMMIT", postgres_server.socket, folder) as way:
        way.gone_after_drop = True
        with pytest.raises(StoreError, match="may or may not have been saved, and saving it again is safe"):
            save(through(folder, postgres_server, url))
    stored = contents.rows(url, f"SELECT id FROM pyxfer_{what}s")
    assert len(stored) == 1
    assert [(save(url),)] == stored == contents.rows(url, f"SELECT id FROM pyxfer_{what}s")


@pytest.mark.parametrize("code", ["53100", "25006", "55P03"])
def test_what_the_server_refuses_is_not_stored_and_said_in_its_own_words(
    postgres_server: postgres.Server, url: str, code: str
) -> None:
    with open_store(url) as store:
        trigger = "CREATE TRIGGER t BEFORE INSERT ON pyxfer_runs EXECUTE FUNCTION failing()"
        run_sql(postgres_server, url, FAILING.format(code=code), trigger)
        with pytest.raises(StoreError, match=r"was not saved: .*it fails"):
            store.add_run(make_run())
    assert contents.rows(url, "SELECT id FROM pyxfer_runs") == []


def test_a_user_who_may_only_read_reads(postgres_server: postgres.Server, url: str) -> None:
    with open_store(url) as store:
        run_id = store.add_run(make_run())
    name = postgres.name_of(url)
    user = f"reader_{name}"
    run_sql(
        postgres_server,
        url,
        f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}",
    )
    with open_store(postgres_server.url(name, user, SECRET), create=False) as store:
        assert store.run(run_id).run == make_run()
        with pytest.raises(StoreError, match=r"was not saved: .*grant this user the right"):
            store.add_run(make_run(), {"n": "2"})


def test_a_user_who_may_store_and_not_remove_does_the_one_and_is_told_of_the_other(
    postgres_server: postgres.Server, url: str
) -> None:
    open_store(url).close()
    name = postgres.name_of(url)
    user = f"writer_{name}"
    run_sql(
        postgres_server,
        url,
        f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'",
        f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO {user}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}",
    )
    with open_store(postgres_server.url(name, user, SECRET)) as store:
        store.add_baseline(make_baseline())
        (kept,) = store.baselines()
        with pytest.raises(StoreError, match=r"the removal of 'default' was not saved: .*grant this user the right"):
            store.remove_baseline(kept.name, kept.identity)


def test_a_server_that_is_read_only_says_so(postgres_server: postgres.Server, url: str) -> None:
    open_store(url).close()
    name = postgres.name_of(url)
    run_sql(postgres_server, url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with open_store(url) as store, pytest.raises(StoreError, match=r"was not saved: .*read-only transaction"):
        store.add_run(make_run())


def test_a_database_with_tables_of_others_takes_a_store_beside_them(postgres_server: postgres.Server, url: str) -> None:
    run_sql(postgres_server, url, "CREATE TABLE runs (id INTEGER)", "INSERT INTO runs VALUES (1)")
    with open_store(url) as store:
        store.add_run(make_run())
    assert contents.rows(url, "SELECT id FROM runs") == [(1,)]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_keeps_text_or_says_why_not(
    postgres_server: postgres.Server, url: str, encoding: str
) -> None:
    name = f"{postgres.name_of(url)}_{encoding.lower()}"
    run_sql(postgres_server, url, f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    with open_store(postgres_server.url(name)) as store:
        store.add_baseline(make_baseline(name="naïve"))
        assert [kept.name for kept in store.baselines()] == ["naïve"]
        if encoding == "LATIN1":
            with pytest.raises(StoreError, match=r"was not saved: .*encoding"):
                store.add_baseline(make_baseline(name="名前"))
