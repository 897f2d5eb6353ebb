"""The rule for the 95 % interval of a median, which a summary records and a reader of a document applies again.

Trials are not independent: neighbours resemble each other, and the level of a host shifts. So the interval depends on
the order of the trials. docs/measuring.md has the rule in words and how often it covers.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

RULE = "median-lrv-1"
"""Changes whenever the rule gives another interval for the same trials."""
CONFIDENCE = 0.95
MIN_TRIALS = 6
"""Below this no interval of the median exists at 95 %: 1 - 2/2^5 is 93.75 %."""

_FREQUENCIES = 0.4
_MIN_FREQUENCIES = 2
"""How many cosines: 0.4 n^(2/3), by Lazarus, Lewis, Stock and Watson, "HAR inference", 2018."""
_SLOWER = 2.0
"""The lower half of the frequencies is used alone if its variance is this many times that of all."""
_MIN_HALVED = 3
_FEW = 50
"""Below this the cosines are so few that the correlation of neighbours says more."""
_MORE_DEGREES = 6
_MAX_CORRELATION = 0.9
_FURTHEST = 700.0
_NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def median_interval(values: Values) -> tuple[float | None, float | None]:
    """The 95 % interval of the median of values in the order they were taken; None twice below `MIN_TRIALS`.

    Its ends are order statistics, as far from the middle as the number of values below the true median may be off.
    Between and beyond the values it goes on in logarithms, so that the interval of a rate is that of its time.
    """
    if values.size < MIN_TRIALS:
        return None, None
    ordered = np.sort(values)
    sides = _sides(values, middle(ordered))
    deviation, degrees = _deviation(sides)
    least = (values.size + 1) / 2 - interval_rank(values.size)  # of independent values
    if values.size < _FEW:
        least *= math.sqrt(_inflation(sides[0] - sides[1])) * _allowance(values.size - 2)
        degrees += _MORE_DEGREES
    return _within(ordered, max(_allowance(degrees) * _NORMAL * deviation, least))


def standard_error(values: Values) -> float:
    """Standard error of the median relative to it, without allowance for few values; infinite for one value."""
    ordered = np.sort(values)
    centre = middle(ordered)
    if values.size < 2 or centre <= 0:  # noqa: PLR2004 - one value shows no spread
        return math.inf
    deviation, _ = _deviation(_sides(values, centre))
    low, high = _within(ordered, max(deviation, math.sqrt(values.size) / 2))
    return (high - low) / 2 / centre


def middle(ordered: Values) -> float:
    """The median of sorted values; np.median takes ten times as long."""
    half = ordered.size // 2
    return float((ordered[half] + ordered[~half]) / 2)


def _sides(values: Values, centre: float) -> Values:
    sides = np.stack((values > centre, values < centre)).astype(np.float64)
    return np.asarray(sides - sides.mean(axis=1, keepdims=True))


def _deviation(sides: Values) -> tuple[float, int]:
    """Standard deviation of the number of values below the true median, and the degrees of freedom of its estimate.

    Independent values have sqrt(n)/2. Of any others it follows from the spectrum of the sides near frequency zero,
    estimated with the lowest cosines. The lower half of these is used alone where it shows more, again and again,
    because a level that shifts slowly shows in the lowest only.
    """
    n = sides.shape[1]
    mirrored = np.concatenate((sides, sides[:, ::-1]), axis=1)
    count = min(n - 1, max(_MIN_FREQUENCIES, round(_FREQUENCIES * n ** (2 / 3))))
    powers = np.abs(np.fft.rfft(mirrored, axis=1)[:, 1 : count + 1]) ** 2 / (2 * n)
    variances = (np.cumsum(powers, axis=1) / np.arange(1, count + 1)).max(axis=0)
    while count // 2 >= _MIN_HALVED and variances[count // 2 - 1] > _SLOWER * variances[count - 1]:
        count //= 2
    return math.sqrt(n * float(variances[count - 1])), count


def _inflation(side: Values) -> float:
    """How many correlated values are worth an independent one: (1 + r)/(1 - r), r being the correlation of neighbours.

    The estimate of r is corrected for its bias, which is downwards, and raised by its standard error.
    """
    n = side.size
    squares = float(side @ side)
    found = float(side[1:] @ side[:-1]) / squares if squares > 0 else 0.0
    raised = found + (1 + 3 * max(found, 0.0)) / n + math.sqrt((1 - found**2) / n)
    correlation = min(max(raised, 0.0), _MAX_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _allowance(degrees: int) -> float:
    """How much wider Student's t is than the normal distribution."""
    return quantile((1 + CONFIDENCE) / 2, degrees) / _NORMAL


def _within(ordered: Values, ranks: float) -> tuple[float, float]:
    centre = (ordered.size - 1) / 2
    if ranks <= centre:
        return min(_value_at(ordered, centre - ranks), middle(ordered)), max(
            _value_at(ordered, centre + ranks), middle(ordered)
        )
    low, median, high = float(ordered[0]), middle(ordered), float(ordered[-1])
    if median <= 0:
        return low, high
    stretch = ranks / centre
    below = -math.inf if low <= 0 else stretch * math.log(low / median)
    above = min(stretch * math.log(high / median), _FURTHEST)
    return min(median, median * math.exp(below)), max(median, min(median * math.exp(above), sys.float_info.max))


def _value_at(ordered: Values, place: float) -> float:
    before = math.floor(place)
    low, high = float(ordered[before]), float(ordered[math.ceil(place)])
    if low == high:
        return low
    share = place - before
    return float(low ** (1 - share) * high**share)


@lru_cache(maxsize=4096)
def interval_rank(n: int) -> int:
    """The largest k for which the k-th smallest and k-th largest of n values enclose the median at 95 %; 0 for none.

    The number of values below the median is binomial (n, 1/2), so the interval misses with twice P(X < k). Summed in
    logarithms: the coefficients leave the range of a float beyond a thousand trials.
    """
    i = np.arange(1, n + 1)
    log_choose = np.concatenate(([0.0], np.cumsum(np.log((n - i + 1) / i))))
    cumulative = np.cumsum(np.exp(log_choose - n * math.log(2)))
    return int(np.searchsorted(cumulative, (1 - CONFIDENCE) / 2, side="right"))


# --- Student's t ------------------------------------------------------------------------------------------------------

_NORMAL_FROM = 1e6
"""Degrees of freedom from which on it equals the normal distribution to six digits."""
_CLOSE = 1e-14
_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


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
    """The share of the distribution above `t`, which must not be negative.

    With t = sqrt(df) sinh(y) its density is that of cosh(y)^-df, which Gauss and Legendre integrate to where it has
    fallen below 1e-16.
    """
    half = math.sqrt(75 / df) / 2 + 19 / df
    y = math.asinh(t / math.sqrt(df)) + half * (_PLACES + 1)
    log_density = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - df * (np.logaddexp(y, -y) - math.log(2))
    return float(_WEIGHTS @ np.exp(log_density)) * half / math.sqrt(math.pi)
