"""The tables of all frameworks, and registered routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from frameworks import own_routes

from pyxfer._frameworks import registry
from pyxfer._frameworks.base import Route
from pyxfer.errors import UsageError


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    yield
    registry._registered.clear()


def mine(name: str = "mine.loader", **overrides: Any) -> Route:
    return own_routes.make_route(name, own_routes.Copied, **overrides)


def test_a_registered_route_makes_a_new_framework() -> None:
    registry.register_route(mine())
    assert registry.all_names() == (*registry.FRAMEWORKS, "mine")
    assert [route.name for route in registry.load_framework("mine").routes] == ["mine.loader"]


@pytest.mark.parametrize(("name", "framework"), [("tf.own", None), ("mine.own", "tensorflow")])
def test_a_registered_route_joins_the_framework_it_belongs_to(name: str, framework: str | None) -> None:
    registry.register_route(mine(name), framework)
    assert registry.load_framework("tensorflow").routes[-1].name == name
    assert registry.all_names() == registry.FRAMEWORKS


@pytest.mark.parametrize("name", ["mine.loader", "torch.to"])
def test_a_taken_name_is_refused(name: str) -> None:
    registry.register_route(mine())
    with pytest.raises(UsageError, match=f"A route '{name}' exists already; choose another name"):
        registry.register_route(mine(name))


@pytest.mark.parametrize("name", ["loader", "raw.mine", "Mine.loader", "mine.", "mine.\x1b[31m", "mine.a b"])
def test_a_name_without_an_owner_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"write owner\.name in lower case"):
        registry.register_route(mine(name))


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Unknown framework 'mxnet'\. Known are torch, tensorflow, cupy, jax"):
        registry.register_route(mine(), "mxnet")
    with pytest.raises(UsageError, match=r"pyxfer\.register_route\(\) adds your own"):
        registry.load_framework("mxnet")


def test_an_object_that_is_not_a_route_is_refused() -> None:
    with pytest.raises(UsageError, match=r"takes a pyxfer\.Route; got str"):
        registry.register_route("mine.loader")  # type: ignore[arg-type]


def test_a_route_without_a_function_is_refused() -> None:
    with pytest.raises(UsageError, match="has neither copy nor image_batch to set it up"):
        registry.register_route(mine(copy=None))


def test_a_route_of_a_lambda_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be imported by a worker process"):
        registry.register_route(mine(copy=lambda place: own_routes.refused(place) or None))


def test_a_registered_route_can_be_unregistered() -> None:
    registry.register_route(mine())
    registry.unregister_route("mine.loader")
    assert registry.all_names() == registry.FRAMEWORKS
    with pytest.raises(UsageError, match=r"No route 'mine\.loader' is registered"):
        registry.unregister_route("mine.loader")


def test_patterns_select_in_the_order_of_the_table() -> None:
    routes = [mine("mine.b"), mine("mine.a"), mine("other.a")]
    assert [route.name for route in registry.select_routes(routes, ["mine.*"])] == ["mine.b", "mine.a"]
    assert [route.name for route in registry.select_routes(routes, ["*.a"])] == ["mine.a", "other.a"]
    assert registry.select_routes(routes, []) == tuple(routes)


def test_a_pattern_without_a_match_is_refused_with_similar_names() -> None:
    registry.register_route(mine())
    with pytest.raises(UsageError, match=r"No route of mine fits 'mine\.lader'\. Did you mean mine\.loader"):
        registry.check_patterns(["mine.lader"], ["mine"])


def test_a_pattern_of_an_unnamed_framework_is_refused_with_its_name() -> None:
    with pytest.raises(UsageError, match=r"No route of torch fits 'tf\.\*'\. It belongs to tensorflow, which was not"):
        registry.check_patterns(["tf.*"], ["torch"])


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
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
def test_a_field_that_the_document_cannot_store_is_refused(overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        registry.register_route(mine(**overrides))


def test_adopting_a_route_again_replaces_it() -> None:
    registry.adopt_route(mine(), "mine")
    registry.adopt_route(mine(), "mine")
    assert len(registry.load_framework("mine").routes) == 1


def test_the_short_name_of_a_framework_is_accepted() -> None:
    registry.register_route(mine(), "tf")
    assert registry.load_framework("tensorflow").routes[-1].name == "mine.loader"
