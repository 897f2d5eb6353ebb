"""How much of some stretches lies between two times, for millions of both at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyxfer.tracing.intervals import total_ns, union

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Cover:
    """Stretches, united, with their running total."""

    def __init__(self, *each: NDArray[np.int64]) -> None:
        self.united = union(*each)
        lengths = self.united[:, 1] - self.united[:, 0]
        self._before = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self._ends = np.concatenate(([0], self.united[:, 1]))

    @property
    def total_ns(self) -> int:
        """All that it covers."""
        return total_ns(self.united)

    def until(self, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it covers before each of these times."""
        begun = np.searchsorted(self.united[:, 0], at_ns, side="right")
        beyond = np.maximum(self._ends[begun] - at_ns, 0)
        return self._before[begun] - np.where(begun > 0, beyond, 0)

    def within(self, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it covers between each two of these times."""
        return self.until(end_ns) - self.until(begin_ns)

    def holds(self, at_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these times lies in one of its stretches, ends included."""
        begun = np.searchsorted(self.united[:, 0], at_ns, side="right")
        return (begun > 0) & (self._ends[begun] >= at_ns)
