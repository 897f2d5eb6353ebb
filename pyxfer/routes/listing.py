"""Every route as a line: what it is, and whether it is to be had here, told without importing any framework."""

from __future__ import annotations

from dataclasses import dataclass

from pyxfer import raw
from pyxfer.model import STAGED, Direction, Memory
from pyxfer.native import Choice, choose
from pyxfer.routes.base import Framework, Route, installed_version
from pyxfer.routes.registry import all_names, load_framework

_RAW_CALLS = {
    "memcpy": "cudaMemcpy",
    "async": "cudaMemcpyAsync",
    "batch": "cudaMemcpyBatchAsync",
    STAGED: "pyxfer's ring: several threads and cudaMemcpyAsync",
}


@dataclass(frozen=True)
class RouteStatus:
    """A route, and whether it is to be had here."""

    name: str
    framework: str
    direction: tuple[Direction, ...]
    memory: Memory
    host_copies: int
    returns: str
    call: str
    usual: bool
    available: bool
    reason: str


@dataclass(frozen=True)
class FrameworkStatus:
    """A framework as its installed packages tell, and its routes."""

    name: str
    title: str
    version: str | None
    reason: str
    routes: tuple[RouteStatus, ...]


def list_routes() -> tuple[RouteStatus, ...]:
    """Every route, raw ones first."""
    choice = choose()
    lines = [_raw_line(each) for each in raw.list_routes(choice.engine)]
    return (*lines, *(line for status in list_frameworks(choice) for line in status.routes))


def list_frameworks(choice: Choice) -> tuple[FrameworkStatus, ...]:
    """The four and users' own; a package can be installed and still not start, which only a run shows."""
    return tuple(_framework_status(load_framework(name), choice) for name in all_names())


def _framework_status(framework: Framework, choice: Choice) -> FrameworkStatus:
    version = installed_version(framework.distributions) if framework.distributions else "your own"
    absent = "" if version else f"{framework.title} is not installed"
    no_gpu = choice.reason or _without_cuda(framework, version or "")
    lines = tuple(_line(framework, route, absent, no_gpu) for route in framework.routes)
    return FrameworkStatus(framework.name, framework.title, version, absent or no_gpu, lines)


def _line(framework: Framework, route: Route, absent: str, no_gpu: str) -> RouteStatus:
    reason = absent or ("" if route.direction == "ingest" else no_gpu)
    return RouteStatus(
        name=route.name,
        framework=framework.name,
        direction=(route.direction,),
        memory=route.memory,
        host_copies=route.host_copies,
        returns=route.returns,
        call=route.call,
        usual=route.usual,
        available=not reason,
        reason=reason,
    )


def _without_cuda(framework: Framework, version: str) -> str:
    """Why the installed build can use no GPU, as far as its packages tell."""
    if "+cpu" in version or version.endswith("(tensorflow-cpu)"):
        return f"{framework.title} {version} was built without CUDA"
    if framework.gpu_distributions and not installed_version(framework.gpu_distributions):
        return f"{framework.title} has no CUDA plugin here: install one of {', '.join(framework.gpu_distributions)}"
    return ""


def _raw_line(route: raw.RouteStatus) -> RouteStatus:
    return RouteStatus(
        name=route.name,
        framework="raw",
        direction=route.direction,
        memory=route.memory,
        host_copies=1 if route.mode == STAGED else 0,
        returns="done" if route.mode in ("memcpy", STAGED) else "queued",
        call=_RAW_CALLS.get(route.mode, f"cudaMemcpyAsync on {route.mode.partition(':')[2]} streams"),
        usual=False,
        available=route.available,
        reason=route.reason,
    )
