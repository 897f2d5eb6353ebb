"""The raw routes by memory, mode and direction, and the request of a ceiling run."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from pyxfer._document.runs import STAGED, Direction, Memory, Parameters, Variant
from pyxfer._measure.sampler import MIN_ROUNDS
from pyxfer.errors import UsageError
from pyxfer.units import parse_sizes

if TYPE_CHECKING:
    from pyxfer.native import Engine


Word = TypeVar("Word", bound=str)

DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h", "both")
MEMORIES: tuple[Memory, ...] = get_args(Memory)
AUTO = "auto"
MOST_STREAMS = 16
SHOWN_MODES = ("memcpy", "async", "streams:2", "streams:4", "batch", STAGED)
# The driver's cuMemcpyBatchAsync came with CUDA 12.8.
BATCH_CALL, BATCH_API = "cuMemcpyBatchAsync", 12080


@dataclass(frozen=True)
class Way:
    """One direction of a raw route, warm or fresh."""

    direction: Direction
    memory: Memory
    mode: str
    variant: Variant = "warm"

    @property
    def route(self) -> str:
        return f"raw.{self.memory}-{self.mode}"

    @property
    def key(self) -> str:
        """Unique among the ways of one size."""
        return f"{self.route} {self.direction} {self.variant}"

    @property
    def streams(self) -> int:
        """Number of streams that it uses."""
        if self.direction == "both":
            return 2
        return int(self.mode.partition(":")[2]) if self.mode.startswith("streams:") else 1

    @property
    def page_locked(self) -> bool:
        """Whether the copy engine can access the memory directly; only such copies can be queued behind a gate."""
        return self.memory != "pageable"

    @property
    def staged(self) -> bool:
        """Whether it goes through pyxfer's ring."""
        return self.mode == STAGED

    @property
    def dma_memory(self) -> Memory:
        """The host memory that the copy engine should access; for a staged copy, the ring's slots."""
        return "pinned" if self.page_locked or self.staged else "pageable"


@dataclass(frozen=True)
class RouteStatus:
    """A line of `pyxfer list`."""

    name: str
    direction: tuple[Direction, ...]
    memory: Memory
    mode: str
    available: bool
    reason: str


def plan_ways(
    directions: Sequence[str], memories: Sequence[str], modes: Sequence[str], *, fresh: bool
) -> tuple[Way, ...]:
    """Every combination of the arguments, with `auto` resolved, and fresh ways after the warm ones.

    Only pageable memory can be staged. Other memories get the remaining modes, or `auto` if there are none, because
    they are the ceiling of staged copies.

    Raises:
        UsageError: an unknown word, only page-locked memory for staged copies, or no way that can be fresh.

    """
    requested = _some(modes, "mode")
    ways = [
        Way(known_word(direction, DIRECTIONS, "direction"), known_word(memory, MEMORIES, "memory"), mode)
        for direction in _some(directions, "direction")
        for memory in _some(memories, "memory")
        for mode in _modes_for(direction, memory, requested)
    ]
    if STAGED in requested and not any(way.staged for way in ways):
        raise UsageError(
            f"--mode {STAGED} sends pageable memory through page-locked slots, but --memory names only page-locked "
            f"memory: add --memory pageable."
        )
    if not fresh:
        return tuple(dict.fromkeys(ways))
    fresh_ways = [Way(way.direction, way.memory, way.mode, "fresh") for way in ways if _can_be_fresh(way)]
    if not fresh_ways:
        raise UsageError(
            "--fresh times the first touch of a pageable destination, but no copy of this run has one: "
            "add --direction d2h --memory pageable."
        )
    return tuple(dict.fromkeys([*ways, *fresh_ways]))


def why_unavailable(engine: Engine, way: Way) -> str | None:
    """The reason why this way cannot be measured here, or None."""
    if way.direction == "both" and way.mode == "memcpy":
        return "cudaMemcpy uses one stream, so two directions would take turns: use --mode async"
    if way.direction == "both" and way.staged:
        return "a ring serves one transfer at a time, so two directions would take turns: use --mode async"
    if way.direction == "both" and way.mode != "async":
        return "both directions already use a stream each: use --mode async"
    if way.mode == "batch" and not engine.driver_has(BATCH_CALL, BATCH_API):
        return "this driver has no cudaMemcpyBatchAsync: it came with CUDA 12.8 (driver 570)"
    return None


def list_routes(engine: Engine) -> tuple[RouteStatus, ...]:
    """Every raw route with the directions it supports here, or why it supports none."""
    return tuple(_status(engine, memory, mode) for memory in MEMORIES for mode in _applicable(memory, SHOWN_MODES))


def _status(engine: Engine, memory: Memory, mode: str) -> RouteStatus:
    reasons = {direction: why_unavailable(engine, Way(direction, memory, mode)) for direction in DIRECTIONS}
    usable = tuple(direction for direction, reason in reasons.items() if reason is None)
    reason = "" if usable else reasons["h2d"] or ""
    return RouteStatus(f"raw.{memory}-{mode}", usable, memory, mode, bool(usable), reason)


