"""The tracer, opened where a library for it is found, started and read out."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyxfer._document.runs import Direction, Side, Tracing
from pyxfer._trace.libraries import candidates_here
from pyxfer._trace.records import RECORD, Capture, Clock, CopyWay

if TYPE_CHECKING:
    from pyxfer._trace.records import Capture
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, DeviceBuffer, HostBuffer, Taken


_BYTES = 4096


class Taking:
    """Parts off what a collector records, trial by trial.

    Once records have been taken, the library fetches new room for them inside the next call that needs some, which
    takes longer than many a copy. So each beginning makes a small copy of its own.
    """

    def __init__(self, engine: Engine, collector: Collector, device: int) -> None:
        self._collector = collector
        self._since_ns = 0
        self._host: HostBuffer | None = None
        self._remote: DeviceBuffer | None = None
        self._copier: Copier | None = None
        try:
            self._host = engine.HostBuffer(_BYTES, "pinned", device)
            self._remote = engine.DeviceBuffer(_BYTES, device)
            self._copier = engine.Copier(device)
            self._lane = engine.Lane("h2d", self._host.address, self._remote.address, _BYTES, _BYTES, 1)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """What was done up to now is in no capture that is taken after this; the device has nothing left to do."""
        self._collector.take()
        if self._copier is None:
            raise ValueError("nothing is taken any more")
        self._copier.drained(self._lane, 0)
        self._since_ns = time.perf_counter_ns()

    def take(self) -> Capture:
        """Everything since the beginning; what the device gave no time for is of no other time."""
        capture = self._collector.take()
        records = capture.records
        own = (records["end_ns"] >= self._since_ns) | (records["start_ns"] == 0)
        return replace(capture, records=records[own])

    def close(self) -> None:
        """Let go of its memory; a failure to release some is told with the run's own, and ends nothing."""
        self._copier = self._remote = self._host = None


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


MIB = 1 << 20
# A trial of a framework makes tens of records; a trial of many calls, thousands.
TRIAL_BYTES = 16 * MIB
TRIAL_KINDS = ("copies", "sets", "kernels", "calls")


class Collector:
    """Records what this process does on its devices, between `start` and `stop`. One can be at work in a process."""

    def __init__(self, engine: Engine, kinds: Sequence[str] = TRIAL_KINDS, capacity_bytes: int = TRIAL_BYTES) -> None:
        self._tracer = engine.Tracer(candidates_here(engine), list(kinds), capacity_bytes)

    def start(self) -> Tracing:
        """Begin; raises TraceUnavailableError where no library can be used, with the reason."""
        self._tracer.start()
        return Tracing(self._tracer.library, self._tracer.version)

    def take(self) -> Capture:
        """Everything since it was started, or since the last time."""
        return capture_of(self._tracer.take())

    def stop(self) -> None:
        """End; what was recorded can still be taken."""
        self._tracer.stop()

    def close(self) -> None:
        """Let go of the library; it is stopped before."""
        self._tracer.close()

    @contextmanager
    def running(self) -> Iterator[Tracing]:
        """Started within, and stopped however the block ends."""
        tracing = self.start()
        try:
            yield tracing
        finally:
            self.stop()


def capture_of(taken: Taken) -> Capture:
    """What the tracer gave, as the rest of pyxfer reads it."""
    clock = Clock(taken.clock_error_ns, taken.clock_drift_ns)
    return Capture(taken.records.astype(RECORD, copy=False), tuple(taken.names), dict(taken.dropped), clock)
