"""Stores for the tests: each of them runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from baselines.store import postgres

from pyxfer.baselines.store import Store, open_store

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A server for all tests of this process; skipped where PostgreSQL is not installed."""
    programs = postgres.find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: no initdb on the PATH or in /usr/lib/postgresql")
    server = postgres.Server(programs)
    yield server
    server.close()


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be made."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A new store."""
    with open_store(store_url) as opened:
        yield opened


@pytest.fixture
def opened_again(store: Store, store_url: str) -> Callable[[], Store]:
    """The same store as another process sees it."""
    return lambda: open_store(store_url)
