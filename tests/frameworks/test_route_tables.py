"""The tables of all frameworks: documented routes, usual calls, staging, and frameworks that cannot be imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from route_checks import break_import

from pyxfer._frameworks.base import Route
from pyxfer._frameworks.registry import FRAMEWORKS, load_framework
from pyxfer.errors import RefusedError

each_framework = pytest.mark.parametrize("name", FRAMEWORKS)
ROUTES = {
    "torch": (
        "to to-nonblocking pin-to pinned-nonblocking cast-blocking cast-nonblocking noncontiguous channels-last "
        "loader-pinned upload cpu copy-to-pinned to-cpu-nonblocking download download-into ingest ingest-copy"
    ),
    "tensorflow": (
        "constant function function-jit cast-eager rawop cpu-op dlpack-pageable dlpack-pinned data-prefetch "
        "upload prefetch numpy array-view download download-into ingest ingest-rawop ingest-dlpack"
    ),
    "cupy": "asarray asarray-pinned set set-pinned upload get get-pinned download download-into ingest",
    "jax": (
        "device-put device-put-pinned device-put-nostage pinned-host-to-device upload asarray to-pinned-host "
        "download download-into ingest ingest-device-put"
    ),
}
USUAL = {
    "torch": {"h2d": "to", "d2h": "cpu", "ingest": "ingest"},
    "tensorflow": {"h2d": "constant", "d2h": "numpy", "ingest": "ingest"},
    "cupy": {"h2d": "asarray", "d2h": "get", "ingest": "ingest"},
    "jax": {"h2d": "device-put", "d2h": "asarray", "ingest": "ingest"},
}
BRACKETS = {"torch": "stream", "cupy": "stream", "tensorflow": "drained", "jax": "drained"}


def routes_of(name: str) -> dict[str, Route]:
    """By the name without its owner."""
    return {route.name.partition(".")[2]: route for route in load_framework(name).routes}


@each_framework
def test_the_table_has_every_documented_route(name: str) -> None:
    assert list(routes_of(name)) == ROUTES[name].split()
    assert {route.owner for route in load_framework(name).routes} == {load_framework(name).owner}


@each_framework
def test_one_route_of_each_direction_is_the_usual_one(name: str) -> None:
    assert {route.direction: word for word, route in routes_of(name).items() if route.usual} == USUAL[name]


@each_framework
def test_routes_over_the_link_are_timed_on_a_stream_or_drained(name: str) -> None:
    brackets = {route.bracket for route in routes_of(name).values() if route.direction != "ingest"}
    assert brackets == {BRACKETS[name]}


@each_framework
def test_routes_through_the_ring_copy_pageable_arrays_once_into_pinned_memory(name: str) -> None:
    through = {word: route for word, route in routes_of(name).items() if route.staged}
    assert set(through) - {"prefetch"} == {"upload", "download", "download-into"}
    assert {(route.memory, route.host_copies, route.dma) for route in through.values()} == {("pageable", 1, "pinned")}
    returns = {word: route.returns for word, route in through.items()}
    assert returns.pop("upload") == ("staged" if BRACKETS[name] == "stream" else "done")
    assert set(returns.values()) == {"done"}


@each_framework
def test_a_route_can_be_set_up_for_a_workload(name: str) -> None:
    for route in load_framework(name).routes:
        assert route.copy is not None or route.image_batch is not None, route.name


def test_the_environment_keeps_jax_from_allocating_the_whole_gpu() -> None:
    assert load_framework("jax").environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


@each_framework
def test_a_missing_framework_is_refused_with_its_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RefusedError, match=f"not installed: pip install .*{name}"):
        load_framework(name).start(None, "")


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_a_broken_installation_is_distinguished_from_a_missing_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_import(name, tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match=r"is installed and cannot be imported: libcublas\.so\.12"):
        load_framework(name).start(None, "")
