"""Fixtures for all tests of uploads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from upload.feeding import SOON_S, threads

import pyxfer
from pyxfer._upload import api
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.native import Engine


@pytest.fixture
def engine(engine: Engine) -> Iterator[Engine]:
    """The engine, whose check for leaks waits until prefetching threads have dropped their batches."""
    yield engine
    for thread in threads():
        thread.join(SOON_S)
    gc.collect()


@pytest.fixture
def up(engine: Engine) -> Iterator[Uploader]:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=2, chunk_bytes=4096, slots=2) as made:
        yield made


@pytest.fixture
def own(engine: Engine) -> Target:
    return Target(DevicePool(engine, 0, 0))


@pytest.fixture
def own_uploaders(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this test separate shared uploaders."""
    assert engine.RUNTIME == "host"
    made: dict[Any, pyxfer.Uploader] = {}
    monkeypatch.setattr(api, "_by_name", {})
    monkeypatch.setattr(api, "_by_index", made)
    yield
    gc.collect()
    for uploader in made.values():
        uploader.close()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for thread in threads():
        thread.join(SOON_S)
    assert threads() == []
