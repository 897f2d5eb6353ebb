"""The sides of a comparison: their runs, collected by cell, and whether two sides can be compared."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import pairwise
from statistics import geometric_mean, median

from pyxfer._baseline.cells import cell_of, cell_text, fingerprint_of, identity
from pyxfer._document.baselines import Cell, Spread
from pyxfer._document.runs import Measurement, Remark, Run, Summary
from pyxfer.errors import UsageError

INTERVAL_Z = 1.96
"""In-process intervals are of 95 %."""
_SHORTEST_S, _LONGEST_S = 1e-12, 1e9


@dataclass(frozen=True)
class Series:
    """One cell in each process that has a time of it; if none has, `missing` is the reason."""

    spread: Spread
    processes: tuple[int, ...]
    sittings: tuple[int, ...]
    """The sitting of each process."""
    moved_bytes: int
    missing: str = ""
    left_out: frozenset[int] = frozenset()
    """The places of the processes that do not count; see `leave_out`."""

    @property
    def n(self) -> int:
        return len(self.spread.medians_s)

    @cached_property
    def logs(self) -> tuple[float, ...]:
        """Logarithms of the medians, so that a loss and a gain of the same factor count alike."""
        return tuple(math.log(median_s) for median_s in self.spread.medians_s)

    @property
    def gbps(self) -> float | None:
        """The rate of the geometric mean."""
        return self.moved_bytes / math.exp(self.mean_log) / 1e9 if self.n else None

    @cached_property
    def steps(self) -> tuple[float, ...]:
        """The distance of each process from the median of its sitting."""
        middles = {
            number: median(log for log, own in zip(self.logs, self.sittings, strict=True) if own == number)
            for number in self.sittings
        }
        return tuple(log - middles[number] for log, number in zip(self.logs, self.sittings, strict=True))

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The places of the processes that are not left out, by sitting."""
        together: dict[int, list[int]] = {}
        for place in range(self.n):
            if place not in self.left_out:
                together.setdefault(self.sittings[place], []).append(place)
        return tuple(map(tuple, together.values()))

    @cached_property
    def means(self) -> tuple[float, ...]:
        """The mean of the logarithms in each sitting."""
        return tuple(sum(self.logs[place] for place in group) / len(group) for group in self.groups)

    @cached_property
    def mean_log(self) -> float:
        """The logarithm of the geometric mean; each sitting counts once."""
        return sum(self.means) / len(self.means)

    @cached_property
    def squares(self) -> float:
        """The sum of the squared distances from the means of the sittings."""
        pairs = zip(self.groups, self.means, strict=True)
        return sum((self.logs[place] - mean) ** 2 for group, mean in pairs for place in group)

    @cached_property
    def df(self) -> int:
        """The degrees of freedom of `squares`."""
        return sum(map(len, self.groups)) - len(self.groups)

    @cached_property
    def weight(self) -> float:
        """The variance of `mean_log` if the variance between processes is 1."""
        return sum(1 / len(group) for group in self.groups) / len(self.groups) ** 2

    @cached_property
    def variance_inside(self) -> float:
        """The variance of the mean by the intervals within the processes alone."""
        ends = list(zip(self.spread.lows_s, self.spread.highs_s, strict=True))
        parts = [sum(_squared_error(*ends[place]) for place in group) / len(group) ** 2 for group in self.groups]
        return sum(parts) / len(self.groups) ** 2


LEAST_TO_LEAVE_OUT = 5
"""Fewer processes do not show which of them is the odd one."""
_FAR, _LEAST_DEVIATION = 6, 0.002
_TO_SIGMA = 1.4826  # the standard deviation over the median deviation, of normal values
_LEAST_TO_DEVIATE = 3
_CHANCE = 0.01


def leave_out(a: Series, b: Series) -> tuple[Series, Series]:
    """Both sides without their odd processes: fewer than half of a side, each far from the median of its sitting.

    If odd processes of one side are at the level of the other side, the host may have two modes. Then nothing is left
    out, unless chance does not explain that one side is more often at that level.
    """
    steps = [abs(step) for side in (a, b) if side.n >= _LEAST_TO_DEVIATE for step in side.steps]
    far = _FAR * max(_TO_SIGMA * median(steps or (0.0,)), _LEAST_DEVIATION)
    kept_a, kept_b = _without_odd(a, far), _without_odd(b, far)
    if _shares_levels(kept_a, kept_b, far) and not _changed_level(kept_a, kept_b):
        return a, b
    return kept_a, kept_b


def _without_odd(side: Series, far: float) -> Series:
    odd = frozenset(place for place, step in enumerate(side.steps) if abs(step) > far)
    if not odd or side.n < LEAST_TO_LEAVE_OUT or 2 * len(odd) >= side.n:
        return side
    return replace(side, left_out=odd)


