"""What a worker does: every route of one framework and the raw copies of the same sizes, in the same rounds."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pyxfer._ceiling.arena import WAKE_BYTES, check_room, wake_link
from pyxfer._ceiling.rows import Assembler, Ceilings, Head, Item, best_trials, way_head
from pyxfer._ceiling.stages import after_timing, prepare, trace_items
from pyxfer._ceiling.ways import Way
from pyxfer._ceiling.workshop import Workshop
from pyxfer._document.runs import Device, Direction, Fact, Measurement, Memory, Placement, Remark
from pyxfer._frameworks.base import HOST_COPY, Framework, Route
from pyxfer._frameworks.messages import Awake, Doing, FromWorker, Marker, Rows, Task, Tracer
from pyxfer._frameworks.place import IMAGE_BYTES, HostArena, Place
from pyxfer._frameworks.subjects import RouteSubject, in_words
from pyxfer._machine.host import available_host_bytes, last_level_bytes
from pyxfer._machine.link import link_under_load, read_link, with_load
from pyxfer._machine.numa import bind, device_node, verify_pages
from pyxfer._measure.sampler import Group, Progress, Sampler, Subject
from pyxfer._trace import phase
from pyxfer.errors import (
    CancelledError,
    CudaError,
    CudaUnavailableError,
    DeviceLostError,
    DeviceTimeoutError,
    ForkedError,
    UsageError,
)
from pyxfer.native import Choice
from pyxfer.units import format_size

PATIENCE_S = 30.0
SAVE_EVERY_S = 2.0
KINDS_OF_SOURCES = 3
MEMORIES: tuple[Memory, ...] = ("pageable", "pinned")
# As a program would use each: cudaMemcpy for ordinary memory, queued copies for page-locked memory.
RAW_MODES: tuple[tuple[Memory, str], ...] = (("pinned", "async"), ("pageable", "memcpy"))

# Many routes share the budget and a document: fast routes leave room for slow ones.
MOST_ROUNDS = 200
ALIASED = "no bytes were moved: the result uses the memory of the array that it was made from"

Send = Callable[[FromWorker], None]


def route_head(route: Route, task: Task) -> Head[Route]:
    """The head of a framework's route in a worker."""
    return Head(
        source=route,
        route=route.name,
        direction=route.direction,
        memory=route.memory,
        mode="framework",
        bracket=route.bracket,
        crossed="" if route.dma == "none" else route.dma,
        inflation=route.inflation,
        worker=task.worker,
        nature=None if route is HOST_COPY else route.nature(task.framework, task.workload),
        image_bytes=IMAGE_BYTES if task.workload == "image-batch" else None,
    )


def host_ceilings(items: Sequence[Item[Route]]) -> Ceilings:
    """The trials of one NumPy copy, by size: the ceiling of what stays on the host."""
    return {
        item.place("ingest"): item.trials("ingest")
        for item in items
        if item.head.source is HOST_COPY and item.series is not None
    }


