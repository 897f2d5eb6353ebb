"""A curve of transfer times as two figures: what a copy costs at any size, and the bandwidth that it nears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .model import Fact, unknown
from .units import format_percent, format_size

MIN_SIZES = 3
MAX_MISFIT = 0.25
"""A line that misses a point by more does not describe the curve."""
MIN_LATENCY_SHARE = 0.1

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """`t = t0 + n/B` through the medians of a curve; each figure, or why the points do not give it."""

    latency_s: Fact[float]
    asymptote_gbps: Fact[float]
    half_bytes: Fact[float]
    worst_misfit: Fact[float]


def fit_curve(points: Sequence[tuple[int, float]]) -> Fit:
    """Fixed cost and asymptote of (bytes, seconds), by least squares of the relative error.

    Relative, because times span five decades: in seconds the largest size alone would decide the fixed cost too.
    A figure is given only where the points bear it: see `_latency` and `_asymptote`.
    """
    distinct = len({nbytes for nbytes, _ in points})
    if distinct < MIN_SIZES:
        sizes_have = "1 size has" if distinct == 1 else f"{distinct} sizes have"
        return _no_fit(f"a curve needs {MIN_SIZES} sizes and {sizes_have} a result; ask for more with --sizes")
    sizes, seconds = np.asarray(points, dtype=np.float64).T
    if not (seconds > 0).all():
        return _no_fit("a size took no time that the clock could see; leave it out with --sizes")
    latency, per_byte = _relative_least_squares(sizes, seconds)
    if per_byte <= 0:
        return _no_fit("the time does not grow with the size; ask for larger ones with --sizes")
    misfits = np.abs(latency + per_byte * sizes - seconds) / seconds
    worst = float(misfits.max())
    if worst > MAX_MISFIT:
        where = format_size(float(sizes[misfits.argmax()]))
        reason = f"one line does not fit these times ({format_percent(worst)} off at {where}); read each size by itself"
        return replace(_no_fit(reason), worst_misfit=Fact(worst))
    latency_s = _latency(latency, worst, float(seconds.min()))
    asymptote_gbps = _asymptote(latency / per_byte, per_byte, float(sizes.max()))
    missing = latency_s.reason or asymptote_gbps.reason
    half_bytes: Fact[float] = unknown(missing) if missing else Fact(latency / per_byte)
    return Fit(latency_s, asymptote_gbps, half_bytes, Fact(worst))


def _relative_least_squares(sizes: Values, seconds: Values) -> tuple[float, float]:
    """Seconds of fixed cost, not below zero, and seconds a byte."""
    columns = np.stack([1 / seconds, sizes / seconds], axis=1)
    lengths = np.linalg.norm(
        columns, axis=0
    )  # the columns differ by nine decades; at equal length none is rounded away
    latency, per_byte = np.linalg.lstsq(columns / lengths, np.ones(sizes.size), rcond=None)[0] / lengths
    if latency < 0:
        return 0.0, float(columns[:, 1].sum() / lengths[1] ** 2)
    return float(latency), float(per_byte)


def _latency(latency: float, worst_misfit: float, shortest_s: float) -> Fact[float]:
    """The fixed cost, unless it is a small part of even the shortest time, where noise tilts the line by as much."""
    if latency <= max(MIN_LATENCY_SHARE, worst_misfit) * shortest_s:
        return unknown("too small a part of even the shortest time to be told; ask for smaller sizes with --sizes")
    return Fact(latency)


def _asymptote(half_bytes: float, per_byte: float, largest_bytes: float) -> Fact[float]:
    """The bandwidth of endless copies, unless no size reaches half of it: a guess that far out could beat the link."""
    if largest_bytes < half_bytes:
        return unknown("no size reaches half of it, so it would be a guess; ask for larger sizes with --sizes")
    return Fact(1e-9 / per_byte)


def _no_fit(reason: str) -> Fit:
    return Fit(unknown(reason), unknown(reason), unknown(reason), unknown(reason))
