"""When a history got slower or faster: the runs from which on its bandwidth is another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST_RUNS = 5
"""A bandwidth that fewer runs had is an outlier and no change."""
MOST_RUNS = 1000
"""The newest of a longer history are searched."""
_SHUFFLES = 999
# In standard deviations; nearly no step that is less clear would pass the shuffles, and they take time.
_CLEAR = 3.0
# Equal bandwidths have sums that differ by less.
_ROUNDING = 1e-9
_CHANCE = 0.005
"""Of a shuffled history to have a step as clear as that of the real one."""


def change_points(gbps: Sequence[float]) -> list[int]:
    """The first run of each new bandwidth, in order.

    Binary segmentation. The clearest step of a stretch counts if a shuffled stretch has one as clear by a chance of at
    most 0.5 %; then both sides are searched. Shuffling assumes no distribution of the noise, but that it is not slow.
    """
    rates = np.asarray(gbps[-MOST_RUNS:], dtype=np.float64)
    if not np.all(rates > 0):
        return []
    first = max(0, len(gbps) - MOST_RUNS)
    return sorted(_steps(np.log(rates), first, np.random.default_rng(0)))


def _steps(logs: NDArray[np.float64], first: int, random: np.random.Generator) -> list[int]:
    if len(logs) < 2 * LEAST_RUNS:
        return []
    clearness = _clearness(logs[None, :])[0]
    place = int(np.argmax(clearness))
    if clearness[place] <= _CLEAR * logs.std() + _ROUNDING:
        return []
    shuffled = random.permuted(np.tile(logs, (_SHUFFLES, 1)), axis=1)
    as_clear = int(np.sum(_clearness(shuffled).max(axis=1) >= clearness[place]))
    if (1 + as_clear) / (1 + _SHUFFLES) > _CHANCE:
        return []
    at = place + LEAST_RUNS
    return [first + at, *_steps(logs[:at], first, random), *_steps(logs[at:], first + at, random)]


def _clearness(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The difference of both sides' means over its standard error but for the noise, at each split of each row."""
    count = rows.shape[1]
    left = np.arange(LEAST_RUNS, count - LEAST_RUNS + 1)
    sums = np.cumsum(rows, axis=1)
    before = sums[:, left - 1]
    difference = before / left - (sums[:, -1:] - before) / (count - left)
    clear: NDArray[np.float64] = np.abs(difference) * np.sqrt(left * (count - left) / count)
    return clear
