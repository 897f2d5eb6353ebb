"""The tracer, opened where a library for it is found, started and read out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyxfer.model_trace import Tracing
from pyxfer.tracing.libraries import candidates_here
from pyxfer.tracing.records import RECORD, Capture, Clock

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Taken

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
