"""Memory on a device that pyxfer has allocated, as an array that others take over without a copy."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from pyxfer.errors import CleanupWarning, CudaError
from pyxfer.machine.engine import is_host
from pyxfer.staging.dtypes import itemsize_of, name_of
from pyxfer.staging.natives import inside

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import DeviceBuffer
    from pyxfer.staging.device_pool import DevicePool
    from pyxfer.staging.dtypes import Dtype

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
