"""Device memory that pyxfer allocates, as arrays that frameworks use without a copy, and a pool of such memory."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import DLPACK_TYPES, itemsize_of, name_of
from pyxfer._upload.native_calls import Owner
from pyxfer.errors import CudaMemoryError

if TYPE_CHECKING:
    import numpy as np

    from pyxfer._upload.arrays import Dtype
    from pyxfer.native import Engine
    from pyxfer.native._cuda import DeviceBuffer


MIN_BLOCK_BYTES = 512
_LARGEST_KEPT = 2
# For small blocks a synchronisation takes longer than the upload, so one serves this many of a size.
_SMALL_BYTES = 256 << 10
_SMALL_BLOCKS = 32
# Blocks are rounded up by an eighth at most, so that arrays of nearly the same size can use the same block.
_STEPS_BITS = 4


class DevicePool:
    """Blocks of one device, for any thread. At most `max_bytes` are idle; None is twice the largest block, or 8 MiB.

    A destructor may return a block, in any thread and even during another call of the same thread. So `give` never
    waits for the lock: the thread that holds the lock looks for returned blocks again after it has released the lock.
    """

    def __init__(self, engine: Engine, device: int, max_bytes: int | None = None) -> None:
        self.engine = engine
        self.device = device
        self._max_bytes = max_bytes
        self._largest = 0
        self._lock = threading.Lock()
        self._returned: deque[DeviceBuffer] = deque()
        # By size, the last used size at the end. With each block the number of synchronisations when it was returned.
        self._idle: OrderedDict[int, deque[tuple[DeviceBuffer, int]]] = OrderedDict()
        self._synchronised = 0
        self._closed = False
        self._abandoned = False

    @property
    def idle_bytes(self) -> int:
        return sum(size * len(blocks) for size, blocks in list(self._idle.items()))

    def take(self, nbytes: int) -> DeviceBuffer:
        """Get a block that no work on the device uses."""
        size = block_bytes(nbytes)
        try:
            with self._lock:
                self._largest = max(self._largest, size)
                self._sort()
                return self._reuse(size) or self._allocate(size)
        finally:
            self._settle()

    def give(self, buffer: DeviceBuffer) -> None:
        """Return a block. Work that is already queued on the device may still use it."""
        self._returned.append(buffer)
        if self._abandoned:
            self.abandon()
        else:
            self._settle()

    def sweep(self, *, if_short: bool = False) -> None:
        """Synchronise now if a returned block needs it, so that `take` does not have to wait later.

        With `if_short` only if all returned blocks of a size need it.
        """
        try:
            with self._lock:
                self._sort()
                first = 0 if if_short else -1  # the blocks of a size are in the order of their return
                if any(blocks[first][1] == self._synchronised for blocks in self._idle.values()):
                    self._synchronise()
        finally:
            self._settle()

    def close(self) -> None:
        """Free the idle blocks, and from now on each returned block."""
        with self._lock:
            self._closed = True
            self._sort()
            self._free_down_to(0)
        self._settle()

    def abandon(self) -> None:
        """Leave all blocks, and those returned later, to the end of the process: the device may never answer."""
        self._abandoned = True
        while self._returned:
            with suppress(IndexError):
                self._returned.pop().abandon()
        for blocks in list(self._idle.values()):
            for buffer, _ in list(blocks):
                buffer.abandon()

    def _settle(self) -> None:
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._sort()
            finally:
                self._lock.release()

    def _sort(self) -> None:
        """Move returned blocks to the idle ones; above the limit, free those that were unused for longest."""
        while self._returned:
            buffer = self._returned.popleft()
            self._idle.setdefault(buffer.nbytes, deque()).append((buffer, self._synchronised))
            self._idle.move_to_end(buffer.nbytes)
        self._free_down_to(0 if self._closed else self._limit())

    def _limit(self) -> int:
        if self._max_bytes is not None:
            return self._max_bytes
        return max(_LARGEST_KEPT * self._largest, _SMALL_BLOCKS * _SMALL_BYTES)

    def _reuse(self, size: int) -> DeviceBuffer | None:
        blocks = self._idle.get(size)
        if not blocks:
            return None
        if blocks[0][1] == self._synchronised:  # returned after the last synchronisation
            if size <= _SMALL_BYTES and len(blocks) < _SMALL_BLOCKS and self.idle_bytes + size <= self._limit():
                return None
            self._synchronise()
        return self._pop(size)

    def _synchronise(self) -> None:
        """Wait for all work that may use an idle block. A block that is returned during the wait needs another one."""
        self.engine.synchronize(self.device)
        self._synchronised += 1

    def _allocate(self, size: int) -> DeviceBuffer:
        try:
            return self.engine.DeviceBuffer(size, self.device)
        except CudaMemoryError:
            if not self._idle:
                raise
        self._free_down_to(0)
        return self.engine.DeviceBuffer(size, self.device)

    def _free_down_to(self, max_bytes: int) -> None:
        while self.idle_bytes > max_bytes:
            self._pop(next(iter(self._idle))).close()

    def _pop(self, size: int) -> DeviceBuffer:
        blocks = self._idle[size]
        buffer, _ = blocks.popleft()
        if not blocks:
            del self._idle[size]
        return buffer


def block_bytes(nbytes: int) -> int:
    step = max(MIN_BLOCK_BYTES, 1 << max(0, nbytes.bit_length() - _STEPS_BITS))
    return max(1, -(-nbytes // step)) * step


# From dlpack.h.
KDL_CPU, KDL_CUDA = 1, 2


class Part(NamedTuple):
    """An array in C order in a block on the device."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int


