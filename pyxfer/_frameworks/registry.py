"""All routes: the tables of the four frameworks, and the routes that users have registered."""

from __future__ import annotations

import difflib
import importlib
import math
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, get_args

import msgspec

from pyxfer._ceiling import derived, plans
from pyxfer._document.machines import Fact
from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._document.runs import Measurement, Memory, Published, Returns, Run, Workload
from pyxfer._frameworks.base import Dma, Framework, Route, RouteBracket, Started, installed_version
from pyxfer._frameworks.messages import Reference
from pyxfer.errors import RefusedError, UsageError
from pyxfer.native import Choice, choose

_MAIN = "__main__"
# Not __main__, so that the worker does not run the script's main block.
_MAIN_IN_WORKER = "__pyxfer_worker__"


def find_reference(function: Callable[..., Any]) -> Reference:
    """Where another process can import this function."""
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", "") or ""
    home = sys.modules.get(module)
    if home is None or "<" in name or _attribute(home, name) is not function:
        raise UsageError(
            f"{name or function!r} cannot be imported by a worker process: use a function or a class at the top of a "
            "module or of a script."
        )
    if module != _MAIN:
        return Reference(module, name)
    spec = getattr(home, "__spec__", None)
    if spec is not None and spec.name != _MAIN:  # python -m package.module
        return Reference(spec.name, name)
    # A folder or an archive with a __main__.py runs under its own path.
    path = getattr(home, "__file__", None) if spec is None else sys.argv[0]
    if path is None or not os.path.exists(path):
        raise UsageError(f"{name} was typed at a prompt, where a worker process cannot find it: put it into a module.")
    return Reference(_MAIN, name, os.path.abspath(path))


def resolve_reference(reference: Reference) -> Callable[..., Any]:
    """Import the function, in the worker."""
    home = importlib.import_module(reference.module) if reference.script is None else _script(reference.script)
    found = _attribute(home, reference.name)
    if found is None:
        where = reference.script or reference.module
        raise RefusedError(
            f"{where} does not define {reference.name} when imported: define it at the top, outside of any condition"
        )
    function: Callable[..., Any] = found
    return function


def _script(path: str) -> ModuleType:
    """The script as a module. It runs once, under a name in `sys.modules`, so that its classes can be pickled."""
    if _MAIN_IN_WORKER not in sys.modules:
        module = ModuleType(_MAIN_IN_WORKER)
        sys.modules[_MAIN_IN_WORKER] = module
        sys.argv[:] = [path]
        module.__dict__.update(runpy.run_path(path, run_name=_MAIN_IN_WORKER))
    return sys.modules[_MAIN_IN_WORKER]


def _attribute(home: Any, name: str) -> Any:
    for part in name.split("."):
        home = getattr(home, part, None)
    return home


def list_routes() -> tuple[RouteStatus, ...]:
    """List every route, raw copies first, and whether it is available here. Imports no framework."""
    choice = choose()
    return (*plans.list_routes(choice.engine), *(line for status in list_frameworks(choice) for line in status.routes))


def list_frameworks(choice: Choice) -> tuple[FrameworkStatus, ...]:
    """The four frameworks and the users' own. An installed one may still fail to start, which only a run shows."""
    return tuple(_framework_status(load_framework(name), choice) for name in all_names())


def _framework_status(framework: Framework, choice: Choice) -> FrameworkStatus:
    version = installed_version(framework.distributions) if framework.distributions else "your own"
    absent = "" if version else f"{framework.title} is not installed"
    no_gpu = choice.reason or _without_cuda(framework, version or "")
    lines = tuple(_line(framework, route, absent, no_gpu) for route in framework.routes)
    return FrameworkStatus(framework.name, framework.title, version, absent or no_gpu, lines)


def _line(framework: Framework, route: Route, absent: str, no_gpu: str) -> RouteStatus:
    reason = absent or ("" if route.direction == "ingest" else no_gpu)
    same: dict[str, Any] = {
        name: getattr(route, name) for name in ("name", "memory", "host_copies", "returns", "call", "usual")
    }
    same |= {"framework": framework.name, "mode": "framework", "available": not reason, "reason": reason}
    return RouteStatus(direction=(route.direction,), **same)


