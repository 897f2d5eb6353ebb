"""Judging cells: from the samples of both sides to ratios, intervals, verdicts and the loss that would be found.

Nothing here reads a document or measures; docs/baselines.md describes the method.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist, median
from typing import TypeVar

from pyxfer._baseline.causes import LOCKED
from pyxfer._baseline.samples import Series, common, leave_out
from pyxfer._document.baselines import Verdict
from pyxfer._document.cells import IDLE, Cell
from pyxfer._document.intervals import CONFIDENCE, quantile

Key = TypeVar("Key")

BORROWED_DF = 2
MIN_SPREAD = 0.001
"""The spread of two processes is never assumed to be below this."""
MIN_BETWEEN_SITTINGS = 0.0025
"""The same of two sittings: the level of a host differs from day to day."""
ASSUMED_LOCKED, ASSUMED = 0.005, 0.12
"""The spread if each side is one process, of page-locked and of other memory: at least the largest between fresh
processes on H200 hosts (bench/results/compare_*_three.json.gz: up to 0.4 % and 11.2 %)."""
ASSUMED_IN_MEMORY = 0.2
"""The same of copies within the host, which depend on what else runs there."""


ASSUMED_OF_LINKS = {
    **dict.fromkeys(("one stream", "one GPU", "latency"), 0.005),
    **dict.fromkeys(("peer", "streams", "small copies", "loaded latency"), 0.02),
}
"""The same of links, by the class of a cell. Eight processes of one H200 had standard deviations of 0.1 % in single
streams, 0.05 % inside the GPU and 0.2 % in latencies; of 1.7 % in streams beside each other, 0.9 % in small copies and
0.9 % in latencies under load. Those of several GPUs were not measured."""


def assumed_spread(of_class: str, *, in_memory: bool) -> float:
    if in_memory:
        return ASSUMED_IN_MEMORY
    return ASSUMED_OF_LINKS.get(of_class, ASSUMED_LOCKED if of_class in LOCKED else ASSUMED)


def noise_class(cell: Cell) -> str:
    """Cells of one class have about the same spread between processes: those of one memory, or like links."""
    if not cell.is_of_links:
        return cell.memory
    if cell.group in _CLASSES:
        return _CLASSES[cell.group]
    if cell.group == "latency":
        return "latency" if cell.case == IDLE else "loaded latency"
    if cell.group == "together" or cell.side == "sum":
        return "streams"
    return "peer" if cell.direction == "peer" else "one stream"


_CLASSES = {"small": "small copies", "local": "one GPU"}


@dataclass(frozen=True)
class Pair:
    """One cell of both sides, or all cells together. `assumed` is the spread if each side is one process."""

    a: Series
    b: Series
    assumed: float

    @property
    def df(self) -> int:
        return self.a.df + self.b.df

    @cached_property
    def squares(self) -> float:
        return self.a.squares + self.b.squares

    @property
    def variance(self) -> float:
        """The variance between processes in this cell alone, pooled over both sides; `df` must not be 0."""
        return self.squares / self.df


def make_pair(a: Series, b: Series, assumed: float) -> Pair:
    return Pair(*leave_out(a, b), assumed)


@dataclass(frozen=True)
class Estimate:
    """The logarithm of the ratio, its interval, and the spread between processes, which may be assumed."""

    log_ratio: float
    low: float
    high: float
    spread: float
    assumed: bool

    @property
    def half(self) -> float:
        return self.high - self.log_ratio


@dataclass(frozen=True)
class Error:
    """The logarithm of the ratio, its standard error and degrees of freedom, and the spread between processes.

    `least` is the smallest standard error that sittings may make; it is assumed, and so has no degrees of freedom.
    `of_sittings` is the part of `error` that is between sittings.
    """

    log_ratio: float
    error: float
    df: float
    spread: float
    assumed: bool
    least: float
    of_sittings: float = 0.0

    def interval(self, tests: int) -> Estimate:
        """The interval at a confidence that holds for this many comparisons together."""
        p = 1 - (1 - CONFIDENCE) / 2 / tests
        half = max(quantile(p, self.df) * self.error, quantile(p, math.inf) * self.least)
        return Estimate(self.log_ratio, self.log_ratio - half, self.log_ratio + half, self.spread, self.assumed)


def estimate(pair: Pair, neighbours: Sequence[Pair], tests: int = 1) -> Estimate:
    """The ratio of one cell. `tests` is the number of comparisons that the interval is to hold for together."""
    return error_of(pair, neighbours).interval(tests)


def error_of(pair: Pair, neighbours: Sequence[Pair]) -> Error:
    # The median of the neighbours' variances, so that one noisy cell does not widen the others' intervals. That of an
    # estimated variance is that much below the true one (Wilson and Hilferty).
    known = [other.variance / (1 - 2 / (9 * other.df)) ** 3 for other in neighbours if other.df > 0]
    borrowed = median(known) if known else None
    assumed = pair.df == 0 and borrowed is None
    if assumed:
        variance, df = pair.assumed**2, math.inf
    else:
        variance, df = _combined(pair, borrowed)
    variance = max(variance, MIN_SPREAD**2)
    inside = pair.a.variance_inside + pair.b.variance_inside
    between = variance * (pair.a.weight + pair.b.weight)
    between = between + inside if assumed else max(between, inside)
    of_sittings, sittings_df = (0.0, math.inf) if assumed else _between_sittings(pair, variance)
    # Welch and Satterthwaite: the degrees of freedom of a sum of two estimated variances. Never more than those of the
    # processes, whose variance may be small by chance.
    doubt = between**2 / df + of_sittings**2 / sittings_df
    whole = between + of_sittings
    return Error(
        log_ratio=pair.b.mean_log - pair.a.mean_log,
        error=math.sqrt(whole),
        df=min(df, whole**2 / doubt) if doubt else df,
        spread=math.sqrt(variance),
        assumed=assumed,
        least=0.0 if assumed else MIN_BETWEEN_SITTINGS * math.sqrt(_share_of_sittings(pair)),
        of_sittings=math.sqrt(of_sittings),
    )


def _share_of_sittings(pair: Pair) -> float:
    """The variance of the ratio if the variance between sittings is 1."""
    return 1 / len(pair.a.means) + 1 / len(pair.b.means)


def _between_sittings(pair: Pair, variance: float) -> tuple[float, float]:
    """The part of the ratio's variance that is between sittings, and its degrees of freedom; 0 if none is measured.

    The means of sittings also differ by the variance between processes, which is subtracted.
    """
    sides = pair.a, pair.b
    df = sum(len(side.means) - 1 for side in sides)
    if df == 0:
        return 0.0, math.inf
    squares = sum((mean - side.mean_log) ** 2 for side in sides for mean in side.means)
    by_processes = variance * sum((len(side.means) - 1) * len(side.means) * side.weight for side in sides)
    own, whole = max(0.0, squares - by_processes) / df, df + BORROWED_DF
    combined = max(own, (df * own + BORROWED_DF * MIN_BETWEEN_SITTINGS**2) / whole)
    return combined * _share_of_sittings(pair), whole


def _combined(pair: Pair, borrowed: float | None) -> tuple[float, float]:
    if borrowed is None:
        return pair.variance, pair.df
    whole = pair.df + BORROWED_DF
    combined = (pair.squares + BORROWED_DF * borrowed) / whole
    return max(pair.variance, combined) if pair.df else combined, whole


DEFAULT_TOLERANCE = 0.03
LESS_CERTAIN = 3.0
"""An assumed spread may be this much smaller than the real one."""
ODD = -math.log1p(-0.35)
"""One process alone may be 30 % slow for reasons of its own. So one against one shows no smaller loss."""


def slow_limit(tolerance: float) -> float:
    """The logarithm of the ratio from which B has lost more than the tolerance of A's bandwidth."""
    return -math.log1p(-tolerance)