def _shares_levels(a: Series, b: Series, far: float) -> bool:
    """Whether the levels differ, and a process that was left out of one side is at the level of the other."""
    return abs(a.mean_log - b.mean_log) > far and any(
        abs(side.logs[place] - other.mean_log) <= far for side, other in ((a, b), (b, a)) for place in side.left_out
    )


def _changed_level(a: Series, b: Series) -> bool:
    """Whether the processes of B are nearer to B's level more often than those of A (Fisher's exact test)."""
    near_a, near_b = (sum(abs(log - b.mean_log) < abs(log - a.mean_log) for log in side.logs) for side in (a, b))
    near = near_a + near_b
    ways = sum(math.comb(near, number) * math.comb(a.n + b.n - near, a.n - number) for number in range(near_a + 1))
    return ways <= _CHANCE * math.comb(a.n + b.n, a.n)


SITTING_S = 3600.0
"""Runs that begin within this time of the one before are of one sitting."""


def sittings_of(runs: Sequence[Run]) -> tuple[int, ...]:
    """The number of each run's sitting; if a time cannot be read, all are of one."""
    try:
        moments = [moment_of(run.environment.taken_at).timestamp() for run in runs]
    except ValueError:
        return (0,) * len(runs)
    ordered = sorted(moments)
    begins = [later for earlier, later in pairwise(ordered) if later - earlier > SITTING_S]
    return tuple(bisect_right(begins, moment) for moment in moments)


def moment_of(text: str) -> datetime:
    """The time that a document holds.

    Raises:
        ValueError: it is not a time.

    """
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


@dataclass
class _Gathered:
    moved_bytes: int
    times: dict[int, list[Summary]] = field(default_factory=dict)
    """By process."""
    reasons: list[str] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)


def collect(runs: Sequence[Run]) -> dict[Cell, Series]:
    """Every cell of these runs; each run is one process."""
    cells: dict[Cell, _Gathered] = {}
    for process, run in enumerate(runs):
        for measurement in run.measurements:
            gathered = cells.setdefault(cell_of(measurement), _Gathered(measurement.moved_bytes))
            _add(gathered, process, measurement)
    sittings = sittings_of(runs)
    return {cell: _series(gathered, sittings) for cell, gathered in cells.items()}


def _add(gathered: _Gathered, process: int, measurement: Measurement) -> None:
    summary, gbps = measurement.summary, measurement.gbps
    if measurement.verified.value is False:
        gathered.wrong.append(process)
    elif summary is None or gbps is None:
        gathered.reasons.append(measurement.rate.reason or "it has no time")
    elif not (_SHORTEST_S < summary.median_s < _LONGEST_S and gbps > 0):
        gathered.reasons.append("its time is impossible for a copy")
    else:
        gathered.times.setdefault(process, []).append(summary)


def _series(gathered: _Gathered, sittings: Sequence[int]) -> Series:
    """A process that has a cell twice (raw copies beside each framework) counts once, with the mean of both.

    A cell whose contents were wrong in one process has no time in any: a copy that may be wrong is not compared.
    """
    if gathered.wrong:
        which = ", ".join(str(process + 1) for process in dict.fromkeys(gathered.wrong))
        return _without_times(
            gathered, f"contents differ after the transfer in process {which}, so its times are not used"
        )
    if not gathered.times:
        return _without_times(gathered, gathered.reasons[0])
    summaries = gathered.times.values()
    spread = Spread(
        medians_s=tuple(geometric_mean([each.median_s for each in rows]) for rows in summaries),
        lows_s=tuple(_mean_end([each.low_s for each in rows]) for rows in summaries),
        highs_s=tuple(_mean_end([each.high_s for each in rows]) for rows in summaries),
    )
    of_processes = tuple(sittings[process] for process in gathered.times)
    return Series(spread, tuple(gathered.times), of_processes, gathered.moved_bytes)


def _without_times(gathered: _Gathered, reason: str) -> Series:
    return Series(Spread((), (), ()), (), (), gathered.moved_bytes, reason)


def _mean_end(ends: Sequence[float | None]) -> float | None:
    """The geometric mean of one end of several intervals; None if one of them has no end, or ends at 0."""
    known = [end for end in ends if end]
    return geometric_mean(known) if len(known) == len(ends) else None


def _squared_error(low: float | None, high: float | None) -> float:
    """The variance of one process's median by its interval; 0 without an interval."""
    if low is None or high is None:
        return 0.0
    return (math.log(high / low) / 2 / INTERVAL_Z) ** 2


_VENDOR = re.compile(r"^NVIDIA\s+", re.IGNORECASE)
_SHOWN_CELLS = 4
_KINDS = {
    "pcie": "PCI Express",
    "c2c": "NVLink-C2C",
    "nvlink": "NVLink",
    "none": "no link",
    "unknown": "an unknown link",
}


