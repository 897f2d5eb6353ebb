"""Comparing two sides cell by cell; docs/baselines.md describes the method."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TypeVar

from pyxfer._baseline.causes import LOCKED, differences, with_causes
from pyxfer._baseline.cells import cell_text, is_of_links
from pyxfer._baseline.samples import (
    Sample,
    Series,
    check_comparable,
    collect,
    common,
    leave_out,
    no_common_cell_text,
    other_gpus,
    same_run,
)
from pyxfer._document.baselines import Cell, CellComparison, Comparison, Spread, Verdict
from pyxfer._document.runs import Fact, Remark, unknown
from pyxfer._document.wording import change_text
from pyxfer._measure.stats import quantile
from pyxfer.errors import UsageError
from pyxfer.units import format_percent

CONFIDENCE = 0.95
BORROWED_DF = 2
LEAST_SPREAD = 0.001
"""The spread of two processes is never assumed to be below this."""
LEAST_BETWEEN_SITTINGS = 0.0025
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
"""The same of links, by the kin of a cell. Eight processes of one H200 had standard deviations of 0.1 % in single
streams, 0.05 % inside the GPU and 0.2 % in latencies; of 1.7 % in streams beside each other, 0.9 % in small copies and
0.9 % in latencies under load. Those of several GPUs were not measured."""


def assumed_spread(kin: str, *, in_memory: bool) -> float:
    """The spread of one cell if each side is one process."""
    if in_memory:
        return ASSUMED_IN_MEMORY
    return ASSUMED_OF_LINKS.get(kin, ASSUMED_LOCKED if kin in LOCKED else ASSUMED)


def kin_of(cell: Cell) -> str:
    """The cells of one kin have about the same spread between processes: those of one memory, or like links."""
    if not is_of_links(cell):
        return cell.memory
    group, case = cell.route.partition(":")[0].split(".")[1:3]
    if group in _KINS:
        return _KINS[group]
    if group == "latency":
        return "latency" if case == "idle" else "loaded latency"
    if group == "together" or cell.side == "sum" or case.startswith("both"):
        return "streams"
    return "peer" if cell.direction == "peer" else "one stream"


_KINS = {"small": "small copies", "local": "one GPU"}


@dataclass(frozen=True)
class Pair:
    """One cell of both sides, or all cells together. `assumed` is the spread if each side is one process."""

    a: Series
    b: Series
    assumed: float

    @property
    def df(self) -> int:
        """The degrees of freedom of `variance`."""
        return self.a.df + self.b.df

    @cached_property
    def squares(self) -> float:
        return self.a.squares + self.b.squares

    @property
    def variance(self) -> float:
        """The variance between processes in this cell alone, pooled over both sides; `df` must not be 0."""
        return self.squares / self.df


def make_pair(a: Series, b: Series, assumed: float) -> Pair:
    """Both sides without their odd processes."""
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
        """Half the width of the interval."""
        return self.high - self.log_ratio


@dataclass(frozen=True)
class Error:
    """The logarithm of the ratio, its standard error and degrees of freedom, and the spread between processes.

    `least` is the smallest standard error that sittings may make; it is assumed, and so has no degrees of freedom.
    """

    log_ratio: float
    error: float
    df: float
    spread: float
    assumed: bool
    least: float

    def interval(self, tests: int) -> Estimate:
        """The interval at a confidence that holds for so many comparisons together."""
        p = 1 - (1 - CONFIDENCE) / 2 / tests
        half = max(quantile(p, self.df) * self.error, quantile(p, math.inf) * self.least)
        return Estimate(self.log_ratio, self.log_ratio - half, self.log_ratio + half, self.spread, self.assumed)


def estimate(pair: Pair, neighbours: Sequence[Pair], tests: int = 1) -> Estimate:
    """The ratio of one cell. `tests` is the number of comparisons that the interval is to hold for together."""
    return error_of(pair, neighbours).interval(tests)


def error_of(pair: Pair, neighbours: Sequence[Pair]) -> Error:
    """The ratio of one cell with its standard error."""
    borrowed = _borrowed(neighbours)
    assumed = pair.df == 0 and borrowed is None
    if assumed:
        variance, df = pair.assumed**2, math.inf
    else:
        variance, df = _combined(pair, borrowed)
    variance = max(variance, LEAST_SPREAD**2)
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
        least=0.0 if assumed else LEAST_BETWEEN_SITTINGS * math.sqrt(_share_of_sittings(pair)),
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
    combined = max(own, (df * own + BORROWED_DF * LEAST_BETWEEN_SITTINGS**2) / whole)
    return combined * _share_of_sittings(pair), whole


def _combined(pair: Pair, borrowed: float | None) -> tuple[float, float]:
    """The variance between processes and its degrees of freedom, from the cell and its neighbours."""
    if borrowed is None:
        return pair.variance, pair.df
    whole = pair.df + BORROWED_DF
    combined = (pair.squares + BORROWED_DF * borrowed) / whole
    return max(pair.variance, combined) if pair.df else combined, whole


def _borrowed(neighbours: Sequence[Pair]) -> float | None:
    """The median of the neighbours' variances, so that one noisy cell does not widen the others' intervals."""
    known = [pair.variance / _median_of_variance(pair.df) for pair in neighbours if pair.df > 0]
    return median(known) if known else None


def _median_of_variance(df: int) -> float:
    """The median of an estimated variance, the true one being 1 (Wilson and Hilferty)."""
    return (1 - 2 / (9 * df)) ** 3


DEFAULT_TOLERANCE = 0.03
Key = TypeVar("Key")
_FARTHEST = math.log(1e6)
_NOT_COMPARED = "it is not on both sides"
_HOST = Remark("host-memory", "Both sides were measured in host memory, not over a link: this describes no GPU.")


def compare_samples(
    a: Sample, b: Sample, tolerance: float = DEFAULT_TOLERANCE, looks: int = 1, *, is_last: bool = True
) -> Comparison:
    """Compare B with A. `looks` is the number of times that a check may compare; `is_last`: this is the last one.

    Raises:
        UsageError: the sides cannot be compared; the text says why.

    """
    if not isinstance(tolerance, (int, float)) or not 0 < tolerance < 1:
        raise UsageError(f"the tolerance must be between 0 and 1, and is {tolerance!r}; 0.03 is 3 %")
    check_comparable(a, b)
    of_a, of_b = collect(a.runs), collect(b.runs)
    cells = common(of_a, of_b)
    if not cells:
        raise UsageError(no_common_cell_text(a, b, of_a, of_b))
    in_memory = a.first.runtime == "host"
    assumed = {cell: assumed_spread(kin_of(cell), in_memory=in_memory) for cell in cells}
    pairs = {cell: make_pair(of_a[cell], of_b[cell], assumed[cell]) for cell in cells}
    errors = _errors(pairs)
    estimates = estimates_of(errors, tolerance, looks, is_last=is_last)
    losses = {cell: slow_limit(tolerance) + error.interval(len(cells)).half for cell, error in errors.items()}
    compared = [_row(cell, pairs[cell], found, tolerance, losses[cell]) for cell, found in estimates.items()]
    left_out = [_missing(cell, a, b, of_a, of_b) for cell in {**of_a, **of_b} if cell not in pairs]
    overall, overall_low, overall_high = map(_ratio, _overall(pairs))
    comparison = Comparison(
        a=a.name,
        b=b.name,
        tolerance=tolerance,
        verdict=_overall_verdict({row.verdict for row in compared}),
        differences=differences(a.runs, b.runs),
        cells=(*compared, *left_out),
        overall=overall,
        overall_low=overall_low,
        overall_high=overall_high,
        remarks=(*a.remarks(), *b.remarks(), *_remarks(a, b, list(estimates.values())), *_far_remarks(a, b, pairs)),
    )
    return with_causes(comparison, a.runs, b.runs)


def slow_limit(tolerance: float) -> float:
    """The logarithm of the ratio from which B has lost more than the tolerance of A's bandwidth."""
    return -math.log1p(-tolerance)