class Bench:
    """One task; use it once, in the thread that may call the framework."""

    def __init__(
        self,
        task: Task,
        framework: Framework,
        routes: Sequence[Route],
        choice: Choice,
        device: Device,
        lack_of_gpu: str | None,
    ) -> None:
        self._task = task
        self._name = task.worker
        self._framework = framework
        self._choice = choice
        self._device = device
        self._link = read_link(choice.engine, device)
        self._shop = Workshop(choice.engine, device.index, PATIENCE_S)
        crossing = {route.direction for route in routes if route.direction != "ingest" and lack_of_gpu is None}
        self._directions: list[Direction] = [each for each in ("h2d", "d2h") if each in crossing]
        images = IMAGE_BYTES if task.workload == "image-batch" else None
        self._raw = [
            Item(way_head(Way(direction, memory, mode), task.worker, images), nbytes)
            for nbytes in task.sizes
            for direction in self._directions
            for memory, mode in RAW_MODES
        ]
        reference = [HOST_COPY] if any(route.direction == "ingest" for route in routes) else []
        self._routes = [
            Item(route_head(route, task), nbytes, None if route.direction == "ingest" else lack_of_gpu)
            for nbytes in task.sizes
            for route in (*reference, *routes)
        ]
        self._arena: HostArena | None = None
        self._saved = 0.0
        self.cancelled = threading.Event()
        self.remarks: list[Remark] = []

    def cancel(self) -> None:
        """End soon; from any thread."""
        self.cancelled.set()
        self._shop.cancel()

    def run(self, send: Send, marker: Marker) -> None:
        """Measure, and send the rows now and then and at the end, also where it ends by an error."""
        node = device_node(self._device)
        gc.disable()  # a collection inside a trial would be part of it
        try:
            with bind(self._choice.engine, node) as placement:
                self._prepare_link(send, placement)
                self._prepare(send, marker)
                deadline_s = time.perf_counter() + self._task.budget_s
                self._sample(send, deadline_s)
                self._trace(send, deadline_s)
        except CancelledError:
            pass
        finally:
            send(Rows(self.measurements()))
            self._release()

    def measurements(self) -> tuple[Measurement, ...]:
        """The rows as they stand: raw ones first."""
        task = self._task
        assembler = Assembler(self._link, task.precision, task.budget_s, most_trials=MOST_ROUNDS)
        ceilings = {**best_trials(self._raw), **host_ceilings(self._routes)}
        return assembler.measurements([*self._raw, *self._routes], ceilings)

    def _prepare_link(self, send: Send, placement: Placement) -> None:
        """Memory for the raw copies, and an awake link."""
        engine, device = self._choice.engine, self._device
        largest, cache = max(self._task.sizes), last_level_bytes().value or 0
        self._check_host_memory(largest)
        self._arena = HostArena(engine, device.index, largest, cache)
        if self._directions:
            check_room(engine, device.index, MEMORIES, largest, cache)
            arena = self._shop.allocate(MEMORIES, largest, cache)
            pages = verify_pages(engine, *arena.pages("pinned"))
            placement = msgspec.structs.replace(placement, pages_by_node=pages)
            lane = arena.lane("h2d", "pinned", min(WAKE_BYTES, largest))
            state = wake_link(
                self._shop.copier(1), lane, lambda: link_under_load(device), self.cancelled.is_set, gated=True
            )
            self._link = with_load(self._link, state)
        send(Awake(self._link, placement))

    @staticmethod
    def _check_host_memory(largest: int) -> None:
        """Refuse sizes whose sources this machine has no memory for."""
        available = available_host_bytes().value
        wanted = KINDS_OF_SOURCES * 2 * largest
        if available is not None and wanted > available:
            raise UsageError(
                f"Transfers of {format_size(largest)} need some {format_size(wanted)} of host memory for sources, "
                f"and {format_size(available)} is free. Ask for smaller sizes or batches."
            )

    def _prepare(self, send: Send, marker: Marker) -> None:
        """Set up, first calls and verification of everything, outside the trials."""
        everything = len(self._raw) + len(self._routes)
        for number, raw in enumerate(self._raw):
            self._step(send, number / everything, raw.head.route, raw.nbytes)
            prepare(raw, self._shop, self._task.seed + number)
        for number, item in enumerate(self._routes, start=len(self._raw)):
            self._step(send, number / everything, item.head.route, item.nbytes)
            if item.unavailable is None:
                self._prepare_route(item, number, marker)

    def _step(self, send: Send, done: float, route: str, nbytes: int) -> None:
        if self.cancelled.is_set():
            raise CancelledError("the measurement was asked to end")
        send(Doing("preparing", done, f"verifying {route} {format_size(nbytes)}"))

    def _prepare_route(self, item: Item[Route], number: int, marker: Marker) -> None:
        """A route that is unavailable or fails has the reason in its row; the others go on."""
        task, route, engine = self._task, item.head.source, self._choice.engine
        make = route.make(task.workload)
        if make is None or self._arena is None:
            item.unavailable = f"it has no part in the workload {task.workload}"
            return
        marker.set(route.name, item.nbytes, "set up")
        try:
            # The published benchmark sends one array again and again, which a large cache may hold.
            repeats = task.workload == "image-batch"
            place = Place(
                item.nbytes, self._device.index, self._arena, self._shop.copier(1), engine, rotates=not repeats
            )
            subject = item.subject = RouteSubject(
                *(route, make(place), place, engine, marker), repeats=repeats, least_s=self._least_s(item)
            )
            item.first_s = Fact(subject.warm())
            item.verified, aliased = subject.verify(task.seed + 2 * number)
            item.no_rate = ALIASED if aliased else None
            if item.verified.value is False:  # how long it takes to be wrong is nobody's figure
                _drop(item)
        except (CancelledError, CudaUnavailableError, DeviceLostError, DeviceTimeoutError, ForkedError):
            raise
        except BaseException as error:  # noqa: BLE001 - it may raise anything, and the row says what
            item.unavailable = in_words(error)
            _drop(item)
        marker.clear()

    def _least_s(self, item: Item[Route]) -> float:
        most_gbps = self._link.most_gbps(item.head.sides[0])
        return 0.0 if most_gbps is None else item.nbytes / most_gbps / 1e9

    def _sample(self, send: Send, deadline_s: float) -> None:
        task = self._task
        groups = [
            group
            for nbytes in task.sizes
            for direction in (*self._directions, "ingest")
            if (group := self._group(nbytes, direction)).series
        ]
        gc.collect()
        self._saved = time.perf_counter()

        def tell(progress: Progress) -> None:
            send(Doing(progress.phase, progress.done, progress.text))

        Sampler(
            groups=groups,
            precision=task.precision,
            deadline_s=deadline_s,
            seed=task.seed,
            cancelled=self.cancelled.is_set,
            on_progress=tell,
            on_turn=lambda: self._keep(send),
            reserve=after_timing(task.budget_s, trace=task.trace),
        ).run()

    def _trace(self, send: Send, deadline_s: float) -> None:
        """What is known is sent before: a tracer is one thing more that may crash."""
        send(Rows(self.measurements()))
        task = self._task
        items: list[Item[Any]] = [*self._raw, *self._routes]
        if task.trace:
            send(Doing("tracing", 1.0, ""))
        trace_items(
            *(self._choice.engine, self._device.index, items, best_trials(self._raw)),
            trace=task.trace,
            explained=task.explained,
            seed=task.seed,
            seconds=phase.seconds_for(task.budget_s, deadline_s),
            cancelled=self.cancelled.is_set,
            on_start=lambda tracing: send(Tracer(tracing)),
            on_round=lambda number: send(Doing("tracing", 1.0, f"round {number + 1} of {phase.TRIALS}")),
        )

    def _group(self, nbytes: int, direction: str) -> Group:
        """The routes of one direction at one size, and what they are compared with."""
        everything: list[Item[Any]] = [*self._raw, *self._routes]
        members = [
            item
            for item in everything
            if (item.nbytes, item.head.direction) == (nbytes, direction) and item.subject is not None
        ]
        subjects: list[Subject] = [item.subject for item in members]
        group = Group.of(f"{direction} {format_size(nbytes)}", subjects, MOST_ROUNDS)
        for item, series in zip(members, group.series, strict=True):
            item.series = series
        return group

    def _keep(self, send: Send) -> None:
        """Send what there is now and then, and clean up between rounds."""
        if time.perf_counter() - self._saved < SAVE_EVERY_S:
            return
        gc.collect()
        send(Rows(self.measurements()))
        self._saved = time.perf_counter()

    def _release(self) -> None:
        for item in self._routes:
            _drop(item)
        faults = self._shop.close()
        try:
            if self._arena is not None:
                self._arena.close()
        except (CudaError, DeviceTimeoutError) as error:
            faults.append(str(error))
        self.remarks += [Remark("cleanup", f"Something could not be released: {fault}") for fault in faults]


def _drop(item: Item[Route]) -> None:
    """It takes no part in the rounds, and holds no events."""
    subject, item.subject = item.subject, None
    if subject is not None:
        subject.close()
