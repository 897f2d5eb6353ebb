"""Fixtures for the tests of blocks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import pyxfer
from pyxfer._blocks import api as blocks_api
from pyxfer._upload import api
from pyxfer.native import Engine


@pytest.fixture
def own_movers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Give this test its own shared movers and uploaders, and close them."""
    uploaders: dict[Any, pyxfer.Uploader] = {}
    movers: dict[Any, Any] = {}
    monkeypatch.setattr(api, "_by_name", {})
    monkeypatch.setattr(api, "_by_index", uploaders)
    monkeypatch.setattr(blocks_api, "_shared", movers)
    monkeypatch.setattr(blocks_api, "_prepared", {})
    yield engine
    gc.collect()
    for shared in {id(shared): shared for shared in movers.values()}.values():
        shared.mover.close()
    for uploader in uploaders.values():
        uploader.close()


@pytest.fixture(autouse=True, scope="module")
def _no_shared_uploaders() -> Iterator[None]:
    """Close what packing has used, which otherwise lives until the process ends."""
    yield
    for uploader in api._by_index.values():
        uploader.close()
    api._by_index.clear()
    api._by_name.clear()
