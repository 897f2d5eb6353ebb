"""Runs of routes of one's own over host memory; what a test registers is gone after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from workers import own_routes

import pyxfer
from pyxfer.routes import registry
from pyxfer.sampling import exclusive

RunOwn = Callable[..., pyxfer.Run]


@pytest.fixture(autouse=True, scope="session")
def meeting_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where processes that measure find each other, for this test run alone."""
    folder = tmp_path_factory.mktemp("measuring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exclusive, "_shared_folder", lambda: folder)
        yield folder


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    """Start and end with the tables as they are shipped."""
    before = {home: list(routes) for home, routes in registry._registered.items()}
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture
def run_own() -> RunOwn:
    """Register these routes as mine.* and run them."""

    def run(*makes: Any, **options: Any) -> pyxfer.Run:
        for make in makes:
            pyxfer.register_route(own_routes.make_route(f"mine.{make.__name__.lower()}", make))
        asked = {"sizes": "64KiB", "budget_s": 0.5, "seed": 1, "device": "host", "patience_s": 20.0}
        return pyxfer.frameworks(["mine"], **{**asked, **options})

    return run
