"""Statistics of trials: medians with their intervals, rates, shares and fits of curves.

Medians throughout: transfer times have a long slow tail, which a mean would follow and a median does not.

Trials are not independent, so an interval depends on their order: see `pyxfer._document.intervals`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyxfer._document import intervals
from pyxfer._document.intervals import CONFIDENCE, MIN_TRIALS, RULE, Values, median_interval, middle
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Rate, Share, Summary
from pyxfer.errors import MeasurementError
from pyxfer.units import format_percent, format_size

MAX_CORRELATION = 0.9
ROUNDING = 1e-9


def summarise(seconds: Sequence[float]) -> Summary:
    """Median with its interval, quartiles, raw MAD and extremes of valid trials, given in the order they ran."""
    values = _checked(seconds, "trial")
    ordered = np.sort(values)
    median = middle(ordered)
    low, high = median_interval(values)
    return Summary(
        n=values.size,
        median_s=median,
        low_s=low,
        high_s=high,
        q1_s=_quartile(ordered, 0.25),
        q3_s=_quartile(ordered, 0.75),
        mad_s=middle(np.sort(np.abs(values - median))),
        min_s=float(ordered[0]),
        max_s=float(ordered[-1]),
        confidence=CONFIDENCE,
        rule=RULE,
    )


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the median of values in the order they were taken, relative to it; infinite for one value.

    It follows the values' own correlation. Unlike half of an interval it has no allowance for few values.
    """
    return intervals.standard_error(_checked(values, "trial"))


def _quartile(ordered: Values, share: float) -> float:
    """As np.quantile, which takes ten times as long."""
    before, rest = divmod(share * (ordered.size - 1), 1)
    low, high = ordered[int(before)], ordered[min(int(before) + 1, ordered.size - 1)]
    return float(low + (high - low) * rest)


def rate(nbytes: int, summary: Summary) -> Rate:
    if summary.median_s <= 0:
        raise MeasurementError(
            f"half of the {summary.n} trials took no time that the clock could see, so there is no bandwidth; "
            "time a larger size"
        )
    return Rate(
        gbps=nbytes / summary.median_s / 1e9,
        low_gbps=None if summary.high_s is None else nbytes / summary.high_s / 1e9,
        high_gbps=None if not summary.low_s else nbytes / summary.low_s / 1e9,
    )


def share_of_peak(rate: Fact[Rate], peak: Fact[float]) -> Fact[float]:
    if rate.value is None or not peak.value:
        return unknown(rate.reason or peak.reason or "")
    return Fact(rate.value.gbps / peak.value)


def ratio_share(numerators: Sequence[float], denominators: Sequence[float]) -> Share:
    """The median of per-round ratios with its interval; both sequences hold one value a round, in the same order.

    Of times, the reference's stand above: ceiling seconds over route seconds is the route's share of the ceiling.
    """
    if len(numerators) != len(denominators):
        raise MeasurementError(
            f"{len(numerators)} rounds cannot be set against {len(denominators)}; a ratio needs both in each round"
        )
    if any(value <= 0 for value in denominators):
        raise MeasurementError("a round took no time that the clock could see, so it has no ratio; time a larger size")
    ratios = _checked([above / below for above, below in zip(numerators, denominators, strict=True)], "round")
    low, high = median_interval(ratios)
    return Share(value=middle(np.sort(ratios)), low=low, high=high)


def trials_needed(summary: Summary, precision: float) -> int:
    """How many trials in all would bring the interval within the precision: its width shrinks with sqrt(n)."""
    half_width = summary.relative_half_width
    if half_width is None:
        return MIN_TRIALS
    return max(MIN_TRIALS, math.ceil(summary.n * (half_width / precision) ** 2))


def _checked(values: Sequence[float], what: str) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise MeasurementError(f"no valid {what} is left to say anything about")
    if not np.isfinite(array).all():
        raise MeasurementError(f"a {what} has a time that is not a finite number; its clock cannot be trusted")
    return array


def variance_inflation(*stretches: Values, detrended: bool = False) -> float:
    """How many correlated values are worth one independent value: (1 + r)/(1 - r), r being the lag-1 rank correlation.

    Differences between the stretches do not count, nor do trends within them if `detrended`. The estimate of r is
    corrected for its bias, which is downwards, and raised by its standard error.
    """
    products = squares = 0.0
    for values in stretches:
        ranks = mid_ranks(values)
        ranks -= ranks.mean()
        if detrended:
            line = np.arange(ranks.size) - (ranks.size - 1) / 2
            ranks -= line * (float(ranks @ line) / max(float(line @ line), 1.0))
        products += float(ranks[1:] @ ranks[:-1])
        squares += float(ranks @ ranks)
    n = sum(values.size for values in stretches)
    found = products / squares if squares > ROUNDING * n else 0.0
    bias = len(stretches) * (2 + 4 * max(found, 0.0) if detrended else 1 + 3 * max(found, 0.0)) / n
    correlation = found + bias + math.sqrt((1 - found**2) / n)
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def mid_ranks(values: Values) -> Values:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)


# --- curves -----------------------------------------------------------------------------------------------------------

MIN_SIZES = 3
MAX_MISFIT = 0.25
"""A line that misses a point by more does not describe the curve."""
MIN_LATENCY_SHARE = 0.1
MAX_SLOPE_ERROR = 0.1
NARROW = 0.005
"""The least error of a point: a line describes no copies more closely."""
_FIT_ROUNDS = 20


