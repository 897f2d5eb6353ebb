"""A run of `pyxfer blocks`: how fast each method moves blocks between pools, beside plain copies in the same rounds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from pyxfer._blocks import calibration
from pyxfer._blocks.beside import measure_beside, plans_beside
from pyxfer._blocks.mover import WORD_BYTES, BlockMover
from pyxfer._blocks.plans import DIRECTIONS, MEMORIES, BlockPlan, Request, make_request
from pyxfer._blocks.trials import BlockResources, Moves, needed_blocks, ways_of
from pyxfer._ceiling.plans import CopyPlan, limits_of
from pyxfer._ceiling.rows import ENDED_EARLY, NO_TRIAL, Assembler, Head, Item, ceiling_share, raw_head
from pyxfer._ceiling.session import PATIENCE_S, checked_choice
from pyxfer._ceiling.stages import circumstances, make_group, prepare_raw
from pyxfer._document.blocks import CALLS, METHODS
from pyxfer._document.machines import Environment, Fact, Placement, Remark, unknown
from pyxfer._document.runs import (
    LEFT_OUT,
    NOT_TRACED,
    ORDERS,
    BlockPools,
    Measurement,
    RouteInfo,
    Run,
    Trial,
    links_beside,
)
from pyxfer._document.runs import Ending as RunEnding
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import available_host_bytes, last_level_bytes
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import bind, device_node
from pyxfer._measure.exclusive import Presence, turn
from pyxfer._measure.interruptible import Ending, run_interruptible
from pyxfer._measure.run import RunSession, SaveNowAndThen, own_failure
from pyxfer._measure.sampler import OnProgress, Progress, Sampler, SaveTo, silent, unsaved
from pyxfer.errors import CancelledError, UsageError
from pyxfer.native import HOST as HOST_NAME
from pyxfer.native import Choice, is_host_name
from pyxfer.units import format_seconds, format_size

if TYPE_CHECKING:
    from pyxfer._document.blocks import BlockDirection, BlockMemory, BlockMethod
    from pyxfer._document.machines import Device, Side
    from pyxfer._document.runs import BlockOrder
    from pyxfer._measure.sampler import Subject

DEFAULT_BUDGET_S = 16.0
DEFAULT_PRECISION = 0.05
# As servers have them. On an H200 32,768 random blocks of 1 KiB take 27 ns each in pools of 1 GiB, 29 to 33 in 2,
# 47 to 51 in 8 and 56 in 32 GiB, which take 23 s to allocate. From 4 KiB on the pool makes no difference.
POOL_BYTES = 8 << 30
# A kernel that the host runtime carries out is slow, and its pools are all of host memory.
HOST_POOL_BYTES = 32 << 20
_MIN_POOL_BYTES = 8 << 20
# Of a pool a trial names at most this part: places that are drawn from fewer would be neighbours.
_POOL_PARTS = 8
_MAX_TRIAL_BYTES = 128 << 20
_PARTS_OF_MEMORY = 8
LINK_BYTES = 64 << 20
# Preparation, which checks the contents of every cell, ends after this share of the budget: the rest are left out.
_PREPARING_SHARE = 0.7
# The fewest rounds may end this part of the budget after it.
_LATE_SHARE = 1 / 8
# The link is measured in the rounds of each size; the trials of one row have different rounds.
_GROUP_ROUNDS = 1 << 20
_NO_MULTIPROCESSOR = "without a GPU a kernel occupies no multiprocessor"
_NOT_READ = "the run ended before it was read"


def blocks(
    device: int | str = 0,
    *,
    direction: str | Sequence[BlockDirection] = DIRECTIONS,
    memory: str | Sequence[BlockMemory] = MEMORIES,
    method: str | Sequence[BlockMethod] = METHODS,
    order: str | Sequence[BlockOrder] = ORDERS,
    size: str | int | Sequence[str | int] | None = None,
    count: str | int | Sequence[str | int] | None = None,
    precision: str | float = DEFAULT_PRECISION,
    budget: str | float = DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> Run:
    """Measure which method moves blocks between pools on the host and on the GPU fastest.

    Each cell is a number of blocks of one size. Its time is the caller's: from the call until the blocks have arrived.
    The contents are checked in each. On a GPU the times are kept for `copy_blocks`.

    Args:
        device: Index, UUID or PCI address of the GPU, or "host" for host memory.
        direction: One or more of h2d (to the GPU), d2h (to the host) and both (at the same time).
        memory: The memory of the pool on the host: pinned, pageable.
        method: One or more of loop, batch, strided, kernel and packed.
        order: One or more of random (places), runs (of 16 neighbours) and ordered (every second block).
        size: Bytes of a block: numbers, or text such as "4KiB,1MiB" or "4KiB:1MiB:x4". With a size or a count all
            combinations are measured; by default those from which the fastest method of most sizes and counts is known.
        count: Numbers of blocks, such as "16,1024" or "1:4096:x8".
        precision: Target precision of each median, such as "5%".
        budget: Time limit, from the start to the last trial. What cannot be measured in it is left out.
        seed: Seed of the places and of the order of trials; by default a new one, which the run stores.
        require_gpu: Raise an error if no GPU is usable.
        on_progress: Called with the progress of the run.
        save_to: Called with the run so far every few seconds.

    Raises:
        UsageError: an argument is invalid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.

    """
    limits = limits_of(precision, budget, seed, trace=False)
    request = make_request(device, direction, memory, method, order, size, count, limits)
    chosen = checked_choice(device, require_gpu=require_gpu)
    found = find_device(chosen.engine, 0 if is_host_name(device) else device)
    pool_bytes = pool_bytes_for(chosen, found.index)
    if not request.plans(_trial_bytes(pool_bytes)):
        raise UsageError(
            f"A trial moves at most {format_size(_trial_bytes(pool_bytes))} on this host, and every cell is larger: "
            "give smaller sizes or counts."
        )
    with turn(found.uuid.value or found.name):
        return Session(chosen, found, request, pool_bytes, on_progress or silent, save_to or unsaved).run()


def pool_bytes_for(choice: Choice, device: int) -> int:
    """The size of the pools, page-locked and on the device: less where one of them has little memory."""
    host, free = available_host_bytes().value, choice.engine.memory_info(device)[0]
    most = POOL_BYTES if choice.runtime == "cuda" else HOST_POOL_BYTES
    if host is not None:
        most = min(most, host // _PARTS_OF_MEMORY)
    most = min(most, free // 2)
    if most < _MIN_POOL_BYTES:
        raise UsageError(
            f"The pools need {format_size(_MIN_POOL_BYTES)} each, and only {format_size(most)} are free for them: "
            "end other programs."
        )
    return most // _MIN_POOL_BYTES * _MIN_POOL_BYTES


def _trial_bytes(pool_bytes: int) -> int:
    """The most that a trial moves each way."""
    return min(pool_bytes // _POOL_PARTS, _MAX_TRIAL_BYTES)


class _Numbered:
    """A subject whose rounds have the numbers of its group, and are those of no other."""

    def __init__(self, subject: Subject, group: int) -> None:
        self.key, self.anchor, self.ceiling_of = subject.key, subject.anchor, None
        self._subject, self._first = subject, group * _GROUP_ROUNDS

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        found = self._subject.trial(round_index)
        return {side: msgspec.structs.replace(each, round=each.round + self._first) for side, each in found.items()}


class Session(RunSession[Run]):
    _resources: BlockResources

    def __init__(
        self,
        choice: Choice,
        device: Device,
        request: Request,
        pool_bytes: int,
        on_progress: OnProgress,
        save_to: SaveTo,
    ) -> None:
        super().__init__(save_to)
        self._choice, self._device, self._request = choice, device, request
        self._on_progress = on_progress
        self._started = time.perf_counter()
        self._pools = BlockPools(pool_bytes, _trial_bytes(pool_bytes))
        self._resources = BlockResources(choice.engine, device.index, PATIENCE_S)
        self._link = read_link(choice.engine, device)
        self._before = read_environment(choice.engine, device)
        self._after: Environment | None = None
        self._placement = Placement(device_node(device), unknown(_NOT_READ), unknown(_NOT_READ), unknown(_NOT_READ))
        self._presence = Presence(device.uuid.value or device.name)
        self._items = [_item(plan) for plan in request.plans(self._pools.trial_bytes)]
        nbytes = min(LINK_BYTES, self._pools.trial_bytes)
        ways = dict.fromkeys(item.head.source.direction for item in self._items)
        self._links: list[Item[Any]] = [
            _untraced(Item(raw_head(CopyPlan(way, "pinned", "async")), nbytes)) for way in ways
        ]

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _carry_out(self) -> Ending:
        return run_interruptible(self._work, self._resources.cancel)

    def _has_trials(self) -> bool:
        return any(item.series and item.series.trials for item in (*self._links, *self._items))

    def _measure_all(self) -> None:
        with self._presence, bind(self._choice.engine, self._placement.device_node) as placement:
            self._placement = msgspec.structs.replace(placement, device_node=self._placement.device_node)
            self._prepare()
            self._measure_beside()
            self._measure()
        self._after = read_environment(self._choice.engine, self._device)

    def _prepare(self) -> None:
        resources, request = self._resources, self._request
        self._on_progress(Progress("preparing", 0.0, "allocating memory"))
        resources.make_pools(request.memories, self._pools.pool_bytes)
        resources.use(BlockMover(self._choice.engine, self._device.index))
        has_kernel = "kernel" in request.methods and not resources.mover.no_kernel
        self._items = [item for item in self._items if request.is_needed(item.head.source, has_kernel=has_kernel)]
        nbytes = self._links[0].nbytes
        resources.allocate(["pinned"], nbytes, last_level_bytes())
        self._link = resources.wake_link(self._device, self._link, "pinned", nbytes)
        for item in self._links:
            prepare_raw(item, resources, request.limits.seed)
        latest_s = self._started + _PREPARING_SHARE * request.limits.budget_s
        for number, item in enumerate(self._items):
            if resources.cancelled():
                raise CancelledError("the measurement was asked to end")
            if number and time.perf_counter() > latest_s:
                item.unavailable = LEFT_OUT
                continue
            share = number / len(self._items)
            self._on_progress(Progress("preparing", share, f"checking the contents of {item.head.route}"))
            self._prepare_cell(item, request.limits.seed + number)
        self._say_what_is_left_out()

    def _prepare_cell(self, item: Item[BlockPlan], seed: int) -> None:
        plan, resources = item.head.source, self._resources
        item.unavailable = self._why_not(plan)
        if item.unavailable is not None:
            return
        link = next(link for link in self._links if link.head.direction == plan.direction)
        with own_failure(item.give_up):
            subject = Moves(plan, resources, None if link.subject is None else link.subject.key, seed)
            is_right, first_s = subject.verify()
            item.verified, item.first_s, item.subject = Fact(is_right), Fact(first_s), subject

    def _why_not(self, plan: BlockPlan) -> str | None:
        mover = self._resources.mover
        way = ways_of(plan, self._resources)[0]
        if needed_blocks(plan.order, plan.count) > way.source.blocks:
            return "the pool has too few blocks for that number in this order"
        if plan.method in mover.methods(way.source, way.destination, plan.block_bytes):
            return None
        if plan.method == "batch":
            return "this driver has no cuMemcpyBatchAsync: it came with CUDA 12.8 (driver 570)"
        if plan.method in ("kernel", "packed") and plan.block_bytes % WORD_BYTES:
            return f"a kernel moves words of {WORD_BYTES} bytes: give sizes that are multiples of {WORD_BYTES}"
        return mover.no_kernel or f"{CALLS[plan.method]} is not possible here"

    def _say_what_is_left_out(self) -> None:
        left = sum(item.unavailable == LEFT_OUT for item in self._items)
        if left:
            budget = format_seconds(self._request.limits.budget_s)
            text = f"The budget of {budget} was too short for {left} of {len(self._items)} cells, which were left out."
            self._remarks.append(Remark("late", text, "give a longer budget, or fewer sizes and counts"))

    def _measure_beside(self) -> None:
        limits = self._request.limits
        if self._choice.runtime != "cuda":
            self._pools = msgspec.structs.replace(self._pools, beside=unknown(_NO_MULTIPROCESSOR))
            return
        measured = {(plan.direction, plan.memory, plan.method) for plan in self._usable_plans()}
        plans = plans_beside(
            lambda plan: (plan.direction, plan.memory, plan.method) in measured, self._pools.trial_bytes
        )
        if plans and time.perf_counter() < self._started + _PREPARING_SHARE * limits.budget_s:
            self._on_progress(Progress("preparing", 1.0, "other work beside blocks"))
            found = measure_beside(self._resources, plans, limits.seed)
            self._pools = msgspec.structs.replace(self._pools, beside=found)

    def _usable_plans(self) -> list[BlockPlan]:
        return [item.head.source for item in self._items if item.subject is not None]

    def _measure(self) -> None:
        limits = self._request.limits
        groups, all_links = [], []
        by_size: dict[int, list[Item[Any]]] = defaultdict(list)
        for item in self._items:
            if item.subject is not None:
                by_size[item.head.source.block_bytes].append(item)
        for number, (size, items) in enumerate(by_size.items()):
            ways = {item.head.direction for item in items}
            links = [replace(link) for link in self._links if link.head.direction in ways and link.subject is not None]
            all_links.append(links)
            for item in (*links, *items):
                item.subject = _Numbered(item.subject, number)
            group = make_group([*links, *items])
            group.name = format_size(size)
            groups.append(group)
        if not groups:
            return
        deadline_s = self._started + limits.budget_s
        try:
            Sampler(
                groups,
                precision=limits.precision,
                deadline_s=deadline_s,
                latest_s=deadline_s + _LATE_SHARE * limits.budget_s,
                seed=limits.seed,
                cancelled=self._resources.cancelled,
                on_progress=self._on_progress,
                on_turn=SaveNowAndThen(self._save),
            ).run()
        finally:
            for links in all_links:
                for link in links:
                    self._keep_link(link)
        dropped = [format_size(size) for size, group in sorted(zip(by_size, groups, strict=True)) if group.dropped]
        if dropped:
            text = f"The budget of {format_seconds(limits.budget_s)} was too short for blocks of {', '.join(dropped)}."
            self._remarks.append(Remark("late", f"{text[:-1]}: these have few trials.", "give a longer budget"))

    def _keep_link(self, measured: Item[Any]) -> None:
        """Add the trials beside blocks of one size to those beside the others."""
        own = next(link for link in self._links if link.head.direction == measured.head.direction)
        if own.series is None:
            own.series = measured.series
        elif measured.series is not None:
            for side, trials in measured.series.trials.items():
                own.series.trials.setdefault(side, []).extend(trials)

    # --- the document -------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._presence.look()
        if self._save_to is not unsaved:
            self._save_to(self._document("interrupted", None))

    def _finish(self, ended: RunEnding, failure: str | None) -> Run:
        run = super()._finish(ended, failure)
        if ended == "complete" and self._choice.runtime == "cuda":
            calibration.keep_run(self._choice.engine, self._device.index, run)
        return run

    def _document(self, ended: RunEnding, failure: str | None) -> Run:
        request, limits, chosen = self._request, self._request.limits, self._choice
        items = sorted(self._items, key=lambda item: item.head.source.place)
        plans = [item.head.source for item in items]
        assembler = Assembler(self._link, limits.precision, limits.budget_s, ENDED_EARLY.get(ended, NO_TRIAL))
        return Run(
            kind="blocks",
            ended=ended,
            runtime=chosen.runtime,
            runtime_reason=chosen.reason,
            parameters=request.parameters(HOST_NAME if chosen.runtime == "host" else str(self._device.index), plans),
            device=self._device,
            link=self._link,
            placement=self._placement,
            environment=self._before,
            environment_after=self._after,
            duration_s=time.perf_counter() - self._started,
            measurements=with_ceilings(assembler.measurements([*self._links, *items], {})),
            remarks=(*self._remarks, *circumstances(self._presence.other_processes, self._before, self._after)),
            failure=failure,
            blocks=self._pools,
        )


def with_ceilings(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The rows; those of blocks have their share of page-locked copies in the same rounds."""
    raw = [row for row in rows if row.is_raw]
    return tuple(row if row.block_bytes is None else _with_ceiling(row, raw) for row in rows)


def _with_ceiling(row: Measurement, rows: Sequence[Measurement]) -> Measurement:
    links = links_beside(row, rows)
    if not links:
        return row
    valid = [trial for trial in row.trials if trial.invalid is None]
    return msgspec.structs.replace(row, ceiling_share=ceiling_share(valid, links[0].trials, row.rate))


def _item(plan: BlockPlan) -> Item[BlockPlan]:
    info = RouteInfo("blocks", CALLS[plan.method], int(plan.method == "packed"), "", "done")
    head = Head(
        plan,
        plan.route,
        plan.direction,
        plan.memory,
        plan.method,
        "host",
        plan.order,
        route_info=info,
        image_bytes=plan.block_bytes,
    )
    return _untraced(Item(head, plan.nbytes))


def _untraced(item: Item[Any]) -> Item[Any]:
    item.untraced(NOT_TRACED, failed=False)
    return item
