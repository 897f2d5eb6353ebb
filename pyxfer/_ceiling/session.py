"""A ceiling run: raw copies by every requested plan and size."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from pyxfer._ceiling import plans
from pyxfer._ceiling.arena import LOCKED_KINDS, LOCKING_S, LOCKING_SHARE, check_memory, locking_cost, measure_locking
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import ENDED_EARLY, NO_TRIAL, Assembler, Item, curves, raw_head
from pyxfer._ceiling.stages import PREPARING_S, Stages, circumstances, late, prepare_raw, too_long
from pyxfer._document.machines import Device, Environment, Fact, Placement, Remark, unknown
from pyxfer._document.runs import Directions, Memories, Memory, Run, Tracing
from pyxfer._document.runs import Ending as RunEnding
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import bind, device_node, verify_pages
from pyxfer._measure.exclusive import Presence, turn
from pyxfer._measure.interruptible import Ending, run_interruptible
from pyxfer._measure.run import RunSession
from pyxfer._measure.sampler import OnProgress, Progress, SaveTo, silent, unsaved
from pyxfer._trace.traced_trials import NOT_REACHED
from pyxfer.errors import CudaMemoryError, UsageError
from pyxfer.native import Choice, choose, is_host_name

# Far longer than any copy takes; a device that needs more has hung.
PATIENCE_S = 30.0
_NOT_READ = "the run ended before it was read"


def ceiling(
    device: int | str = 0,
    *,
    direction: Directions = ("h2d", "d2h", "both"),
    memory: Memories = ("pageable", "pinned"),
    mode: str | Sequence[str] = (plans.AUTO,),
    size: str | int | Sequence[str | int] = plans.DEFAULT_SIZES,
    fresh: bool = False,
    precision: str | float = plans.DEFAULT_PRECISION,
    budget: str | float = plans.DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    trace: bool = True,
    complete: bool = False,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> Run:
    """Measure raw copies and return the run.

    Args:
        device: Index, UUID or PCI address of the GPU, or "host" for host memory.
        direction: One or more of h2d (to the GPU), d2h (to the host) and both (at the same time).
        memory: One or more kinds of host memory: pageable, pinned, registered, write-combined.
        mode: One or more ways to issue copies: auto, memcpy, async, streams:N, batch, staged. `staged` sends pageable
            memory through a ring of page-locked slots: several threads fill some slots while the device empties others.
        size: Bytes of a copy: numbers, or text such as "1MiB,64MiB" or "4KiB:256MiB:x4".
        fresh: Also time copies into freshly allocated destinations.
        precision: Target precision of each median, such as "1%".
        budget: Time limit for measuring, such as "30s". The run takes at most 10 s more: if that is too short for a few
            trials of everything, the largest sizes are left out, and a remark says so.
        seed: Seed of the order of trials; by default a new one, which the run stores.
        require_gpu: Raise an error, and do not measure host memory, if no GPU is usable.
        trace: Trace a few trials after the timed ones, which takes at most 10 % of the budget.
        complete: Measure everything, however long that takes.
        on_progress: Called with the progress of the run.
        save_to: Called with the run so far every few seconds.

    Ctrl-C ends the run within a second and returns the results so far (`run.ended == "interrupted"`). If the device
    fails after the first trials, `run.ended` is "failed" and `run.failure` has the reason.

    Raises:
        UsageError: an argument is invalid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
        CudaError: the device failed before anything was measured.
    """
    limits = plans.limits_of(precision, budget, seed, trace=trace, complete=complete)
    request = plans.make_request(device, direction, memory, mode, size, limits, fresh=fresh)
    return run_request(request, device, require_gpu=require_gpu, on_progress=on_progress, save_to=save_to)


def run_request(
    request: plans.Request,
    device: int | str,
    *,
    require_gpu: bool,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
    memory_node: int | None = None,
) -> Run:
    """Measure a checked request. Host memory comes from `memory_node`, or from the node next to the device."""
    choice = checked_choice(device, require_gpu=require_gpu)
    found = find_device(choice.engine, 0 if is_host_name(device) else device)
    return run_on(choice, found, request, on_progress=on_progress, save_to=save_to, memory_node=memory_node)


def run_on(
    choice: Choice,
    device: Device,
    request: plans.Request,
    *,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
    memory_node: int | None = None,
) -> Run:
    check_memory(choice.engine, device.index, request.memories, request.largest, last_level_bytes())
    with turn(device.uuid.value or device.name):
        return Session(save_to or unsaved, choice, device, request, on_progress or silent, memory_node).run()


def checked_choice(device: int | str, *, require_gpu: bool) -> Choice:
    if is_host_name(device) and require_gpu:
        raise UsageError("The device is host memory, but a GPU is required: leave out one of the two.")
    return choose(device, require_gpu)


@dataclass(eq=False)
class Session(RunSession[Run]):
    _resources: RunResources = field(init=False)
    _choice: Choice
    _device: Device
    _request: plans.Request
    _on_progress: OnProgress
    _memory_node: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        choice, device, request = self._choice, self._device, self._request
        self._resources = RunResources(choice.engine, device.index, PATIENCE_S)
        self._started = time.perf_counter()
        self._link = read_link(choice.engine, device)
        self._before = read_environment(choice.engine, device)
        self._after: Environment | None = None
        node = device_node(device)
        self._bound_to = node if self._memory_node is None else Fact(self._memory_node)
        self._placement = Placement(node, unknown(_NOT_READ), unknown(_NOT_READ), unknown(_NOT_READ))
        self._items = [
            Item(raw_head(plan), nbytes, plans.why_unavailable(choice.engine, plan))
            for nbytes in request.sizes
            for plan in request.plans
        ]
        self._locking: dict[Memory, list[float]] = {}
        self._presence = Presence(device.uuid.value or device.name)
        self._tracing: Fact[Tracing] = unknown(NOT_REACHED)

    def _carry_out(self) -> Ending:
        if any(item.head.staged and item.unavailable is None for item in self._items):
            self._on_progress(Progress("preparing", 0.0, "choosing the settings of the ring"))
            # In the calling thread, so that Ctrl-C ends it.
            self._remarks += [Remark("ring", text) for text in self._resources.choose_ring()]
        return run_interruptible(self._work, self._resources.cancel)

    def _has_trials(self) -> bool:
        return any(item.series and item.series.trials for item in self._items)

    def _measure_all(self) -> None:
        with self._presence, bind(self._choice.engine, self._bound_to) as placement:
            self._placement = msgspec.structs.replace(placement, device_node=self._placement.device_node)
            self._measure()
        self._after = read_environment(self._choice.engine, self._device)

    def _measure(self) -> None:
        request, limits = self._request, self._request.limits
        deadline_s = self._started + limits.budget_s
        self._on_progress(Progress("preparing", 0.0, "allocating memory"))
        latest_s = math.inf if limits.complete else deadline_s + PREPARING_S
        arena = self._resources.allocate(
            request.memories, request.largest, last_level_bytes(), lambda: time.perf_counter() > latest_s
        )
        memory = arena.memories[0]
        pages = verify_pages(self._choice.engine, *arena.pages(memory))
        self._placement = msgspec.structs.replace(self._placement, pages_by_node=pages)
        self._link = self._resources.wake_link(self._device, self._link, memory, request.largest)
        self._time_locking()
        stages = Stages(
            resources=self._resources,
            limits=limits,
            items=self._items,
            prepare_item=lambda item, number: prepare_raw(item, self._resources, limits.seed + number),
            on_progress=self._on_progress,
            save=self._save,
            on_tracing=partial(setattr, self, "_tracing"),
        )
        stages.leave_out([item for item in self._items if item.head.source.memory not in arena.memories])
        stages.prepare(deadline_s)
        prepared_s = time.perf_counter() - self._started
        stages.measure(deadline_s)
        if stages.dropped:
            self._remarks.append(too_long(stages.dropped, stages.missing_s, limits.budget_s))
        elif prepared_s > limits.budget_s:
            self._remarks.append(late(prepared_s, limits.budget_s))

    def _time_locking(self) -> None:
        request, budget_s, engine = self._request, self._request.limits.budget_s, self._choice.engine
        if not set(LOCKED_KINDS) & set(request.memories):
            return
        most_s = min(LOCKING_S, LOCKING_SHARE * budget_s)
        for memory in LOCKED_KINDS:
            if time.perf_counter() > self._started + budget_s:
                return
            try:
                self._locking[memory] = measure_locking(
                    engine, self._device.index, memory, request.largest, self._resources.cancelled, most_s
                )
            except CudaMemoryError as error:  # the copies can still be measured
                self._remarks.append(Remark("locking", f"The cost of page-locking was not measured: {error}"))

    def _save(self) -> None:
        self._presence.look()
        if self._save_to is not unsaved:  # a document takes as long as hundreds of trials
            self._save_to(self._document("interrupted", None))

    def _document(self, ended: RunEnding, failure: str | None) -> Run:
        request, limits, ring = self._request, self._request.limits, self._resources.ring.value
        no_trial, chunk_bytes = ENDED_EARLY.get(ended, NO_TRIAL), None if ring is None else ring.chunk_bytes
        assembler = Assembler(self._link, limits.precision, limits.budget_s, no_trial, chunk_bytes=chunk_bytes)
        measurements = assembler.measurements(self._items)
        return Run(
            kind="explain" if limits.explained else "ceiling",
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
            locking=tuple(
                locking_cost(memory, request.largest, seconds, measurements)
                for memory, seconds in self._locking.items()
            ),
            remarks=(*self._remarks, *circumstances(self._presence.other_processes, self._before, self._after)),
            failure=failure,
            tracing=self._tracing,
            ring=self._resources.ring,
        )
