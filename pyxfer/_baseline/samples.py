"""The sides of a comparison: their runs, collected by cell, and whether two sides can be compared."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import geometric_mean, median

import numpy as np

from pyxfer._baseline.figures import Figure, figures_of
from pyxfer._baseline.fingerprints import devices_of, devices_text, fingerprint_of, identity
from pyxfer._document.baselines import AnyRun, Baseline
from pyxfer._document.cells import Cell
from pyxfer._document.links import Links
from pyxfer._document.machines import Remark
from pyxfer._measure.stats import variance_inflation
from pyxfer.errors import UsageError
from pyxfer.units import first_of, parse_moment

INTERVAL_Z = 1.96
"""In-process intervals are of 95 %."""
_SHORTEST_S, _LONGEST_S = 1e-12, 1e9


@dataclass(frozen=True)
class Series:
    """One cell in each process that has a time of it; if none has, `missing` is the reason.

    `errors` are the relative standard errors of the medians, by the trials within each process.
    """

    medians_s: tuple[float, ...]
    errors: tuple[float, ...]
    processes: tuple[int, ...]
    sittings: tuple[int, ...]
    """The sitting of each process."""
    moved_bytes: int
    missing: str = ""
    left_out: frozenset[int] = frozenset()
    """The places of the processes that do not count; see `leave_out`."""

    @property
    def n(self) -> int:
        return len(self.medians_s)

    @cached_property
    def logs(self) -> tuple[float, ...]:
        return tuple(math.log(median_s) for median_s in self.medians_s)

    @property
    def gbps(self) -> float:
        return self.moved_bytes / math.exp(self.mean_log) / 1e9

    @cached_property
    def steps(self) -> tuple[float, ...]:
        """The distance of each process from the median of its sitting."""
        middles = {
            number: median(log for log, own in zip(self.logs, self.sittings, strict=True) if own == number)
            for number in set(self.sittings)
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
        return sum(map(len, self.groups)) - len(self.groups)

    @cached_property
    def weight(self) -> float:
        """The variance of `mean_log` if the variance between processes is 1."""
        return sum(1 / len(group) for group in self.groups) / len(self.groups) ** 2

    @cached_property
    def variance_inside(self) -> float:
        """The variance of the mean by the trials within the processes alone."""
        parts = [sum(self.errors[place] ** 2 for place in group) / len(group) ** 2 for group in self.groups]
        return sum(parts) / len(self.groups) ** 2


MIN_TO_LEAVE_OUT = 5
"""Fewer processes do not show which of them is the odd one."""
_FAR, _MIN_DEVIATION = 6, 0.002
_TO_SIGMA = 1.4826  # the standard deviation over the median deviation, of normal values
_MIN_TO_DEVIATE = 3
_CHANCE = 0.01


def leave_out(a: Series, b: Series) -> tuple[Series, Series]:
    """Both sides without their odd processes: fewer than half of a side, each far from the median of its sitting.

    If odd processes of one side are at the level of the other side, the host may have two modes. Then nothing is left
    out, unless chance does not explain that one side is more often at that level.
    """
    steps = [abs(step) for side in (a, b) if side.n >= _MIN_TO_DEVIATE for step in side.steps]
    far = _FAR * max(_TO_SIGMA * median(steps or (0.0,)), _MIN_DEVIATION)
    kept_a, kept_b = _without_odd(a, far), _without_odd(b, far)
    if _shares_levels(kept_a, kept_b, far) and not _changed_level(kept_a, kept_b):
        return a, b
    return kept_a, kept_b


def _without_odd(side: Series, far: float) -> Series:
    odd = frozenset(place for place, step in enumerate(side.steps) if abs(step) > far)
    if not odd or side.n < MIN_TO_LEAVE_OUT or 2 * len(odd) >= side.n:
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


def sittings_of(runs: Sequence[AnyRun]) -> tuple[int, ...]:
    moments = [parse_moment(run.environment.taken_at).timestamp() for run in runs]
    ordered = sorted(moments)
    begins = [later for earlier, later in pairwise(ordered) if later - earlier > SITTING_S]
    return tuple(bisect_right(begins, moment) for moment in moments)


@dataclass
class _Gathered:
    moved_bytes: int
    times: dict[int, list[Figure]] = field(default_factory=dict)
    """By process."""
    reasons: list[str] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)


def collect(runs: Sequence[AnyRun]) -> dict[Cell, Series]:
    return _series_of(runs, sittings_of(runs))


def rates_of(runs: Sequence[AnyRun]) -> dict[Cell, tuple[float, ...]]:
    """The bandwidth of every cell in each process that measured it, in GB/s; it does not depend on the sittings."""
    cells = _series_of(runs, [0] * len(runs))
    return {
        cell: tuple(series.moved_bytes / median_s / 1e9 for median_s in series.medians_s)
        for cell, series in cells.items()
        if series.n
    }


def _series_of(runs: Sequence[AnyRun], sittings: Sequence[int]) -> dict[Cell, Series]:
    cells: dict[Cell, _Gathered] = {}
    for process, run in enumerate(runs):
        for figure in figures_of(run):
            _add(cells.setdefault(figure.cell, _Gathered(figure.moved_bytes)), process, figure)
    return {cell: _series(gathered, sittings) for cell, gathered in cells.items()}


def _add(gathered: _Gathered, process: int, figure: Figure) -> None:
    if figure.wrong:
        gathered.wrong.append(process)
    elif figure.seconds is None or figure.gbps is None:
        gathered.reasons.append(figure.missing)
    elif not (_SHORTEST_S < figure.seconds < _LONGEST_S and figure.gbps > 0):
        gathered.reasons.append("its time is impossible for a copy")
    else:
        gathered.times.setdefault(process, []).append(figure)


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
    figures = gathered.times.values()
    return Series(
        medians_s=tuple(geometric_mean([each.seconds for each in rows if each.seconds]) for rows in figures),
        errors=tuple(math.hypot(*map(_error_of, rows)) / len(rows) for rows in figures),
        processes=tuple(gathered.times),
        sittings=tuple(sittings[process] for process in gathered.times),
        moved_bytes=gathered.moved_bytes,
    )


def _without_times(gathered: _Gathered, reason: str) -> Series:
    return Series((), (), (), (), gathered.moved_bytes, reason)


def _error_of(figure: Figure) -> float:
    """By the trials; without them by the interval, which is wider than they alone make it; 0 without either."""
    if figure.times_s:
        return standard_error(figure.times_s)
    if figure.rate is None or not figure.rate.low_gbps or not figure.rate.high_gbps:
        return 0.0
    return math.log(figure.rate.high_gbps / figure.rate.low_gbps) / 2 / INTERVAL_Z


_QUARTILES = 1.349  # of normal values, in standard deviations
_OF_A_MEDIAN = math.sqrt(math.pi / 2)  # standard error of the median of normal values over that of their mean


def standard_error(times_s: Sequence[float]) -> float:
    """The relative standard error of the median of trials in the order they ran, by their quartiles.

    Correlation of neighbours widens it. Unlike an interval it has no allowance for levels that shift between
    processes: the processes of a side show these.
    """
    values = np.asarray(times_s, dtype=np.float64)
    q1, middle, q3 = np.quantile(values, (0.25, 0.5, 0.75))
    if middle <= 0:
        return 0.0
    deviation = (q3 - q1) / middle / _QUARTILES
    return float(_OF_A_MEDIAN * deviation * math.sqrt(variance_inflation(values) / values.size))


_VENDOR = re.compile(r"^NVIDIA\s+", re.IGNORECASE)
_SHOWN_CELLS = 4
_KINDS = {"pcie": "PCI Express", "c2c": "NVLink-C2C", "none": "no link", "unknown": "an unknown link"}


@dataclass(frozen=True)
class Sample:
    """One side of a comparison: the runs of one or more processes on one machine."""

    name: str
    runs: tuple[AnyRun, ...]

    @classmethod
    def of(cls, baseline: Baseline) -> Sample:
        return cls(f"baseline {baseline.name!r}", baseline.processes)

    @property
    def first(self) -> AnyRun:
        return self.runs[0]

    def check(self) -> None:
        if not self.runs:
            raise UsageError(f"{self.name} has no runs: measure first, e.g. with pyxfer ceiling --export-json FILE.")
        for number, run in enumerate(self.runs, start=1):
            which = self.name if len(self.runs) == 1 else f"run {number} of {self.name}"
            if run.ended == "failed":
                raise UsageError(f"{which} failed ({run.failure or 'no reason given'}), so it cannot be compared.")
        if len({isinstance(run, Links) for run in self.runs}) > 1:
            raise UsageError(f"{self.name} has runs of links beside other runs: compare one kind at a time.")
        machines = {identity(fingerprint_of(run)) for run in self.runs}
        if len(machines) > 1:
            names = ", ".join(dict.fromkeys(_machine(run) for run in self.runs))
            raise UsageError(f"{self.name} has runs of several machines ({names}): compare the runs of one machine.")
        if len({_run_key(run) for run in self.runs}) < len(self.runs):
            raise UsageError(
                f"{self.name} holds the same run more than once, so it does not show how much processes differ: give "
                "each run once, or save a new baseline with pyxfer baseline save."
            )

    def remarks(self) -> list[Remark]:
        ended = [number for number, run in enumerate(self.runs, start=1) if run.ended == "interrupted"]
        if not ended:
            return []
        which = "" if len(self.runs) == 1 else f" (run {', '.join(map(str, ended))} of {len(self.runs)})"
        text = f"{self.name} was interrupted before its end{which}; the part that was measured is compared"
        return [Remark("interrupted", text)]


def check_comparable(a: Sample, b: Sample) -> None:
    a.check()
    b.check()
    one, other = a.first, b.first
    if isinstance(one, Links) != isinstance(other, Links):
        links, run = (a, b) if isinstance(one, Links) else (b, a)
        raise UsageError(
            f"{links.name} is of links, whose rates are those of many copies one after the other, and {run.name} times "
            "single copies, so the two cannot be compared: measure both with pyxfer links or both with pyxfer ceiling."
        )
    if one.runtime != other.runtime:
        host, real = (a, b) if one.runtime == "host" else (b, a)
        raise UsageError(
            f"{host.name} was measured in host memory, without a GPU, and {real.name} over the link of "
            f"{_models_text(real.first)}, so the two cannot be compared."
        )
    if _uuids(one) == _uuids(other) and None not in _uuids(one).values():
        return
    _check_alike(a, b)


def _check_alike(a: Sample, b: Sample) -> None:
    """Refuse sides of different devices that are not of one model with one kind of link, or that change numbers."""
    one, other = a.first, b.first
    if _models(one) != _models(other):
        raise UsageError(
            f"{a.name} is of {_models_text(one)} and {b.name} of {_models_text(other)}, and different devices "
            "cannot be compared: compare each of them with what it should reach, with pyxfer doctor."
        )
    if isinstance(one, Links) and _uuids(one).keys() != _uuids(other).keys():
        numbers = (", ".join(map(str, _uuids(run))) for run in (one, other))
        raise UsageError(
            f"{a.name} has the GPUs {next(numbers)} and {b.name} {next(numbers)}: measure the same --device."
        )
    moved = set(_uuids(one).values()) & set(_uuids(other).values()) - {None}
    if any(uuid in moved and _uuids(other)[number] != uuid for number, uuid in _uuids(one).items()):
        raise UsageError(
            f"{a.name} and {b.name} have the same GPU under different numbers, by which their cells are named: measure "
            "both with the same CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."
        )
    for (_, link), (_, other_link) in zip(devices_of(one), devices_of(other), strict=True):
        if link.kind != other_link.kind:
            kinds = _KINDS[link.kind], _KINDS[other_link.kind]
            raise UsageError(
                f"{a.name} has {kinds[0]} and {b.name} {kinds[1]}, and different links cannot be compared."
            )


def _uuids(run: AnyRun) -> dict[int, str | None]:
    return {device.index if isinstance(run, Links) else 0: device.uuid.value for device, _ in devices_of(run)}


def other_gpus(a: Sample, b: Sample) -> bool:
    one, other = _uuids(a.first), _uuids(b.first)
    return any(uuid is not None and other[number] not in (None, uuid) for number, uuid in one.items())


def no_common_cell_text(a: Sample, b: Sample, of_a: dict[Cell, Series], of_b: dict[Cell, Series]) -> str:
    for cell, series in of_a.items():
        if cell in of_b:
            missing = series.missing or of_b[cell].missing
            return f"{a.name} and {b.name} have cells in common, but no time in any of them: {missing}."
    return (
        f"{a.name} and {b.name} have no cell in common: {a.name} has {_cells(of_a)}, and {b.name} has {_cells(of_b)}. "
        "Measure both with the same directions, memories, modes and sizes."
    )


def _cells(series: dict[Cell, Series]) -> str:
    return first_of([cell.text for cell in series], _SHOWN_CELLS) or "none"


def same_run(a: Sample, b: Sample) -> bool:
    return bool({_run_key(run) for run in a.runs} & {_run_key(run) for run in b.runs})


def _run_key(run: AnyRun) -> tuple[object, ...]:
    """The same for copies of a run; two processes never have the same moment, duration and times to the last bit."""
    times = tuple(figure.seconds for figure in figures_of(run) if figure.seconds is not None)
    return run.environment.taken_at, run.parameters.seed, run.duration_s, times


def _machine(run: AnyRun) -> str:
    fingerprint = fingerprint_of(run)
    return f"{fingerprint.host} {fingerprint.gpu.value or fingerprint.device}"


def _models(run: AnyRun) -> list[str]:
    """The names of its devices without the vendor, which only some drivers put before it."""
    return [_VENDOR.sub("", device.name) for device, _ in devices_of(run)]


def _models_text(run: AnyRun) -> str:
    models = _models(run)
    return f"{'a ' if len(models) == 1 else ''}{devices_text(models)}"


def common(of_a: Mapping[Cell, Series], of_b: Mapping[Cell, Series]) -> Sequence[Cell]:
    return [cell for cell, series in of_a.items() if series.n and cell in of_b and of_b[cell].n]
