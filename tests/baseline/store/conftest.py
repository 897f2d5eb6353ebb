"""Stores for the tests: each of them runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from baseline.store import postgres

from pyxfer._baseline.store import Store, open_store

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A server for all tests of this process; skipped where PostgreSQL is not installed."""
    programs = postgres.find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: no initdb on the PATH or in /usr/lib/postgresql")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv to become another user")
    server = postgres.Server(programs)
    yield server
    server.close()


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a new store may be made."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A new store."""
    with open_store(store_url) as opened:
        yield opened
