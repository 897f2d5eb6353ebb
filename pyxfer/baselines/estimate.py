"""How much longer B takes than A in one cell, and how sure that is: docs/baselines.md has it in words.

Everything is in logarithms of seconds. Few processes say little of how far processes lie apart, so a cell borrows from
its neighbours, the other cells of the same kind of memory: what they say counts as `BORROWED_DF` degrees of freedom.
It never makes a cell surer of its spread than its own processes are. Simulations in the tests chose these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from pyxfer.baselines.case import LOCKED
from pyxfer.baselines.spread import Series
from pyxfer.baselines.student import quantile

CONFIDENCE = 0.95
BORROWED_DF = 2
LEAST_SPREAD = 0.001
"""No two processes are believed to agree better than this, whatever few of them say."""
ASSUMED_LOCKED, ASSUMED, ASSUMED_SMALL = 0.005, 0.04, 0.1
"""Where one process stands against one: what lay between fresh processes on H200 hosts (bench/results). Page-locked
memory, other memory, and small copies of that, which the processors' caches and clocks decide."""
ASSUMED_IN_MEMORY = 0.2
"""Of copies that never leave the host, which are as fast as whatever else runs there lets them be."""
_SMALL_BYTES = 256 * 1024


def assumed_spread(memory: str, nbytes: int, *, in_memory: bool = False) -> float:
    """How far processes are taken to lie apart in one cell."""
    if in_memory:
        return ASSUMED_IN_MEMORY
    if memory in LOCKED:
        return ASSUMED_LOCKED
    return ASSUMED_SMALL if nbytes < _SMALL_BYTES else ASSUMED


@dataclass(frozen=True)
class Pair:
    """One cell that both sides have, or all of them together."""

    a: Series
    b: Series
    assumed: float
    """How far processes are taken to lie apart, where nothing says so."""

    @property
    def df(self) -> int:
        """What the processes of both sides leave to say how far processes lie apart."""
        return self.a.n + self.b.n - 2

    @cached_property
    def variance(self) -> float:
        """The variance between processes by this cell alone, pooled over both sides; `df` must not be nought."""
        return (self.a.squares + self.b.squares) / self.df


@dataclass(frozen=True)
class Estimate:
    """The logarithm of the ratio with its interval. `spread`: how far processes lie apart; `assumed`: not measured."""

    log_ratio: float
    low: float
    high: float
    spread: float
    assumed: bool = False


def estimate(pair: Pair, neighbours: Sequence[Pair], tests: int = 1) -> Estimate:
    """The ratio of one cell; `tests`: how many cells there are, so that no table cries wolf by its length."""
    borrowed = _borrowed(neighbours)
    assumed = pair.df == 0 and borrowed is None
    if assumed:
        variance, df = pair.assumed**2, math.inf
    else:
        variance, df = _combined(pair, borrowed)
    variance = max(variance, LEAST_SPREAD**2)
    inside = pair.a.variance_inside + pair.b.variance_inside
    between = variance * (1 / pair.a.n + 1 / pair.b.n)
    error = math.sqrt(between + inside if assumed else max(between, inside))
    half = quantile(1 - (1 - CONFIDENCE) / 2 / max(tests, 1), df) * error
    log_ratio = pair.b.mean_log - pair.a.mean_log
    return Estimate(log_ratio, log_ratio - half, log_ratio + half, math.sqrt(variance), assumed)


def _combined(pair: Pair, borrowed: float | None) -> tuple[float, float]:
    """The variance between processes and its degrees of freedom, by the cell itself and by its neighbours."""
    own = pair.variance if pair.df else 0.0
    if borrowed is None:
        return own, pair.df
    whole = pair.df + BORROWED_DF
    return max(own, (pair.df * own + BORROWED_DF * borrowed) / whole), whole


def _borrowed(neighbours: Sequence[Pair]) -> float | None:
    """What the neighbours' variances have in their middle: one wild cell makes no other doubtful."""
    known = [pair.variance / _median_of_variance(pair.df) for pair in neighbours if pair.df > 0]
    return median(known) if known else None


def _median_of_variance(df: int) -> float:
    """The median of an estimated variance, the true one being 1 (Wilson and Hilferty)."""
    return (1 - 2 / (9 * df)) ** 3
