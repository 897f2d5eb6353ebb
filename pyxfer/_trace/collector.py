"""Start and stop the tracer, and read its records."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyxfer._document.machines import Side
from pyxfer._document.runs import Direction, Tracing
from pyxfer._trace.libraries import candidates_here
from pyxfer._trace.records import RECORD, Capture, Clock, CopyKind

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Taken


_BYTES = 4096


class TrialRecorder:
    """Captures the records of single trials from a running collector.

    After records have been taken, the library allocates a new buffer inside the next call that needs one, which can
    take longer than a copy. So `begin` makes a small copy first.
    """

    def __init__(self, engine: Engine, collector: Collector, device: int) -> None:
        self._collector = collector
        self._since_ns = 0
        try:
            self._host = engine.HostBuffer(_BYTES, "pinned", device)
            self._remote = engine.DeviceBuffer(_BYTES, device)
            self._copier = engine.Copier(device)
            self._lane = engine.Lane("h2d", self._host.address, self._remote.address, _BYTES, _BYTES, 1)
        except BaseException:
            self.__dict__.clear()  # the error's traceback would keep them
            raise

    def begin(self) -> None:
        """Begin a trial: discard the records so far, and wait until the device is idle."""
        self._collector.take()
        self._copier.drained(self._lane, 0)
        self._since_ns = time.perf_counter_ns()

    def take(self) -> Capture:
        """Take the records since `begin`, and those without a time, which must be from the same trial."""
        capture = self._collector.take()
        records = capture.records
        own = (records["end_ns"] >= self._since_ns) | (records["start_ns"] == 0)
        return replace(capture, records=records[own])

    def close(self) -> None:
        del self._copier, self._remote, self._host


class Usage(NamedTuple):
    """Page faults of the process, and how often the calling thread waited (`switches`) or was preempted."""

    faults: int
    switches: int
    preemptions: int

    @classmethod
    def so_far(cls) -> Usage:
        thread = resource.getrusage(resource.RUSAGE_THREAD)
        return cls(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, thread.ru_nvcsw, thread.ru_nivcsw)

    def since(self, before: Usage) -> Usage:
        return Usage(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True)
class Traced:
    """A traced trial of `copies` transfers. Its times are those of all transfers together.

    `begin_ns` and `returned_ns` are times of `time.perf_counter_ns`, the clock of the records. `kind` is None if the
    trial does not cross the link. `staged`: threads fill or empty page-locked slots, so the time in which no slot is
    ready for the device counts as staging.
    """

    kind: CopyKind | None
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
        """When the last event was recorded, or the host saw the end."""
        return self.begin_ns + round(self.elapsed_s * 1e9)


T = TypeVar("T")


def nearest(trials: Sequence[T], median_s: float | None) -> T:
    """The trial whose `elapsed_s` is nearest to this median, or the median one of these trials if it is None."""
    elapsed_s: Callable[[T], float] = attrgetter("elapsed_s")
    if median_s is not None:
        return min(trials, key=lambda trial: abs(elapsed_s(trial) - median_s))
    return sorted(trials, key=elapsed_s)[(len(trials) - 1) // 2]


def copy_kind(side: Direction | Side) -> CopyKind | None:
    """The direction of a route's copies in the records; None if it does not cross the link."""
    return {"h2d": CopyKind.H2D, "d2h": CopyKind.D2H}.get(side)


# A trial of a framework makes tens of records; a trial of many calls, thousands.
TRIAL_BYTES = 16 << 20
TRIAL_KINDS = ("copies", "sets", "kernels", "calls")


class Collector:
    """Records this process's work on its devices. Only one can run in a process."""

    def __init__(self, engine: Engine, kinds: Sequence[str] = TRIAL_KINDS, capacity_bytes: int = TRIAL_BYTES) -> None:
        self._tracer = engine.Tracer(candidates_here(engine), list(kinds), capacity_bytes)

    def take(self) -> Capture:
        return capture_of(self._tracer.take())

    def close(self) -> None:
        self._tracer.close()

    @contextmanager
    def running(self) -> Iterator[Tracing]:
        self._tracer.start()
        try:
            yield Tracing(self._tracer.library, self._tracer.version)
        finally:
            self._tracer.stop()


def capture_of(taken: Taken) -> Capture:
    clock = Clock(taken.clock_error_ns, taken.clock_drift_ns)
    return Capture(taken.records.astype(RECORD, copy=False), tuple(taken.names), dict(taken.dropped), clock)
