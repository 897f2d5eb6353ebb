"""The tables of all frameworks, registered routes, references to their functions, and what is installed."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frameworks import own_routes
from route_checks import break_import

from pyxfer._document.routes import FrameworkStatus
from pyxfer._frameworks import registry
from pyxfer._frameworks.base import Route
from pyxfer._frameworks.messages import Reference
from pyxfer._frameworks.orders import Order
from pyxfer._frameworks.registry import (
    FRAMEWORKS,
    find_reference,
    list_frameworks,
    list_routes,
    load_framework,
    resolve_reference,
)
from pyxfer.errors import RefusedError, UsageError
from pyxfer.native import Choice, load


def mine(name: str = "mine.loader", **overrides: Any) -> Route:
    return own_routes.make_route(name, own_routes.Copied, **overrides)


def test_a_registered_route_makes_a_new_framework() -> None:
    registry.register_route(mine())
    assert registry.all_names() == (*registry.FRAMEWORKS, "mine")
    assert [route.name for route in registry.load_framework("mine").routes] == ["mine.loader"]


@pytest.mark.parametrize(("name", "framework"), [("tf.own", None), ("mine.own", "tensorflow"), ("mine.loader", "tf")])
def test_a_registered_route_joins_the_framework_it_belongs_to(name: str, framework: str | None) -> None:
    registry.register_route(mine(name), framework)
    assert registry.load_framework("tensorflow").routes[-1].name == name
    assert registry.all_names() == registry.FRAMEWORKS


def test_a_registered_route_can_be_unregistered() -> None:
    registry.register_route(mine())
    registry.unregister_route("mine.loader")
    assert registry.all_names() == registry.FRAMEWORKS
    with pytest.raises(UsageError, match=r"No route 'mine\.loader' is registered"):
        registry.unregister_route("mine.loader")
    with pytest.raises(UsageError, match=r"pyxfer\.register_route\(\) adds your own"):
        registry.load_framework("mxnet")


def test_patterns_select_in_the_order_of_the_table() -> None:
    routes = [mine("mine.b"), mine("mine.a"), mine("other.a")]
    assert [route.name for route in registry.select_routes(routes, ["mine.*"])] == ["mine.b", "mine.a"]
    assert [route.name for route in registry.select_routes(routes, ["*.a"])] == ["mine.a", "other.a"]
    assert registry.select_routes(routes, []) == tuple(routes)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        *(
            ({"name": name}, r"write owner\.name in lower case")
            for name in ("loader", "raw.mine", "Mine.loader", "mine.", "mine.\x1b[31m", "mine.a b")
        ),
        *(
            ({"name": name}, f"A route '{name}' exists already; choose another name")
            for name in ("mine.taken", "torch.to")
        ),
        ({"copy": None}, "has neither copy nor image_batch to set it up"),
        ({"copy": lambda context: own_routes.refused(context) or None}, "cannot be imported by a worker process"),
        ({"framework": "mxnet"}, r"Unknown framework 'mxnet'\. Known are torch, tensorflow, cupy, jax"),
        ({"direction": "both"}, "has the direction 'both'; known are h2d, d2h, ingest"),
        ({"memory": "swapped"}, "has the memory 'swapped'; known are pageable, pinned"),
        ({"dma": "some"}, "has the dma 'some'"),
        ({"returns": "later"}, "has the returns 'later'; known are done, staged, queued"),
        ({"bracket": "dained"}, "has the bracket 'dained'; known are stream, drained, host"),
        ({"bracket": "host", "direction": "h2d"}, "its bracket has to be stream or drained"),
        ({"host_copies": 1.5}, r"host_copies of the route 'mine\.loader' has to be int; got 1\.5"),
        ({"host_copies": -1}, "are 0 or more"),
        ({"usual": "yes"}, "has to be bool; got 'yes'"),
        ({"staged": 1}, r"The staged of the route 'mine\.loader' has to be bool; got 1"),
        ({"call": None}, "has to be str; got None"),
        ({"inflation": float("nan")}, "inflation is above 0"),
    ],
)
def test_a_route_that_cannot_be_named_run_or_stored_is_refused(overrides: dict[str, Any], text: str) -> None:
    registry.register_route(mine("mine.taken"))
    framework = overrides.get("framework")
    fields = {name: value for name, value in overrides.items() if name != "framework"}
    with pytest.raises(UsageError, match=text):
        registry.register_route(mine(**fields), framework)


def test_an_object_that_is_not_a_route_is_refused() -> None:
    with pytest.raises(UsageError, match=r"takes a pyxfer\.Route; got str"):
        registry.register_route("mine.loader")  # type: ignore[arg-type]


def test_adopting_a_route_again_replaces_it() -> None:
    registry.adopt_route(mine(), "mine")
    registry.adopt_route(mine(), "mine")
    assert len(registry.load_framework("mine").routes) == 1


@pytest.mark.parametrize("make", [own_routes.refused, own_routes.Copied])
def test_a_function_or_class_of_a_module_is_found_by_its_name(make: Any) -> None:
    reference = find_reference(make)
    assert reference == Reference("frameworks.own_routes", make.__name__)
    assert resolve_reference(reference) is make


def test_a_function_of_a_script_is_found_by_the_scripts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "mine.py"
    script.write_text("def make(place):\n    return 7\n")
    names = runpy.run_path(str(script), run_name="elsewhere")
    main = sys.modules["__main__"]
    make = names["make"]
    monkeypatch.setattr(make, "__module__", "__main__")
    monkeypatch.setattr(main, "make", make, raising=False)
    monkeypatch.setattr(main, "__file__", str(script), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    reference = find_reference(make)
    assert reference == Reference("__main__", "make", str(script))
    assert resolve_reference(reference)(None) == 7


def test_a_function_typed_at_a_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed() -> None: ...

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "typed", typed, raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.delattr(main, "__file__", raising=False)
    with pytest.raises(UsageError, match="typed at a prompt, where a worker process cannot find it"):
        find_reference(typed)


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


def without_gpu() -> Choice:
    return Choice(load("host"), "host", NO_DRIVER)


def status_of(name: str, choice: Choice | None = None) -> FrameworkStatus:
    """Its status with a GPU, or with another choice."""
    (found,) = [each for each in list_frameworks(choice or Choice(load("host"), "cuda", "")) if each.name == name]
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
    status = status_of(name)
    assert (status.version, status.reason) == (None, f"{title} is not installed")
    assert {route.reason for route in status.routes} == {f"{title} is not installed"}
    assert not any(route.available for route in status.routes)


def test_an_installed_framework_with_a_gpu_is_available_in_every_direction(install: Install) -> None:
    install("torch", "2.13.0")
    status = status_of("torch")
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
    status = status_of(name)
    assert status.reason == reason
    assert reasons(status) == {"h2d": {reason}, "d2h": {reason}, "ingest": {""}}


def test_jax_is_available_with_a_plugin_for_cuda(install: Install) -> None:
    install("jax", "0.10.2")
    reason = status_of("jax").reason
    assert reason.startswith("JAX has no CUDA plugin here: install one of ")
    assert "jax-cuda12-plugin" in reason
    install("jax-cuda12-plugin", "0.10.2")
    assert status_of("jax").reason == ""


def test_a_version_names_its_package_if_it_is_not_the_usual_one(install: Install) -> None:
    install("tf-nightly", "2.22.0.dev1")
    assert status_of("tensorflow").version == "2.22.0.dev1 (tf-nightly)"
    install("tensorflow", "2.21.0")
    assert status_of("tensorflow").version == "2.21.0"


@pytest.mark.usefixtures("install")
def test_listing_imports_no_framework() -> None:
    before = set(sys.modules)
    list_frameworks(without_gpu())
    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & {"torch", "tensorflow", "cupy", "jax"}


def test_registered_routes_are_listed_as_a_framework() -> None:
    registry.register_route(own_routes.make_route("mine.loader", own_routes.Copied))
    status = status_of("mine", without_gpu())
    assert (status.title, status.version) == ("mine", "your own")
    assert [(route.name, route.available) for route in status.routes] == [("mine.loader", True)]


def test_the_table_has_the_raw_routes_first_and_then_every_framework() -> None:
    lines = list_routes()
    owners = list(dict.fromkeys(line.framework for line in lines))
    assert owners == ["raw", *FRAMEWORKS]
    assert all(bool(line.reason) != line.available for line in lines)


each_framework = pytest.mark.parametrize("name", FRAMEWORKS)
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
def test_routes_have_the_owner_of_their_table(name: str) -> None:
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
    assert set(through) - {"prefetch"} == {"upload", "upload-converted", "download", "download-into"}
    assert {(route.memory, route.host_copies, route.dma) for route in through.values()} == {("pageable", 1, "pinned")}
    returns = {word: route.returns for word, route in through.items()}
    assert (
        returns.pop("upload") == returns.pop("upload-converted") == ("staged" if BRACKETS[name] == "stream" else "done")
    )
    assert set(returns.values()) == {"done"}


@each_framework
def test_a_route_can_be_set_up_for_a_workload(name: str) -> None:
    for route in load_framework(name).routes:
        assert isinstance(route, Order) or route.copy is not None or route.image_batch is not None, route.name


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
