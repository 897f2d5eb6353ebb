"""What one ceiling run holds on the device: memory, streams and events, made together and released together."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyxfer._ceiling.arena import Arena
from pyxfer._document.machines import NOT_STAGED
from pyxfer._document.runs import Direction, Fact, Ring, unknown
from pyxfer._measure.bracket import Bracket
from pyxfer._upload.settings import RING_VARIABLE, make_ring
from pyxfer._upload.tuning import ChosenSettings, settings_for
from pyxfer.errors import (
    CancelledError,
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DeviceTimeoutError,
    MeasurementError,
)

if TYPE_CHECKING:
    from pyxfer._document.runs import Memory
    from pyxfer._upload.settings import RingSettings
    from pyxfer._upload.tuning import ChosenSettings
    from pyxfer.native import Engine
    from pyxfer.native import _cuda as compiled
    from pyxfer.native._cuda import Copier


# Ctrl-C has to end a run within a second, and whoever looks more often is in the way of what is timed.
LOOK_S = 0.1
# Every transfer has been waited for, so only a device that does not answer has not left the slots by then.
CLOSE_S = 0.3


class Stager:
    """One thread at a time; `cancel` may come from any other."""

    def __init__(self, engine: Engine, device: int, chosen: ChosenSettings, patience_s: float) -> None:
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
            # Dropped, not closed: an error of `close` must not replace this one, whose traceback refers to `self`.
            for name in ("_copier", "_bracket", "_ring"):
                self.__dict__.pop(name, None)
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


def _as_made(ring: compiled.Ring, chosen: ChosenSettings, seconds: float) -> Ring:
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


# What nobody may release any more.
_LEFT: list[Copier | Arena | Stager] = []


class Workshop:
    """Use it in a `with` block of the thread that measures; `cancel` may come from any other."""

    def __init__(self, engine: Engine, device: int, patience_s: float) -> None:
        self.engine = engine
        self.device = device
        self._patience_s = patience_s
        self._copiers: dict[int, Copier] = {}
        self._arena: Arena | None = None
        self._stager: Stager | None = None
        self.ring: Fact[Ring] = unknown(NOT_STAGED)
        """What staged copies went through, or why there was none."""
        self._no_ring: str | None = None
        self._chosen: ChosenSettings | None = None
        self._cancelled = threading.Event()

    @property
    def arena(self) -> Arena:
        """The memory, once `allocate` has made it."""
        if self._arena is None:
            raise RuntimeError("nothing has been allocated yet")
        return self._arena

    def allocate(self, memories: Sequence[Memory], largest: int, cache_bytes: int) -> Arena:
        """Make the memory."""
        self._arena = Arena(self.engine, self.device, memories, largest, cache_bytes)
        return self._arena

    def copier(self, streams: int) -> Copier:
        """The bench of that many streams, made on first use."""
        if streams not in self._copiers:
            self._copiers[streams] = self.engine.Copier(self.device, streams, self._patience_s)
            if self._cancelled.is_set():
                self._copiers[streams].cancel()
        return self._copiers[streams]

    def choose_ring(self) -> tuple[str, ...]:
        """Find out how the ring is to be made, and what is to be said of that; may measure for a second.

        In the thread that Ctrl-C reaches, for it is that which ends the measuring early.

        Raises:
            UsageError: what is given for a ring is none.
            KeyboardInterrupt: Ctrl-C.

        """
        with self._noting_no_ring():
            self._chosen = settings_for(self.engine, self.device)
        return self._chosen.remarks if self._chosen else ()

    def stager(self) -> Stager:
        """The ring, made on first use. Where that failed it is not tried again: to page-lock in vain takes long too.

        Raises:
            MeasurementError: there is none; says why.

        """
        if self._stager is None:
            if self._chosen is None and self._no_ring is None:
                self.choose_ring()
            with self._noting_no_ring():
                if self._chosen is not None:
                    self._stager = Stager(self.engine, self.device, self._chosen, self._patience_s)
                    self.ring = Fact(self._stager.made)
        if self._stager is None:
            raise MeasurementError(self._no_ring or "")
        if self._cancelled.is_set():
            self._stager.cancel()
        return self._stager

    @contextlib.contextmanager
    def _noting_no_ring(self) -> Iterator[None]:
        """What is the ring's own trouble is kept for its rows; what nothing survives is not."""
        try:
            yield
        except (CudaUnavailableError, DeviceLostError):
            raise
        except (CudaError, MeasurementError) as error:
            self._no_ring, self._chosen = _with_remedy(error), None
            self.ring = unknown(self._no_ring)

    def cancelled(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End what runs, soon."""
        self._cancelled.set()
        for copier in list(self._copiers.values()):
            copier.cancel()
        if self._stager is not None:
            self._stager.cancel()

    def close(self) -> list[str]:
        """Release everything; what could not be released is told, not raised, for there is nothing left to try."""
        faults: list[str] = []
        for each in self._held():
            try:
                each.close()
            except CudaError as error:
                faults.append(str(error))
            except DeviceTimeoutError as error:  # of the first of them: what the device may still write to stays
                faults.append(str(error))
                self.abandon()
                break
        self._forget()
        return list(dict.fromkeys([*faults, *self.engine.take_cleanup_failures()]))

    def abandon(self) -> None:
        """Leave everything to the end of the process: the device does not answer, and may still be writing."""
        for each in self._held():
            each.abandon()
        self._forget()

    def leave(self) -> None:
        """Leave everything to the end of the process: a thread that is stuck in the driver is still at work with it."""
        _LEFT.extend(self._held())
        self._forget()

    def _held(self) -> list[Copier | Arena | Stager]:
        """In the order in which it may be released: nothing may use memory that is gone."""
        first, last = [self._stager] if self._stager else [], [self._arena] if self._arena else []
        return [*first, *self._copiers.values(), *last]

    def _forget(self) -> None:
        self._copiers.clear()
        self._arena = self._stager = None


def _with_remedy(error: CudaError | MeasurementError) -> str:
    """What the error says of sizes does not help: they make no ring larger."""
    if isinstance(error, CudaMemoryError):
        return f"no ring, and {RING_VARIABLE}=slots=16 asks for a smaller one: {error}"
    return str(error)
