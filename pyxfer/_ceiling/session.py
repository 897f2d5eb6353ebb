"""A ceiling run: what the link does, raw, for every way and size that was asked for."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pyxfer._ceiling.arena import LOCKED_KINDS, WAKE_BYTES, check_room, locking_cost, measure_locking, wake_link
from pyxfer._ceiling.rows import ENDED_EARLY, NO_TRIAL, Assembler, Item, best_trials, curves, way_head
from pyxfer._ceiling.stages import STUCK, after_timing, circumstances, late, prepare, trace_items
from pyxfer._ceiling.ways import (
    AUTO,
    DEFAULT_BUDGET_S,
    DEFAULT_PRECISION,
    DEFAULT_SIZES,
    Request,
    make_request,
    why_not,
)
from pyxfer._ceiling.workshop import Workshop
from pyxfer._document.runs import (
    Device,
    Environment,
    Fact,
    LinkState,
    LockingCost,
    Memory,
    Placement,
    Remark,
    Run,
    Tracing,
    unknown,
)
from pyxfer._document.runs import Ending as RunEnding
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.link import link_under_load, read_link, with_load
from pyxfer._machine.numa import bind, device_node, verify_pages
from pyxfer._measure.exclusive import Presence, turn
from pyxfer._measure.interruptible import Ending, run_interruptible
from pyxfer._measure.sampler import Group, OnProgress, Progress, Sampler, SaveTo, silent, unsaved
from pyxfer._trace import phase
from pyxfer._trace.phase import NOT_COME_TO
from pyxfer.errors import (
    CancelledError,
    CleanupWarning,
    CudaMemoryError,
    DeviceTimeoutError,
    PyxferError,
    UsageError,
)
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import format_size

if TYPE_CHECKING:
    from pyxfer._measure.sampler import Subject


# No copy that a machine can hold takes this long; a device that does has hung.
PATIENCE_S = 30.0
# Often enough that a killed run loses little, seldom enough that writing is no part of the measurement.
SAVE_EVERY_S = 2.0
_NOT_TAKEN = "the run ended before it was read"


def ceiling(
    device: int | str = 0,
    *,
    directions: Sequence[str] = ("h2d", "d2h", "both"),
    memories: Sequence[str] = ("pageable", "pinned"),
    modes: Sequence[str] = (AUTO,),
    sizes: str | Sequence[int] = DEFAULT_SIZES,
    fresh: bool = False,
    precision: float = DEFAULT_PRECISION,
    budget_s: float = DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    trace: bool = True,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> Run:
    """Measure raw copies and return the run.

    `modes` are of auto, memcpy, async, streams:N, batch and staged, which sends pageable memory through a ring of
    page-locked slots: several threads fill some while the device empties others.

    Ctrl-C ends it within a second with what was measured (`run.ended == "interrupted"`); so does a device that fails
    in the middle (`"failed"`, `run.failure` says why). `save_to` is given the run so far every few seconds. After all
    timed trials a few are traced, which takes at most 15 % of the budget; without `trace` none is.

    Raises:
        UsageError: something asked for cannot be; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
        CudaError: the device failed before anything was measured.

    """
    request = make_request(
        device,
        directions,
        memories,
        modes,
        sizes,
        fresh=fresh,
        precision=precision,
        budget_s=budget_s,
        seed=seed,
        trace=trace,
    )
    return run_ways(request, device, require_gpu=require_gpu, on_progress=on_progress, save_to=save_to)


def run_ways(
    request: Request,
    device: int | str,
    *,
    require_gpu: bool,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
    memory_node: int | None = None,
) -> Run:
    """Measure what was asked for, once it is known to be possible; near the device, or from another NUMA node."""
    if device == HOST and require_gpu:
        raise UsageError("The host's memory was asked for, and a GPU was required: leave one of the two out.")
    choice = choose(device, require_gpu)
    found = find_device(choice.engine, 0 if device == HOST else device)
    check_room(choice.engine, found.index, request.memories, request.largest, _cache_bytes())
    with turn(found.uuid.value or found.name):
        return Session(choice, found, request, on_progress or silent, save_to or unsaved, memory_node).run()


class Session:
    """One run under way."""

    def __init__(
        self,
        choice: Choice,
        device: Device,
        request: Request,
        on_progress: OnProgress,
        save_to: SaveTo,
        memory_node: int | None = None,
    ) -> None:
        self._choice = choice
        self._device = device
        self._request = request
        self._on_progress = on_progress
        self._save_to = save_to
        self._started = self._saved = time.perf_counter()
        self._link = read_link(choice.engine, device)
        self._before = read_environment(choice.engine, device)
        self._after: Environment | None = None
        node = device_node(device)
        self._bound_to = node if memory_node is None else Fact(memory_node)
        self._placement = Placement(node, unknown(_NOT_TAKEN), unknown(_NOT_TAKEN), unknown(_NOT_TAKEN))
        self._items = [Item(way_head(way), nbytes) for nbytes in request.sizes for way in request.ways]
        self._locking: dict[Memory, list[float]] = {}
        self._presence = Presence(device.uuid.value or device.name)
        self._workshop = Workshop(choice.engine, device.index, PATIENCE_S)
        self._remarks: list[Remark] = []
        self._tracing: Fact[Tracing] = unknown(NOT_COME_TO)

    def run(self) -> Run:
        """Measure until done, interrupted or failed."""
        ended: RunEnding = "complete"
        failure: str | None = None
        try:
            self._choose_ring()
            how = run_interruptible(self._work, self._workshop.cancel)
            if how is not Ending.DONE:
                ended = "interrupted"
            if how is Ending.STUCK:
                self._remarks.append(STUCK)
        except KeyboardInterrupt:
            ended = "interrupted"
        except (PyxferError, MemoryError) as error:
            if not any(item.series and item.series.trials for item in self._items):
                raise
            ended, failure = "failed", str(error)
        try:
            return self._finish(ended, failure)
        except KeyboardInterrupt:  # it came when all was measured: that is shown and saved all the same
            return self._finish("interrupted", failure)

    def _choose_ring(self) -> None:
        """In this thread, which Ctrl-C reaches."""
        if any(way.staged and why_not(self._choice.engine, way) is None for way in self._request.ways):
            self._on_progress(Progress("preparing", 0.0, "choosing the settings of the ring"))
            self._remarks += [Remark("ring", text) for text in self._workshop.choose_ring()]

    def _finish(self, ended: RunEnding, failure: str | None) -> Run:
        run = self._document(ended, failure)
        self._save_to(run)
        return run

    def _work(self) -> None:
        """Everything that touches the device; in a thread of its own."""
        try:
            with self._presence, bind(self._choice.engine, self._bound_to) as placement:
                self._placement = msgspec.structs.replace(placement, device_node=self._placement.device_node)
                self._measure()
            self._after = read_environment(self._choice.engine, self._device)
        except DeviceTimeoutError:
            self._workshop.abandon()
            self._remarks.append(STUCK)
            raise
        finally:
            self._release()

    def _release(self) -> None:
        for fault in self._workshop.close():
            self._remarks.append(Remark("cleanup", f"Something could not be released: {fault}"))
            warnings.warn(fault, CleanupWarning, stacklevel=2)

    def _measure(self) -> None:
        request = self._request
        self._on_progress(Progress("preparing", 0.0, "allocating memory"))
        self._workshop.allocate(request.memories, request.largest, _cache_bytes())
        self._place_pages()
        self._wake()
        self._time_locking()
        self._prepare()
        if self._late():
            self._remarks.append(late(time.perf_counter() - self._started))
        deadline = self._started + request.budget_s
        groups = [self._group(nbytes) for nbytes in request.sizes]
        sampler = Sampler(
            groups=[group for group in groups if group.series],
            precision=request.precision,
            deadline_s=deadline,
            seed=request.seed,
            cancelled=self._workshop.cancelled,
            on_progress=self._on_progress,
            on_turn=self._keep,
            after=after_timing(request.budget_s, trace=request.trace),
        )
        sampler.run()
        self._trace(deadline)

    def _trace(self, deadline: float) -> None:
        """A few trials with the device's records, when nothing is timed any more."""
        if self._request.trace:
            self._save_to(self._document("interrupted", None))
            self._on_progress(Progress("tracing", 1.0, ""))
        request = self._request
        trace_items(
            *(self._choice.engine, self._device.index, self._items, best_trials(self._items)),
            trace=request.trace,
            explained=request.explained,
            seed=request.seed,
            seconds=phase.seconds_for(request.budget_s, deadline),
            cancelled=self._workshop.cancelled,
            on_start=self._note_tracing,
        )

    def _note_tracing(self, tracing: Fact[Tracing]) -> None:
        self._tracing = tracing

    def _place_pages(self) -> None:
        """Where the memory that counts really lies."""
        memory = self._request.memories[-1]
        pages = verify_pages(self._choice.engine, *self._workshop.arena.pages(memory))
        before = self._placement
        self._placement = Placement(before.device_node, before.cpus, before.memory_node, pages)

    def _wake(self) -> None:
        lane = self._workshop.arena.lane("h2d", self._request.memories[-1], min(WAKE_BYTES, self._request.largest))
        gated = self._request.memories[-1] != "pageable"

        def read() -> Fact[LinkState]:
            return link_under_load(self._device)

        state = wake_link(self._workshop.copier(1), lane, read, self._workshop.cancelled, gated=gated)
        self._link = with_load(self._link, state)

    def _time_locking(self) -> None:
        if not set(LOCKED_KINDS) & set(self._request.memories):
            return
        for memory in LOCKED_KINDS:
            if self._late():
                return
            try:
                self._locking[memory] = measure_locking(
                    self._choice.engine, self._device.index, memory, self._request.largest, self._workshop.cancelled
                )
            except CudaMemoryError as error:  # the copies can still be measured
                self._remarks.append(Remark("locking", f"The cost of page-locking was not measured: {error}"))

    def _prepare(self) -> None:
        """First copies, windows and verification of every way at every size, outside the trials."""
        for done, item in enumerate(self._items):
            way = item.head.source
            if self._workshop.cancelled():
                raise CancelledError("the measurement was asked to end")
            item.unavailable = why_not(self._choice.engine, way)
            if item.unavailable is not None:
                continue
            text = f"verifying {way.route} {way.direction} {format_size(item.nbytes)}"
            self._on_progress(Progress("preparing", done / len(self._items), text))
            prepare(item, self._workshop, self._request.seed + done)

    def _group(self, nbytes: int) -> Group:
        members = [item for item in self._items if item.nbytes == nbytes and item.subject is not None]
        subjects: list[Subject] = [item.subject for item in members]
        group = Group.of(format_size(nbytes), subjects)
        for item, series in zip(members, group.series, strict=True):
            item.series = series
        return group

    def _late(self) -> bool:
        return time.perf_counter() > self._started + self._request.budget_s

    def _keep(self) -> None:
        """Save what there is, now and then; and see who else measures."""
        now = time.perf_counter()
        if now - self._saved < SAVE_EVERY_S:
            return
        self._presence.look()
        self._save_to(self._document("interrupted", None))
        self._saved = time.perf_counter()

    def _document(self, ended: RunEnding, failure: str | None) -> Run:
        request = self._request
        no_trial = ENDED_EARLY.get(ended, NO_TRIAL)
        ring = self._workshop.ring.value
        chunk_bytes = None if ring is None else ring.chunk_bytes
        assembler = Assembler(self._link, request.precision, request.budget_s, no_trial, chunk_bytes=chunk_bytes)
        measurements = assembler.measurements(self._items)
        locking: list[LockingCost] = [
            locking_cost(memory, request.largest, seconds, measurements) for memory, seconds in self._locking.items()
        ]
        return Run(
            kind="explain" if request.explained else "ceiling",
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
            curves=curves(measurements) if len(request.sizes) > 1 else (),
            locking=tuple(locking),
            remarks=(*self._remarks, *circumstances(self._presence.met, self._before, self._after)),
            failure=failure,
            tracing=self._tracing,
            ring=self._workshop.ring,
        )


def _cache_bytes() -> int:
    return last_level_bytes().value or 0
