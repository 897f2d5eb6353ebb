"""What is compared: a name and the runs of its processes, and whether two of them can be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyxfer.baselines.cells import cell_text
from pyxfer.baselines.fingerprint import fingerprint_of, identity
from pyxfer.baselines.spread import Series
from pyxfer.errors import UsageError
from pyxfer.model import Remark, Run
from pyxfer.model_baselines import Cell

_VENDOR = re.compile(r"^NVIDIA\s+", re.IGNORECASE)
_SHOWN_CELLS = 4
_KINDS = {
    "pcie": "PCI Express",
    "c2c": "NVLink-C2C",
    "nvlink": "NVLink",
    "none": "no link",
    "unknown": "a link unknown",
}


@dataclass(frozen=True)
class Sample:
    """One side of a comparison: the runs of one or more processes on one machine."""

    name: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """The run that stands for the machine."""
        return self.runs[0]

    def check(self) -> None:
        """Refuse what says nothing, and runs of several machines.

        Raises:
            UsageError: the reason, with the name.

        """
        if not self.runs:
            raise UsageError(f"{self.name} holds no run; measure first, such as with pyxfer ceiling --export-json FILE")
        for number, run in enumerate(self.runs, start=1):
            which = self.name if len(self.runs) == 1 else f"run {number} of {self.name}"
            if run.ended == "failed":
                raise UsageError(f"{which} has failed ({run.failure or 'no reason given'}), so it is not compared")
        machines = {identity(fingerprint_of(run)) for run in self.runs}
        if len(machines) > 1:
            names = ", ".join(dict.fromkeys(_machine(run) for run in self.runs))
            raise UsageError(f"{self.name} holds runs of several machines ({names}); compare those of one")

    def distinct(self) -> int:
        """How many of its runs are no other's copy."""
        return len({_fingerprint_of_run(run) for run in self.runs})

    def remarks(self) -> list[Remark]:
        """What must be known of its runs."""
        ended = [number for number, run in enumerate(self.runs, start=1) if run.ended == "interrupted"]
        if not ended:
            return []
        which = "" if len(self.runs) == 1 else f" (run {', '.join(map(str, ended))} of {len(self.runs)})"
        text = f"{self.name} was interrupted before its end{which}; what it had measured is compared"
        return [Remark("interrupted", text)]


def check_comparable(a: Sample, b: Sample) -> None:
    """Refuse two sides whose ratio would say nothing.

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
            f"{_model(real.first)}; the one says nothing of the other"
        )
    if one.device.uuid.value is not None and one.device.uuid.value == other.device.uuid.value:
        return
    if _model(one) != _model(other):
        raise UsageError(
            f"{a.name} is of a {_model(one)} and {b.name} of a {_model(other)}: different devices are not compared; "
            "hold each against what it should reach, with pyxfer doctor"
        )
    if one.link.kind != other.link.kind:
        kinds = _KINDS[one.link.kind], _KINDS[other.link.kind]
        raise UsageError(f"{a.name} has {kinds[0]} and {b.name} {kinds[1]}: different links are not compared")


def why_nothing_common(a: Sample, b: Sample, of_a: dict[Cell, Series], of_b: dict[Cell, Series]) -> str:
    """Why no cell can be compared."""
    for cell, series in of_a.items():
        if cell in of_b:
            missing = series.missing or of_b[cell].missing
            return f"{a.name} and {b.name} have the same cells, and no time in any of them: {missing}"
    return (
        f"{a.name} and {b.name} have no cell in common: {a.name} has {_cells(of_a)}, and {b.name} has {_cells(of_b)}; "
        "measure both with the same --direction, --memory, --mode and --sizes"
    )


def _cells(series: dict[Cell, Series]) -> str:
    texts = [cell_text(cell, full=True) for cell in series]
    shown = ", ".join(texts[:_SHOWN_CELLS])
    return f"{shown} and {len(texts) - _SHOWN_CELLS} more" if len(texts) > _SHOWN_CELLS else shown or "none"


def same_run(a: Sample, b: Sample) -> bool:
    """Whether a run is on both sides, where it agrees with itself."""
    return bool({_fingerprint_of_run(run) for run in a.runs} & {_fingerprint_of_run(run) for run in b.runs})


def _fingerprint_of_run(run: Run) -> tuple[object, ...]:
    """No two processes have one seed, one moment and one duration, and the same times to the last bit."""
    times = tuple(each.summary.median_s for each in run.measurements if each.summary is not None)
    return run.environment.taken_at, run.parameters.seed, run.duration_s, times


def _machine(run: Run) -> str:
    return f"{run.environment.host} {run.device.uuid.value or run.device.name}"


def _model(run: Run) -> str:
    """The device's name, which some drivers begin with its vendor's."""
    return _VENDOR.sub("", run.device.name)


def common(of_a: dict[Cell, Series], of_b: dict[Cell, Series]) -> Sequence[Cell]:
    """The cells that both sides have a time of, in the order of A."""
    return [cell for cell, series in of_a.items() if series.n and cell in of_b and of_b[cell].n]
