"""What holds for every test of staging."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upload.feeding import SOON_S, threads

import pyxfer
from pyxfer._measure import exclusive
from pyxfer._upload import api
from pyxfer.native import Engine


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else tunes on this machine is no company for these tests."""
    monkeypatch.setattr(exclusive, "_shared_folder", lambda: tmp_path / "measuring")


@pytest.fixture
def engine(engine: Engine) -> Iterator[Engine]:
    """The engine, checked for what is left when the threads that prefetch have ended and dropped their batches."""
    yield engine
    for each in threads():
        each.join(SOON_S)
    gc.collect()


@pytest.fixture
def own_uploaders(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The uploaders that calls share are this test's alone."""
    assert engine.RUNTIME == "host"
    made: dict[Any, pyxfer.Uploader] = {}
    monkeypatch.setattr(api, "_asked", {})
    monkeypatch.setattr(api, "_made", made)
    yield
    gc.collect()
    for each in made.values():
        each.close()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for each in threads():
        each.join(SOON_S)
    assert threads() == []