class DeviceArray:
    """An array in C order on a device, which `torch.from_dlpack(array)` and similar functions use without a copy.

    Its memory returns to the pool when this array and all arrays that were made of it are gone. CUDA aligns it to 256
    bytes at least; DLPack, TensorFlow and JAX require 64.
    """

    def __init__(
        self, pool: DevicePool, shape: tuple[int, ...], dtype: Dtype, block: _Memory | None = None, offset: int = 0
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * itemsize_of(dtype)
        self.device = pool.device
        self._pool = pool
        self._engine = pool.engine
        self._memory = block or _Memory(pool.take(self.nbytes), pool)
        self._offset = offset

    def part(self, part: Part) -> DeviceArray:
        """An array in the same memory, which it keeps."""
        return DeviceArray(self._pool, part.shape, part.dtype, self._memory, part.offset)

    @property
    def address(self) -> int:
        return self._memory.memory.address + self._offset

    def __dlpack_device__(self) -> tuple[int, int]:
        return (KDL_CPU, 0) if is_host(self._engine) else (KDL_CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule, of version 1 if `max_version` allows it.

        The contents have arrived before a caller gets the array, so no stream has to wait.
        """
        self._require_stream(stream)
        own = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != own:
            raise BufferError(
                f"this array is on {own} and cannot be exported to {tuple(dl_device)}: download it instead"
            )
        if copy:
            raise BufferError("this array is exported without a copy: copy the array that is made of it")
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        code, bits = DLPACK_TYPES[self.dtype]
        return self._engine.to_dlpack(self.address, *own, code, bits, self.shape, versioned, self._memory)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={name_of(self.dtype)}, device={self.device})"

    def _require_stream(self, stream: int | None) -> None:
        if stream is None:
            return
        if is_host(self._engine):
            raise BufferError(f"host memory has no streams: give None, not {stream!r}")
        if isinstance(stream, bool) or not isinstance(stream, int) or stream < -1 or stream == 0:
            raise BufferError(f"a DLPack stream is 1 or more, or -1 for none; got {stream!r}")


class _Memory(Owner):
    """The memory of a DeviceArray, kept by capsules."""

    failed = "Device memory was not released"

    memory: DeviceBuffer

    def __init__(self, memory: DeviceBuffer, pool: DevicePool) -> None:
        self.memory = memory
        self._pool = pool

    def _release(self) -> None:
        self._pool.give(self.memory)
