"""Memory on a device that pyxfer has allocated, as an array that others take over without a copy."""

from __future__ import annotations

import math
import threading
import warnings
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import itemsize_of, name_of
from pyxfer._upload.natives import inside
from pyxfer.errors import CleanupWarning, CudaError, CudaMemoryError

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Dtype
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


# As dlpack.h has them.
KDL_CPU, KDL_CUDA = 1, 2
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT16_TYPE = (4, 16)
_VERSIONED_FROM = (1, 0)


class DeviceArray:
    """An array in C order on a device; `torch.from_dlpack(array)` and the like take it over where it lies.

    Its memory is freed, or goes back to the pool that it is from, when it and the last of those that took it over are
    gone. It begins where CUDA's own allocations do, at a multiple of 256 bytes at least; DLPack, TensorFlow and JAX ask
    for one of 64.
    """

    def __init__(
        self, engine: Engine, shape: tuple[int, ...], dtype: Dtype, device: int = 0, pool: DevicePool | None = None
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * itemsize_of(dtype)
        self.device = device
        self._engine = engine
        nbytes = max(self.nbytes, 1)
        self._memory = _Memory(engine.DeviceBuffer(nbytes, device) if pool is None else pool.take(nbytes), pool)

    @property
    def address(self) -> int:
        """Of the first item, on the device."""
        return self._memory.buffer.address

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
        """A capsule, of version 1 for those who know it.

        The contents have arrived before anybody gets the array, so no stream has to wait.
        """
        self._require_stream(stream)
        own = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != own:
            raise BufferError(f"this array lies on {own} and is not moved to {tuple(dl_device)}: download it instead")
        if copy:
            raise BufferError("this array is handed over where it lies, and not copied: copy what took it over")
        versioned = max_version is not None and tuple(max_version) >= _VERSIONED_FROM
        code, bits = dlpack_type_of(self.dtype)
        return self._engine.to_dlpack(self.address, *own, code, bits, self.shape, versioned, self._memory)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={name_of(self.dtype)}, device={self.device})"

    def _require_stream(self, stream: int | None) -> None:
        if stream is None:
            return
        if is_host(self._engine):
            raise BufferError(f"memory of the host has no streams: give None, and not {stream!r}")
        if isinstance(stream, bool) or not isinstance(stream, int) or stream < -1 or stream == 0:
            raise BufferError(f"DLPack counts CUDA's streams from 1, and has -1 for none; got {stream!r}")


class _Memory:
    """What a capsule keeps."""

    def __init__(self, buffer: DeviceBuffer, pool: DevicePool | None) -> None:
        self.buffer = buffer
        self._pool = pool

    def __del__(self, inside: type[inside] = inside) -> None:  # by name it may be gone when a process ends
        with inside() as lasts:
            if not lasts:  # it goes with the process; to free it would wait for a device that may never answer
                self.buffer.abandon()
                return
            try:
                if self._pool is not None:
                    self._pool.give(self.buffer)
                else:
                    self.buffer.close()
            except CudaError as error:
                warnings.warn(f"Memory of a device was not released: {error}", CleanupWarning, stacklevel=2)


def dlpack_type_of(dtype: Dtype) -> tuple[int, int]:
    """DLPack's code and bits of a dtype that is sent."""
    return _BFLOAT16_TYPE if isinstance(dtype, str) else (_CODES[dtype.kind], 8 * dtype.itemsize)
