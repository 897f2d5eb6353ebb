"""CuPy's table and refusals; all of its routes need a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from route_checks import break_import, usual_directions

from pyxfer._frameworks.base import RefusedError
from pyxfer._frameworks.cupy import FRAMEWORK

ROUTES = {route.name: route for route in FRAMEWORK.routes}


def test_the_table_has_every_documented_route() -> None:
    promised = "asarray asarray-pinned set set-pinned upload get get-pinned download download-into ingest"
    assert [route.name for route in FRAMEWORK.routes] == [f"cupy.{name}" for name in promised.split()]


def test_each_direction_has_one_usual_route() -> None:
    assert usual_directions(FRAMEWORK) == ["d2h", "h2d", "ingest"]


def test_routes_over_the_link_are_timed_on_the_current_stream() -> None:
    assert {route.bracket for route in FRAMEWORK.routes if route.direction != "ingest"} == {"stream"}


def test_asarray_and_the_upload_support_image_batches() -> None:
    taking_part = [route.name for route in FRAMEWORK.routes if route.make("image-batch") is not None]
    assert taking_part == ["cupy.asarray", "cupy.asarray-pinned", "cupy.upload"]


def test_only_asarray_of_pageable_memory_is_copied_on_the_host() -> None:
    crossing = [route for route in FRAMEWORK.routes if route.direction != "ingest" and not route.staged]
    assert [route.name for route in crossing if route.host_copies] == ["cupy.asarray"]
    assert ROUTES["cupy.asarray"].dma == "pinned"


def test_routes_through_the_ring_copy_pageable_arrays_once_into_pinned_memory() -> None:
    through = [route for route in FRAMEWORK.routes if route.staged]
    assert [route.name for route in through] == ["cupy.upload", "cupy.download", "cupy.download-into"]
    assert {(route.memory, route.host_copies, route.dma) for route in through} == {("pageable", 1, "pinned")}
    assert [route.returns for route in through] == ["staged", "done", "done"]


def test_without_cupy_the_refusal_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RefusedError, match=r"^CuPy is not installed: pip install cupy-cuda12x, or cupy-cuda13x"):
        FRAMEWORK.start(None, "")


def test_a_broken_installation_is_distinguished_from_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_import("cupy", tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match=r"^CuPy is installed and cannot be imported: libcublas\.so\.12"):
        FRAMEWORK.start(None, "")