def verdict_of(found: Estimate, tolerance: float) -> Verdict:
    limit = slow_limit(tolerance)
    if -limit <= found.low and found.high <= limit:
        return "SAME"
    if is_slower(found, tolerance):
        return "SLOW"
    return "FAST" if is_slower(replace(found, log_ratio=-found.log_ratio, low=-found.high), tolerance) else "AMBIGUOUS"


def overall_verdict(found: set[Verdict]) -> Verdict:
    worst: tuple[Verdict, ...] = ("SLOW", "AMBIGUOUS", "FAST")
    return next((verdict for verdict in worst if verdict in found), "SAME")


def is_slower(found: Estimate, share: float) -> bool:
    """Whether the whole interval is beyond a loss of this share of the bandwidth.

    Of an assumed spread, an interval `LESS_CERTAIN` times as wide has to be beyond it and beyond `ODD`.
    """
    limit = slow_limit(share)
    if not found.assumed:
        return found.low > limit
    return found.log_ratio - LESS_CERTAIN * (found.log_ratio - found.low) > max(limit, ODD)


EARLY = 100
"""SLOW before the last look takes this fraction of the error, which leaves nearly all of it to the last look."""


def estimates_of(
    errors: Mapping[Key, Error], tolerance: float, looks: int, *, is_last: bool = True
) -> dict[Key, Estimate]:
    """The intervals of all cells, widened until their verdicts hold together.

    A check ends at any look with SAME or FAST, which are widened for the number of looks. SLOW is widened much before
    the last look, and not at all there.
    """
    slow = _stepped(errors, tolerance, ("SLOW",), 1 if is_last else EARLY)
    others = _stepped(errors, tolerance, ("SAME", "FAST"), looks)
    widest = len(errors) * looks
    return {cell: slow.get(cell) or others.get(cell) or error.interval(widest) for cell, error in errors.items()}


