"""Every route there is: the tables of the four frameworks, and what users have registered."""

from __future__ import annotations

import difflib
import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import get_args

from pyxfer.errors import UsageError
from pyxfer.model import Fact, Memory, Returns
from pyxfer.routes.base import Dma, Framework, Route, RouteBracket, Started
from pyxfer.routes.references import find_reference

_TABLES = {
    "torch": "pyxfer.routes.torch_routes",
    "tensorflow": "pyxfer.routes.tensorflow_routes",
    "cupy": "pyxfer.routes.cupy_routes",
    "jax": "pyxfer.routes.jax_routes",
}
FRAMEWORKS = tuple(_TABLES)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\.[a-z0-9][a-z0-9_.-]*")
_KEPT_OWNER = "raw"

_registered: dict[str, list[Route]] = {}


def load_framework(name: str) -> Framework:
    """The framework of this name, with what users have added to its table.

    Raises:
        UsageError: there is none.

    """
    own = tuple(_registered.get(name, ()))
    if name in _TABLES:
        framework: Framework = importlib.import_module(_TABLES[name]).FRAMEWORK
        return replace(framework, routes=(*framework.routes, *own))
    if own:
        return Framework(name, name, name, (), _start_own, own)
    known = ", ".join(all_names())
    raise UsageError(f"Unknown framework {name!r}. Known are {known}; pyxfer.register_route() adds one's own.")


def all_names() -> tuple[str, ...]:
    """The four, and the owners of registered routes that belong to none of them."""
    return (*FRAMEWORKS, *(name for name in _registered if name not in _TABLES))


def register_route(route: Route, framework: str | None = None) -> None:
    """Add a route of one's own.

    It runs in the worker of the framework named, beside that framework's routes, or in a worker of its own. What sets
    it up has to be a function that another process can import: one at the top of a module or of a script.

    Raises:
        UsageError: the name is not `owner.name` or is taken, or its functions cannot be imported.

    """
    if not isinstance(route, Route):
        raise UsageError(f"register_route() takes a pyxfer.Route; got {type(route).__name__}.")
    if not _NAME.fullmatch(route.name) or route.owner == _KEPT_OWNER:
        raise UsageError(
            f"{route.name!r} is no name for a route of your own: write owner.name in small letters, such as "
            f"mine.loader; raw is pyxfer's."
        )
    _check_words(route)
    framework = next((name for name in FRAMEWORKS if load_framework(name).owner == framework), framework)
    home = framework or next((name for name in FRAMEWORKS if load_framework(name).owner == route.owner), route.owner)
    if framework is not None and framework not in _TABLES:
        raise UsageError(f"Unknown framework {framework!r}. Known are {', '.join(FRAMEWORKS)}, or leave it out.")
    if any(route.name == other.name for name in all_names() for other in load_framework(name).routes):
        raise UsageError(f"A route {route.name!r} is there already; give yours another name.")
    if route.copy is None and route.image_batch is None:
        raise UsageError(f"The route {route.name!r} has neither copy nor image_batch to set it up.")
    for make in (route.copy, route.image_batch):
        if make is not None:
            find_reference(make)
    adopt_route(route, home)


def adopt_route(route: Route, home: str) -> None:
    """Put a route that has been checked into a framework's table: in a worker, what its run has registered.

    A worker that imports a script for one of its functions may have met the script's own registration before.
    """
    kept = [each for each in _registered.get(home, ()) if each.name != route.name]
    _registered[home] = [*kept, route]


def unregister_route(name: str) -> None:
    """Take back what `register_route` added.

    Raises:
        UsageError: no such route was registered.

    """
    for home, routes in list(_registered.items()):
        kept = [route for route in routes if route.name != name]
        if len(kept) != len(routes):
            _registered[home] = kept
            if not kept:
                del _registered[home]
            return
    raise UsageError(f"No route {name!r} was registered.")


def registered_routes(framework: str) -> tuple[Route, ...]:
    """What users have added to a framework."""
    return tuple(_registered.get(framework, ()))


def select_routes(routes: Sequence[Route], patterns: Sequence[str]) -> tuple[Route, ...]:
    """Those whose names fit one of the patterns, in the order of the table; no pattern means all."""
    if not patterns:
        return tuple(routes)
    return tuple(route for route in routes if any(fnmatchcase(route.name, pattern) for pattern in patterns))


def check_patterns(patterns: Iterable[str], frameworks: Sequence[str]) -> None:
    """Refuse a pattern that fits no route of these frameworks, and name what may have been meant.

    Raises:
        UsageError: names the pattern.

    """
    names = {route.name: framework for framework in all_names() for route in load_framework(framework).routes}
    for pattern in patterns:
        homes = [framework for name, framework in names.items() if fnmatchcase(name, pattern)]
        if not set(homes) & set(frameworks):
            raise UsageError(f"No route of {', '.join(frameworks)} fits {pattern!r}.{_meant(pattern, homes, names)}")


def _meant(pattern: str, homes: Sequence[str], names: Mapping[str, str]) -> str:
    if homes:
        return f" It belongs to {homes[0]}, which was not named."
    close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4)
    return f" Did you mean {', '.join(close)}?" * bool(close) + " See pyxfer list routes."


def _check_words(route: Route) -> None:
    """Every word of a route is one that the document can keep."""
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
                f"The {name} of the route {route.name!r} is {getattr(route, name)!r}, and no {kind.__name__}."
            )
    if route.bracket == "host" and route.direction != "ingest":
        raise UsageError(
            f"The route {route.name!r} crosses the link, so its bracket is stream or drained, and not host."
        )
    if route.host_copies < 0 or not 0 < route.inflation < math.inf:
        raise UsageError(f"The host_copies of the route {route.name!r} are from 0 on, and its inflation above 0.")


def _start_own(device: int | None, setting: str) -> Started:
    """Routes of one's own start what they need when they are set up."""
    del setting
    return Started("", Fact("its routes' own") if device is not None else Fact(reason="no GPU was asked for"))
