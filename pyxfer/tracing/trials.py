"""One traced trial: what the host's clock and the kernel say of it, beside everything that the device recorded."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyxfer.model import Direction, Side
from pyxfer.tracing.records import Capture, CopyWay


@dataclass(frozen=True)
class Usage:
    """Page faults of the process; how often the calling thread waited, and how often it lost the processor."""

    faults: int
    switches: int
    preemptions: int

    @classmethod
    def so_far(cls) -> Usage:
        """Up to now."""
        thread = resource.getrusage(resource.RUSAGE_THREAD)
        return cls(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, thread.ru_nvcsw, thread.ru_nivcsw)

    def since(self, before: Usage) -> Usage:
        """What came about from then to this."""
        return Usage(
            self.faults - before.faults, self.switches - before.switches, self.preemptions - before.preemptions
        )


@dataclass(frozen=True)
class Traced:
    """A trial of `copies` transfers; its times are those of all of them together.

    `begin_ns` and `returned_ns` are on the clock of the records, which is `time.perf_counter_ns`. `way` is None where
    nothing of it crosses the link. `staged`: threads fill or empty page-locked slots for it, so the time in which no
    slot is ready for the device is theirs.
    """

    way: CopyWay | None
    begin_ns: int
    returned_ns: int
    elapsed_s: float
    dispatch_s: float
    wall_s: float
    copies: int
    usage: Usage
    capture: Capture
    staged: bool = False

    @property
    def end_ns(self) -> int:
        """When the last event was stamped, or the host saw the end."""
        return self.begin_ns + round(self.elapsed_s * 1e9)


class _Timed(Protocol):
    @property
    def elapsed_s(self) -> float: ...


_AnyTimed = TypeVar("_AnyTimed", bound=_Timed)


def nearest(trials: Sequence[_AnyTimed], median_s: float | None) -> _AnyTimed:
    """The trial nearest to the median of those that were only timed, so that what it shows is of that figure.

    Without one it is the trial in the middle.
    """
    if median_s is not None:
        return min(trials, key=lambda each: abs(each.elapsed_s - median_s))
    return sorted(trials, key=lambda each: each.elapsed_s)[(len(trials) - 1) // 2]


def copy_way(side: Direction | Side) -> CopyWay | None:
    """The records that belong to a direction; none to what stays in host memory."""
    return {"h2d": CopyWay.H2D, "d2h": CopyWay.D2H}.get(side)
