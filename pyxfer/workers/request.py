"""What a frameworks run was asked for, read and checked before anything is started."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyxfer.errors import UsageError
from pyxfer.model import Direction, Parameters, Runtime, Workload
from pyxfer.raw.request import DEFAULT_PRECISION, between, checked_seed, checked_sizes
from pyxfer.raw.ways import known_word
from pyxfer.routes.base import Framework, Make, Route
from pyxfer.routes.place import IMAGE_BYTES
from pyxfer.routes.references import find_reference
from pyxfer.routes.registry import FRAMEWORKS, all_names, check_patterns, load_framework, registered_routes
from pyxfer.routes.registry import select_routes as select
from pyxfer.sampling.rounds import MIN_ROUNDS
from pyxfer.workers.messages import OwnRoute, Task
from pyxfer.workers.supervisor import IN_WORKER

DEFAULT_SIZES = "4KiB:256MiB:x16"
DEFAULT_BATCHES = "1:512:x2"
DEFAULT_BUDGET_S = 15.0
WORKLOADS: tuple[Workload, ...] = ("copy", "image-batch")
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")
MOST_BATCH = 1 << 20


@dataclass(frozen=True)
class Request:
    """Workers to start, and what each is to measure."""

    device: str
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    workload: Workload
    directions: tuple[Direction, ...]
    sizes: tuple[int, ...]
    precision: float
    budget_s: float
    seed: int
    trace: bool = True
    explained: str = ""

    def parameters(self) -> Parameters:
        """As the document keeps it."""
        batches = tuple(size // IMAGE_BYTES for size in self.sizes) if self.workload == "image-batch" else ()
        return Parameters(
            device=self.device,
            directions=self.directions,
            memories=("pageable", "pinned"),
            modes=(),
            sizes_bytes=self.sizes,
            fresh=False,
            precision=self.precision,
            budget_s=self.budget_s,
            seed=self.seed,
            min_rounds=MIN_ROUNDS,
            frameworks=self.names,
            routes=self.patterns,
            workload=self.workload,
            batches=batches,
            explained=self.explained,
        )

    def routes(self, framework: Framework) -> tuple[Route, ...]:
        """The framework's routes that were asked for."""
        fitting = [
            route
            for route in framework.routes
            if route.direction in self.directions and route.make(self.workload) is not None
        ]
        return select(fitting, self.patterns)

    def tasks(self, framework: Framework) -> tuple[Task, ...]:
        """A worker for the plain framework, and one for each setting that a route wants from the start.

        What is explained is set against what runs in its own worker alone.
        """
        routes = self.routes(framework)
        settings = dict.fromkeys(route.setting for route in routes)
        return tuple(
            Task(
                worker=f"{framework.name} {setting}".strip(),
                framework=framework.name,
                setting=setting,
                routes=tuple(route.name for route in routes if route.setting == setting),
                own=tuple(_own(route) for route in registered_routes(framework.name)),
                device=self.device,
                workload=self.workload,
                sizes=self.sizes,
                precision=self.precision,
                budget_s=self.budget_s,
                seed=self.seed,
                trace=self.trace,
                explained=self.explained,
            )
            for setting in sorted(settings)
            if not self.explained or setting == _setting_of(self.explained, routes)
        )


