"""Statistics of trials: medians with their intervals, rates, shares and fits of curves.

Medians throughout: transfer times have a long slow tail, which a mean would follow and a median does not.

Trials are not independent: neighbours resemble each other, and the level of a host shifts slowly. So an interval
depends on the order of the trials. docs/measuring.md has the rule and how often it covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.runs import Fact, Rate, Share, Summary, unknown
from pyxfer.errors import MeasurementError
from pyxfer.units import format_percent, format_size

Values = NDArray[np.float64]

CONFIDENCE = 0.95
MIN_TRIALS = 6
"""Below this no interval of the median exists at 95 %: 1 - 2/2^5 is 93.75 %."""

BLOCKS = 6
"""The medians of six independent stretches enclose the true median in 1 - 2/2^6 = 97 % of cases."""
ALLOWANCE = 1.8
"""How much wider than what the trials show an interval is, for levels that shift more slowly than they can show.

Chosen so that intervals of parts of the committed series hold the median of the rest (bench/interval_coverage.py).
"""
MAX_CORRELATION = 0.9
ROUNDING = 1e-9


def summarise(seconds: Sequence[float]) -> Summary:
    """Median with its interval, quartiles, raw MAD and extremes of valid trials, given in the order they ran."""
    values = _checked(seconds, "trial")
    median = _median(values)
    low, high = _median_interval(values)
    q1, q3 = (float(q) for q in np.quantile(values, (0.25, 0.75)))
    return Summary(
        n=values.size,
        median_s=median,
        low_s=low,
        high_s=high,
        q1_s=q1,
        q3_s=q3,
        mad_s=_median(np.abs(values - median)),
        min_s=float(np.min(values)),
        max_s=float(np.max(values)),
        confidence=CONFIDENCE,
    )


def rate(nbytes: int, summary: Summary) -> Rate:
    """Bytes a second at the median; the slow end of the interval gives the low rate."""
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
    low, high = _median_interval(ratios)
    return Share(value=_median(ratios), low=low, high=high)


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


def _median(values: Values) -> float:
    # The sampler asks after each trial, and np.median takes ten times as long.
    ordered = np.sort(values)
    middle = ordered.size // 2
    return float((ordered[middle] + ordered[~middle]) / 2)


def _median_interval(values: Values) -> tuple[float | None, float | None]:
    """The 95 % interval of the median of values in the order they were taken; None twice below `MIN_TRIALS`.

    The larger of two ranges, on each side of the median:
    - the order statistics that enclose it if trials are independent, widened for the neighbours' correlation;
    - the medians of `BLOCKS` stretches, which differ by whatever changes from stretch to stretch.
    It is then widened by `ALLOWANCE`. All widening is of ratios, so that the interval of a rate is that of its time.
    """
    rank = _interval_rank(values.size)
    if rank == 0:
        return None, None
    ordered = np.sort(values)
    low, high = float(ordered[rank - 1]), float(ordered[-rank])
    median = _median(values)
    if median <= 0:
        return low, high
    stretch = math.sqrt(variance_inflation(values))
    blocks = [_median(block) for block in np.array_split(values, BLOCKS)]
    below = min((low / median) ** stretch, min(blocks) / median)
    above = max((high / median) ** stretch, max(blocks) / median)
    return median * below**ALLOWANCE, median * above**ALLOWANCE


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


@lru_cache(maxsize=4096)
def _interval_rank(n: int) -> int:
    """The largest k for which the k-th smallest and k-th largest of n values enclose the median at 95 %; 0 for none.

    The number of values below the median is binomial (n, 1/2), so the interval misses with twice P(X < k). Summed in
    logarithms: the coefficients leave the range of a float beyond a thousand trials.
    """
    i = np.arange(1, n + 1)
    log_choose = np.concatenate(([0.0], np.cumsum(np.log((n - i + 1) / i))))
    cumulative = np.cumsum(np.exp(log_choose - n * math.log(2)))
    return int(np.searchsorted(cumulative, (1 - CONFIDENCE) / 2, side="right"))


# --- curves -----------------------------------------------------------------------------------------------------------

MIN_SIZES = 3
MAX_MISFIT = 0.25
"""A line that misses a point by more does not describe the curve."""
MIN_LATENCY_SHARE = 0.1
MAX_SLOPE_ERROR = 0.1
NARROW = 0.01
"""Points with intervals narrower than this weigh the same: a line describes no copies more closely."""


@dataclass(frozen=True)
class Fit:
    """`t = t0 + n/B` through the medians of a curve; each figure, or why the points do not give it."""

    latency_s: Fact[float]
    asymptote_gbps: Fact[float]
    half_bytes: Fact[float]
    worst_misfit: Fact[float]


def fit_curve(points: Sequence[tuple[int, float, float]]) -> Fit:
    """Fixed cost and asymptote of (bytes, seconds, relative half-width of the seconds), by relative least squares.

    Relative, because times span five decades: in seconds the largest size alone would decide the fixed cost too. Points
    with wide intervals weigh less.
    A figure is given only where the points determine it: see `_latency` and `_asymptote`.
    """
    distinct = len({nbytes for nbytes, _, _ in points})
    if distinct < MIN_SIZES:
        sizes_have = "1 size has" if distinct == 1 else f"{distinct} sizes have"
        return _no_fit(f"a curve needs {MIN_SIZES} sizes and {sizes_have} a result; ask for more with --sizes")
    sizes, seconds, half_widths = np.asarray(points, dtype=np.float64).T
    if not (seconds > 0).all():
        return _no_fit("a size took no time that the clock could see; leave it out with --sizes")
    weights = NARROW / np.maximum(half_widths, NARROW)
    latency, per_byte = _relative_least_squares(sizes, seconds, weights)
    if per_byte <= 0:
        return _no_fit("the time does not grow with the size; ask for larger ones with --sizes")
    misfits = np.maximum(np.abs(latency + per_byte * sizes - seconds) / seconds - half_widths, 0)
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
        return unknown(
            "too small a part of even the shortest time to be determined; ask for smaller sizes with --sizes"
        )
    return Fact(latency)


def _asymptote(half_bytes: float, per_byte: float, error: float, largest_bytes: float) -> Fact[float]:
    """The bandwidth of endless copies, unless no size reaches half of it: a guess that far out could beat the link."""
    if largest_bytes < half_bytes:
        return unknown("no size reaches half of it, so it would be a guess; ask for larger sizes with --sizes")
    if error > MAX_SLOPE_ERROR * per_byte:
        return unknown("the medians of the large sizes are not precise enough to determine it; use a longer --budget")
    return Fact(1e-9 / per_byte)


def _no_fit(reason: str) -> Fit:
    return Fit(unknown(reason), unknown(reason), unknown(reason), unknown(reason))


# --- Student's t ------------------------------------------------------------------------------------------------------

_NORMAL_FROM = 1e6
"""Degrees of freedom from which on it equals the normal distribution to six digits."""
_TERMS = 500
_CLOSE = 1e-14
_TINY = 1e-300


@lru_cache(maxsize=4096)
def quantile(p: float, df: float) -> float:
    """The quantile `p` of Student's t with `df` degrees of freedom, which may be infinite."""
    if not 0 < p < 1 or not df > 0:
        raise ValueError(f"there is no quantile of {p!r} with {df!r} degrees of freedom")
    if df >= _NORMAL_FROM:
        return NormalDist().inv_cdf(p)
    if p < 0.5:  # noqa: PLR2004 - the distribution is symmetric about zero
        return -quantile(1 - p, df)
    low, high = 0.0, 1.0
    while tail(high, df) > 1 - p:
        high *= 2
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, df) > 1 - p else (low, middle)
    return (low + high) / 2


def tail(t: float, df: float) -> float:
    """The share of the distribution above `t`, which must not be negative."""
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz), where that converges quickly."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            step = c * d
            value *= step
        if abs(step - 1) < _CLOSE:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
