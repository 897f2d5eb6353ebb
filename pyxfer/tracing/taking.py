"""What a phase of traced trials asks of its collector: a clean beginning, and everything since."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, DeviceBuffer, HostBuffer
    from pyxfer.tracing.collector import Collector
    from pyxfer.tracing.records import Capture

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
