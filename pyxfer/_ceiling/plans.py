"""The raw routes by memory, mode and direction, and the request of a ceiling run."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pyxfer._document.machines import STAGED
from pyxfer._document.routes import RouteStatus
from pyxfer._document.runs import Direction, LinkDirection, Memory, Parameters, Variant
from pyxfer._measure.sampler import MIN_ROUNDS
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.units import items_of, seconds_of, share_of, sizes_of, whole_of, words_of

DIRECTIONS: tuple[LinkDirection, ...] = ("h2d", "d2h", "both")
MEMORIES: tuple[Memory, ...] = get_args(Memory)
AUTO = "auto"
MAX_STREAMS = 16
SHOWN_MODES = ("memcpy", "async", "streams:2", "streams:4", "batch", STAGED)
# The driver's cuMemcpyBatchAsync came with CUDA 12.8.
BATCH_CALL, BATCH_API = "cuMemcpyBatchAsync", 12080


@dataclass(frozen=True)
class CopyPlan:
    direction: Direction
    memory: Memory
    mode: str
    variant: Variant = "warm"

    @property
    def route(self) -> str:
        return f"raw.{self.memory}-{self.mode}"

    @property
    def key(self) -> str:
        return f"{self.route} {self.direction} {self.variant}"

    @property
    def streams(self) -> int:
        if self.direction == "both":
            return 2
        return int(self.mode.partition(":")[2]) if self.mode.startswith("streams:") else 1

    @property
    def page_locked(self) -> bool:
        """Whether the copy engine can access the memory directly; only such copies can be queued behind a gate."""
        return self.memory != "pageable"

    @property
    def staged(self) -> bool:
        return self.mode == STAGED


def plan_of(route: str, direction: Direction, variant: Variant) -> CopyPlan | None:
    """The copies that the name of a raw route tells; None for other routes. `raw.host-copy` is no copy over a link."""
    owner, _, name = route.partition(".")
    memory, _, mode = name.rpartition("-")
    known = next((word for word in MEMORIES if word == memory), None)
    return None if owner != "raw" or known is None else CopyPlan(direction, known, mode, variant)


def copy_plans(
    direction: str | Iterable[str], memory: str | Iterable[str], mode: str | Iterable[str], *, fresh: bool
) -> tuple[CopyPlan, ...]:
    """Every combination of the arguments, with `auto` resolved, and fresh copies after the warm ones.

    Only pageable memory can be staged. Other memories get the remaining modes, or `auto` if there are none, because
    they are the ceiling of staged copies.
    """
    requested = modes_of(mode, "mode")
    plans = [
        CopyPlan(each_direction, each_memory, each_mode)
        for each_direction in words_of(direction, DIRECTIONS, "direction")
        for each_memory in words_of(memory, MEMORIES, "memory")
        for each_mode in _modes_for(each_direction, each_memory, requested)
    ]
    if STAGED in requested and not any(plan.staged for plan in plans):
        raise UsageError(
            f"The mode {STAGED} sends pageable memory through page-locked slots, and only page-locked memory is named: "
            f"add the memory pageable."
        )
    if not fresh:
        return tuple(dict.fromkeys(plans))
    fresh_plans = [CopyPlan(plan.direction, plan.memory, plan.mode, "fresh") for plan in plans if can_be_fresh(plan)]
    if not fresh_plans:
        raise UsageError(
            "Fresh copies touch a pageable destination for the first time, and no copy of this run has one: add the "
            "direction d2h and the memory pageable."
        )
    return tuple(dict.fromkeys([*plans, *fresh_plans]))


def why_unavailable(engine: Engine, plan: CopyPlan) -> str | None:
    if plan.direction == "both" and plan.mode != "async":
        reasons = {
            "memcpy": "cudaMemcpy uses one stream, so two directions would take turns",
            STAGED: "a ring serves one transfer at a time, so two directions would take turns",
        }
        return f"{reasons.get(plan.mode, 'both directions already use a stream each')}: use the mode async"
    if plan.mode == "batch" and not engine.driver_has(BATCH_CALL, BATCH_API):
        return "this driver has no cudaMemcpyBatchAsync: it came with CUDA 12.8 (driver 570)"
    return None


_CALLS = {
    "memcpy": "cudaMemcpy",
    "async": "cudaMemcpyAsync",
    "batch": "cudaMemcpyBatchAsync",
    STAGED: "pyxfer's ring: several threads and cudaMemcpyAsync",
}


def list_routes(engine: Engine) -> tuple[RouteStatus, ...]:
    return tuple(_status(engine, memory, mode) for memory in MEMORIES for mode in _applicable(memory, SHOWN_MODES))


def _status(engine: Engine, memory: Memory, mode: str) -> RouteStatus:
    reasons = {direction: why_unavailable(engine, CopyPlan(direction, memory, mode)) for direction in DIRECTIONS}
    usable = tuple(direction for direction, reason in reasons.items() if reason is None)
    return RouteStatus(
        name=f"raw.{memory}-{mode}",
        framework="raw",
        direction=usable,
        memory=memory,
        mode=mode,
        host_copies=1 if mode == STAGED else 0,
        returns="done" if mode in ("memcpy", STAGED) else "queued",
        call=_CALLS.get(mode, f"cudaMemcpyAsync on {mode.partition(':')[2]} streams"),
        usual=False,
        available=bool(usable),
        reason="" if usable else reasons["h2d"] or "",
    )


def _modes_for(direction: str, memory: str, modes: Sequence[str]) -> list[str]:
    # As most programs copy: cudaMemcpy for pageable memory, queued copies for page-locked memory.
    automatic = "memcpy" if memory == "pageable" and direction != "both" else "async"
    return [automatic if mode == AUTO else mode for mode in _applicable(memory, modes) or [AUTO]]


def _applicable(memory: str, modes: Sequence[str]) -> list[str]:
    return [mode for mode in modes if memory == "pageable" or mode != STAGED]


def modes_of(modes: str | Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_checked_mode(mode, name) for mode in items_of(modes, name)))


def _checked_mode(text: str, argument: str) -> str:
    mode = text.lower()
    name, _, count = mode.partition(":")
    if name == "streams" and count.isascii() and count.isdigit() and 1 < int(count) <= MAX_STREAMS:
        return f"streams:{int(count)}"
    if mode in {AUTO, "memcpy", "async", "batch", STAGED}:
        return mode
    raise UsageError(
        f"{argument} {text!r:.80} is unknown: choose auto, memcpy, async, batch, staged, or streams:N with N from 2 to "
        f"{MAX_STREAMS}."
    )


def can_be_fresh(plan: CopyPlan) -> bool:
    return plan.memory == "pageable" and plan.direction == "d2h"


DEFAULT_SIZES = "4KiB:256MiB:x4"
DEFAULT_BUDGET_S = 8.5
DEFAULT_PRECISION = 0.02


@dataclass(frozen=True)
class Limits:
    """How long and how precisely a run measures, and what it traces. `explained`: the route that it explains."""

    precision: float
    budget_s: float
    seed: int
    trace: bool = True
    explained: str = ""
    complete: bool = False


def limits_of(precision: str | float, budget: str | float, seed: int | None, **others: Any) -> Limits:
    return Limits(share_of(precision, "precision"), seconds_of(budget, "budget"), seed_of(seed), **others)


@dataclass(frozen=True)
class Request:
    device: str
    plans: tuple[CopyPlan, ...]
    sizes: tuple[int, ...]
    fresh: bool
    limits: Limits

    @property
    def largest(self) -> int:
        return max(self.sizes)

    @property
    def memories(self) -> tuple[Memory, ...]:
        return tuple(dict.fromkeys(plan.memory for plan in self.plans))

    def parameters(self) -> Parameters:
        return Parameters(
            device=self.device,
            directions=tuple(dict.fromkeys(plan.direction for plan in self.plans)),
            memories=self.memories,
            modes=tuple(dict.fromkeys(plan.mode for plan in self.plans)),
            sizes_bytes=self.sizes,
            fresh=self.fresh,
            precision=self.limits.precision,
            budget_s=self.limits.budget_s,
            seed=self.limits.seed,
            min_rounds=MIN_ROUNDS,
            explained=self.limits.explained,
        )


def make_request(
    device: int | str,
    direction: str | Iterable[str],
    memory: str | Iterable[str],
    mode: str | Iterable[str],
    size: str | int | Iterable[str | int],
    limits: Limits,
    *,
    fresh: bool = False,
) -> Request:
    plans = copy_plans(direction, memory, mode, fresh=fresh)
    return Request(str(device), plans, sizes_of(size, "size"), fresh, limits)


def seed_of(seed: int | None) -> int:
    return secrets.randbits(32) if seed is None else whole_of(seed, "seed", 0, (1 << 63) - 1, "a number such as 1")
