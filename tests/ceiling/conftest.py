"""Fixtures for all tests of ceiling runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyxfer._ceiling import session
from pyxfer._ceiling.resources import RunResources
from pyxfer.native import Engine
from pyxfer.native._host import testing


@pytest.fixture
def nothing_left(engine: Engine) -> Iterator[Engine]:
    """Check that nothing stays allocated, and that nothing waits for the garbage collector."""
    yield engine
    assert testing.allocated() == []
    assert engine.take_cleanup_failures() == []


@pytest.fixture
def hung(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short timeout; memory that a run leaves to a hung device is released when it answers again."""
    left: list[Any] = []

    def abandon(resources: RunResources) -> None:
        left.extend(resources._held())
        resources._forget()

    monkeypatch.setattr(session, "PATIENCE_S", 0.2)
    monkeypatch.setattr(RunResources, "abandon", abandon)
    yield
    testing.release_stalls()
    for each in left:
        each.close()
    assert left
    engine.take_cleanup_failures()
