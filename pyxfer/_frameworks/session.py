"""A frameworks run: starts one worker after the other and assembles their rows into one document."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import get_args

import msgspec

from pyxfer._ceiling.plans import DEFAULT_PRECISION, Limits, limits_of
from pyxfer._ceiling.rows import NO_TRIAL, Assembler, Item
from pyxfer._ceiling.session import checked_choice
from pyxfer._ceiling.stages import circumstances
from pyxfer._document import runs
from pyxfer._document.machines import NOT_STAGED, Device, Environment, Fact, Placement, Runtime, unknown
from pyxfer._frameworks import registry
from pyxfer._frameworks.base import IMAGE_BYTES, Framework, Route
from pyxfer._frameworks.bench import route_head
from pyxfer._frameworks.messages import OwnRoute, Task
from pyxfer._frameworks.orders import forms_of, with_forms
from pyxfer._frameworks.process import IN_WORKER, STEP_PATIENCE_S, Outcome, Supervisor
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import available_host_bytes
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import device_node
from pyxfer._measure.exclusive import Presence, turn
from pyxfer._measure.sampler import MIN_ROUNDS, OnProgress, Progress, SaveTo, silent, unsaved
from pyxfer._upload.settings import usable_cpus
from pyxfer._upload.tuning import settings_for
from pyxfer.errors import PyxferError, UsageError
from pyxfer.native import Choice, is_host_name
from pyxfer.units import counts_of, items_of, seconds_of, sizes_of, word_of, words_of

DEFAULT_SIZES = "4KiB:256MiB:x16"
DEFAULT_BATCHES = "1:512:x2"
DEFAULT_BUDGET_S = 4.0
# With less of each, frameworks are started and prepared one after the other. A worker of PyTorch with 15 routes and a
# largest size of 256 MiB takes about 10 sizes of host memory and 6 of the device's.
CPUS_OF_A_FRAMEWORK = 3
HOST_BYTES_OF_A_FRAMEWORK = 3 << 30
DEVICE_BYTES_OF_A_FRAMEWORK = 1 << 30
COPIES_OF_THE_LARGEST = 16
WORKLOADS: tuple[runs.Workload, ...] = ("copy", "image-batch")
DIRECTIONS: tuple[runs.OneWay, ...] = ("h2d", "d2h")
MAX_BATCH = 1 << 20
LAYOUTS: tuple[runs.Layout, ...] = get_args(runs.Layout)
PLACES: tuple[runs.Place, ...] = get_args(runs.Place)
DTYPES: tuple[runs.ImageDtype, ...] = get_args(runs.ImageDtype)
# Of orders of work, which are many and whose batches are converted at each verification: 24 and 96 MiB.
DEFAULT_ORDER_BATCHES = "128,512"
Words = Sequence[str] | str | None
Conversions = tuple[Words, Words, Words]
"""The layouts, casts and dtypes that a run was asked for."""


@dataclass(frozen=True)
class Request:
    """The frameworks, routes, sizes and limits of a run."""

    device: str
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    workload: runs.Workload
    directions: tuple[runs.Direction, ...]
    sizes: tuple[int, ...]
    limits: Limits
    all_settings: bool = False
    forms: tuple[runs.Form, ...] = ()
    casts: tuple[runs.Place, ...] = ()

    def parameters(self) -> runs.Parameters:
        batches = tuple(size // IMAGE_BYTES for size in self.sizes) if self.workload == "image-batch" else ()
        return runs.Parameters(
            device=self.device,
            directions=self.directions,
            memories=("pageable", "pinned"),
            modes=(),
            sizes_bytes=self.sizes,
            fresh=False,
            precision=self.limits.precision,
            budget_s=self.limits.budget_s,
            seed=self.limits.seed,
            min_rounds=MIN_ROUNDS,
            frameworks=self.names,
            routes=self.patterns,
            workload=self.workload,
            batches=batches,
            explained=self.limits.explained,
            forms=self.forms,
            casts=self.casts,
        )

    def routes(self, framework: Framework) -> tuple[Route, ...]:
        fitting = [
            route
            for route in with_forms(framework.routes, self.forms, self.casts)
            if route.direction in self.directions and route.make(self.workload) is not None
        ]
        return registry.select_routes(fitting, self.patterns)

    def tasks(self, framework: Framework) -> tuple[Task, ...]:
        """A worker for each setting of the requested routes.

        Without patterns and `all_settings` only the framework's own setting is measured, which others are compared
        with. An explained route needs only its own worker.
        """
        routes = self.routes(framework)
        settings = sorted({route.setting for route in routes if self.limits.explained in ("", route.name)})
        if not (self.all_settings or self.patterns):
            settings = settings[:1]
        return tuple(
            Task(
                worker=f"{framework.name} {setting}".strip(),
                framework=framework.name,
                setting=setting,
                routes=tuple(dict.fromkeys(route.name for route in routes if route.setting == setting)),
                own=tuple(_own(route) for route in registry.registered_routes(framework.name)),
                device=self.device,
                workload=self.workload,
                sizes=self.sizes,
                limits=self.limits,
                traces_all_sizes=bool(self.patterns),
                forms=self.forms,
                casts=self.casts,
            )
            for setting in settings
        )


def make_request(
    names: Sequence[str] | str | None,
    device: int | str,
    runtime: Runtime,
    limits: Limits,
    routes: Sequence[str] | str,
    workload: str,
    sizes: str | int | Sequence[str | int] | None,
    batches: str | int | Sequence[str | int] | None,
    directions: Sequence[str] | str | None,
    ingest: bool,
    all_settings: bool = False,
    conversions: Conversions = (None, None, None),
) -> Request:
    """Check the arguments. A UsageError names the first invalid one, with a valid example."""
    if os.environ.get(IN_WORKER):
        raise UsageError(
            "frameworks() was called while a worker imported this script for a registered route: put its calls "
            'under  if __name__ == "__main__":'
        )
    chosen_workload = word_of(workload, WORKLOADS, "workload")
    forms, places = _forms(chosen_workload, conversions)
    request = Request(
        device=str(device),
        names=_names(names),
        patterns=items_of(routes, "route") if routes else (),
        workload=chosen_workload,
        directions=_directions(directions, chosen_workload, runtime, ingest=ingest),
        sizes=_sizes(chosen_workload, sizes, batches, DEFAULT_ORDER_BATCHES if forms else DEFAULT_BATCHES),
        limits=limits,
        all_settings=all_settings,
        forms=forms,
        casts=places,
    )
    registry.check_patterns(request.patterns, request.names)
    if not any(request.routes(registry.load_framework(name)) for name in request.names):
        why = ", the only ones that can be timed without a usable GPU" if runtime == "host" else ""
        raise UsageError(
            f"None of the requested routes supports the workload {chosen_workload} in the directions "
            f"{', '.join(request.directions)}{why}. See pyxfer list routes."
        )
    return request


def _names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """The named frameworks, or all. The owner's short name is also accepted, and the project's own, such as PyTorch."""
    if not names:
        return registry.all_names()
    known = [registry.load_framework(name) for name in registry.FRAMEWORKS]
    short = {word: each.name for each in known for word in (each.owner, each.title.lower(), each.name)}
    found = tuple(dict.fromkeys(short.get(name.lower(), name) for name in items_of(names, "names")))
    for name in found:
        registry.load_framework(name)
    return found


def _directions(
    directions: Sequence[str] | str | None, workload: runs.Workload, runtime: Runtime, *, ingest: bool
) -> tuple[runs.Direction, ...]:
    """The given directions; by default those over the link, or `ingest` without a GPU."""
    if directions is not None:
        given = words_of(directions, DIRECTIONS, "direction") if directions else ()
        return (*given, *(("ingest",) if ingest else ()))
    if runtime == "host" and workload == "image-batch":
        raise UsageError(
            "The workload image-batch sends images to a GPU, and no GPU is usable here; see pyxfer info. The workload "
            "copy needs none: it times how each framework takes in an array."
        )
    if runtime == "host":
        return ("ingest",)
    over_the_link: tuple[runs.Direction, ...] = ("h2d",) if workload == "image-batch" else DIRECTIONS
    return (*over_the_link, *(("ingest",) if ingest else ()))


def _forms(workload: runs.Workload, conversions: Conversions) -> tuple[tuple[runs.Form, ...], tuple[runs.Place, ...]]:
    """The forms of orders of work and where they may cast; none unless a layout, a cast or a dtype is given."""
    layouts, casts, dtypes = conversions
    names = zip(("layout", "cast", "dtype"), conversions, strict=True)
    named = [name for name, value in names if value is not None]
    if named and workload != "image-batch":
        raise UsageError(f"A {named[0]} belongs to the workload image-batch, whose images are converted: name it.")
    if not named:
        return (), ()
    forms = forms_of(
        words_of("nhwc,nchw" if layouts is None else layouts, LAYOUTS, "layout"),
        words_of("float32" if dtypes is None else dtypes, DTYPES, "dtype"),
    )
    return forms, words_of("host,device" if casts is None else casts, PLACES, "cast")


def _sizes(
    workload: runs.Workload,
    sizes: str | int | Sequence[str | int] | None,
    batches: str | int | Sequence[str | int] | None,
    default_batches: str,
) -> tuple[int, ...]:
    if workload == "copy":
        if batches is not None:
            raise UsageError("Batches belong to the workload image-batch: name that workload, or give sizes.")
        return sizes_of(DEFAULT_SIZES if sizes is None else sizes, "size")
    if sizes is not None:
        raise UsageError("The workload image-batch has batches of images and no sizes: give batches, such as 1:512:x2.")
    counted = counts_of(default_batches if batches is None else batches, "batch")
    if counted[-1] > MAX_BATCH:
        raise UsageError(f"A batch of {counted[-1]} images is more than any GPU holds; give batches such as 1:512:x2.")
    return tuple(batch * IMAGE_BYTES for batch in counted)


def _own(route: Route) -> OwnRoute:
    plain = {f.name: getattr(route, f.name) for f in fields(route) if f.name not in ("copy", "image_batch")}
    return OwnRoute(plain, *(make and registry.find_reference(make) for make in (route.copy, route.image_batch)))


# After a crash a worker is started again without the route that crashed it, up to this many starts.
MAX_STARTS = 4
# About this share of a worker's time is preparation.
PREPARING = 0.3
_NOT_READ = "no worker has reported it"
_OWN_RINGS = "each worker had its own ring, with the settings that pyxfer info shows"


def frameworks(
    names: Sequence[str] | str | None = None,
    *,
    route: Sequence[str] | str = (),
    workload: runs.Workload = "copy",
    size: str | int | Sequence[str | int] | None = None,
    batch: str | int | Sequence[str | int] | None = None,
    direction: runs.OneWayDirections | None = None,
    ingest: bool = False,
    device: int | str = 0,
    precision: str | float = DEFAULT_PRECISION,
    budget: str | float = DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    trace: bool = True,
    complete: bool = False,
    all_settings: bool = False,
    layout: runs.Layout | Sequence[runs.Layout] | str | None = None,
    cast: runs.Place | Sequence[runs.Place] | str | None = None,
    dtype: runs.ImageDtype | Sequence[runs.ImageDtype] | str | None = None,
    patience: str | float = STEP_PATIENCE_S,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> runs.Run:
    """Time the routes of frameworks beside raw copies of the same sizes.

    `names`: torch, tensorflow, cupy and jax, or some of them; by default all, and your own routes. `route`: names or
    patterns, such as "tf.*". `workload`: "copy" moves bytes, of each `size` such as "1MiB,96MiB"; "image-batch" copies
    images, casts them and reads a row back, for each `batch` such as "8,512". `direction`: h2d, d2h or, by default,
    both. `ingest` adds how each framework imports a NumPy array, and is all that is timed without a GPU.
    `all_settings` adds routes that need other settings of a framework.

    `layout`, `cast` and `dtype` add orders of work to image-batch: ways of bringing uint8 images in NHWC to the GPU as
    each `dtype` (uint8, float16, float32; by default float32) in each `layout` (nhwc, nchw; by default both), cast at
    each place (`cast`: host, device; by default both) and permuted at both. Any of the three adds them.

    Each framework, and each setting, has a process of its own. If one is not installed, crashes or hangs, the run
    records that and measures the others. `budget` is the measuring time of each process, without its preparation. A
    process that sends nothing for `patience` is ended; while it imports its framework it has 2.5 times as long, at
    least 30 s. The other arguments are those of `ceiling`. Ctrl-C ends the run and returns the results so far.

    Raises:
        UsageError: an argument is invalid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
    """
    choice = checked_choice(device, require_gpu=require_gpu)
    limits = limits_of(precision, budget, seed, trace=trace, complete=complete)
    request = make_request(
        *(names, device, choice.runtime, limits, route, workload, size, batch, direction, ingest, all_settings),
        conversions=(layout, cast, dtype),
    )
    return run_workers(choice, request, patience, on_progress, save_to)


def run_workers(
    choice: Choice, request: Request, patience: str | float, on_progress: OnProgress | None, save_to: SaveTo | None
) -> runs.Run:
    """Measure a checked request."""
    device: int | str = request.device
    patience_s = seconds_of(patience, "patience")
    found = find_device(choice.engine, 0 if is_host_name(device) else device)
    with turn(found.uuid.value or found.name):
        return Session(choice, found, request, patience_s, on_progress or silent, save_to or unsaved).run()


@dataclass
class _Turn:
    """A framework under one setting: its task, and the rows of routes that have ended a worker.

    `done` and `part`: the shares of the run before it, and of it.
    """

    framework: Framework
    task: Task
    done: float
    part: float
    rows: list[runs.Measurement] = field(default_factory=list)

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.framework.title, self.task.setting)))


@dataclass
class Session:
    """One frameworks run."""

    _choice: Choice
    _device: Device
    _request: Request
    _patience_s: float
    _on_progress: OnProgress
    _save_to: SaveTo

    def __post_init__(self) -> None:
        choice, device = self._choice, self._device
        self._started = time.perf_counter()
        self._link = read_link(choice.engine, device)
        self._before = read_environment(choice.engine, device)
        self._after: Environment | None = None
        self._placement = Placement(device_node(device), unknown(_NOT_READ), unknown(_NOT_READ), unknown(_NOT_READ))
        self._presence = Presence(device.uuid.value or device.name)
        self._measurements: list[runs.Measurement] = []
        self._workers: list[runs.Worker] = []
        self._ended: runs.Ending = "complete"

    def run(self) -> runs.Run:
        """Start all workers at once, then let one after the other measure: two would share the link and the memory."""
        loaded = [registry.load_framework(name) for name in self._request.names]
        tasks = [(framework, task) for framework in loaded for task in self._request.tasks(framework)]
        turns = [_Turn(*each, number / len(tasks), 1 / len(tasks)) for number, each in enumerate(tasks)]
        try:
            with self._presence, contextlib.ExitStack() as started:
                workers = [self._supervisor(turn) for turn in turns]
                for worker in workers:
                    started.callback(worker.close)
                self._start_together(workers)
                for turn, worker in zip(turns, workers, strict=True):
                    self._run_turn(turn, worker)
                    if self._ended == "interrupted":
                        break
            self._after = read_environment(self._choice.engine, self._device)
        except KeyboardInterrupt:  # between two workers
            self._ended = "interrupted"
        run = self._document(self._ended)
        self._save_to(run)
        return run

    def _start_together(self, workers: Sequence[Supervisor]) -> None:
        """Import and prepare all frameworks at the same time, before anything is measured, if the host can do that."""
        if len(workers) == 1 or not self._has_room_for(len(workers)):
            return
        try:
            if self._choice.runtime == "cuda":  # a tuning beside other processes would find wrong settings
                self._on_progress(Progress("choosing the settings of the ring", 0.0, ""))
                with contextlib.suppress(PyxferError):  # the rows of the ring's routes have the reason
                    settings_for(self._choice.engine, self._device.index)
            self._on_progress(Progress("starting the frameworks", 0.0, ""))
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.wait()
        except KeyboardInterrupt:
            workers[0].interrupt()  # its turn comes first, and an interrupted worker ends the run

    def _has_room_for(self, workers: int) -> bool:
        """Whether this many frameworks can be prepared side by side: image batches choose their trials in that time."""
        largest = max(self._request.sizes)
        host, device = available_host_bytes().value, self._device.index
        free = self._choice.engine.memory_info(device)[0] if self._choice.runtime == "cuda" else None
        return (
            self._request.workload == "copy"
            and usable_cpus() >= workers * CPUS_OF_A_FRAMEWORK
            and (host is None or host >= workers * (HOST_BYTES_OF_A_FRAMEWORK + COPIES_OF_THE_LARGEST * largest))
            and (free is None or free >= workers * (DEVICE_BYTES_OF_A_FRAMEWORK + COPIES_OF_THE_LARGEST * largest))
        )

    def _run_turn(self, turn: _Turn, worker: Supervisor) -> None:
        """Let a worker measure, and after a crash another one without the route that crashed."""
        name = turn.task.worker
        for start in range(1, MAX_STARTS + 1):
            if start > 1:
                turn.task = msgspec.structs.replace(turn.task, worker=f"{name}, start {start}")
                worker = self._supervisor(turn)
            self._on_progress(Progress(f"{turn.title}: starting", turn.done, ""))
            outcome = worker.run()
            self._take_link(outcome)
            self._workers.append(_worker(turn, outcome))
            if outcome.ended not in ("crashed", "hung") or outcome.hello is None or _was_traced(outcome):
                break
            guilty, routes = outcome.guilty.route if outcome.guilty else None, turn.task.routes
            if guilty in routes:
                turn.rows += self._rows_of(guilty, turn, outcome)
                turn.task = msgspec.structs.replace(turn.task, routes=tuple(each for each in routes if each != guilty))
            if not turn.task.routes:
                break
        self._ended = "interrupted" if outcome.ended == "interrupted" else self._ended
        self._measurements += [*self._final_rows(turn, outcome), *turn.rows]
        self._save_to(self._document("interrupted"))

    def _final_rows(self, turn: _Turn, outcome: Outcome) -> list[runs.Measurement]:
        """The rows of the last worker; rows that it did not measure have the reason why it ended."""
        missing = self._missing(turn, turn.task.routes, outcome)
        sent = {(row.route, row.variant, row.nbytes): row for row in outcome.measurements}
        raw = [row for row in outcome.measurements if row.route_info is None and turn.task.routes]
        kept = [sent.get((row.route, row.variant, row.nbytes), row) for row in missing]
        if outcome.ended == "complete":
            return [*raw, *kept]
        pairs = zip(kept, missing, strict=True)
        routes = [empty if row.rate.reason == NO_TRIAL else _with_fatal_trace(row, outcome) for row, empty in pairs]
        return [*(_without_trial(row, _why_missing(outcome)) for row in raw), *routes]

    def _rows_of(self, route: str, turn: _Turn, outcome: Outcome) -> list[runs.Measurement]:
        """The rows of a route that ended its worker: its results at other sizes, and the reason in the others."""
        at = outcome.guilty.nbytes if outcome.guilty else None
        found = [row for row in outcome.measurements if row.route == route and row.gbps and row.nbytes != at]
        kept = {(row.variant, row.nbytes): _without_ceiling(row) for row in found}
        return [kept.get((row.variant, row.nbytes), row) for row in self._missing(turn, (route,), outcome)]

    def _supervisor(self, turn: _Turn) -> Supervisor:
        def on_progress(now: Progress) -> None:
            share = PREPARING * now.done if now.phase == "preparing" else PREPARING + (1 - PREPARING) * now.done
            self._on_progress(Progress(f"{turn.title}: {now.phase}", turn.done + turn.part * share, now.text))

        def on_rows(outcome: Outcome) -> None:
            self._take_link(outcome)
            self._presence.look()
            self._save_to(self._document("interrupted", (*outcome.measurements, *turn.rows)))

        return Supervisor(turn.task, turn.framework.environment, self._patience_s, on_progress, on_rows)

    def _take_link(self, outcome: Outcome) -> None:
        if outcome.awake is not None:
            self._link, self._placement = outcome.awake.link, outcome.awake.placement

    def _missing(self, turn: _Turn, names: Sequence[str], outcome: Outcome) -> list[runs.Measurement]:
        """A row with the reason why its worker ended, for each of these routes and each size."""
        why, task = _why_missing(outcome), turn.task
        known = with_forms(turn.framework.routes, task.forms, task.casts)
        routes = [route for route in known if route.name in names]
        items = [Item(route_head(route, task), nbytes, why) for nbytes in task.sizes for route in routes]
        return list(Assembler(self._link, task.limits.precision, task.limits.budget_s).measurements(items, {}))

    def _document(self, ended: runs.Ending, under_way: Sequence[runs.Measurement] = ()) -> runs.Run:
        measurements = (*self._measurements, *under_way)
        staged = any(row.route_info is not None and row.route_info.staged and row.summary for row in measurements)
        request = self._request
        found = [worker.tracing for worker in self._workers]
        return runs.Run(
            kind="explain" if request.limits.explained else "frameworks",
            ended=ended,
            runtime=self._choice.runtime,
            runtime_reason=self._choice.reason,
            parameters=request.parameters(),
            device=self._device,
            link=self._link,
            placement=self._placement,
            environment=self._before,
            environment_after=self._after,
            duration_s=time.perf_counter() - self._started,
            measurements=measurements,
            remarks=tuple(circumstances(self._presence.other_processes, self._before, self._after)),
            workers=tuple(self._workers),
            published=registry.published_for(request.workload, request.names),
            tracing=next((each for each in found if each.value is not None), found[0] if found else unknown(_NOT_READ)),
            ring=unknown(_OWN_RINGS if staged else NOT_STAGED),
        )


def _without_ceiling(row: runs.Measurement) -> runs.Measurement:
    """A row of a worker whose raw copies are measured again by the next one: in other rounds than the row's."""
    share = "its ceiling was measured by a worker that ended early"
    return row if row.ceiling_share.value is None else msgspec.structs.replace(row, ceiling_share=unknown(share))


