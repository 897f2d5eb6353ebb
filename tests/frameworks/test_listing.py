"""The list of frameworks, from the metadata of their packages; the tests create that metadata."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from frameworks import own_routes

from pyxfer._document.routes import FrameworkStatus
from pyxfer._frameworks import registry
from pyxfer._frameworks.registry import FRAMEWORKS, list_frameworks, list_routes, load_framework
from pyxfer.native import Choice, load

NO_DRIVER = "No usable GPU: No NVIDIA driver answers here"
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install only the packages of the test."""
    for name in FRAMEWORKS:
        load_framework(name)  # with an empty path the tables could not be found either
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def add(distribution: str, version: str) -> None:
        folder = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")

    return add


def with_gpu() -> Choice:
    return Choice(load("host"), "cuda", "")


def without_gpu() -> Choice:
    return Choice(load("host"), "host", NO_DRIVER)


def status_of(name: str, choice: Choice) -> FrameworkStatus:
    (found,) = [each for each in list_frameworks(choice) if each.name == name]
    return found


def reasons(status: FrameworkStatus) -> dict[str, set[str]]:
    """The reasons of the routes of each direction."""
    found: dict[str, set[str]] = {}
    for route in status.routes:
        found.setdefault(route.direction[0], set()).add(route.reason)
    return found


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(("name", "title"), [("torch", "PyTorch"), ("tensorflow", "TensorFlow"), ("cupy", "CuPy")])
def test_a_missing_framework_has_no_version_and_no_available_route(name: str, title: str) -> None:
    status = status_of(name, with_gpu())
    assert (status.version, status.reason) == (None, f"{title} is not installed")
    assert {route.reason for route in status.routes} == {f"{title} is not installed"}
    assert not any(route.available for route in status.routes)


def test_an_installed_framework_with_a_gpu_is_available_in_every_direction(install: Install) -> None:
    install("torch", "2.13.0")
    status = status_of("torch", with_gpu())
    assert (status.version, status.reason) == ("2.13.0", "")
    assert reasons(status) == {"h2d": {""}, "d2h": {""}, "ingest": {""}}
    assert all(route.available for route in status.routes)


def test_without_a_gpu_only_ingest_is_available(install: Install) -> None:
    install("torch", "2.13.0")
    status = status_of("torch", without_gpu())
    assert status.reason == NO_DRIVER
    assert reasons(status) == {"h2d": {NO_DRIVER}, "d2h": {NO_DRIVER}, "ingest": {""}}


@pytest.mark.parametrize(
    ("distribution", "version", "name", "reason"),
    [
        ("torch", "2.13.0+cpu", "torch", "PyTorch 2.13.0+cpu was built without CUDA"),
        ("tensorflow-cpu", "2.21.0", "tensorflow", "TensorFlow 2.21.0 (tensorflow-cpu) was built without CUDA"),
    ],
)
def test_a_build_without_cuda_is_known_by_its_version_or_its_name(
    install: Install, distribution: str, version: str, name: str, reason: str
) -> None:
    install(distribution, version)
    status = status_of(name, with_gpu())
    assert status.reason == reason
    assert reasons(status) == {"h2d": {reason}, "d2h": {reason}, "ingest": {""}}


def test_jax_without_a_cuda_plugin_names_the_plugins(install: Install) -> None:
    install("jax", "0.10.2")
    reason = status_of("jax", with_gpu()).reason
    assert reason.startswith("JAX has no CUDA plugin here: install one of ")
    assert "jax-cuda12-plugin" in reason


def test_jax_with_a_plugin_for_cuda_is_available(install: Install) -> None:
    install("jax", "0.10.2")
    install("jax-cuda12-plugin", "0.10.2")
    assert status_of("jax", with_gpu()).reason == ""


def test_a_version_names_its_package_if_it_is_not_the_usual_one(install: Install) -> None:
    install("tf-nightly", "2.22.0.dev1")
    assert status_of("tensorflow", with_gpu()).version == "2.22.0.dev1 (tf-nightly)"
    install("tensorflow", "2.21.0")
    assert status_of("tensorflow", with_gpu()).version == "2.21.0"


@pytest.mark.usefixtures("install")
def test_listing_imports_no_framework() -> None:
    before = set(sys.modules)
    list_frameworks(without_gpu())
    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & {"torch", "tensorflow", "cupy", "jax"}


def test_registered_routes_are_listed_as_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register_route(own_routes.make_route("mine.loader", own_routes.Copied))
    status = status_of("mine", without_gpu())
    assert (status.title, status.version) == ("mine", "your own")
    assert [(route.name, route.available) for route in status.routes] == [("mine.loader", True)]


def test_the_table_has_the_raw_routes_first_and_then_every_framework() -> None:
    lines = list_routes()
    owners = list(dict.fromkeys(line.framework for line in lines))
    assert owners == ["raw", *FRAMEWORKS]
    assert all(bool(line.reason) != line.available for line in lines)


@pytest.mark.parametrize(
    ("name", "call", "returns"),
    [
        ("raw.pageable-memcpy", "cudaMemcpy", "done"),
        ("raw.pinned-async", "cudaMemcpyAsync", "queued"),
        ("raw.pinned-batch", "cudaMemcpyBatchAsync", "queued"),
    ],
)
def test_a_raw_route_names_its_cuda_call(name: str, call: str, returns: str) -> None:
    (line,) = [line for line in list_routes() if line.name == name]
    assert (line.call, line.returns) == (call, returns)