def _stepped(
    errors: Mapping[Key, Error], tolerance: float, wanted: tuple[Verdict, ...], looks: int
) -> dict[Key, Estimate]:
    """The cells with these verdicts by Hochberg's procedure: all at one comparison, or all but one at two, and so on.

    If all processes of a side differ alike in all cells, as many cells do not need wider intervals than one.
    """
    count = len(errors)
    most = {cell: _most_tests(error, count, tolerance, wanted, looks) for cell, error in errors.items()}
    for tests in range(1, count + 1):
        found = [cell for cell, number in most.items() if number >= tests]
        if len(found) > count - tests:
            return {cell: errors[cell].interval(tests * looks) for cell in found}
    return {}


def _most_tests(error: Error, count: int, tolerance: float, wanted: tuple[Verdict, ...], looks: int) -> int:
    """The largest number of comparisons, up to `count`, at which the cell has one of these verdicts."""

    def is_lost(tests: int) -> bool:
        return verdict_of(error.interval(tests * looks), tolerance) not in wanted

    return bisect_left(range(1, count + 1), True, key=is_lost)


# --- one look of a check, or a comparison ----------------------------------------------------------------------------

CONFIRMING_SHARE = 0.7
"""The share of the processes of a check that must be beyond the tolerance, each by itself."""
MIN_TO_END = 8
"""The processes that confirm a loss before the last look."""


@dataclass(frozen=True)
class Plan:
    """The looks of a check, which may measure up to this many processes; a comparison of what is there has one.

    `is_last`: this look is the last one, also if the check was interrupted.
    """

    processes: int | None = None
    is_last: bool = True

    @property
    def looks(self) -> int:
        """After 1, 2, 4, ... processes, and after the last."""
        return 1 if self.processes is None else 1 + (self.processes - 1).bit_length()


COMPARISON = Plan()


@dataclass(frozen=True)
class Judged:
    """One cell at one look. `confirmed`: SLOW, and most single processes of the check are slow by themselves.

    `least_loss`: the share of its bandwidth that is found in `POWER` of the cases if this cell alone has lost it.
    """

    pair: Pair
    found: Estimate
    verdict: Verdict
    confirmed: bool
    least_loss: float | None


