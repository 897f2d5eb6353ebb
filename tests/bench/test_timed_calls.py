"""How a route becomes a call that any timer can time; over host memory, with routes that copy NumPy arrays."""

from __future__ import annotations

import importlib.util

import pytest
from frameworks import own_routes
from timed_calls import EMPTY, ROUTES, Calls

from pyxfer._frameworks.base import RefusedError, Route
from pyxfer._frameworks.place import Place
from pyxfer._frameworks.registry import load_framework, select_routes
from pyxfer.errors import MeasurementError
from pyxfer.native import Engine

NBYTES = 64 << 10


class Stream:
    """Counts how often it is waited for."""

    waits = 0

    def synchronize(self) -> None:
        self.waits += 1


class Noted(own_routes.Copied):
    """Notes where each run takes its bytes from."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.addresses: list[int] = []

    def run(self) -> None:
        super().run()
        self.addresses.append(self.source.ctypes.data)


def noted() -> tuple[Route, list[Noted]]:
    """A route, and the transfers that it will set up."""
    made: list[Noted] = []

    def make(place: Place) -> Noted:
        made.append(Noted(place))
        return made[-1]

    return own_routes.make_route("mine.noted", make), made


def test_a_call_is_one_run_of_the_route_and_one_wait_for_its_stream(engine: Engine) -> None:
    stream, (route, made) = Stream(), noted()
    with Calls(engine, 0, NBYTES) as calls:
        call = calls.of_route(route, stream)
        before = len(made[0].addresses)
        call.run()
        call.run()
    assert len(made[0].addresses) == before + 2
    assert stream.waits == 2
    assert (call.name, call.nbytes, call.stream) == ("mine.noted", NBYTES, stream)


def test_every_call_takes_from_the_same_memory(engine: Engine) -> None:
    route, made = noted()
    with Calls(engine, 0, NBYTES) as calls:
        call = calls.of_route(route, Stream())
        for _ in range(3):
            call.run()
    assert len(set(made[0].addresses)) == 1


@pytest.mark.parametrize("way", [own_routes.Cached, own_routes.Aliased])
def test_a_route_that_copies_nothing_is_not_timed(way: type[own_routes.Copied], engine: Engine) -> None:
    with (
        Calls(engine, 0, NBYTES) as calls,
        pytest.raises(MeasurementError, match=r"mine\.wrong did not copy what it was given"),
    ):
        calls.of_route(own_routes.make_route("mine.wrong", way), Stream())


def test_a_result_in_the_wrong_place_is_not_timed(engine: Engine) -> None:
    with Calls(engine, 0, NBYTES) as calls, pytest.raises(MeasurementError, match="lies on the gpu and not on the cpu"):
        calls.of_route(own_routes.make_route("mine.elsewhere", own_routes.Elsewhere), Stream())


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_that_is_timed_is_a_copy_to_the_gpu_on_a_stream(name: str) -> None:
    (route,) = select_routes(load_framework(ROUTES[name]).routes, [name])
    assert (route.direction, route.bracket, route.setting) == ("h2d", "stream", "")
    assert route.copy is not None


def test_without_any_library_there_is_no_stream_for_the_empty_callable(engine: Engine) -> None:
    if any(importlib.util.find_spec(name) for name in ("torch", "cupy")):
        pytest.skip("PyTorch or CuPy is installed here")
    with (
        Calls(engine, 0, NBYTES) as calls,
        pytest.raises(RefusedError, match="PyTorch is not installed: pip install torch; CuPy is not installed"),
    ):
        calls.make(EMPTY)


@pytest.mark.filterwarnings("default")
def test_a_build_without_cuda_is_refused_with_the_reason(engine: Engine) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch was built with CUDA")
    with Calls(engine, 0, NBYTES) as calls, pytest.raises(RefusedError, match="was built without CUDA"):
        calls.make("torch.to")
