"""Runs of `pyxfer blocks` whose times follow known laws, such as that of a batch call with a cliff above 24 KiB."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from blocks_samples import make_request, make_row, make_run_with
from samples import KIB, MIB

from pyxfer._blocks.offload import plan_offload
from pyxfer._blocks.plans import BlockPlan
from pyxfer._document.blocks import BlockMethod
from pyxfer._document.offloads import OffloadPlan
from pyxfer._document.runs import Measurement, OneWay, Run

Law = Callable[[int, int], float]
"""The seconds of a move by the size and the number of its blocks."""

CLIFF_BYTES = 24 * KIB
SIZES = tuple(512 << place for place in range(14))  # to 4 MiB
COUNTS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 100_000)
MAX_BYTES = 256 * MIB


def affine(block_bytes: int, count: int) -> float:
    return 10e-6 + count * block_bytes / 50e9


def batch(block_bytes: int, count: int) -> float:
    """A driver that takes small blocks one by one, and larger ones by a faster way."""
    each_s = 1.1e-6 + block_bytes / 70e9 if block_bytes <= CLIFF_BYTES else max(0.55e-6, block_bytes / 54e9)
    return 9e-6 + count * each_s


def steep(block_bytes: int, count: int) -> float:
    """A batch call that is best for large blocks and worst for small ones."""
    return 5e-6 + count * (3e-6 if block_bytes <= CLIFF_BYTES else block_bytes / 55e9)


def loop(block_bytes: int, count: int) -> float:
    return 6e-6 + count * max(2.8e-6, 1.5e-6 + block_bytes / 55e9)


def kernel(block_bytes: int, count: int) -> float:
    return 11e-6 + max(count * block_bytes / 51.5e9, 4e-6 + count * 0.02e-6)


def packed(block_bytes: int, count: int) -> float:
    return 25e-6 + count * 0.1e-6 + count * block_bytes / 20e9


LAWS: Mapping[BlockMethod, Law] = {"loop": loop, "batch": batch, "kernel": kernel, "packed": packed}


def make_moves(plans: Iterable[BlockPlan], laws: Mapping[BlockMethod, Law], noise: float = 0.0) -> list[Measurement]:
    """A row for each of these cells. `noise`: the standard deviation of the medians."""
    chance = random.Random(7)
    rows = []
    for plan in plans:
        seconds = laws[plan.method](plan.block_bytes, plan.count) * math.exp(chance.gauss(0, noise))
        rows += make_row(plan, plan.nbytes / seconds / 1e9)
    return rows


def grid(direction: OneWay, methods: Iterable[BlockMethod], **fields: Any) -> list[BlockPlan]:
    """Every size with every count, up to 256 MiB."""
    sizes: Sequence[int] = fields.pop("sizes", SIZES)
    given: dict[str, Any] = {"memory": "pinned", "order": "random", **fields}
    return [
        BlockPlan(direction=direction, method=method, block_bytes=size, count=count, **given)
        for size in sizes
        for count in COUNTS
        if size * count <= MAX_BYTES
        for method in methods
    ]


def default_plans(methods: Iterable[BlockMethod]) -> list[BlockPlan]:
    """The cells that `pyxfer blocks` measures by default, to the GPU in random places."""
    request = make_request(directions=("h2d",), memories=("pinned",), methods=tuple(methods), orders=("random",))
    return list(request.plans(128 * MIB))


def make_run_of(laws: Mapping[BlockMethod, Law], **fields: Any) -> Run:
    """Both directions with the same times."""
    plans = [*grid("h2d", laws, **fields), *grid("d2h", laws, **fields)]
    return make_run_with(make_moves(plans, laws))


def make_plan(**fields: Any) -> OffloadPlan:
    shape: dict[str, Any] = {} if "layout" in fields else {"block_bytes": "16KiB", "blocks": 1000}
    return plan_offload(**shape, compute_s=0.4, run=make_run_of(LAWS, sizes=(16 * KIB, 64 * KIB)), **fields)
