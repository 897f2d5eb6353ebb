"""Fixtures that run registered routes over host memory and unregister them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from frameworks import own_routes
from route_checks import HostPlace, a_place

import pyxfer
from pyxfer._frameworks import registry
from pyxfer._frameworks.context import RouteContext
from pyxfer.native import Engine

RunOwn = Callable[..., pyxfer.Run]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    """Start and end with the tables as they are shipped."""
    before = {home: list(routes) for home, routes in registry._registered.items()}
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture
def context(engine: Engine) -> Iterator[RouteContext]:
    with a_place(engine, 64 << 10, HostPlace) as made:
        yield made


@pytest.fixture
def run_own() -> RunOwn:
    """Register these routes as mine.* and run them."""

    def run(*makes: Any, **options: Any) -> pyxfer.Run:
        for make in makes:
            pyxfer.register_route(own_routes.make_route(f"mine.{make.__name__.lower()}", make))
        asked = {"size": "64KiB", "budget": 0.5, "seed": 1, "device": "host", "patience": 20.0}
        return pyxfer.frameworks(["mine"], **{**asked, **options})

    return run
