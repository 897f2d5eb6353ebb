"""Quantiles of Student's distribution, for intervals from few processes; exact to about ten digits, without SciPy."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL_FROM = 1e6
"""From so many degrees of freedom on it is the normal distribution to six digits."""
_STEPS = 200
_TERMS = 500
_CLOSE = 1e-14
_TINY = 1e-300


@lru_cache(maxsize=4096)
def quantile(p: float, df: float) -> float:
    """The t that a share `p` of the distribution with `df` degrees of freedom lies below; `df` may be infinite."""
    if not 0 < p < 1 or not df > 0:
        raise ValueError(f"there is no quantile of {p!r} with {df!r} degrees of freedom")
    if df >= _NORMAL_FROM:
        return NormalDist().inv_cdf(p)
    if p < 0.5:  # noqa: PLR2004 - the distribution is symmetric about nought
        return -quantile(1 - p, df)
    low, high = 0.0, 1.0
    while tail(high, df) > 1 - p:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, df) > 1 - p else (low, middle)
        if high - low <= _CLOSE * high:
            break
    return (low + high) / 2


def tail(t: float, df: float) -> float:
    """The share of the distribution that lies above a `t` of at least nought."""
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
    c, d = 1.0, 1 / _away_from_nought(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1 / _away_from_nought(1 + term * d)
            c = _away_from_nought(1 + term / c)
            step = c * d
            value *= step
        if abs(step - 1) < _CLOSE:
            break
    return value


def _away_from_nought(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
