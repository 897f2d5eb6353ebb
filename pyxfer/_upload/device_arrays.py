"""Device memory that pyxfer allocates: its pool, and arrays that frameworks use without a copy."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import DLPACK_TYPES, itemsize_of, name_of
from pyxfer._upload.native_calls import Owner
from pyxfer._upload.pools import Pool, block_bytes
from pyxfer.errors import CudaMemoryError

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Dtype
    from pyxfer.native import Engine
    from pyxfer.native._cuda import DeviceBuffer


# For small blocks a synchronisation takes longer than the upload, so one serves this many of a size.
_SMALL_BYTES = 256 << 10
_SMALL_BLOCKS = 32


class DevicePool(Pool["DeviceBuffer"]):
    """Blocks of one device. At most `max_bytes` are idle; None is twice the largest block, or 8 MiB.

    Work that is already queued on the device may still use a block that is returned.
    """

    out_of_memory = CudaMemoryError

    def __init__(self, engine: Engine, device: int, max_bytes: int | None = None) -> None:
        super().__init__(max_bytes)
        self.engine = engine
        self.device = device
        self._synchronised = 0
        self._abandoned = False

    def give(self, block: DeviceBuffer) -> None:
        self._returned.append(block)
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
                if any(blocks[first][1] == self._synchronised for blocks in self._idle.values() if blocks):
                    self._synchronise()
        finally:
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

    def _new(self, size: int) -> DeviceBuffer:
        return self.engine.DeviceBuffer(size, self.device)

    def _moment(self) -> float:
        """The number of synchronisations."""
        return self._synchronised

    def _limit(self) -> int:
        limit = super()._limit()
        return limit if self._max_bytes is not None else max(limit, _SMALL_BLOCKS * _SMALL_BYTES)

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


class _Scratch(Owner):
    failed = "Device memory was not released"

    memory: DeviceBuffer


class ScratchPool:
    """Device memory for what kernels read: no work uses it when it comes back, and its contents are not kept.

    Any thread may call it. It is simpler than `DevicePool`, whose Python would take longer than a kernel. At most two
    blocks are idle, and at most `max_bytes`.
    """

    _MAX_IDLE = 2

    def __init__(self, engine: Engine, device: int, max_bytes: int | None = None) -> None:
        self._engine, self._device, self._max_bytes = engine, device, max_bytes
        self._idle: list[_Scratch] = []
        self._closed = self._abandoned = False

    def lend(self, nbytes: int) -> Lent:
        """At least `nbytes`, until the result is dropped."""
        with suppress(IndexError):  # another thread was faster
            while self._idle:
                block = self._idle.pop()
                if block.memory.nbytes >= nbytes:
                    return Lent(self, block)
        return Lent(self, _Scratch(self._engine.DeviceBuffer(block_bytes(nbytes), self._device)))

    def _take_back(self, block: _Scratch) -> None:
        idle_bytes = block.memory.nbytes + sum([each.memory.nbytes for each in self._idle])
        if self._abandoned:
            block.memory.abandon()
        elif len(self._idle) < self._MAX_IDLE and (self._max_bytes is None or idle_bytes <= self._max_bytes):
            self._idle.append(block)
        if self._closed:
            self._idle.clear()

    def close(self) -> None:
        """Free the idle blocks, and from now on each that comes back."""
        self._closed = True
        self._idle.clear()

    def abandon(self) -> None:
        """Leave all blocks to the end of the process: the device may never answer."""
        self._abandoned = True
        for block in list(self._idle):
            block.memory.abandon()


class Lent:
    """Scratch memory that goes back to its pool when this is dropped."""

    def __init__(self, pool: ScratchPool, block: _Scratch) -> None:
        self._pool, self._block = pool, block

    @property
    def address(self) -> int:
        return self._block.memory.address

    def __del__(self) -> None:
        self._pool._take_back(self._block)


# From dlpack.h.
KDL_CPU, KDL_CUDA = 1, 2


class DeviceArray:
    """An array in C order on a device, which `torch.from_dlpack(array)` and similar functions use without a copy.

    Its memory returns to the pool when this array and all arrays that were made of it are gone. CUDA aligns it to 256
    bytes at least; DLPack, TensorFlow and JAX require 64.
    """

    def __init__(
        self,
        pool: DevicePool,
        shape: tuple[int, ...],
        dtype: Dtype,
        block: _Memory | FrameworkMemory | None = None,
        offset: int = 0,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * itemsize_of(dtype)
        self.device = pool.device
        self._pool = pool
        self._engine = pool.engine
        self._memory = block or _Memory(pool.take(self.nbytes), pool)
        self._offset = offset

    def part(self, shape: tuple[int, ...], dtype: Dtype, offset: int) -> DeviceArray:
        """An array in the same memory, which it keeps."""
        return DeviceArray(self._pool, shape, dtype, self._memory, offset)

    @property
    def address(self) -> int:
        return self._memory.address + self._offset

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


class _Memory(Owner):
    """The memory of a DeviceArray, kept by capsules."""

    failed = "Device memory was not released"

    memory: DeviceBuffer

    def __init__(self, memory: DeviceBuffer, pool: DevicePool) -> None:
        self.memory = memory
        self._pool = pool

    @property
    def address(self) -> int:
        return self.memory.address

    def _release(self) -> None:
        self._pool.give(self.memory)


class FrameworkMemory:
    """Memory that a framework has allocated for an array of its own, in place of the pool's."""

    def __init__(self, address: int, array: Any) -> None:
        self.address, self.keep = address, array
