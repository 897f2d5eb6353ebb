"""Rows for stretches of time so that in each of them two lie apart or one in the other, which is all a viewer draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def lanes(begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lane of each stretch, 0 as long as there is room; they are in the order of their beginning."""
    found = np.zeros(len(begin_ns), np.int64)
    if (begin_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return found
    order = np.lexsort((-end_ns, begin_ns))
    open_ends: list[list[int]] = []
    for place, begin, end in zip(order.tolist(), begin_ns[order].tolist(), end_ns[order].tolist(), strict=True):
        found[place] = _first_with_room(open_ends, begin, end)
    return found


def _first_with_room(open_ends: list[list[int]], begin: int, end: int) -> int:
    """Each lane keeps the ends of what is open in it, the outermost first."""
    for lane, ends in enumerate(open_ends):
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return lane
    open_ends.append([end])
    return len(open_ends) - 1
