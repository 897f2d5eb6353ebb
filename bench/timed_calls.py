"""Routes of pyxfer as callables, and the three timers that `timers.py` compares.

A call runs the transfer that `pyxfer frameworks` times, set up through the table of routes and verified. Libraries are
imported when a route is set up or a timer runs, so that a missing library affects only its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from types import TracebackType
from typing import Any, Literal

import msgspec

import pyxfer
from pyxfer._frameworks.base import Route, Transfer
from pyxfer._frameworks.context import HostArena, RouteContext
from pyxfer._frameworks.messages import Marker
from pyxfer._frameworks.registry import load_framework, select_routes
from pyxfer._frameworks.subjects import RouteSubject
from pyxfer.errors import MeasurementError, RefusedError
from pyxfer.native import Engine

NBYTES = 64 << 20
EMPTY = "empty callable"
REPEATS = 30
WARM_UPS = 3
PATIENCE_S = 30.0
SEED = 1

Timer = Literal["torch", "cupyx", "pyxfer"]
Samples = list[float]


class Call(msgspec.Struct, frozen=True):
    """A callable that all timers can time, and its stream."""

    name: str
    run: Callable[[], object]
    stream: Any
    nbytes: int = NBYTES


# --- the calls -------------------------------------------------------------------------------------------------------


def torch_stream() -> Any:
    """PyTorch's current stream."""
    return import_module("torch").cuda.current_stream()


def cupy_stream() -> Any:
    """CuPy's current stream."""
    return import_module("cupy").cuda.get_current_stream()


STREAMS: dict[str, Callable[[], Any]] = {"torch": torch_stream, "cupy": cupy_stream}
# The framework of each route.
ROUTES = {
    "torch.to": "torch",
    "torch.pinned-nonblocking": "torch",
    "cupy.asarray": "cupy",
    "cupy.asarray-pinned": "cupy",
}
NAMES = (*ROUTES, EMPTY)


class Calls:
    """Makes calls. They share host memory and a copier, which the end of the `with` block releases."""

    def __init__(self, engine: Engine, device: int, nbytes: int = NBYTES) -> None:
        self._engine = engine
        self._device = device
        self._nbytes = nbytes
        self._arena = HostArena(engine, device, nbytes, cache_bytes=0)
        self._copier = engine.Copier(device, 1, PATIENCE_S)

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._copier.close()
        self._arena.close()

    def make(self, name: str) -> Call:
        """The call of one of `NAMES`.

        Raises:
            RefusedError: the framework is not installed, or finds no GPU.

        """
        if name == EMPTY:
            return Call(EMPTY, lambda: None, self._any_stream(), nbytes=1)
        framework = ROUTES[name]
        self._start(framework)
        (route,) = select_routes(load_framework(framework).routes, [name])
        return self.of_route(route, STREAMS[framework]())

    def of_route(self, route: Route, stream: Any) -> Call:
        """A call that runs the route and synchronises the stream; the source is the same memory every time."""
        if route.copy is None:
            raise RefusedError(f"{route.name} is not in the workload copy")
        context = RouteContext(self._nbytes, self._device, self._arena, self._copier, self._engine, rotates=False)
        transfer = route.copy(context)
        self._verify(route, transfer, context)
        transfer.refresh()

        def run() -> None:
            transfer.run()
            stream.synchronize()

        return Call(route.name, run, stream, self._nbytes)

    def _start(self, framework: str) -> None:
        started = load_framework(framework).start(self._device, "")
        if started.cuda.value is None:
            raise RefusedError(started.cuda.reason or f"{framework} has no GPU")

    def _any_stream(self) -> Any:
        """The stream of the first available framework."""
        reasons = []
        for framework, stream in STREAMS.items():
            try:
                self._start(framework)
            except RefusedError as error:
                reasons.append(str(error))
            else:
                return stream()
        raise RefusedError("; ".join(reasons))

    def _verify(self, route: Route, transfer: Transfer, context: RouteContext) -> None:
        """Raise `MeasurementError` unless the route copies: all timers would agree on a call that does nothing."""
        with (
            closing(Marker()) as marker,
            closing(RouteSubject(route, transfer, context, self._engine, marker)) as subject,
        ):
            right, aliased = subject.verify(SEED)
        if not right.value or aliased:
            raise MeasurementError(f"{route.name} did not copy its input, so there is no transfer to time.")


# --- the timers ------------------------------------------------------------------------------------------------------


def time_torch(call: Call) -> Samples:
    """Seconds per call in each block of torch's timer."""
    torch_timer = import_module("torch.utils.benchmark").Timer
    found = torch_timer("run()", globals={"run": call.run}).blocked_autorange(min_run_time=0.5)
    return [float(sample) for sample in found.times]


def time_cupyx(call: Call) -> Samples:
    """Seconds between cupyx's two events, for each repeat."""
    found = import_module("cupyx.profiler").benchmark(call.run, n_repeat=REPEATS, n_warmup=WARM_UPS)
    return [float(sample) for sample in found.gpu_times[0]]


def time_pyxfer(call: Call) -> Samples:
    """Seconds between pyxfer's two events, for each trial.

    `nbytes` is left out so that no raw copies run between the calls and change the caches; the other timers run none.
    """
    found = pyxfer.measure(call.run, stream=call.stream, budget=0.5)
    samples = [trial.elapsed_s for trial in found.trials if trial.invalid is None]
    if not samples:
        raise MeasurementError(found.rate.reason or "no valid trial")
    return samples


TIMERS: dict[Timer, Callable[[Call], Samples]] = {"torch": time_torch, "cupyx": time_cupyx, "pyxfer": time_pyxfer}
