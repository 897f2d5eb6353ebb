"""The measurement of one task inside its worker: routes of a framework, and raw copies in the same rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, get_args

import msgspec

from pyxfer import errors
from pyxfer._ceiling.arena import check_memory
from pyxfer._ceiling.plans import CopyPlan
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import Assembler, Ceilings, Head, Item, best_trials, raw_head
from pyxfer._ceiling.stages import Stages, prepare_raw, too_long
from pyxfer._document.machines import Device, Fact, Placement, Remark
from pyxfer._document.runs import Direction, Measurement, Memory
from pyxfer._frameworks.base import HOST_COPY, IMAGE_BYTES, Make, Route, SourceKind
from pyxfer._frameworks.context import HostArena, RouteContext
from pyxfer._frameworks.messages import Awake, Doing, FromWorker, Marker, Ready, Rows, Task, Tracer
from pyxfer._frameworks.subjects import RouteSubject, describe_error
from pyxfer._machine.host import available_host_bytes, last_level_bytes
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import bind, device_node, verify_pages
from pyxfer._measure.run import cleanup
from pyxfer._measure.sampler import FEWEST_ROUNDS
from pyxfer.native import Choice
from pyxfer.units import format_size

PATIENCE_S = 30.0
MEMORIES: tuple[Memory, ...] = ("pageable", "pinned")
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h", "ingest")
# As most programs copy: cudaMemcpy for pageable memory, queued copies for page-locked memory.
RAW_MODES: tuple[tuple[Memory, str], ...] = (("pinned", "async"), ("pageable", "memcpy"))

# Many routes share the budget and a document: fast routes leave room for slow ones.
MAX_ROUNDS = 200
# Routes that take longest at the largest size get this many trials if six of all would end after the budget.
FEW_ROUNDS = 2
ALIASED = "no bytes were moved: the result uses the memory of the array that it was made from"

Send = Callable[[FromWorker], None]


class Bench:
    """Measures one task. Use it once, in the thread that may call the framework."""

    def __init__(
        self, task: Task, routes: Sequence[Route], choice: Choice, device: Device, lack_of_gpu: str | None
    ) -> None:
        """`lack_of_gpu` is the reason why routes over the link cannot be measured, or None if they can."""
        self._task = task
        self._choice = choice
        self._device = device
        self._link = read_link(choice.engine, device)
        self._resources = RunResources(choice.engine, device.index, PATIENCE_S)
        crossing = {route.direction for route in routes if route.direction != "ingest" and lack_of_gpu is None}
        self._crosses_link = bool(crossing)
        # The routes at all sizes, with a NumPy copy if there are routes that stay on the host.
        reference = [HOST_COPY] if any(route.direction == "ingest" for route in routes) else []
        self._routes = [
            Item(route_head(route, task), nbytes, None if route.direction == "ingest" else lack_of_gpu)
            for nbytes in task.sizes
            for route in (*reference, *routes)
        ]
        self._items: list[Item[Any]] = [*_raw_items(task, crossing), *self._routes]
        self._arena: HostArena | None = None
        self.remarks: list[Remark] = []

    def cancel(self) -> None:
        """End the measurement soon. Any thread may call it."""
        self._resources.cancel()

    def run(self, send: Send, marker: Marker, wait_to_begin: Callable[[], object]) -> None:
        """Prepare and measure, and send the rows every few seconds and at the end, also after an error.

        `wait_to_begin` returns when no other worker measures, which may be long after everything is prepared.
        """
        gc.disable()  # a collection inside a trial would be part of its time
        try:
            with bind(self._choice.engine, device_node(self._device)) as placement:
                self._allocate(send, placement)
                self._measure(send, marker, wait_to_begin)
        except errors.CancelledError:
            pass
        finally:
            send(Rows(self.measurements()))
            self._release()

    def measurements(self) -> tuple[Measurement, ...]:
        """All rows so far, raw copies first."""
        task = self._task
        assembler = Assembler(self._link, task.limits.precision, task.limits.budget_s, most_trials=MAX_ROUNDS)
        return assembler.measurements(self._items, {**best_trials(self._items), **host_ceilings(self._items)})

    def _allocate(self, send: Send, placement: Placement) -> None:
        engine, device = self._choice.engine, self._device
        largest, cache = max(self._task.sizes), last_level_bytes()
        available = available_host_bytes().value
        needed = SOURCE_KINDS * 2 * largest
        if available is not None and needed > available:
            raise errors.UsageError(
                f"Transfers of {format_size(largest)} need about {format_size(needed)} of host memory for sources, and "
                f"{format_size(available)} is free. Choose smaller sizes or batches."
            )
        self._arena = HostArena(engine, device.index, largest, cache)
        if self._crosses_link:
            check_memory(engine, device.index, MEMORIES, largest, cache)
            arena = self._resources.allocate(MEMORIES, largest, cache)
            pages = verify_pages(engine, *arena.pages("pinned"))
            placement = msgspec.structs.replace(placement, pages_by_node=pages)
            self._link = self._resources.wake_link(device, self._link, "pinned", largest)
        send(Awake(self._link, placement))

    def _measure(self, send: Send, marker: Marker, wait_to_begin: Callable[[], object]) -> None:
        limits = self._task.limits

        def prepare_item(item: Item[Any], number: int) -> None:
            if isinstance(item.head.source, CopyPlan):
                prepare_raw(item, self._resources, limits.seed + number)
            else:
                self._prepare_route(item, number, marker)

        def save() -> None:
            gc.collect()
            send(Rows(self.measurements()))

        stages = Stages(
            resources=self._resources,
            limits=limits,
            items=self._items,
            prepare_item=prepare_item,
            on_progress=lambda progress: send(Doing(progress)),
            save=save,
            on_tracing=lambda tracing: send(Tracer(tracing)),
            group_key=lambda item: (item.nbytes, DIRECTIONS.index(item.head.direction)),
            most_rounds=MAX_ROUNDS,
            # Of all routes only the largest size, whose records the page shows: tracing takes as long as measuring.
            traced_sizes=None if self._task.traces_all_sizes else {max(self._task.sizes)},
            few_rounds=FEWEST_ROUNDS if limits.complete or limits.explained else FEW_ROUNDS,
            spared={item.head.route for item in self._routes if item.head.source.usual},
        )
        stages.prepare()
        send(Ready())
        wait_to_begin()
        if self._resources.cancelled():
            return
        stages.calibrate_again()
        # The budget is for the trials alone: preparation may include a framework's compiler.
        deadline_s = time.perf_counter() + limits.budget_s
        gc.collect()
        stages.measure(deadline_s)
        if stages.dropped:
            self.remarks.append(too_long(stages.dropped, stages.missing_s, limits.budget_s))

    def _prepare_route(self, item: Item[Route], number: int, marker: Marker) -> None:
        task, route = self._task, item.head.source
        make = route.make(task.workload)
        if make is None or self._arena is None:
            item.unavailable = f"it has no part in the workload {task.workload}"
            return
        marker.set(route.name, item.nbytes, "set up")
        try:
            subject = item.subject = self._set_up(item, make, self._arena, marker)
            item.first_s = Fact(subject.warm())
            item.verified, aliased = subject.verify(task.limits.seed + 2 * number)
            item.no_rate = ALIASED if aliased else None
            if item.verified.value is False:  # the time of a wrong result has no meaning
                _drop(item)
        except (
            errors.CancelledError,
            errors.CudaUnavailableError,
            errors.DeviceLostError,
            errors.DeviceTimeoutError,
            errors.ForkedError,
        ):
            raise
        except BaseException as error:  # noqa: BLE001 - a route may raise anything
            item.unavailable = describe_error(error)
            _drop(item)
        marker.clear()

    def _set_up(self, item: Item[Route], make: Make, arena: HostArena, marker: Marker) -> RouteSubject:
        engine, copier = self._choice.engine, self._resources.copier(1)
        # The published benchmark sends one array again and again, which a large cache may hold; orders of work do not.
        repeats = self._task.workload == "image-batch" and item.head.variant == "warm"
        context = RouteContext(item.nbytes, self._device.index, arena, copier, engine, rotates=not repeats)
        transfer = make(context)
        most_gbps = self._link.most_gbps(item.head.sides[0])
        least_s = 0.0 if most_gbps is None else item.nbytes / most_gbps / 1e9
        return RouteSubject(item.head.source, transfer, context, engine, marker, repeats=repeats, least_s=least_s)

    def _release(self) -> None:
        for item in self._routes:
            _drop(item)
        faults = self._resources.close()
        try:
            if self._arena is not None:
                self._arena.close()
        except (errors.CudaError, errors.DeviceTimeoutError) as error:
            faults.append(str(error))
        self.remarks += map(cleanup, faults)


def route_head(route: Route, task: Task) -> Head[Route]:
    return Head(
        source=route,
        route=route.name,
        direction=route.direction,
        memory=route.memory,
        mode="framework",
        variant=route.variant,
        bracket=route.bracket,
        crossed="" if route.dma == "none" else route.dma,
        inflation=route.inflation,
        worker=task.worker,
        route_info=None if route is HOST_COPY else route.route_info(task.framework, task.workload),
        image_bytes=_image_bytes(task),
    )


def host_ceilings(items: Sequence[Item[Any]]) -> Ceilings:
    """The ceilings of `ingest` by size: the trials of one NumPy copy."""
    return {
        item.place("ingest"): item.trials("ingest")
        for item in items
        if item.head.source is HOST_COPY and item.series is not None
    }


def _raw_items(task: Task, directions: Set[Direction]) -> list[Item[CopyPlan]]:
    return [
        Item(raw_head(CopyPlan(direction, memory, mode), task.worker, _image_bytes(task)), nbytes)
        for nbytes in task.sizes
        for direction in DIRECTIONS
        if direction in directions
        for memory, mode in RAW_MODES
    ]


def _image_bytes(task: Task) -> int | None:
    return IMAGE_BYTES if task.workload == "image-batch" else None


SOURCE_KINDS = len(get_args(SourceKind))


def _drop(item: Item[Route]) -> None:
    subject, item.subject = item.subject, None
    if subject is not None:
        subject.close()