def _why_missing(outcome: Outcome) -> str:
    return outcome.reason or {"interrupted": "the run was interrupted before it"}.get(outcome.ended, outcome.ended)


def _without_trial(row: runs.Measurement, why: str) -> runs.Measurement:
    """The raw row; if it has no trial, with the reason why its worker ended."""
    if row.rate.reason != NO_TRIAL:
        return row
    return msgspec.structs.replace(row, rate=unknown(why), peak_share=unknown(why), ceiling_share=unknown(why))


def _with_fatal_trace(row: runs.Measurement, outcome: Outcome) -> runs.Measurement:
    """The row; if its traced trial ended the worker, with that as the reason for the missing breakdown."""
    mark = outcome.guilty
    if mark is None or not _was_traced(outcome) or (row.route, row.nbytes) != (mark.route, mark.nbytes):
        return row
    why = f"its worker ended while it was traced: {outcome.how or outcome.ended}"
    dma = unknown(why) if row.dma.reason == runs.UNTRACED else row.dma
    return msgspec.structs.replace(row, dma=dma, breakdown=unknown(why))


def _was_traced(outcome: Outcome) -> bool:
    """Whether it ended while tracing, after it had sent all timed rows, so that another worker is not needed."""
    return outcome.guilty is not None and outcome.guilty.phase == "traced"


def _worker(turn: _Turn, outcome: Outcome) -> runs.Worker:
    task, hello = turn.task, outcome.hello
    why = outcome.reason or "it was ended before it had started"
    return runs.Worker(
        name=task.worker,
        framework=task.framework,
        setting=task.setting,
        version=unknown(why) if hello is None else Fact(hello.version),
        cuda=unknown(why) if hello is None else hello.cuda,
        settings={} if hello is None else hello.settings,
        ended=outcome.ended,
        reason=outcome.reason,
        log=outcome.log,
        start_s=unknown(why) if hello is None else Fact(hello.start_s),
        duration_s=outcome.duration_s,
        remarks=outcome.remarks,
        tracing=outcome.tracing,
    )
