"""Memory of a device that is used again: to allocate it takes long, and to free it waits for all of the device's work.

A framework lets go of an array when the last work that reads it has been dispatched, and not when it has been done. It
does so on streams of its own that nobody else can see, and that no stream of ours waits for: only a synchronisation of
the whole device tells that the work is over. So a block is given away again when one has begun after it came back, and
ended. That is no more waiting than cudaFree does, once for all that has come back until then.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING

from pyxfer.errors import CudaMemoryError

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import DeviceBuffer

LEAST_BYTES = 512
_LARGEST_KEPT = 2
# A block is larger than what was asked for by an eighth at most, so that arrays of nearly one size share blocks.
_STEPS_BITS = 4


class DevicePool:
    """Blocks of one device, for any thread; at most `most_bytes` of them lie idle, or twice the largest asked for.

    A block may come back in a destructor, which runs anywhere, even in the middle of another call of the same thread.
    So who brings one never waits for the lock, and whoever has it looks once more when he has left it.
    """

    def __init__(self, engine: Engine, device: int, most_bytes: int | None = None) -> None:
        self._engine = engine
        self._device = device
        self._most_bytes = most_bytes
        self._largest = 0
        self._lock = threading.Lock()
        self._back: deque[DeviceBuffer] = deque()
        # By size, the size that was used last at the end; each with the count of synchronisations when it came back.
        self._idle: OrderedDict[int, deque[tuple[DeviceBuffer, int]]] = OrderedDict()
        self._synchronised = 0
        self._closed = False
        self._abandoned = False

    @property
    def idle_bytes(self) -> int:
        """What is kept for later."""
        return sum(size * len(blocks) for size, blocks in list(self._idle.items()))

    def take(self, nbytes: int) -> DeviceBuffer:
        """Memory that nothing on the device uses any more.

        Raises:
            CudaMemoryError: the device has not enough, also without what lay idle here.

        """
        size = block_bytes(nbytes)
        try:
            with self._lock:
                self._largest = max(self._largest, size)
                self._sort()
                return self._found(size) or self._allocated(size)
        finally:
            self._settle()

    def give(self, buffer: DeviceBuffer) -> None:
        """Bring it back; what the device has been given until now may still use it."""
        self._back.append(buffer)
        if self._abandoned:
            self.abandon()
        else:
            self._settle()

    def sweep(self) -> None:
        """Wait now for the work that may still use what has come back, where somebody would have to wait later."""
        try:
            with self._lock:
                self._sort()
                if any(since == self._synchronised for blocks in self._idle.values() for _, since in blocks):
                    self._synchronise()
        finally:
            self._settle()

    def close(self) -> None:
        """Free what lies idle, and from now on what comes back."""
        with self._lock:
            self._closed = True
            self._sort()
            self._free_down_to(0)
        self._settle()

    def abandon(self) -> None:
        """Leave all to the end of the process, and what comes back later: the device may never answer."""
        self._abandoned = True
        while self._back:
            with suppress(IndexError):
                self._back.pop().abandon()
        for blocks in list(self._idle.values()):
            for buffer, _ in list(blocks):
                buffer.abandon()

    def _settle(self) -> None:
        while self._back and self._lock.acquire(blocking=False):
            try:
                self._sort()
            finally:
                self._lock.release()

    def _sort(self) -> None:
        """Put what has come back to the others of its size, the longest unused going where it is too much."""
        while self._back:
            buffer = self._back.popleft()
            self._idle.setdefault(buffer.nbytes, deque()).append((buffer, self._synchronised))
            self._idle.move_to_end(buffer.nbytes)
        self._free_down_to(0 if self._closed else self._limit())

    def _limit(self) -> int:
        return _LARGEST_KEPT * self._largest if self._most_bytes is None else self._most_bytes

    def _found(self, size: int) -> DeviceBuffer | None:
        blocks = self._idle.get(size)
        if not blocks:
            return None
        if blocks[0][1] == self._synchronised:  # it came back after the last one
            self._synchronise()
        return self._taken(size)

    def _synchronise(self) -> None:
        """For all that has been sorted in; what comes back meanwhile waits for its turn."""
        self._engine.synchronize(self._device)
        self._synchronised += 1

    def _allocated(self, size: int) -> DeviceBuffer:
        try:
            return self._engine.DeviceBuffer(size, self._device)
        except CudaMemoryError:
            if not self._idle:
                raise
        self._free_down_to(0)
        return self._engine.DeviceBuffer(size, self._device)

    def _free_down_to(self, most_bytes: int) -> None:
        while self.idle_bytes > most_bytes:
            self._taken(next(iter(self._idle))).close()

    def _taken(self, size: int) -> DeviceBuffer:
        """The one that came back first."""
        blocks = self._idle[size]
        buffer, _ = blocks.popleft()
        if not blocks:
            del self._idle[size]
        return buffer


def block_bytes(nbytes: int) -> int:
    """The size of the block for so many bytes."""
    step = max(LEAST_BYTES, 1 << max(0, nbytes.bit_length() - _STEPS_BITS))
    return max(1, -(-nbytes // step)) * step