@dataclass(frozen=True)
class Sample:
    """One side of a comparison: the runs of one or more processes on one machine."""

    name: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        return self.runs[0]

    def check(self) -> None:
        """Refuse a side without runs, with a failed run, with runs of several machines, or with one run several times.

        Raises:
            UsageError: the reason, with the name of the side.

        """
        if not self.runs:
            raise UsageError(f"{self.name} has no runs; measure first, e.g. with pyxfer ceiling --export-json FILE")
        for number, run in enumerate(self.runs, start=1):
            which = self.name if len(self.runs) == 1 else f"run {number} of {self.name}"
            if run.ended == "failed":
                raise UsageError(f"{which} failed ({run.failure or 'no reason given'}), so it cannot be compared")
        machines = {identity(fingerprint_of(run)) for run in self.runs}
        if len(machines) > 1:
            names = ", ".join(dict.fromkeys(_machine(run) for run in self.runs))
            raise UsageError(f"{self.name} has runs of several machines ({names}); compare the runs of one machine")
        if len({_run_key(run) for run in self.runs}) < len(self.runs):
            raise UsageError(
                f"{self.name} holds the same run more than once, so it does not show how much processes differ; give "
                "each run once, or save a new baseline: pyxfer baseline save"
            )

    def remarks(self) -> list[Remark]:
        ended = [number for number, run in enumerate(self.runs, start=1) if run.ended == "interrupted"]
        if not ended:
            return []
        which = "" if len(self.runs) == 1 else f" (run {', '.join(map(str, ended))} of {len(self.runs)})"
        text = f"{self.name} was interrupted before its end{which}; the part that was measured is compared"
        return [Remark("interrupted", text)]


def check_comparable(a: Sample, b: Sample) -> None:
    """Refuse two sides that cannot be compared.

    Raises:
        UsageError: the reason.

    """
    a.check()
    b.check()
    one, other = a.first, b.first
    if one.runtime != other.runtime:
        host, real = (a, b) if one.runtime == "host" else (b, a)
        raise UsageError(
            f"{host.name} was measured in host memory, without a GPU, and {real.name} over the link of a "
            f"{_model(real.first)}; the two cannot be compared"
        )
    if one.device.uuid.value is not None and one.device.uuid.value == other.device.uuid.value:
        return
    if _model(one) != _model(other):
        raise UsageError(
            f"{a.name} is of a {_model(one)} and {b.name} of a {_model(other)}: different devices cannot be compared; "
            "pyxfer doctor compares each of them with what it should reach"
        )
    if one.link.kind != other.link.kind:
        kinds = _KINDS[one.link.kind], _KINDS[other.link.kind]
        raise UsageError(f"{a.name} has {kinds[0]} and {b.name} {kinds[1]}: different links cannot be compared")


def no_common_cell_text(a: Sample, b: Sample, of_a: dict[Cell, Series], of_b: dict[Cell, Series]) -> str:
    """Why no cell can be compared."""
    for cell, series in of_a.items():
        if cell in of_b:
            missing = series.missing or of_b[cell].missing
            return f"{a.name} and {b.name} have cells in common, but no time in any of them: {missing}"
    return (
        f"{a.name} and {b.name} have no cell in common: {a.name} has {_cells(of_a)}, and {b.name} has {_cells(of_b)}; "
        "measure both with the same directions, memories, modes and sizes"
    )


def _cells(series: dict[Cell, Series]) -> str:
    texts = [cell_text(cell, full=True) for cell in series]
    shown = ", ".join(texts[:_SHOWN_CELLS])
    return f"{shown} and {len(texts) - _SHOWN_CELLS} more" if len(texts) > _SHOWN_CELLS else shown or "none"


def same_run(a: Sample, b: Sample) -> bool:
    """Whether a run is on both sides."""
    return bool({_run_key(run) for run in a.runs} & {_run_key(run) for run in b.runs})


def _run_key(run: Run) -> tuple[object, ...]:
    """The same for copies of a run; two processes never have the same moment, duration and times to the last bit."""
    times = tuple(row.summary.median_s for row in run.measurements if row.summary is not None)
    return run.environment.taken_at, run.parameters.seed, run.duration_s, times


def _machine(run: Run) -> str:
    return f"{run.environment.host} {run.device.uuid.value or run.device.name}"


def _model(run: Run) -> str:
    """The device's name without the vendor, which only some drivers put before it."""
    return _VENDOR.sub("", run.device.name)


def common(of_a: dict[Cell, Series], of_b: dict[Cell, Series]) -> Sequence[Cell]:
    """The cells for which both sides have a time, in the order of A."""
    return [cell for cell, series in of_a.items() if series.n and cell in of_b and of_b[cell].n]
