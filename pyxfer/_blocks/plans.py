"""The cells of a run of blocks: which sizes, counts, orders, directions and methods it measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import get_args

from pyxfer._ceiling.plans import Limits
from pyxfer._document.blocks import METHODS, BlockDirection, BlockMemory, BlockMethod
from pyxfer._document.runs import BLOCKS, ORDERS, BlockOrder, Parameters
from pyxfer._measure.sampler import FEWEST_ROUNDS
from pyxfer.errors import UsageError
from pyxfer.units import counts_of, format_size, joined, sizes_of, words_of

DIRECTIONS: tuple[BlockDirection, ...] = get_args(BlockDirection)
MEMORIES: tuple[BlockMemory, ...] = get_args(BlockMemory)
MAX_BLOCK_BYTES = 64 << 20
MAX_COUNT = 1_000_000
STEP = 2
"""The order `ordered` names every second block: neighbours would be merged to one copy."""

KIB = 1 << 10
# Above 24 KiB the driver carries out copies to an H200 another way: a batch of 64 takes 386 us at 24 KiB, and 86 at 16
# bytes more. From some 100 KiB on a copy engine is as fast as a kernel.
SIZES = tuple(int(kib * KIB) for kib in (0.5, 1, 2, 4, 8, 16, 24, 28, 64, 128, 256, 512, 1024, 4096))
COUNTS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 100_000)
# What follows is nearly the same in all cells: the time of copies grows with the count, packing's with the bytes.
_FEW_SIZES = tuple(int(kib * KIB) for kib in (0.5, 4, 16, 64, 256, 1024))
_FEW_COUNTS = (1, 16, 256, 4096, 100_000)
_MAX_LOOPED, _MAX_PAGEABLE = 4096, 256
# Where there is a kernel, which is faster from about 16 copies on.
_MAX_COPIES: dict[BlockMethod, int] = {"loop": 256, "batch": 1024}
_OTHER_SIZES = tuple(kib * KIB for kib in (4, 16, 64, 256))
_OTHER_COUNTS = (64, 1024)
_BOTH_COUNTS = (64, 1024)


@dataclass(frozen=True)
class BlockPlan:
    """Blocks of one size and count, moved in one direction by one method."""

    direction: BlockDirection
    memory: BlockMemory
    method: BlockMethod
    order: BlockOrder
    block_bytes: int
    count: int

    @property
    def nbytes(self) -> int:
        """The bytes of one way."""
        return self.block_bytes * self.count

    @property
    def place(self) -> tuple[int, ...]:
        """Its place among the rows of a run: random places first, then by memory, direction, size and count."""
        places = -ORDERS.index(self.order), MEMORIES.index(self.memory), DIRECTIONS.index(self.direction)
        return *places, self.block_bytes, self.count, METHODS.index(self.method)

    @property
    def route(self) -> str:
        return f"{BLOCKS}.{self.memory}-{self.method}"

    @property
    def key(self) -> str:
        return f"{self.route} {self.direction} {self.order} {self.block_bytes} {self.count}"


def always_refused(plan: BlockPlan) -> bool:
    """Whether no host can do this, so that it is no cell: the run does not name it."""
    if plan.memory == "pageable":
        return plan.method not in ("loop", "packed") or plan.direction == "both"  # the calls would take turns
    if plan.direction == "both" and plan.method == "packed":
        return True
    return plan.method == "strided" and plan.order != "ordered"


@dataclass(frozen=True)
class Request:
    """What a run measures. Without sizes and counts it is the default plan."""

    device: str
    directions: tuple[BlockDirection, ...]
    memories: tuple[BlockMemory, ...]
    methods: tuple[BlockMethod, ...]
    orders: tuple[BlockOrder, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    limits: Limits

    @property
    def is_default(self) -> bool:
        return not self.sizes and not self.counts

    def is_needed(self, plan: BlockPlan, *, has_kernel: bool) -> bool:
        """Whether it is asked for, or the times of other cells do not tell which method is the fastest there."""
        return not (self.is_default and has_kernel and plan.count > _MAX_COPIES.get(plan.method, plan.count))

    def plans(self, trial_bytes: int) -> tuple[BlockPlan, ...]:
        """The cells, in the order in which they are prepared: those from which the others can be told come first.

        Cells above `trial_bytes` are left out: `choice` takes their times from the largest count that was measured.
        """
        given = product(
            sorted(self.orders, key=ORDERS.index, reverse=True),
            sorted(self.memories, key=MEMORIES.index),
            self.sizes or SIZES,
            self.counts or COUNTS,
            sorted(self.directions, key=DIRECTIONS.index),
            self.methods,
        )
        found = [
            plan
            for order, memory, size, count, direction, method in given
            if not always_refused(plan := BlockPlan(direction, memory, method, order, size, count))
            and plan.nbytes <= trial_bytes
            and (not self.is_default or _is_default(plan))
        ]
        return tuple(sorted(dict.fromkeys(found), key=_rank))

    def parameters(self, device: str, plans: Sequence[BlockPlan]) -> Parameters:
        return Parameters(
            device=device,
            directions=self.directions,
            memories=self.memories,
            modes=self.methods,
            sizes_bytes=tuple(sorted({plan.block_bytes for plan in plans})),
            fresh=False,
            precision=self.limits.precision,
            budget_s=self.limits.budget_s,
            seed=self.limits.seed,
            min_rounds=FEWEST_ROUNDS,
            batches=tuple(sorted({plan.count for plan in plans})),
        )


def _rank(plan: BlockPlan) -> tuple[bool, bool]:
    return plan.order != "random", plan.block_bytes not in _FEW_SIZES or plan.count not in _FEW_COUNTS


def _is_default(plan: BlockPlan) -> bool:
    size, count = plan.block_bytes, plan.count
    if plan.direction == "both":
        return plan.order == "random" and size in _OTHER_SIZES and count in _BOTH_COUNTS
    if plan.order != "random":
        return plan.memory == "pinned" and size in _OTHER_SIZES and count in _OTHER_COUNTS
    if plan.method == "loop" and count > (_MAX_LOOPED if plan.memory == "pinned" else _MAX_PAGEABLE):
        return False
    is_few = size in _FEW_SIZES and count in _FEW_COUNTS
    return is_few or (plan.method != "packed" and plan.memory == "pinned")


def make_request(
    device: int | str,
    direction: str | Iterable[str],
    memory: str | Iterable[str],
    method: str | Iterable[str],
    order: str | Iterable[str],
    size: str | int | Iterable[str | int] | None,
    count: str | int | Iterable[str | int] | None,
    limits: Limits,
) -> Request:
    sizes = () if size is None else sizes_of(size, "size")
    counts = () if count is None else counts_of(count, "count")
    if sizes and sizes[-1] > MAX_BLOCK_BYTES:
        raise UsageError(f"size {format_size(sizes[-1])} is too large: give at most {format_size(MAX_BLOCK_BYTES)}.")
    if counts and counts[-1] > MAX_COUNT:
        raise UsageError(f"count {counts[-1]:,} is too large: give at most {MAX_COUNT:,} blocks.")
    request = Request(
        str(device),
        words_of(direction, DIRECTIONS, "direction"),
        words_of(memory, MEMORIES, "memory"),
        words_of(method, METHODS, "method"),
        words_of(order, ORDERS, "order"),
        sizes,
        counts,
        limits,
    )
    if not request.plans(MAX_BLOCK_BYTES * MAX_COUNT):
        methods, memories, orders = map(joined, (request.methods, request.memories, request.orders))
        raise UsageError(
            f"{methods} cannot move blocks of {memories} memory (order: {orders}): pageable memory needs loop or "
            "packed in one direction, strided needs the order ordered, and both ways need another method than packed."
        )
    return request
