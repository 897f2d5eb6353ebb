"""`explain`: one route and its alternatives at one size, in the same rounds."""

from __future__ import annotations

from typing import Any

from pyxfer._ceiling import plans as raw_plans
from pyxfer._ceiling.plans import DEFAULT_PRECISION, limits_of
from pyxfer._ceiling.plans import make_request as make_raw_request
from pyxfer._ceiling.session import checked_choice, run_request
from pyxfer._document.machines import STAGED
from pyxfer._document.routes import RouteStatus
from pyxfer._document.runs import OneWay, Run
from pyxfer._frameworks.base import HOST_COPY, IMAGE_BYTES, Framework, Route
from pyxfer._frameworks.orders import Order
from pyxfer._frameworks.process import STEP_PATIENCE_S
from pyxfer._frameworks.registry import all_names, load_framework, similar
from pyxfer._frameworks.session import DIRECTIONS, make_request, run_workers
from pyxfer._measure.sampler import OnProgress, SaveTo
from pyxfer.errors import UsageError
from pyxfer.units import format_size, size_of, word_of

DEFAULT_SIZE = "96MiB"
DEFAULT_BUDGET_S = 15.0
# The alternatives for a program that already has its data in one of these memories.
_RAW_MEMORIES = ("pinned", "pageable")
_RAW_MODES = ("async", "memcpy")


def explain(
    route: str,
    size: str | int = DEFAULT_SIZE,
    *,
    direction: OneWay | None = None,
    device: int | str = 0,
    precision: str | float = DEFAULT_PRECISION,
    budget: str | float = DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    complete: bool = False,
    patience: str | float = STEP_PATIENCE_S,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> Run:
    """Measure where the time of one route goes, beside the routes that could replace it.

    These are raw copies and the other routes of its framework in its direction. All run in one process and in the same
    rounds; then a few trials of each are traced. `run.parameters.explained` names the route, and each row's `breakdown`
    and `dma` show where its time went and what crossed the link. `direction` is for raw routes, h2d by default.
    `patience` is that of `frameworks`, and the other arguments are those of `ceiling`.

    Raises:
        UsageError: the route is unknown, or cannot be explained at this size; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
    """
    nbytes = size_of(size, "size")
    found = _find(route)
    limits = limits_of(precision, budget, seed, explained=route, complete=complete)
    if isinstance(found, RouteStatus):
        return run_request(
            make_raw_request(
                device,
                (word_of("h2d" if direction is None else direction, DIRECTIONS, "direction"),),
                tuple(dict.fromkeys((found.memory, *_RAW_MEMORIES))),
                tuple(dict.fromkeys((found.mode, *_RAW_MODES, *((STAGED,) if found.memory == "pageable" else ())))),
                (nbytes,),
                limits,
            ),
            device,
            require_gpu=require_gpu,
            on_progress=on_progress,
            save_to=save_to,
        )
    framework, own = found
    if direction not in (None, own.direction):
        raise UsageError(
            f"{own.name} goes {own.direction}; a direction is for raw routes, which have both. Leave it out."
        )
    choice = checked_choice(device, require_gpu=require_gpu)
    request = make_request([framework.name], device, choice.runtime, limits, routes=(), **_asked(own, nbytes))
    return run_workers(choice, request, patience, on_progress, save_to)


def _asked(route: Route, nbytes: int) -> dict[str, Any]:
    """What a run is asked for to measure one route; images, if it supports only these."""
    ingest = route.direction == "ingest"
    directions = {"directions": () if ingest else (route.direction,), "ingest": ingest}
    if isinstance(route, Order):
        raise UsageError(
            f"{route.name} is an order of work on images: the report of pyxfer frameworks --workload image-batch "
            "--layout nhwc,nchw shows where the time of each goes."
        )
    if route.copy is not None:
        return {**directions, "workload": "copy", "sizes": (nbytes,), "batches": None}
    if nbytes % IMAGE_BYTES:
        near = max(1, round(nbytes / IMAGE_BYTES)) * IMAGE_BYTES
        raise UsageError(
            f"{route.name} sends images of {IMAGE_BYTES} bytes, and {format_size(nbytes)} is not a whole number of "
            f"images; take the size {near}."
        )
    return {**directions, "workload": "image-batch", "sizes": None, "batches": (nbytes // IMAGE_BYTES,)}


def _find(name: str) -> tuple[Framework, Route] | RouteStatus:
    """The framework's, registered or raw route of this name."""
    if not isinstance(name, str):
        raise UsageError(f"A route is named by text, such as torch.to; got {name!r}.")
    if name == HOST_COPY.name:
        raise UsageError(
            f"{name} is the ceiling of ingest routes and cannot be explained alone. Explain an ingest route, such as "
            "tf.ingest."
        )
    frameworks = [load_framework(framework) for framework in all_names()]
    for framework in frameworks:
        for route in framework.routes:
            if route.name == name:
                return framework, route
    raw = {route.name: route for route in raw_plans.list_routes(checked_choice(0, require_gpu=False).engine)}
    if name in raw:
        return raw[name]
    names = [route.name for framework in frameworks for route in framework.routes]
    raise UsageError(f"Unknown route {name!r}.{similar(name, [*names, *raw])}")
