"""Runs of `pyxfer blocks` with figures like those of an H200 host."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from samples import MIB, make_measurement, make_parameters, make_run

from pyxfer._blocks.plans import BlockPlan, Request
from pyxfer._blocks.session import with_ceilings
from pyxfer._ceiling.derived import derive_run, derived_row
from pyxfer._ceiling.plans import limits_of
from pyxfer._document import runs
from pyxfer._document.blocks import CALLS, METHODS
from pyxfer._document.machines import Fact, unknown

CEILING_GBPS = {"h2d": 55.4, "d2h": 55.2, "both": 49.6}
_SPREAD = (-2, 1, -1, 2, 0, 0)
_FEWEST_FOR_CLIFF = 28 << 10


def seconds_of(plan: BlockPlan) -> tuple[float, float]:
    """The caller's time until the blocks have arrived, and until the call has returned."""
    pieces = plan.count if plan.order == "random" else -(-plan.count // 16)
    link_s = plan.nbytes / (52e9 if plan.method == "kernel" else 54e9)
    if plan.method == "kernel":
        return max(7.2e-6 + plan.count * 1e-10, link_s + 5e-6), 5.1e-6
    if plan.method == "loop":
        return max(pieces * 2.9e-6, link_s + pieces * 1.5e-6) + 6e-6, pieces * 2.7e-6 + 2e-6
    if plan.method == "batch":
        each_s = 1.05e-6 if plan.block_bytes < _FEWEST_FOR_CLIFF else 0.62e-6
        each_s *= 0.4 if plan.direction == "d2h" else 1.0
        return max(pieces * each_s, link_s) + 8e-6, pieces * 0.5e-6 + 3e-6
    if plan.method == "strided":
        return link_s * 1.05 + 6e-6, 4e-6
    packing_s = plan.nbytes / (38e9 if plan.memory == "pinned" else 36e9)
    return packing_s + 14e-6, packing_s + 6e-6


def _steps_of(plan: BlockPlan) -> tuple[int, ...]:
    """How the trials differ: not in the same rounds for each method."""
    first = METHODS.index(plan.method)
    return _SPREAD[first:] + _SPREAD[:first]


def make_row(plan: BlockPlan, gbps: float | None = None, **fields: Any) -> list[runs.Measurement]:
    """Six trials at about the model's rate, or at this one; of both ways for each side."""
    elapsed_s, called_s = seconds_of(plan)
    if gbps is not None:
        elapsed_s = plan.nbytes / gbps / 1e9
    rows = []
    for side in ("h2d", "d2h", "sum") if plan.direction == "both" else (plan.direction,):
        times = [elapsed_s * (1 + 2e-3 * step) * (1.1 if plan.direction == "both" else 1) for step in _steps_of(plan)]
        row = msgspec.structs.replace(
            make_measurement(),
            route=plan.route,
            direction=plan.direction,
            side=side,
            memory=plan.memory,
            mode=plan.method,
            variant=plan.order,
            bracket="host",
            nbytes=plan.nbytes,
            batch=plan.count,
            trials=tuple(runs.Trial(number, time_s, called_s) for number, time_s in enumerate(times)),
            ceiling_share=unknown("no ceiling"),
            peak_share=unknown("no peak"),
            first_s=Fact(2 * elapsed_s),
            route_info=runs.RouteInfo("blocks", CALLS[plan.method], int(plan.method == "packed"), "", "done"),
            **fields,
        )
        rows.append(derived_row(row, make_run().link, ()))
    return rows


def make_link(direction: runs.Direction) -> list[runs.Measurement]:
    rows = []
    for side in ("h2d", "d2h", "sum") if direction == "both" else (direction,):
        seconds = [64 * MIB / CEILING_GBPS[direction] / 1e9] * len(_SPREAD)
        row = msgspec.structs.replace(
            make_measurement(),
            direction=direction,
            side=side,
            nbytes=64 * MIB,
            trials=tuple(runs.Trial(number, time_s) for number, time_s in enumerate(seconds)),
            ceiling_share=unknown("no ceiling"),
            peak_share=unknown("no peak"),
        )
        rows.append(derived_row(row, make_run().link, ()))
    return rows


def make_request(**fields: Any) -> Request:
    given: dict[str, Any] = {
        "device": "0",
        "directions": ("h2d", "d2h", "both"),
        "memories": ("pinned", "pageable"),
        "methods": METHODS,
        "orders": ("random", "runs", "ordered"),
        "sizes": (),
        "counts": (),
        "limits": limits_of(0.05, 16.0, 1),
    }
    return Request(**{**given, **fields})


def make_beside() -> tuple[runs.WorkBeside, ...]:
    """A kernel slows a kernel that copies by 6 %, and one that computes by 9 %; a batch slows either by 2 %."""
    alone_s = tuple(33e-6 * (1 + 1e-3 * step) for step in (0, 1, -1, 2, -2, 1, 0, 0))
    by_work: tuple[tuple[runs.Work, float], ...] = (("copy", 1.06), ("compute", 1.09))
    return tuple(
        runs.WorkBeside(
            direction,
            method,
            65536,
            512,
            blocks,
            alone_s,
            tuple(time_s * times * (1 + 1e-3 * step) for step, time_s in enumerate(alone_s)),
            runs.Share(times, None, None),
            work,
        )
        for work, by_kernel in by_work
        for direction in ("h2d", "d2h")
        for method, blocks, times in (("kernel", 32, by_kernel), ("batch", 0, 1.02))
    )


@functools.cache
def make_blocks_run() -> runs.Run:
    """A run of the default cells."""
    plans = sorted(make_request().plans(128 * MIB), key=lambda plan: plan.place)
    return make_run_with([row for plan in plans for row in make_row(plan)])


def make_run_with(rows: list[runs.Measurement], **overrides: Any) -> runs.Run:
    """A run of these rows, which have their figures already, beside copies of the link."""
    links = [row for direction in dict.fromkeys(row.direction for row in rows) for row in make_link(direction)]
    fields: dict[str, Any] = {
        "kind": "blocks",
        "parameters": make_parameters(
            directions=("h2d", "d2h", "both"),
            modes=METHODS,
            sizes_bytes=tuple(sorted({row.block_bytes or 0 for row in rows})),
            batches=tuple(sorted({row.batch or 0 for row in rows})),
        ),
        "measurements": (),
        "blocks": runs.BlockPools(1 << 30, 128 * MIB, Fact(make_beside())),
        **overrides,
    }
    rest = derive_run(make_run(**fields))
    return msgspec.structs.replace(rest, measurements=with_ceilings((*links, *rows)))


@functools.cache
def make_without_kernels() -> runs.Run:
    """A driver that compiles no kernel and has no batch call, interrupted early."""
    why = "this driver has no cuMemcpyBatchAsync: it came with CUDA 12.8 (driver 570)"
    rows = []
    plans = make_request(directions=("h2d",), orders=("random",), memories=("pinned",)).plans(4 * MIB)
    for plan in sorted(plans, key=lambda plan: plan.place):
        missing: dict[str, Any] = dict.fromkeys(("rate", "verified", "first_s", "ceiling_share"), unknown(why))
        rows += [
            msgspec.structs.replace(row, **missing, trials=(), summary=None, dispatch=None)
            if plan.method != "loop"
            else row
            for row in make_row(plan)
        ]
    return make_run_with(rows, ended="interrupted", blocks=runs.BlockPools(1 << 30, 4 * MIB))