def _modes_for(direction: str, memory: str, modes: Sequence[str]) -> list[str]:
    fitting = _applicable(memory, [_checked_mode(mode) for mode in modes]) or [AUTO]
    return [_automatic(direction, memory) if mode == AUTO else mode for mode in fitting]


def _applicable(memory: str, modes: Sequence[str]) -> list[str]:
    """The modes that can copy this kind of memory."""
    return [mode for mode in modes if memory == "pageable" or mode != STAGED]


def _automatic(direction: str, memory: str) -> Literal["memcpy", "async"]:
    """As most programs copy: cudaMemcpy for pageable memory, queued copies for page-locked memory."""
    return "memcpy" if memory == "pageable" and direction != "both" else "async"


def _checked_mode(mode: str) -> str:
    name, _, count = mode.partition(":")
    if name == "streams" and count.isascii() and count.isdigit() and 1 < int(count) <= MOST_STREAMS:
        return f"streams:{int(count)}"
    if mode in {AUTO, "memcpy", "async", "batch", STAGED}:
        return mode
    raise UsageError(
        f"Unknown mode {mode!r}. Known are auto, memcpy, async, batch, staged, and streams:N with N from 2 to "
        f"{MOST_STREAMS}."
    )


def _can_be_fresh(way: Way) -> bool:
    return way.memory == "pageable" and way.direction == "d2h"


def known_word(word: str, words: tuple[Word, ...], what: str) -> Word:
    """`word`, or a UsageError if it is not one of `words`."""
    for known in words:
        if known == word:
            return known
    raise UsageError(f"Unknown {what} {word!r}. Known are {', '.join(words)}.")


def _some(words: Sequence[str], what: str) -> Sequence[str]:
    if isinstance(words, str):
        return (words,)
    if not words:
        raise UsageError(f"No {what} was named; leave the option out for the default.")
    return words


DEFAULT_SIZES = "4KiB:256MiB:x4"
DEFAULT_BUDGET_S = 7.0
DEFAULT_PRECISION = 0.005


@dataclass(frozen=True)
class Request:
    """Ways, sizes and limits of a ceiling run."""

    device: str
    ways: tuple[Way, ...]
    sizes: tuple[int, ...]
    fresh: bool
    precision: float
    budget_s: float
    seed: int
    trace: bool = True
    explained: str = ""

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(self.sizes)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Every kind of memory that a way uses, without repetition."""
        return tuple(dict.fromkeys(way.memory for way in self.ways))

    def parameters(self) -> Parameters:
        """The parameters as the document stores them."""
        directions: tuple[Direction, ...] = tuple(dict.fromkeys(way.direction for way in self.ways))
        return Parameters(
            device=self.device,
            directions=directions,
            memories=self.memories,
            modes=tuple(dict.fromkeys(way.mode for way in self.ways)),
            sizes_bytes=self.sizes,
            fresh=self.fresh,
            precision=self.precision,
            budget_s=self.budget_s,
            seed=self.seed,
            min_rounds=MIN_ROUNDS,
            explained=self.explained,
        )


def make_request(
    device: int | str,
    directions: Sequence[str],
    memories: Sequence[str],
    modes: Sequence[str],
    sizes: str | Sequence[int],
    *,
    fresh: bool,
    precision: float,
    budget_s: float,
    seed: int | None,
    trace: bool = True,
    explained: str = "",
) -> Request:
    """Check the arguments and plan the ways.

    Raises:
        UsageError: names the first invalid argument, with a valid example.

    """
    return Request(
        device=str(device),
        ways=plan_ways(directions, memories, modes, fresh=fresh),
        sizes=checked_sizes(sizes),
        fresh=fresh,
        precision=between(precision, "precision", 1.0, "0.005 (0.5 %)"),
        budget_s=between(budget_s, "budget", 86400.0, "30 (seconds)"),
        seed=secrets.randbits(32) if seed is None else checked_seed(seed),
        trace=trace,
        explained=explained,
    )


def checked_sizes(sizes: str | Sequence[int]) -> tuple[int, ...]:
    """Sorted sizes in bytes from text or numbers, or a UsageError."""
    if isinstance(sizes, str):
        return parse_sizes(sizes)
    if not isinstance(sizes, Iterable):
        raise UsageError(f"Sizes are a sequence of numbers of bytes, or text such as {DEFAULT_SIZES!r}; got {sizes!r}.")
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    if not whole or len(whole) != len(sizes):
        raise UsageError(
            f"Sizes are whole numbers of bytes above zero, or text such as {DEFAULT_SIZES!r}; got {sizes!r}."
        )
    return tuple(sorted(set(whole)))


def between(value: float, what: str, most: float, example: str) -> float:
    """`value` as a float above zero and at most `most`, or a UsageError."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= most:
        raise UsageError(f"The {what} has to be above zero and at most {most:g}, for example {example}; got {value!r}.")
    return float(value)


def checked_seed(seed: int) -> int:
    """A seed that the document can store, or a UsageError."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise UsageError(f"The seed has to be a whole number from 0 to 2^63 - 1; got {seed!r}.")
    return seed
