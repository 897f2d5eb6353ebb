"""What the processes of one side have found of each cell, and how far they lie apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyxfer.baselines.cells import cell_of
from pyxfer.model import Measurement, Run
from pyxfer.model_baselines import Cell, Spread

INTERVAL_Z = 1.96
"""In-process intervals are of 95 %."""
_SHORTEST_S, _LONGEST_S = 1e-12, 1e9


@dataclass(frozen=True)
class Series:
    """One cell in each process that has it; `missing` says why none does."""

    spread: Spread
    processes: tuple[int, ...]
    gbps: float | None
    missing: str = ""

    @property
    def n(self) -> int:
        """How many processes have it."""
        return len(self.spread.medians_s)

    @cached_property
    def logs(self) -> tuple[float, ...]:
        """Logarithms of the medians: ratios become differences, and slow is as far from usual as fast."""
        return tuple(math.log(median_s) for median_s in self.spread.medians_s)

    @cached_property
    def mean_log(self) -> float:
        """The logarithm of the geometric mean."""
        return sum(self.logs) / self.n

    @cached_property
    def squares(self) -> float:
        """The sum of the squared distances from the mean."""
        mean = self.mean_log
        return sum((log - mean) ** 2 for log in self.logs)

    @cached_property
    def variance_inside(self) -> float:
        """What the in-process intervals alone say of the variance of the mean."""
        parts = [_squared_error(low, high) for low, high in zip(self.spread.lows_s, self.spread.highs_s, strict=True)]
        return sum(parts) / self.n**2


@dataclass
class _Gathered:
    """One cell while the runs are read."""

    medians: list[tuple[int, float, float | None, float | None, float]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def collect(runs: Sequence[Run]) -> dict[Cell, Series]:
    """Every cell of these runs, each of which is a process of its own."""
    cells: dict[Cell, _Gathered] = {}
    for process, run in enumerate(runs):
        for measurement in run.measurements:
            gathered = cells.setdefault(cell_of(measurement), _Gathered())
            _add(gathered, process, measurement)
    return {cell: _series(gathered) for cell, gathered in cells.items()}


def _add(gathered: _Gathered, process: int, measurement: Measurement) -> None:
    summary, gbps = measurement.summary, measurement.gbps
    if measurement.verified.value is False:
        gathered.reasons.append("contents differ after the transfer, so its times say nothing")
    elif summary is None or gbps is None:
        gathered.reasons.append(measurement.rate.reason or "it has no time")
    elif not (_SHORTEST_S < summary.median_s < _LONGEST_S and gbps > 0):
        gathered.reasons.append("its time is one that no copy takes")
    else:
        # Of the time that is compared, whatever a file says beside it.
        gathered.medians.append(
            (process, summary.median_s, summary.low_s, summary.high_s, measurement.moved_bytes / summary.median_s / 1e9)
        )


def _series(gathered: _Gathered) -> Series:
    """A process that has a cell twice (raw copies beside each framework) counts once, with what both say together."""
    found = {process: [row for row in gathered.medians if row[0] == process] for process, *_ in gathered.medians}
    if not found:
        return Series(Spread((), (), ()), (), None, gathered.reasons[0])
    spread = Spread(
        medians_s=tuple(_mean([row[1] for row in rows]) or 0.0 for rows in found.values()),
        lows_s=tuple(_mean([row[2] for row in rows]) for rows in found.values()),
        highs_s=tuple(_mean([row[3] for row in rows]) for rows in found.values()),
    )
    return Series(spread, tuple(found), _mean([_mean([row[4] for row in rows]) for rows in found.values()]))


def _mean(values: Sequence[float | None]) -> float | None:
    """The geometric mean, unless one of them is missing."""
    known = [value for value in values if value is not None and value > 0]
    if len(known) < len(values):
        return None
    return known[0] if len(known) == 1 else math.exp(sum(map(math.log, known)) / len(known))


def _squared_error(low: float | None, high: float | None) -> float:
    """The variance of one process's median, as its interval has it; nothing where it has none."""
    if low is None or high is None or not 0 < low <= high:
        return 0.0
    return (math.log(high / low) / 2 / INTERVAL_Z) ** 2
