"""Some of pyxfer's routes as plain calls, and the three timers that `timers.py` puts them under.

A call is what `pyxfer frameworks` times: the route's own transfer, set up through its table and verified. A library is
imported when its route is set up or its timer runs, so that one that is missing costs only its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from types import TracebackType
from typing import Any, Literal

import msgspec

import pyxfer
from pyxfer._frameworks.base import RefusedError, Route, Transfer
from pyxfer._frameworks.messages import Marker
from pyxfer._frameworks.place import HostArena, Place
from pyxfer._frameworks.registry import load_framework, select_routes
from pyxfer._frameworks.subjects import RouteSubject
from pyxfer.errors import MeasurementError
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
    """Something that all timers can time, and the stream it works on."""

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
# Each route, with the framework that has it.
ROUTES = {
    "torch.to": "torch",
    "torch.pinned-nonblocking": "torch",
    "cupy.asarray": "cupy",
    "cupy.asarray-pinned": "cupy",
}
NAMES = (*ROUTES, EMPTY)


class Calls:
    """Makes calls; they share host memory and a copier, which are released at the end of the `with` block."""

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
            RefusedError: its framework is not here, or sees no GPU.

        """
        if name == EMPTY:
            return Call(EMPTY, lambda: None, self._any_stream(), nbytes=1)
        framework = ROUTES[name]
        self._start(framework)
        (route,) = select_routes(load_framework(framework).routes, [name])
        return self.of_route(route, STREAMS[framework]())

    def of_route(self, route: Route, stream: Any) -> Call:
        """One run of the route, and then the wait for its stream; what it takes from stays the same memory."""
        if route.copy is None:
            raise RefusedError(f"{route.name} has no part in the workload copy")
        place = Place(self._nbytes, self._device, self._arena, self._copier, self._engine, rotates=False)
        transfer = route.copy(place)
        self._verify(route, transfer, place)
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
        """The stream of the first framework that is here."""
        reasons = []
        for framework, stream in STREAMS.items():
            try:
                self._start(framework)
            except RefusedError as error:
                reasons.append(str(error))
            else:
                return stream()
        raise RefusedError("; ".join(reasons))

    def _verify(self, route: Route, transfer: Transfer, place: Place) -> None:
        """Three timers that agree on a call that copies nothing would agree on nothing."""
        with (
            closing(Marker()) as marker,
            closing(RouteSubject(route, transfer, place, self._engine, marker)) as subject,
        ):
            right, aliased = subject.verify(SEED)
        if not right.value or aliased:
            raise MeasurementError(f"{route.name} did not copy what it was given, so there is nothing to time.")


# --- the timers ------------------------------------------------------------------------------------------------------


def time_torch(call: Call) -> Samples:
    """Seconds a call of each block that torch's timer ran."""
    torch_timer = import_module("torch.utils.benchmark").Timer
    found = torch_timer("run()", globals={"run": call.run}).blocked_autorange(min_run_time=0.5)
    return [float(sample) for sample in found.times]


def time_cupyx(call: Call) -> Samples:
    """Seconds between cupyx's two events, one a repeat."""
    found = import_module("cupyx.profiler").benchmark(call.run, n_repeat=REPEATS, n_warmup=WARM_UPS)
    return [float(sample) for sample in found.gpu_times[0]]


def time_pyxfer(call: Call) -> Samples:
    """Seconds between pyxfer's two events, one a trial.

    Without `nbytes`, so that no ceiling runs between the calls: the other timers leave the caches to the call too.
    """
    found = pyxfer.measure(call.run, stream=call.stream, budget_s=0.5)
    samples = [trial.elapsed_s for trial in found.trials if trial.invalid is None]
    if not samples:
        raise MeasurementError(found.rate.reason or "no valid trial")
    return samples


TIMERS: dict[Timer, Callable[[Call], Samples]] = {"torch": time_torch, "cupyx": time_cupyx, "pyxfer": time_pyxfer}