def make_request(
    names: Sequence[str] | str | None,
    device: int | str,
    runtime: Runtime,
    *,
    routes: Sequence[str] | str,
    workload: str,
    sizes: str | Sequence[int] | None,
    batches: str | Sequence[int] | None,
    directions: Sequence[str] | str | None,
    ingest: bool,
    precision: float,
    budget_s: float,
    seed: int | None,
    trace: bool = True,
) -> Request:
    """Check every word and number.

    Raises:
        UsageError: says which one cannot be, and gives a right example.

    """
    if os.environ.get(IN_WORKER):
        raise UsageError(
            "frameworks() was called while a worker imported this script for a route of its own: put what the script "
            'does under  if __name__ == "__main__":'
        )
    chosen_workload = known_word(workload, WORKLOADS, "workload")
    request = Request(
        device=str(device),
        names=_names(names),
        patterns=_words(routes),
        workload=chosen_workload,
        directions=_directions(directions, chosen_workload, runtime, ingest=ingest),
        sizes=_sizes(chosen_workload, sizes, batches),
        precision=between(precision, "precision", 1.0, f"{DEFAULT_PRECISION} (0.5 %)"),
        budget_s=between(budget_s, "budget", 86400.0, "30 (seconds)"),
        seed=secrets.randbits(32) if seed is None else checked_seed(seed),
        trace=trace,
    )
    check_patterns(request.patterns, request.names)
    if not any(request.routes(load_framework(name)) for name in request.names):
        raise UsageError(
            f"Nothing that was asked for has a part in the workload {chosen_workload} and the directions "
            f"{', '.join(request.directions)}{_because(runtime)}. See pyxfer list routes."
        )
    return request


def _setting_of(name: str, routes: Sequence[Route]) -> str:
    return next((route.setting for route in routes if route.name == name), "")


def _because(runtime: Runtime) -> str:
    return ", which is all that can be timed without a usable GPU" if runtime == "host" else ""


def _names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """The frameworks named, or all; the owner's short name will do."""
    if not names:
        return all_names()
    short = {load_framework(name).owner: name for name in FRAMEWORKS}
    found = tuple(dict.fromkeys(short.get(name, name) for name in _words(names)))
    for name in found:
        load_framework(name)
    return found


def _words(words: Sequence[str] | str) -> tuple[str, ...]:
    each = (words,) if isinstance(words, str) else tuple(words)
    for word in each:
        if not isinstance(word, str):
            raise UsageError(f"Frameworks, routes and directions are named by text; got {word!r}.")
    return each


def _directions(
    directions: Sequence[str] | str | None, workload: Workload, runtime: Runtime, *, ingest: bool
) -> tuple[Direction, ...]:
    """Both ways over the link, and what stays on the host where it is asked for or nothing else is to be had."""
    if directions is not None:
        asked = tuple(known_word(word, DIRECTIONS, "direction") for word in _words(directions))
        return (*dict.fromkeys(asked), *(("ingest",) if ingest else ()))
    if runtime == "host" and workload == "image-batch":
        raise UsageError(
            "The workload image-batch sends images to a GPU, and no GPU is usable here; see pyxfer info. Without one, "
            "the workload copy times how each framework takes in an array."
        )
    if runtime == "host":
        return ("ingest",)
    over_the_link: tuple[Direction, ...] = ("h2d",) if workload == "image-batch" else DIRECTIONS
    return (*over_the_link, *(("ingest",) if ingest else ()))


def _sizes(
    workload: Workload, sizes: str | Sequence[int] | None, batches: str | Sequence[int] | None
) -> tuple[int, ...]:
    if workload == "copy":
        if batches is not None:
            raise UsageError("Batches belong to the workload image-batch: add --workload image-batch, or give --sizes.")
        return checked_sizes(DEFAULT_SIZES if sizes is None else sizes)
    if sizes is not None:
        raise UsageError("The workload image-batch has batches of images and no sizes: give --batches 1:512:x2.")
    counted = checked_sizes(DEFAULT_BATCHES if batches is None else batches)
    if counted[-1] > MOST_BATCH:
        raise UsageError(f"A batch of {counted[-1]} images is more than any GPU holds; give --batches 1:512:x2.")
    return tuple(batch * IMAGE_BYTES for batch in counted)


def _own(route: Route) -> OwnRoute:
    plain = {f.name: getattr(route, f.name) for f in fields(route) if f.name not in ("copy", "image_batch")}
    return OwnRoute(plain, _place_of(route.copy), _place_of(route.image_batch))


def _place_of(make: Make | None) -> tuple[str, str, bytes | None] | None:
    if make is None:
        return None
    reference = find_reference(make)
    return reference.module, reference.name, None if reference.script is None else os.fsencode(reference.script)
