"""What one ceiling run holds on the device: memory, streams and events, made together and released together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyxfer.errors import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DeviceTimeoutError,
    MeasurementError,
)
from pyxfer.model import Fact, Ring, unknown
from pyxfer.model_ring import NOT_STAGED
from pyxfer.raw.arena import Arena
from pyxfer.raw.stager import Stager
from pyxfer.staging.tuning import Chosen, settings_for
from pyxfer.staging.tuning_given import VARIABLE

if TYPE_CHECKING:
    from pyxfer.model import Memory
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier


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
        self._chosen: Chosen | None = None
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
        return f"no ring, and {VARIABLE}=slots=16 asks for a smaller one: {error}"
    return str(error)
