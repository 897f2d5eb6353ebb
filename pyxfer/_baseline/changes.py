"""When a history got slower or faster: the runs from which on its bandwidth is another one.

Circular binary segmentation (Olshen, Venkatraman, Lucito, Wigler, Biostatistics 5, 2004) finds the stretch of runs
whose mean differs most clearly from that of all others, and then searches the parts. So a slow time that has ended is
found like one that lasts. Outliers are clipped, and the noise is that between the changes, with the correlation of
neighbouring runs. bench/history_changes.py counts how often the result is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.baselines import HistoryLimit

MIN_RUNS = 5
"""A bandwidth that fewer runs had is an outlier and no change."""
MIN_HISTORY = 2 * MIN_RUNS
"""In fewer runs no change can be found."""
MAX_RUNS = 1000
"""The newest of a longer history are searched."""
MAX_CORRELATION = 0.5
"""Between neighbouring runs. Beyond it more than 1 in 20 histories without a change have one."""

Floats = NDArray[np.float64]

# How clear the clearest stretch of a history without a change is, at most, in 19 of 20 cases; tuned by simulation with
# normal and with correlated noise.
_CLEAR, _CLEAR_PER_LOG_RUN = 2.7, 0.5
# Neighbours of a clear stretch are fewer runs than all others.
_LESS_CLEAR_BESIDE = 0.5
_CLIP = 4.0
_FAR = 3.0
# Residuals hide a part of the correlation; twice the usual correction, because the noise has chosen the changes.
_HIDDEN_CORRELATION = 2.0
_MAX_HIDDEN = 0.9
_MIN_NOISE = 1e-4
# More than this times as wide as what neighbours show: the loss that can be found is not known.
_SEVERAL_MODES = 3.0
_MAD_TO_SD = 1.4826
_POWER_SD = 1.645


@dataclass(frozen=True)
class Changes:
    """What a history shows.

    `places`: the first run of each new bandwidth. `drift`: by how much the last run is faster than the first one, as a
    share, if a line describes the history better than steps do. `correlation`: of neighbouring runs between the
    changes. `limit`: None if no loss could be found.
    """

    places: tuple[int, ...] = ()
    drift: float | None = None
    correlation: float = 0.0
    limit: HistoryLimit | None = None


@dataclass(frozen=True)
class _Noise:
    """Of the logarithms between the changes, as a first-order autoregression.

    `clip`: where outliers are cut off. `of_neighbours`: what most neighbouring runs show of the deviation.
    """

    deviation: float
    correlation: float
    clip: float
    of_neighbours: float

    def error(self, some: Any, others: Any) -> Any:
        return self.deviation * np.sqrt(self._inflation(some) / some + self._inflation(others) / others)

    def _inflation(self, runs: Any) -> Any:
        rest = 1 - self.correlation
        lost = 2 * self.correlation * (1 - self.correlation**runs) / (runs * rest * rest)
        return (1 + self.correlation) / rest - lost


def find_changes(gbps: Sequence[float]) -> Changes:
    rates = np.asarray(gbps[-MAX_RUNS:], dtype=np.float64)
    if rates.size < MIN_HISTORY or not np.all(rates > 0):
        return Changes()
    first, logs = len(gbps) - rates.size, np.log(rates)
    noise = _noise_of(logs)
    places = _refined(logs, _kept(logs, _steps(logs, noise), noise), noise)
    drift = _drift(logs, places, noise) if places else None
    return Changes(
        places=() if drift is not None else tuple(first + place for place in places),
        drift=drift,
        correlation=noise.correlation,
        limit=_limit(rates.size, noise),
    )


def _clear(runs: int) -> float:
    return _CLEAR + _CLEAR_PER_LOG_RUN * math.log(runs)


def _noise_of(logs: Floats) -> _Noise:
    """The noise between changes that are found as though neighbouring runs were independent."""
    between = _MAD_TO_SD * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
    between = max(between, _MIN_NOISE)
    rough = _Noise(between, 0.0, _CLIP * between, between)
    places = _refined(logs, _kept(logs, _steps(logs, rough), rough), rough)
    residuals = logs - _levels(logs, places)
    # Two modes are wider than what neighbours show, and correlated runs too.
    inner, _ = _moments(residuals, rough.clip, len(places) + 1)
    clip = max(rough.clip, _CLIP * inner)
    deviation, correlation = _moments(residuals, clip, len(places) + 1)
    return _Noise(max(deviation, between / 2), correlation, clip, between)


def _moments(residuals: Floats, clip: float, levels: int) -> tuple[float, float]:
    """The standard deviation of the clipped residuals from this many levels, and the correlation of neighbours."""
    clipped = np.clip(residuals, -clip, clip)
    clipped -= clipped.mean()
    squares = max(float(clipped @ clipped), residuals.size * _MIN_NOISE**2)
    seen = float(clipped[1:] @ clipped[:-1]) / squares
    correlation = seen + _hidden(seen, levels, residuals.size)
    return math.sqrt(squares / max(1, residuals.size - levels)), min(max(correlation, 0.0), _MAX_HIDDEN)


def _hidden(correlation: float, levels: int, runs: int) -> float:
    return _HIDDEN_CORRELATION * (1 + 3 * correlation) * levels / runs


def _steps(logs: Floats, noise: _Noise, first: int = 0) -> list[int]:
    if logs.size < MIN_HISTORY:
        return []
    clearness, begin, end = _clearest(logs, noise)
    if clearness <= _clear(logs.size):
        return []
    inner = [place for place in (begin, end) if 0 < place < logs.size]
    parts = [_steps(logs[a:b], noise, first + a) for a, b in pairwise([0, *inner, logs.size])]
    return sorted([*(first + place for place in inner), *(place for part in parts for place in part)])


def _clearest(logs: Floats, noise: _Noise) -> tuple[float, int, int]:
    count = logs.size
    clipped = np.clip(logs - np.median(logs), -noise.clip, noise.clip)
    sums = np.concatenate([[0.0], np.cumsum(clipped - clipped.mean())])
    inside = np.arange(MIN_RUNS, count - MIN_RUNS + 1)
    weights = np.zeros(count + 1)
    weights[inside] = count / (inside * (count - inside)) / noise.error(inside, count - inside)
    ends = np.concatenate([[0], inside, [count]])
    clearness = np.abs(np.subtract.outer(sums[ends], sums[ends])) * weights[np.abs(np.subtract.outer(ends, ends))]
    place = int(np.argmax(clearness))
    begin, end = divmod(place, ends.size)
    return float(clearness.flat[place]), int(ends[begin]), int(ends[end])


def _kept(logs: Floats, places: list[int], noise: _Noise) -> list[int]:
    """The places whose neighbours differ clearly; the least clear ones are left out one by one."""
    while places:
        edges = [0, *places, logs.size]
        clearness = [
            _clearness_between(logs[a:b], logs[b:c], noise)
            for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        least = int(np.argmin(clearness))
        if clearness[least] > _clear(logs.size) - _LESS_CLEAR_BESIDE:
            break
        places = [*places[:least], *places[least + 1 :]]
    return places


def _clearness_between(before: Floats, after: Floats, noise: _Noise) -> float:
    centre = np.median(np.concatenate([before, after]))
    means = [float(np.mean(np.clip(part - centre, -noise.clip, noise.clip))) for part in (before, after)]
    return abs(means[1] - means[0]) / float(noise.error(before.size, after.size))


def _refined(logs: Floats, places: list[int], noise: _Noise) -> list[int]:
    """Each place moved to where both medians fit best: an outlier beside a change fits neither."""
    edges, far = [0, *places, logs.size], (_FAR / _CLIP * noise.clip) ** 2
    for number in range(1, len(edges) - 1):
        first, place, last = edges[number - 1 : number + 2]
        stretch = logs[first:last]
        before, after = (
            np.minimum((stretch - np.median(part)) ** 2, far) for part in (logs[first:place], logs[place:last])
        )
        misfit = (np.cumsum(before) + after.sum() - np.cumsum(after))[MIN_RUNS - 1 : stretch.size - MIN_RUNS]
        if misfit.size:
            edges[number] = first + MIN_RUNS + int(np.argmin(misfit))
    return edges[1:-1]


def _levels(logs: Floats, places: Sequence[int]) -> Floats:
    levels = np.empty_like(logs)
    for begin, end in pairwise([0, *places, logs.size]):
        levels[begin:end] = np.median(logs[begin:end])
    return levels


def _drift(logs: Floats, places: Sequence[int], noise: _Noise) -> float | None:
    """The share that a line (Theil and Sen) rises from the first to the last run, if it fits better than the steps."""
    runs = np.arange(logs.size)
    earlier, later = np.triu_indices(logs.size, 1)
    slope = float(np.median((logs[later] - logs[earlier]) / (later - earlier)))
    rest = logs - slope * runs
    line, steps = (
        float(np.sum(np.minimum(residuals**2, (_FAR * noise.deviation) ** 2)))
        for residuals in (rest - np.median(rest), logs - _levels(logs, places))
    )
    further = 2 * len(places) - 1
    return math.expm1(slope * (logs.size - 1)) if line <= steps + further * noise.deviation**2 else None


def _limit(count: int, noise: _Noise) -> HistoryLimit | None:
    """The smallest loss that is found with a power of 95 %, for as few runs as it can be found in.

    The noise would be judged beside two more levels, and may be larger than it seems. A loss beyond the clipping counts
    no more than one at it, so noise with outliers needs more runs.
    """
    if noise.deviation > _SEVERAL_MODES * noise.of_neighbours:
        return None
    hidden = _hidden(noise.correlation, 2, count)
    judged = replace(noise, correlation=min(noise.correlation + hidden, _MAX_HIDDEN))
    unsure, sure = 1 + _POWER_SD / math.sqrt(2 * count), _clear(count) + _POWER_SD
    half = count // 2
    for runs in sorted({*range(MIN_RUNS, half, MIN_RUNS), half}):
        alone = sure * float(judged.error(runs, count - runs))
        beside = (sure - _LESS_CLEAR_BESIDE) * float(judged.error(runs, min(runs, count - runs)))
        if max(alone, beside) <= noise.clip:
            return HistoryLimit(-math.expm1(-unsure * max(alone, beside)), runs)
    return None
