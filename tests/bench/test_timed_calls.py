"""Routes as callables, on the host runtime with routes that copy NumPy arrays."""

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
    """A stream that counts its synchronisations."""

    waits = 0

    def synchronize(self) -> None:
        self.waits += 1


class Noted(own_routes.Copied):
    """A transfer that keeps the source address of each run."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.addresses: list[int] = []

    def run(self) -> None:
        super().run()
        self.addresses.append(self.source.ctypes.data)


def noted() -> tuple[Route, list[Noted]]:
    """A route, and the list to which it appends its transfers."""
    made: list[Noted] = []

    def make(place: Place) -> Noted:
        made.append(Noted(place))
        return made[-1]

    return own_routes.make_route("mine.noted", make), made


def test_a_call_runs_the_route_and_synchronises_its_stream_once(engine: Engine) -> None:
    stream, (route, made) = Stream(), noted()
    with Calls(engine, 0, NBYTES) as calls:
        call = calls.of_route(route, stream)
        before = len(made[0].addresses)
        call.run()
        call.run()
    assert len(made[0].addresses) == before + 2
    assert stream.waits == 2
    assert (call.name, call.nbytes, call.stream) == ("mine.noted", NBYTES, stream)


def test_every_call_has_the_same_source_memory(engine: Engine) -> None:
    route, made = noted()
    with Calls(engine, 0, NBYTES) as calls:
        call = calls.of_route(route, Stream())
        for _ in range(3):
            call.run()
    assert len(set(made[0].addresses)) == 1


@pytest.mark.parametrize("way", [own_routes.Cached, own_routes.Aliased])
def test_a_route_that_does_not_copy_is_refused(way: type[own_routes.Copied], engine: Engine) -> None:
    with (
        Calls(engine, 0, NBYTES) as calls,
        pytest.raises(MeasurementError, match=r"mine\.wrong"),
    ):
        calls.of_route(own_routes.make_route("mine.wrong", way), Stream())


def test_a_result_on_the_wrong_device_is_refused(engine: Engine) -> None:
    with Calls(engine, 0, NBYTES) as calls, pytest.raises(MeasurementError, match=r"gpu.*cpu"):
        calls.of_route(own_routes.make_route("mine.elsewhere", own_routes.Elsewhere), Stream())


@pytest.mark.parametrize("name", ROUTES)
def test_every_timed_route_is_a_copy_to_the_gpu_on_a_stream(name: str) -> None:
    (route,) = select_routes(load_framework(ROUTES[name]).routes, [name])
    assert (route.direction, route.bracket, route.setting) == ("h2d", "stream", "")
    assert route.copy is not None


def test_the_empty_callable_needs_a_stream_of_a_library(engine: Engine) -> None:
    if any(importlib.util.find_spec(name) for name in ("torch", "cupy")):
        pytest.skip("PyTorch or CuPy is installed here")
    with (
        Calls(engine, 0, NBYTES) as calls,
        pytest.raises(RefusedError, match=r"PyTorch.*CuPy"),
    ):
        calls.make(EMPTY)


@pytest.mark.filterwarnings("default")
def test_a_pytorch_without_cuda_is_refused(engine: Engine) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch was built with CUDA")
    with Calls(engine, 0, NBYTES) as calls, pytest.raises(RefusedError, match="without CUDA"):
        calls.make("torch.to")