def _without_cuda(framework: Framework, version: str) -> str:
    if "+cpu" in version or version.endswith("(tensorflow-cpu)"):
        return f"{framework.title} {version} was built without CUDA"
    if framework.gpu_distributions and not installed_version(framework.gpu_distributions):
        return f"{framework.title} has no CUDA plugin here: install one of {', '.join(framework.gpu_distributions)}"
    return ""


_SOURCE = "https://github.com/tensorflow/tensorflow/issues/51951"
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def _row(label: str, route: str, gpu: str, *mbps: float) -> Published:
    return Published(label, route, gpu, dict(zip(_BATCHES, mbps, strict=True)), _SOURCE)


_IMAGE_BATCH = (
    _row("TF", "tf.function", "RTX 2080 Ti", 364, 874, 1223, 2807, 2376, 2792, 3555, 4112, 2089, 2189),
    _row("TF", "tf.function", "GTX 1060", 401, 598, 1260, 1750, 2394, 3138, 3652, 3976, 1692, 1693),
    _row("TF jit", "tf.function-jit", "GTX 1060", 317, 590, 1372, 1753, 2479, 3504, 6524, 4683, 1731, 1776),
    _row("PyTorch", "torch.to", "RTX 2080 Ti", 2540, 4013, 4594, 6283, 8537, 9351, 8548, 9048, 9320, 9352),
    _row("PyTorch", "torch.to", "GTX 1060", 2634, 3630, 4524, 5448, 6379, 6549, 6715, 6895, 6965, 6958),
)


def published_for(workload: Workload, frameworks: Sequence[str]) -> tuple[Published, ...]:
    if workload != "image-batch":
        return ()
    owners = {load_framework(name).owner for name in frameworks}
    return tuple(figures for figures in _IMAGE_BATCH if figures.route.partition(".")[0] in owners)


FRAMEWORKS = ("torch", "tensorflow", "cupy", "jax")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\.[a-z0-9][a-z0-9_.-]*")
_RESERVED_OWNER = "raw"

_registered: dict[str, list[Route]] = {}


def load_framework(name: str) -> Framework:
    """The framework of this name, with the routes that users have added."""
    own = registered_routes(name)
    if name in FRAMEWORKS:
        framework = _table(name)
        return replace(framework, routes=(*framework.routes, *own))
    if own:
        return Framework(name, name, name, (), _start_own, own)
    known = ", ".join(all_names())
    raise UsageError(f"Unknown framework {name!r}. Known are {known}; pyxfer.register_route() adds your own.")


def _table(name: str) -> Framework:
    framework: Framework = importlib.import_module(f"pyxfer._frameworks.{name}").FRAMEWORK
    return framework


def known_route(framework: str, name: str) -> Route | None:
    """A route of the tables that come with the package, whatever users have added."""
    routes = _table(framework).routes if framework in FRAMEWORKS else ()
    return next((route for route in routes if route.name == name), None)


def derive_run(run: Run) -> Run:
    """The run with what follows from its trials, its link, its settings and the tables of routes."""
    found = derived.derive_run(run)
    return msgspec.structs.replace(found, measurements=tuple(map(_as_in_the_table, found.measurements)))


def _as_in_the_table(row: Measurement) -> Measurement:
    """A route that the package has goes one way, from or to one kind of memory."""
    route = None if row.route_info is None else known_route(row.route_info.framework, row.route)
    return row if route is None else msgspec.structs.replace(row, direction=route.direction, memory=route.memory)


def all_names() -> tuple[str, ...]:
    """The four frameworks, and the owners of other registered routes."""
    return (*FRAMEWORKS, *(name for name in _registered if name not in FRAMEWORKS))