def judge(
    of_a: Mapping[Cell, Series],
    of_b: Mapping[Cell, Series],
    tolerance: float = DEFAULT_TOLERANCE,
    plan: Plan = COMPARISON,
    *,
    in_memory: bool = False,
) -> dict[Cell, Judged]:
    pairs = {
        cell: make_pair(of_a[cell], of_b[cell], assumed_spread(noise_class(cell), in_memory=in_memory))
        for cell in common(of_a, of_b)
    }
    # The ratio of each cell with its standard error; the neighbours of a cell are the others of its class.
    classes: dict[str, dict[Cell, Pair]] = {}
    for cell, pair in pairs.items():
        classes.setdefault(noise_class(cell), {})[cell] = pair
    errors = {
        cell: error_of(pair, [other for each, other in classes[noise_class(cell)].items() if each is not cell])
        for cell, pair in pairs.items()
    }
    estimates = estimates_of(errors, tolerance, plan.looks, is_last=plan.is_last)
    return {
        cell: _judged(pair, errors[cell], estimates[cell], tolerance, plan, len(pairs)) for cell, pair in pairs.items()
    }


def _judged(pair: Pair, error: Error, found: Estimate, tolerance: float, plan: Plan, cells: int) -> Judged:
    verdict = verdict_of(found, tolerance)
    return Judged(
        pair,
        found,
        verdict,
        confirmed=plan.processes is not None and verdict == "SLOW" and _most_slower(pair, slow_limit(tolerance)),
        least_loss=None if error.assumed else -math.expm1(-least_log(pair, error, tolerance, plan, cells)),
    )


def _most_slower(pair: Pair, limit: float) -> bool:
    """Whether most processes of B, with those that are left out, are slower than A by more than the limit."""
    return sum(log - pair.a.mean_log > limit for log in pair.b.logs) >= CONFIRMING_SHARE * pair.b.n


def is_look(processes: int) -> bool:
    """Whether a check compares after this many processes, before the last."""
    return not processes & (processes - 1)


def is_settled(cells: Iterable[tuple[Verdict, bool]], processes: int) -> bool:
    """Whether a check of this many processes may end: each cell, as verdict and confirmation, is decided."""
    return all(verdict in ("SAME", "FAST") or (confirmed and processes >= MIN_TO_END) for verdict, confirmed in cells)


POWER = 0.95


def least_log(pair: Pair, error: Error, tolerance: float, plan: Plan, cells: int) -> float:
    """The logarithm of the ratio that is found in `POWER` of the cases if this cell alone has it.

    At the last look of a check B has all the processes that the check may measure. Two conditions have to hold: the
    estimate of the ratio is beyond the limit by half an interval, and as many single processes as confirm a loss are
    beyond it. Each of them may fail in half of the other cases. The spread is an estimate, and so is the half interval.
    """
    processes = pair.b.n if plan.processes is None else plan.processes
    weight = pair.b.weight if plan.processes is None else 1 / processes
    inside = pair.a.variance_inside + pair.b.variance_inside / pair.b.weight * weight
    between = math.sqrt(max(error.spread**2 * (pair.a.weight + weight), inside))
    own = math.hypot(between, error.of_sittings)
    t, z = (quantile(1 - (1 - CONFIDENCE) / 2 / cells, df) for df in (error.df + processes - pair.b.n, math.inf))
    # If the real spread is larger, so is the half interval: t times an error of 1 / sqrt(2 df) of the estimate.
    # Without the borrowed degrees: if all cells of a process differ alike, the neighbours add nothing.
    own_df = max(error.df - BORROWED_DF, 1)
    sure = quantile((1 + POWER) / 2, own_df) * math.sqrt(1 + t**2 / 2 / error.df)
    level = max(sure * error.of_sittings, quantile((1 + POWER) / 2, math.inf) * error.least)
    least = max(t * own, z * error.least) + math.hypot(sure * between, level)
    if plan.processes is not None:
        at, variance = _slowest_of_most(processes)
        single = error.spread * math.sqrt(pair.a.weight + variance)
        least = max(least, math.hypot(sure * single, level) - at * error.spread)
    return slow_limit(tolerance) + least


def _slowest_of_most(processes: int) -> tuple[float, float]:
    """The mean and the variance of the fastest of the slow processes that confirm a loss, of normal values.

    It is an order statistic: Blom's formula and the asymptotic variance.
    """
    place = processes - math.ceil(CONFIRMING_SHARE * processes) + 1
    share = (place - 0.375) / (processes + 0.25)
    at = NormalDist().inv_cdf(share)
    return at, share * (1 - share) / processes / NormalDist().pdf(at) ** 2
