"""Fixtures for a store on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from baseline.store import postgres
from sqlalchemy import Engine, event

from pyxfer._baseline.store import Store, open_store

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A test kills a process and not the machine, so SQLite in this process need not wait for the disk."""

    def leave_to_the_system(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", leave_to_the_system)
    yield
    event.remove(Engine, "connect", leave_to_the_system)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A server for all tests of this process; tests are skipped if PostgreSQL is not installed."""
    programs = postgres.find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: initdb is not on the PATH or in /usr/lib/postgresql")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and setpriv is not installed")
    server = postgres.Server(programs)
    yield server
    server.close()


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL or path of a store that does not exist yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with open_store(store_url) as opened:
        yield opened