@dataclass(frozen=True)
class Fit:
    """`t = t0 + n/B` through the medians of a curve; each figure, or why the points do not give it.

    `worst_misfit`: how far the line is from the farthest median, as a share of it.
    """

    latency_s: Fact[float]
    asymptote_gbps: Fact[float]
    half_bytes: Fact[float]
    worst_misfit: Fact[float]


def fit_curve(points: Sequence[tuple[int, float, float]]) -> Fit:
    """Fixed cost and asymptote of (bytes, seconds, relative half-width of the seconds), by relative least squares.

    Relative, because times span five decades: in seconds the largest size alone would decide the fixed cost too.
    A figure is given only where the points determine it: see `_latency` and `_asymptote`.
    """
    distinct = len({nbytes for nbytes, _, _ in points})
    if distinct < MIN_SIZES:
        sizes_have = "1 size has" if distinct == 1 else f"{distinct} sizes have"
        return _no_fit(f"a curve needs {MIN_SIZES} sizes and {sizes_have} a result; measure more sizes")
    sizes, seconds, half_widths = np.asarray(points, dtype=np.float64).T
    if not (seconds > 0).all():
        return _no_fit("a size took no time that the clock could see; leave it out")
    weights = _weights(sizes, seconds, half_widths)
    latency, per_byte = _relative_least_squares(sizes, seconds, weights)
    if per_byte <= 0:
        return _no_fit("the time does not grow with the size; measure larger ones")
    misfits = np.abs(latency + per_byte * sizes - seconds) / seconds
    worst = float(misfits.max())
    if worst > MAX_MISFIT:
        where = format_size(float(sizes[misfits.argmax()]))
        reason = f"one line does not fit these times ({format_percent(worst)} off at {where}); read each size by itself"
        return replace(_no_fit(reason), worst_misfit=Fact(worst))
    latency_error, per_byte_error = _errors(sizes, seconds, half_widths, weights)
    latency_s = _latency(latency, latency_error, worst, float(seconds.min()))
    asymptote_gbps = _asymptote(latency / per_byte, per_byte, per_byte_error, float(sizes.max()))
    missing = latency_s.reason or asymptote_gbps.reason
    half_bytes: Fact[float] = unknown(missing) if missing else Fact(latency / per_byte)
    return Fit(latency_s, asymptote_gbps, half_bytes, Fact(worst))


def _weights(sizes: Values, seconds: Values, half_widths: Values) -> Values:
    """One over the error of each point: that of its median, and that of the line itself, which all points share.

    The second is what the misfits are beyond the intervals. Without it the sizes with the narrowest intervals would
    decide alone, and on a curve that no line describes (copies both ways) the large sizes would be 17 % off.
    """
    errors = np.maximum(half_widths / 2, NARROW)
    weights: Values = np.ones_like(errors)
    for _ in range(_FIT_ROUNDS):
        latency, per_byte = _relative_least_squares(sizes, seconds, weights)
        excess = ((latency + per_byte * sizes) / seconds - 1) ** 2 - errors**2
        of_line = max(0.0, float(np.average(excess, weights=weights**2))) * sizes.size / (sizes.size - 2)
        weights = errors.min() / np.sqrt(errors**2 + of_line)
    return weights


def _relative_least_squares(sizes: Values, seconds: Values, weights: Values) -> tuple[float, float]:
    """Seconds of fixed cost, not below zero, and seconds a byte."""
    columns = np.stack([weights / seconds, weights * sizes / seconds], axis=1)
    # The columns differ by nine decades; at equal length none is rounded away.
    lengths = np.linalg.norm(columns, axis=0)
    latency, per_byte = np.linalg.lstsq(columns / lengths, weights, rcond=None)[0] / lengths
    if latency < 0:
        return 0.0, float(columns[:, 1] @ weights / lengths[1] ** 2)
    return float(latency), float(per_byte)


def _errors(sizes: Values, seconds: Values, half_widths: Values, weights: Values) -> tuple[float, float]:
    """Half-widths of the fixed cost and of the seconds a byte, from those of the points, which are independent."""
    latency, per_byte = _relative_least_squares(sizes, seconds, weights)
    moved = [
        _relative_least_squares(sizes, np.where(sizes == size, seconds * (1 + half_width), seconds), weights)
        for size, half_width in zip(sizes, half_widths, strict=True)
    ]
    return math.hypot(*(one[0] - latency for one in moved)), math.hypot(*(one[1] - per_byte for one in moved))


def _latency(latency: float, error: float, worst_misfit: float, shortest_s: float) -> Fact[float]:
    """The fixed cost, unless it is a small part of even the shortest time, where noise tilts the line by as much."""
    if latency <= max(max(MIN_LATENCY_SHARE, worst_misfit) * shortest_s, error):
        return unknown("too small a part of even the shortest time to be determined; measure smaller sizes")
    return Fact(latency)


def _asymptote(half_bytes: float, per_byte: float, error: float, largest_bytes: float) -> Fact[float]:
    """The bandwidth of endless copies, unless no size reaches half of it: a guess that far out could beat the link."""
    if largest_bytes < half_bytes:
        return unknown("no size reaches half of it, so it would be a guess; measure larger sizes")
    if error > MAX_SLOPE_ERROR * per_byte:
        return unknown("the medians of the large sizes are not precise enough to determine it; give a longer budget")
    return Fact(1e-9 / per_byte)


def _no_fit(reason: str) -> Fit:
    return Fit(unknown(reason), unknown(reason), unknown(reason), unknown(reason))