def register_route(route: Route, framework: str | None = None) -> None:
    """Register your own route.

    It runs in the worker of `framework`, or of the framework that has the route's owner, beside that framework's
    routes; otherwise in a separate worker. The functions that set it up must be at the top level of a module or a
    script, so that another process can import them.

    Raises:
        UsageError: the name is not `owner.name` or is taken, or its functions cannot be imported.
    """
    if not isinstance(route, Route):
        raise UsageError(f"register_route() takes a pyxfer.Route; got {type(route).__name__}.")
    if not _NAME.fullmatch(route.name) or route.owner == _RESERVED_OWNER:
        raise UsageError(
            f"{route.name!r} is not a valid name for your own route: write owner.name in lower case, such as "
            f"mine.loader; raw is reserved."
        )
    _check_fields(route)
    framework = next((name for name in FRAMEWORKS if load_framework(name).owner == framework), framework)
    home = framework or next((name for name in FRAMEWORKS if load_framework(name).owner == route.owner), route.owner)
    if framework is not None and framework not in FRAMEWORKS:
        raise UsageError(f"Unknown framework {framework!r}. Known are {', '.join(FRAMEWORKS)}, or leave it out.")
    if any(route.name == other.name for name in all_names() for other in load_framework(name).routes):
        raise UsageError(f"A route {route.name!r} exists already; choose another name.")
    if route.copy is None and route.image_batch is None:
        raise UsageError(f"The route {route.name!r} has neither copy nor image_batch to set it up.")
    for make in (route.copy, route.image_batch):
        if make is not None:
            find_reference(make)
    adopt_route(route, home)


def adopt_route(route: Route, home: str) -> None:
    """Add a checked route to a framework, or replace the one of the same name.

    A worker that has imported a script may already have run the script's own `register_route`.
    """
    kept = [other for other in _registered.get(home, ()) if other.name != route.name]
    _registered[home] = [*kept, route]


def unregister_route(name: str) -> None:
    """Remove a route that `register_route` added.

    Raises:
        UsageError: no route of this name is registered.
    """
    for home, routes in list(_registered.items()):
        kept = [route for route in routes if route.name != name]
        if len(kept) != len(routes):
            _registered[home] = kept
            if not kept:
                del _registered[home]
            return
    raise UsageError(f"No route {name!r} is registered.")


def registered_routes(framework: str) -> tuple[Route, ...]:
    return tuple(_registered.get(framework, ()))


def select_routes(routes: Sequence[Route], patterns: Sequence[str]) -> tuple[Route, ...]:
    """The routes whose names match one of the patterns, or all without patterns, in the order of the table."""
    if not patterns:
        return tuple(routes)
    return tuple(route for route in routes if any(fnmatchcase(route.name, pattern) for pattern in patterns))


def check_patterns(patterns: Iterable[str], frameworks: Sequence[str]) -> None:
    names = {route.name: framework for framework in all_names() for route in load_framework(framework).routes}
    for pattern in patterns:
        homes = [framework for name, framework in names.items() if fnmatchcase(name, pattern)]
        if not set(homes) & set(frameworks):
            hint = f" It belongs to {homes[0]}, which was not named." if homes else similar(pattern, names)
            raise UsageError(f"No route of {', '.join(frameworks)} fits {pattern!r}.{hint}")


def similar(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.4)
    return f" Did you mean {', '.join(close)}?" * bool(close) + " See pyxfer list routes."


def _check_fields(route: Route) -> None:
    words = {
        "direction": ("h2d", "d2h", "ingest"),
        "memory": get_args(Memory),
        "dma": get_args(Dma),
        "returns": get_args(Returns),
        "bracket": get_args(RouteBracket),
    }
    for name, known in words.items():
        if getattr(route, name) not in known:
            raise UsageError(
                f"The route {route.name!r} has the {name} {getattr(route, name)!r}; known are {', '.join(known)}."
            )
    kinds = {"call": str, "setting": str, "host_copies": int, "usual": bool, "staged": bool}
    for name, kind in kinds.items():
        if type(getattr(route, name)) is not kind:
            raise UsageError(
                f"The {name} of the route {route.name!r} has to be {kind.__name__}; got {getattr(route, name)!r}."
            )
    if route.bracket == "host" and route.direction != "ingest":
        raise UsageError(
            f"The route {route.name!r} crosses the link, so its bracket has to be stream or drained, not host."
        )
    if route.host_copies < 0 or not 0 < route.inflation < math.inf:
        raise UsageError(f"The host_copies of the route {route.name!r} are 0 or more, and its inflation is above 0.")


def _start_own(device: int | None, _setting: str) -> Started:
    """Nothing is imported here: a user's routes import what they need when they are set up."""
    return Started("", Fact("its routes' own") if device is not None else Fact(reason="no GPU was requested"))