def verdict_of(found: Estimate, tolerance: float) -> Verdict:
    """The verdict of an interval. An assumed spread shows no difference: it may be smaller than the real one."""
    limit = slow_limit(tolerance)
    if -limit <= found.low and found.high <= limit:
        return "SAME"
    if found.low > limit and not found.assumed:
        return "SLOW"
    return "FAST" if found.high < -limit and not found.assumed else "AMBIGUOUS"


def certainly_slower(comparison: Comparison, share: float) -> tuple[CellComparison, ...]:
    """The cells whose whole interval is beyond a loss of that share of the bandwidth, by a measured spread."""
    limit = math.exp(slow_limit(share))
    return tuple(
        row for row in comparison.cells if row.low.value is not None and row.low.value > limit and not row.assumed
    )


def _errors(pairs: dict[Cell, Pair]) -> dict[Cell, Error]:
    """The ratio of each cell with its standard error; the neighbours of a cell are the others of its kin."""
    kins: dict[str, dict[Cell, Pair]] = {}
    for cell, pair in pairs.items():
        kins.setdefault(kin_of(cell), {})[cell] = pair
    return {
        cell: error_of(pair, [other for each, other in kins[kin_of(cell)].items() if each is not cell])
        for cell, pair in pairs.items()
    }


EARLY = 100
"""SLOW before the last look takes this fraction of the error, which leaves nearly all of it to the last look."""


