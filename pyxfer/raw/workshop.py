"""What one ceiling run holds on the device: memory, streams and events, made together and released together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyxfer.errors import CudaError
from pyxfer.raw.arena import Arena

if TYPE_CHECKING:
    from pyxfer.model import Memory
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier


# What nobody may release any more.
_LEFT: list[Copier | Arena] = []


class Workshop:
    """Use it in a `with` block of the thread that measures; `cancel` may come from any other."""

    def __init__(self, engine: Engine, device: int, patience_s: float) -> None:
        self.engine = engine
        self.device = device
        self._patience_s = patience_s
        self._copiers: dict[int, Copier] = {}
        self._arena: Arena | None = None
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

    def cancelled(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End what runs, soon."""
        self._cancelled.set()
        for copier in list(self._copiers.values()):
            copier.cancel()

    def close(self) -> list[str]:
        """Release everything; what could not be released is told, not raised, for there is nothing left to try."""
        faults: list[str] = []
        for each in self._held():
            try:
                each.close()
            except CudaError as error:
                faults.append(str(error))
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

    def _held(self) -> list[Copier | Arena]:
        """In the order in which it may be released: nothing may use memory that is gone."""
        return [*self._copiers.values(), *([self._arena] if self._arena else [])]

    def _forget(self) -> None:
        self._copiers.clear()
        self._arena = None
