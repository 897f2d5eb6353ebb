"""The raw routes: which memory, which mode, which direction, and whether they are to be had here."""

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
    """One way for bytes to go: a direction of a raw route."""

    direction: Direction
    memory: Memory
    mode: str
    variant: Variant = "warm"

    @property
    def route(self) -> str:
        """The route's name, `owner.name`."""
        return f"raw.{self.memory}-{self.mode}"

    @property
    def key(self) -> str:
        """Tells it apart among the ways of one size."""
        return f"{self.route} {self.direction} {self.variant}"

    @property
    def streams(self) -> int:
        """How many streams it keeps busy."""
        if self.direction == "both":
            return 2
        return int(self.mode.partition(":")[2]) if self.mode.startswith("streams:") else 1

    @property
    def page_locked(self) -> bool:
        """Whether the copy engine reads the memory itself; only then can a window be queued behind a gate."""
        return self.memory != "pageable"

    @property
    def staged(self) -> bool:
        """Whether it goes through a ring, which is pyxfer's and not the driver's."""
        return self.mode == STAGED

    @property
    def met(self) -> Memory:
        """The memory that the copy engine has to meet: of a staged copy the ring's slots."""
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
    """Every combination that was asked for, `auto` resolved, fresh variants behind the warm ones.

    Only pageable memory is staged. Other memory that is asked for beside it has the other modes, or `auto` where there
    is none: a staged copy is held against it.

    Raises:
        UsageError: a word that is not known, staged copies of page-locked memory alone, or a fresh variant where there
            is none.

    """
    asked = _some(modes, "mode")
    ways = [
        Way(known_word(direction, DIRECTIONS, "direction"), known_word(memory, MEMORIES, "memory"), mode)
        for direction in _some(directions, "direction")
        for memory in _some(memories, "memory")
        for mode in _modes_for(direction, memory, asked)
    ]
    if STAGED in asked and not any(way.staged for way in ways):
        raise UsageError(
            f"--mode {STAGED} sends pageable memory through page-locked memory of its own, and what was asked for is "
            f"page-locked already: add --memory pageable."
        )
    if not fresh:
        return tuple(dict.fromkeys(ways))
    fresh_ways = [Way(way.direction, way.memory, way.mode, "fresh") for way in ways if _can_be_fresh(way)]
    if not fresh_ways:
        raise UsageError(
            "--fresh times the first touch of a pageable destination, and nothing asked for has one: "
            "add --direction d2h --memory pageable."
        )
    return tuple(dict.fromkeys([*ways, *fresh_ways]))


def why_not(engine: Engine, way: Way) -> str | None:
    """Why this way cannot be had here; None where it can."""
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
    """Every raw route, and for each what it can do here or why it cannot."""
    return tuple(_status(engine, memory, mode) for memory in MEMORIES for mode in _applicable(memory, SHOWN_MODES))


def _status(engine: Engine, memory: Memory, mode: str) -> RouteStatus:
    reasons = {direction: why_not(engine, Way(direction, memory, mode)) for direction in DIRECTIONS}
    usable = tuple(direction for direction, reason in reasons.items() if reason is None)
    reason = "" if usable else reasons["h2d"] or ""
    return RouteStatus(f"raw.{memory}-{mode}", usable, memory, mode, bool(usable), reason)


def _modes_for(direction: str, memory: str, modes: Sequence[str]) -> list[str]:
    fitting = _applicable(memory, [_checked_mode(mode) for mode in modes]) or [AUTO]
    return [_automatic(direction, memory) if mode == AUTO else mode for mode in fitting]


def _applicable(memory: str, modes: Sequence[str]) -> list[str]:
    """Those that copy this kind of memory."""
    return [mode for mode in modes if memory == "pageable" or mode != STAGED]


def _automatic(direction: str, memory: str) -> Literal["memcpy", "async"]:
    """What a program would use: cudaMemcpy for ordinary memory, queued copies for page-locked memory."""
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
    """The word itself, if it is one of these; else a UsageError that names them."""
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
        """Every kind of memory that a way uses, once."""
        return tuple(dict.fromkeys(way.memory for way in self.ways))

    def parameters(self) -> Parameters:
        """As the document keeps it."""
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
    """Check every word and number.

    Raises:
        UsageError: says which one cannot be, and gives a right example.

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
    """Sorted sizes from text or numbers, or a UsageError that says what is wrong with them."""
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
    """A number above zero and at most `most`, or a UsageError that says so."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= most:
        raise UsageError(f"The {what} has to be above zero and at most {most:g}, for example {example}; got {value!r}.")
    return float(value)


def checked_seed(seed: int) -> int:
    """A seed as the document can keep it, or a UsageError."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise UsageError(f"The seed has to be a whole number from 0 to 2^63 - 1; got {seed!r}.")
    return seed
