"""Measured seconds at some sizes, and those of the sizes between them."""

from __future__ import annotations

import math
from bisect import bisect_left

Points = tuple[tuple[int, float], ...]
"""Ascending sizes, with the seconds of one copy."""


def seconds_at(points: Points, nbytes: int) -> float:
    """Between two sizes in logarithms, below the smallest as long as that, and above the largest at its rate."""
    sizes = [size for size, _ in points]
    place = bisect_left(sizes, nbytes)
    if place == len(points):
        size, seconds = points[-1]
        return seconds * nbytes / size
    if place == 0 or sizes[place] == nbytes:
        return points[place][1]
    (below, least), (above, most) = points[place - 1], points[place]
    part = math.log(nbytes / below) / math.log(above / below)
    return least * math.pow(most / least, part)
