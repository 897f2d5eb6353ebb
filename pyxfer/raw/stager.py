"""A ring with a run's clocks around what it moves, and a run's patience."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyxfer.errors import CancelledError, DeviceTimeoutError, MeasurementError
from pyxfer.model import Direction, Ring
from pyxfer.sampling.bracket import Bracket
from pyxfer.staging.settings import make_ring

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native import _cuda as compiled
    from pyxfer.staging.settings import RingSettings
    from pyxfer.staging.tuning import Chosen

# Ctrl-C has to end a run within a second, and whoever looks more often is in the way of what is timed.
LOOK_S = 0.1
# Every transfer has been waited for, so only a device that does not answer has not left the slots by then.
CLOSE_S = 0.3


class Stager:
    """One thread at a time; `cancel` may come from any other."""

    def __init__(self, engine: Engine, device: int, chosen: Chosen, patience_s: float) -> None:
        """Make the ring.

        Raises:
            CudaMemoryError: page-locked memory ran out.
            MeasurementError: a thread cannot be started.

        """
        begun = time.perf_counter()
        self._ring = _started(engine, device, chosen.settings)
        self.made = _as_made(self._ring, chosen, time.perf_counter() - begun)
        self.moved = 0
        try:
            self._bracket = Bracket(engine, device)
            self._copier = engine.Copier(device, patience_s=patience_s)
            self._watch = _Watch(self._ring, patience_s)
        except BaseException:
            # Let go of and not closed: an error of closing must not take the place of the one that is under way.
            del self._ring
            raise

    def move(self, direction: Direction, host: int, device: int, nbytes: int) -> Bracket:
        """Move so many bytes and return when they are there; the bracket around it, until the next.

        Raises:
            DeviceTimeoutError: the device did not finish in time.
            CancelledError: the run is to end.

        """
        with self._patient():
            self._bracket.begin()
            if direction == "h2d":
                self._ring.upload(host, 1, (nbytes,), (1,), device, None, wait=True)
            else:
                self._ring.download(host, 1, (nbytes,), (1,), device, None)
            self._bracket.returned()
            self._bracket.end()
        return self._bracket

    def time(self, lane: compiled.Lane, slot: int) -> compiled.Sample:
        """The same along a lane, with nothing of Python's between the clocks.

        Raises:
            DeviceTimeoutError: the device did not finish in time.
            CancelledError: the run is to end.

        """
        with self._patient():
            return self._copier.drained_through(self._ring, lane, slot)

    def wakes(self, nbytes: int) -> bool:
        """Whether other threads than the caller's move so many bytes."""
        return self._ring.threads_for(nbytes) > 1

    @contextmanager
    def _patient(self) -> Iterator[None]:
        self._watch.begin()
        try:
            yield
        except CancelledError as error:
            self._watch.explain(error)
            raise
        finally:
            self._watch.end()
        self.moved += 1

    def cancel(self) -> None:
        """End what it moves, and what it would move."""
        self._watch.cancel()
        self._copier.cancel()

    def close(self) -> None:
        """Give everything back.

        Raises:
            DeviceTimeoutError: the device has not left the slots; nothing of the ring is given back.

        """
        self._watch.close()
        with ExitStack() as others:
            others.callback(self._bracket.close)
            others.callback(self._copier.close)
            self._ring.close(CLOSE_S)

    def abandon(self) -> None:
        """Leave the ring to the end of the process."""
        self._watch.close()
        self._ring.abandon()
        self._copier.abandon()


class _Watch:
    """Cancels a ring, which waits as long as the device does: when that is too long, and as often as it takes.

    A ring's own `cancel` ends what was asked for until then, and would miss a transfer that begins just after it.
    """

    def __init__(self, ring: compiled.Ring, patience_s: float) -> None:
        self._ring = ring
        self._patience_s = patience_s
        self._until_s = math.inf
        self._late = self._cancelled = False
        self._closed = threading.Event()
        try:
            threading.Thread(target=self._look, name="pyxfer-patience", daemon=True).start()
        except RuntimeError as error:
            raise MeasurementError(_no_thread(error)) from error

    def begin(self) -> None:
        self._until_s = time.monotonic() + self._patience_s

    def end(self) -> None:
        self._until_s = math.inf

    def explain(self, error: CancelledError) -> None:
        """Raise what cancelled it, if that was its own patience."""
        if self._late:
            raise DeviceTimeoutError(
                f"The device did not finish a staged copy within {self._patience_s:g} s. Another program may hold it, "
                "or it has hung: look at nvidia-smi and for Xid in dmesg."
            ) from error

    def cancel(self) -> None:
        self._cancelled = True
        self._ring.cancel()

    def close(self) -> None:
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            if time.monotonic() > self._until_s:
                self._late = True
            if self._late or self._cancelled:
                self._ring.cancel()


def _started(engine: Engine, device: int, settings: RingSettings) -> compiled.Ring:
    try:
        return make_ring(engine, device, settings)
    except OSError as error:
        raise MeasurementError(f"{_no_thread(error)} The ring has {settings.threads} threads.") from error


def _no_thread(error: Exception) -> str:
    return (
        f"The system starts no further thread for the ring: {error}. Raise the limit (ulimit -u, or pids.max of the "
        "container), or end what has so many."
    )


def _as_made(ring: compiled.Ring, chosen: Chosen, seconds: float) -> Ring:
    return Ring(
        threads=ring.threads,
        chunk_bytes=ring.chunk_bytes,
        slots=ring.slots,
        fill=ring.fill,
        kernel=ring.fill_kernel,
        spin_us=ring.spin_us,
        pinned_bytes=ring.pinned_bytes,
        source=chosen.source,
        reason=chosen.reason,
        made_s=seconds,
    )