def estimates_of(
    errors: dict[Key, Error], tolerance: float, looks: int, *, is_last: bool = True
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
    errors: dict[Key, Error], tolerance: float, wanted: tuple[Verdict, ...], looks: int
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


def _row(cell: Cell, pair: Pair, found: Estimate, tolerance: float, least_loss: float) -> CellComparison:
    verdict = verdict_of(found, tolerance)
    return CellComparison(
        cell=cell,
        text=cell_text(cell),
        verdict=verdict,
        ratio=_ratio(found.log_ratio),
        low=_ratio(found.low),
        high=_ratio(found.high),
        a_gbps=_gbps(pair.a),
        b_gbps=_gbps(pair.b),
        a_processes=pair.a.n,
        b_processes=pair.b.n,
        why=_why(verdict, pair, found, tolerance),
        assumed=found.assumed,
        least_loss=None if found.assumed else -math.expm1(-least_loss),
        a_s=Fact(math.exp(pair.a.mean_log)),
        b_s=Fact(math.exp(pair.b.mean_log)),
    )


def _ratio(log: float) -> Fact[float]:
    """The ratio, limited: the interval of very different processes can exceed the range of a float."""
    return Fact(math.exp(min(max(log, -_FARTHEST), _FARTHEST)))


def _why(verdict: Verdict, pair: Pair, found: Estimate, tolerance: float) -> str:
    limit = format_percent(tolerance)
    spread = f"by about {format_percent(found.spread)}"
    if found.assumed and verdict == "SAME":
        return f"within {limit} either way if processes differ {spread}, which is assumed"
    if found.assumed:
        return (
            f"{change_text(found.log_ratio)}, of one process on each side: processes are assumed to differ {spread}, "
            "which shows no loss; measure several processes of each side"
        )
    if verdict == "SAME":
        return f"within {limit} either way{_source(pair)}"
    if verdict == "AMBIGUOUS":
        reach = f"anything from {change_text(found.low)} to {change_text(found.high)}"
        return f"{reach}: processes differ {spread}{_source(pair)}"
    surest = found.low if verdict == "SLOW" else found.high
    return f"at least {change_text(surest)}, which is beyond {limit}{_source(pair)}"


def _source(pair: Pair) -> str:
    """The side that the spread comes from, if it is only one."""
    if pair.a.n == 1 and pair.b.n > 1:
        return " (A is one process; the spread is B's)"
    return " (B is one process; the spread is A's)" if pair.b.n == 1 and pair.a.n > 1 else ""


def _missing(cell: Cell, a: Sample, b: Sample, of_a: dict[Cell, Series], of_b: dict[Cell, Series]) -> CellComparison:
    why = "; ".join(
        _why_missing(name, side.get(cell)) for name, side in ((a.name, of_a), (b.name, of_b)) if _lacks(side, cell)
    )
    nothing: Fact[float] = unknown(_NOT_COMPARED)
    one, other = of_a.get(cell), of_b.get(cell)
    return CellComparison(
        cell=cell,
        text=cell_text(cell),
        verdict="AMBIGUOUS",
        ratio=nothing,
        low=nothing,
        high=nothing,
        a_gbps=_gbps(one),
        b_gbps=_gbps(other),
        a_processes=one.n if one else 0,
        b_processes=other.n if other else 0,
        why=f"not compared: {why}",
        a_s=_seconds(one),
        b_s=_seconds(other),
    )


def _lacks(side: dict[Cell, Series], cell: Cell) -> bool:
    return cell not in side or side[cell].n == 0


def _why_missing(name: str, series: Series | None) -> str:
    return f"{name} did not measure it" if series is None else f"{name} has no time of it ({series.missing})"


def _seconds(series: Series | None) -> Fact[float]:
    if series is None:
        return unknown("it was not measured")
    return Fact(math.exp(series.mean_log)) if series.n else unknown(series.missing)


def _gbps(series: Series | None) -> Fact[float]:
    if series is None:
        return unknown("it was not measured")
    return unknown(series.missing) if series.gbps is None else Fact(series.gbps)


# --- the whole -------------------------------------------------------------------------------------------------------


def _overall_verdict(found: set[Verdict]) -> Verdict:
    if "SLOW" in found:
        return "SLOW"
    if "AMBIGUOUS" in found:
        return "AMBIGUOUS"
    return "FAST" if "FAST" in found else "SAME"


def _overall(pairs: dict[Cell, Pair]) -> tuple[float, float, float]:
    """The mean of the logarithms of the ratios, and its interval.

    A deviation of all cells of one process counts once, not once a cell.
    """
    a, b = (_mean_series([getattr(pair, side) for pair in pairs.values()]) for side in ("a", "b"))
    if a.n and b.n:
        whole = estimate(make_pair(a, b, sum(pair.assumed for pair in pairs.values()) / len(pairs)), ())
        return whole.log_ratio, whole.low, whole.high
    # On one side no process has all cells: the mean of the ratios and the intervals of the cells.
    found = [estimate(pair, ()) for pair in pairs.values()]
    mean = sum(cell.log_ratio for cell in found) / len(found)
    half = math.sqrt(sum(cell.half**2 for cell in found)) / len(found)
    return mean, mean - half, mean + half


def _mean_series(cells: Sequence[Series]) -> Series:
    """The geometric mean of all cells, in each process that has all of them."""
    complete = sorted(set.intersection(*(set(cell.processes) for cell in cells)))
    means = [sum(cell.logs[cell.processes.index(process)] for cell in cells) / len(cells) for process in complete]
    nothing = (None,) * len(complete)
    first = cells[0]
    sittings = tuple(first.sittings[first.processes.index(process)] for process in complete)
    return Series(Spread(tuple(map(math.exp, means)), nothing, nothing), tuple(complete), sittings, 0)


def _far_remarks(a: Sample, b: Sample, pairs: dict[Cell, Pair]) -> list[Remark]:
    """The processes that were left out."""
    found = []
    for side, all_of_side in ((a, [pair.a for pair in pairs.values()]), (b, [pair.b for pair in pairs.values()])):
        cells = sum(bool(series.left_out) for series in all_of_side)
        out = {each.processes[place] for each in all_of_side for place in each.left_out}
        if out:
            which = ", ".join(str(process + 1) for process in sorted(out))
            text = (
                f"Process {which} of {side.name} is far from the others in {cells} of {len(pairs)} cells, and left out."
            )
            found.append(Remark("left-out", text, "see what else ran on the host at that time"))
    return found


def _remarks(a: Sample, b: Sample, estimates: Sequence[Estimate]) -> list[Remark]:
    found = []
    if a.first.runtime == "host":
        found.append(_HOST)
    if same_run(a, b):
        found.append(Remark("same-run", "One run is on both sides, and is compared with itself."))
    if other_gpus(a, b):
        found.append(Remark("other-gpu", f"{a.name} and {b.name} are of two different GPUs of one model."))
    if any(cell.assumed for cell in estimates):
        spread = format_percent(max(cell.spread for cell in estimates if cell.assumed))
        found.append(
            Remark(
                "one-process",
                "Each side is one process, so the spread between processes of this host was not measured; up to "
                f"{spread} is assumed, and no cell is called SLOW or FAST.",
                "compare several runs of each side, or baselines of three processes or more: pyxfer baseline save",
            )
        )
    return found
