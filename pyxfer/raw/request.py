"""What was asked for, read and checked before anything is touched."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyxfer.errors import UsageError
from pyxfer.model import Direction, Memory, Parameters
from pyxfer.raw.ways import Way, plan_ways
from pyxfer.sampling.rounds import MIN_ROUNDS
from pyxfer.units import parse_sizes

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
