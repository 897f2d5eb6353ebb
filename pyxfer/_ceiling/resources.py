"""The resources of one run on the device: memory, streams, events and the ring."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from pyxfer._ceiling.arena import WAKE_BYTES, Arena, wake_link
from pyxfer._document.machines import NOT_STAGED, Device, Fact, Link, Ring, unknown
from pyxfer._document.runs import Direction, Memory
from pyxfer._machine.link import link_under_load, with_load
from pyxfer._measure.bracket import Bracket
from pyxfer._measure.run import Resource, Resources, own_failure
from pyxfer._upload.settings import RING_VARIABLE, make_ring
from pyxfer._upload.tuning import ChosenSettings, settings_for
from pyxfer.errors import CancelledError, CudaError, CudaMemoryError, DeviceTimeoutError, MeasurementError

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native import _cuda as compiled
    from pyxfer.native._cuda import Copier


# Ctrl-C must end a run within a second; a thread that wakes more often would disturb the trials.
LOOK_S = 0.1
# All transfers have ended before, so only a device that does not answer still uses the slots.
CLOSE_S = 0.3


class StagedCopier:
    """Staged copies through one ring. One thread at a time uses it; any other thread may call `cancel`."""

    def __init__(self, engine: Engine, device: int, chosen: ChosenSettings, patience_s: float) -> None:
        begun = time.perf_counter()
        try:
            ring = self._ring = make_ring(engine, device, chosen.settings)
        except OSError as error:
            raise MeasurementError(f"{_no_thread(error)} The ring has {chosen.settings.threads} threads.") from error
        made: dict[str, Any] = {name: getattr(ring, name) for name in ("threads", "chunk_bytes", "slots", "fill")}
        made |= {"kernel": ring.fill_kernel, "spin_us": ring.spin_us, "pinned_bytes": ring.pinned_bytes}
        self.made = Ring(**made, source=chosen.source, reason=chosen.reason, made_s=time.perf_counter() - begun)
        self.moved = 0
        try:
            self._bracket = Bracket(engine, device)
            self._copier = engine.Copier(device, patience_s=patience_s)
            self._watch = _Watch(ring, patience_s)
        except BaseException:
            # Dropped, not closed: an error of `close` must not replace this one, whose traceback refers to `self`.
            del ring
            self.__dict__.clear()
            raise

    def move(self, direction: Direction, host: int, device: int, nbytes: int) -> Bracket:
        """Copy `nbytes` and wait for them. The returned bracket holds the times until the next call."""
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
        """Time a copy of one slot of a lane, with no Python code between the clock readings."""
        with self._patient():
            return self._copier.drained_through(self._ring, lane, slot)

    def wakes(self, nbytes: int) -> bool:
        return self._ring.threads_for(nbytes) > 1

    @contextmanager
    def _patient(self) -> Iterator[None]:
        self._watch.until_s = time.monotonic() + self._watch.patience_s
        try:
            yield
        except CancelledError as error:
            if self._watch.is_late:
                raise DeviceTimeoutError(
                    f"The device did not finish a staged copy within {self._watch.patience_s:g} s. Another program may "
                    "hold it, or it has hung: look at nvidia-smi and for Xid in dmesg."
                ) from error
            raise
        finally:
            self._watch.until_s = math.inf
        self.moved += 1

    def cancel(self) -> None:
        self._watch.cancel()
        self._copier.cancel()

    def close(self) -> None:
        self._watch.close()
        with ExitStack() as others:
            others.callback(self._bracket.close)
            others.callback(self._copier.close)
            self._ring.close(CLOSE_S)

    def abandon(self) -> None:
        self._watch.close()
        self._ring.abandon()
        self._copier.abandon()


class _Watch:
    """Cancels a ring's transfers after a timeout or on request, again and again.

    One call of the ring's own `cancel` would miss a transfer that begins just after it.
    """

    def __init__(self, ring: compiled.Ring, patience_s: float) -> None:
        self._ring = ring
        self.patience_s = patience_s
        self.until_s = math.inf
        self.is_late = self._cancelled = False
        self._closed = threading.Event()
        try:
            threading.Thread(target=self._look, name="pyxfer-patience", daemon=True).start()
        except RuntimeError as error:
            raise MeasurementError(_no_thread(error)) from error

    def cancel(self) -> None:
        self._cancelled = True
        self._ring.cancel()

    def close(self) -> None:
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            self.is_late = self.is_late or time.monotonic() > self.until_s
            if self.is_late or self._cancelled:
                self._ring.cancel()


def _no_thread(error: Exception) -> str:
    return (
        f"The system could not start another thread for the ring: {error}. Raise the limit (ulimit -u, or pids.max of "
        "the container), or end programs that have many threads."
    )


class RunResources(Resources):
    def __init__(self, engine: Engine, device: int, patience_s: float) -> None:
        super().__init__(engine)
        self.device = device
        self._patience_s = patience_s
        self._copiers: dict[int, Copier] = {}
        self._arena: Arena | None = None
        self._staged_copier: StagedCopier | None = None
        self.ring: Fact[Ring] = unknown(NOT_STAGED)
        """The ring of the staged copies, or why there is none."""
        self._no_ring: str | None = None
        self._chosen: ChosenSettings | None = None
        self._cancelled = threading.Event()

    @property
    def arena(self) -> Arena:
        if self._arena is None:
            raise RuntimeError("nothing has been allocated yet")
        return self._arena

    def allocate(
        self, memories: Sequence[Memory], largest: int, cache_bytes: int, is_late: Callable[[], bool] = lambda: False
    ) -> Arena:
        self._arena = Arena(self.engine, self.device, memories, largest, cache_bytes, is_late)
        return self._arena

    def copier(self, streams: int) -> Copier:
        if streams not in self._copiers:
            self._copiers[streams] = self.engine.Copier(self.device, streams, self._patience_s)
            if self._cancelled.is_set():
                self._copiers[streams].cancel()
        return self._copiers[streams]

    def wake_link(self, device: Device, link: Link, memory: Memory, largest: int) -> Link:
        """Copy until the link has left its power-saving state; returns `link` with its state under load."""
        lane = self.arena.lane("h2d", memory, min(WAKE_BYTES, largest))
        gated = memory != "pageable"
        state = wake_link(self.copier(1), lane, lambda: link_under_load(device), self.cancelled, gated=gated)
        return with_load(link, state)

    def choose_ring(self) -> tuple[str, ...]:
        """Choose the settings of the ring, and return remarks on them. May measure for a second.

        Call it in the main thread, where Ctrl-C can end it.
        """
        with own_failure(self._without_ring):
            self._chosen = settings_for(self.engine, self.device)
        return self._chosen.remarks if self._chosen else ()

    def staged_copier(self) -> StagedCopier:
        """The ring, created on first use. A failure is not tried again, because page-locking takes long."""
        if self._staged_copier is None:
            if self._chosen is None and self._no_ring is None:
                self.choose_ring()
            with own_failure(self._without_ring):
                if self._chosen is not None:
                    self._staged_copier = StagedCopier(self.engine, self.device, self._chosen, self._patience_s)
                    self.ring = Fact(self._staged_copier.made)
        if self._staged_copier is None:
            raise MeasurementError(self._no_ring or "")
        if self._cancelled.is_set():
            self._staged_copier.cancel()
        return self._staged_copier

    def _without_ring(self, error: CudaError | MeasurementError) -> None:
        """The advice of a CudaMemoryError is about sizes, which do not affect a ring."""
        text = str(error)
        if isinstance(error, CudaMemoryError):
            text = f"no ring, and {RING_VARIABLE}=slots=16 asks for a smaller one: {error}"
        self._no_ring, self._chosen = text, None
        self.ring = unknown(text)

    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        self._cancelled.set()
        for copier in list(self._copiers.values()):
            copier.cancel()
        if self._staged_copier is not None:
            self._staged_copier.cancel()

    def _held(self) -> list[Resource]:
        first, last = [self._staged_copier] if self._staged_copier else [], [self._arena] if self._arena else []
        return [*first, *self._copiers.values(), *last]

    def _forget(self) -> None:
        self._copiers.clear()
        self._arena = self._staged_copier = None
