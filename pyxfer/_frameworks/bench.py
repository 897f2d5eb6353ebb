"""What a worker does: every route of one framework and the raw copies of the same sizes, in the same rounds."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from pyxfer._ceiling.arena import WAKE_BYTES, check_room, wake_link
from pyxfer._ceiling.assemble import Assembler, Collected, after_timing, ceiling_trials, prepare
from pyxfer._ceiling.ways import Way
from pyxfer._ceiling.workshop import Workshop
from pyxfer._document.runs import Device, Direction, Fact, Measurement, Memory, Placement, Remark
from pyxfer._frameworks.assemble import MOST_ROUNDS, Found, RouteAssembler, host_ceilings, trace_worker
from pyxfer._frameworks.base import HOST_COPY, Framework, Route
from pyxfer._frameworks.messages import Awake, Doing, FromWorker, Marker, Rows, Task
from pyxfer._frameworks.place import IMAGE_BYTES, HostArena, Place
from pyxfer._frameworks.subjects import RouteSubject, in_words, side_of
from pyxfer._machine.host import available_host_bytes, last_level_bytes
from pyxfer._machine.link import link_under_load, read_link, with_load
from pyxfer._machine.numa import bind, device_node, verify_pages
from pyxfer._measure.sampler import Group, Progress, Sampler, Subject
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

Send = Callable[[FromWorker], None]


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
        self._raw = [
            Collected(Way(direction, memory, mode), nbytes)
            for nbytes in task.sizes
            for direction in self._directions
            for memory, mode in RAW_MODES
        ]
        reference = [HOST_COPY] if any(route.direction == "ingest" for route in routes) else []
        self._found = [
            Found(route, nbytes, None if route.direction == "ingest" else lack_of_gpu)
            for nbytes in task.sizes
            for route in (*reference, *routes)
        ]
        self._subjects: dict[int, RouteSubject] = {}
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
        raw = Assembler(self._link, task.precision, task.budget_s).measurements(self._raw)
        batches = task.workload == "image-batch"
        routes = RouteAssembler(
            self._name, self._framework.name, self._link, task.precision, task.budget_s, task.workload
        )
        ceilings = {**ceiling_trials(self._raw), **host_ceilings(self._found)}
        return (
            *(_of_worker(each, self._name, batches=batches) for each in raw),
            *(routes.measurement(found, ceilings) for found in self._found),
        )

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
        everything = len(self._raw) + len(self._found)
        for number, raw in enumerate(self._raw):
            self._step(send, number / everything, raw.way.route, raw.nbytes)
            prepare(raw, self._shop, self._task.seed + number)
        for number, found in enumerate(self._found, start=len(self._raw)):
            self._step(send, number / everything, found.route.name, found.nbytes)
            if found.unavailable is None:
                self._prepare_route(found, number, marker)

    def _step(self, send: Send, done: float, route: str, nbytes: int) -> None:
        if self.cancelled.is_set():
            raise CancelledError("the measurement was asked to end")
        send(Doing("preparing", done, f"verifying {route} {format_size(nbytes)}"))

    def _prepare_route(self, found: Found, number: int, marker: Marker) -> None:
        """A route that cannot be had, or fails, says so in its row; the others go on."""
        make = found.route.make(self._task.workload)
        if make is None or self._arena is None:
            found.unavailable = f"it has no part in the workload {self._task.workload}"
            return
        engine = self._choice.engine
        marker.set(found.route.name, found.nbytes, "set up")
        try:
            # The published benchmark sends one array again and again, which a large cache may hold.
            repeats = self._task.workload == "image-batch"
            place = Place(
                found.nbytes, self._device.index, self._arena, self._shop.copier(1), engine, rotates=not repeats
            )
            subject = RouteSubject(
                *(found.route, make(place), place, engine, marker), repeats=repeats, least_s=self._least_s(found)
            )
            self._subjects[id(found)] = subject
            found.first_s = Fact(subject.warm())
            found.verified, found.aliased = subject.verify(self._task.seed + 2 * number)
            if found.verified.value is False:  # how long it takes to be wrong is nobody's figure
                self._drop(found)
        except (CancelledError, CudaUnavailableError, DeviceLostError, DeviceTimeoutError, ForkedError):
            raise
        except BaseException as error:  # noqa: BLE001 - it may raise anything, and the row says what
            self._give_up(found, in_words(error))
        marker.clear()

    def _least_s(self, found: Found) -> float:
        most_gbps = self._link.most_gbps(side_of(found.route))
        return 0.0 if most_gbps is None else found.nbytes / most_gbps / 1e9

    def _give_up(self, found: Found, why: str) -> None:
        found.unavailable = why
        self._drop(found)

    def _drop(self, found: Found) -> None:
        """It takes no part in the rounds, and holds no events."""
        subject = self._subjects.pop(id(found), None)
        if subject is not None:
            subject.close()

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
            after=after_timing(task.budget_s, trace=task.trace),
        ).run()

    def _trace(self, send: Send, deadline_s: float) -> None:
        """What is known is sent before: a tracer is one thing more that may crash."""
        send(Rows(self.measurements()))
        routes = [(found, self._subjects.get(id(found))) for found in self._found]
        trace_worker(
            *(self._choice.engine, self._device.index, self._task, self._raw, routes),
            *(deadline_s, self.cancelled.is_set, send),
        )

    def _group(self, nbytes: int, direction: str) -> Group:
        """The routes of one direction at one size, and what they are compared with."""
        raw = [
            each
            for each in self._raw
            if each.nbytes == nbytes and each.way.direction == direction and each.subject is not None
        ]
        found = [
            each
            for each in self._found
            if each.nbytes == nbytes and each.route.direction == direction and id(each) in self._subjects
        ]
        subjects: list[Subject] = [each.subject for each in raw if each.subject is not None]
        subjects += [self._subjects[id(each)] for each in found]
        group = Group.of(f"{direction} {format_size(nbytes)}", subjects, MOST_ROUNDS)
        collected: list[Collected | Found] = [*raw, *found]
        for each, series in zip(collected, group.series, strict=True):
            each.series = series
        return group

    def _keep(self, send: Send) -> None:
        """Send what there is now and then, and clean up between rounds."""
        if time.perf_counter() - self._saved < SAVE_EVERY_S:
            return
        gc.collect()
        send(Rows(self.measurements()))
        self._saved = time.perf_counter()

    def _release(self) -> None:
        for subject in self._subjects.values():
            subject.close()
        self._subjects.clear()
        faults = self._shop.close()
        try:
            if self._arena is not None:
                self._arena.close()
        except (CudaError, DeviceTimeoutError) as error:
            faults.append(str(error))
        self.remarks += [Remark("cleanup", f"Something could not be released: {fault}") for fault in faults]


def _of_worker(raw: Measurement, name: str, *, batches: bool) -> Measurement:
    return msgspec.structs.replace(raw, worker=name, batch=raw.nbytes // IMAGE_BYTES if batches else None)
