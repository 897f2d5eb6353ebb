"""NumPy arrays in page-locked memory, which GPUs read and write directly."""

from __future__ import annotations

import math
import operator
import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._upload.arrays import (
    BFLOAT16,
    MAX_BYTES,
    ArrayInterface,
    Source,
    array_of,
    base_array,
    bases_of,
    dtype_to_send,
    type_name,
)
from pyxfer._upload.native_calls import Owner
from pyxfer.errors import CudaError, CudaMemoryError, CudaUnavailableError, DeviceLostError, UsageError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pyxfer.native import Engine
    from pyxfer.native._cuda import Registration


def pin(engine: Engine, x: NDArray[Any], device: int = 0) -> NDArray[Any]:
    if not isinstance(x, np.ndarray):
        raise UsageError(f"this {type_name(type(x))} is not a NumPy array: give np.asarray(x)")
    array = base_array(x)
    dtype_to_send(array.dtype)
    first, end = _span(array)
    if first == end or isinstance(bases_of(array)[-1], ArrayInterface):
        viewed: NDArray[Any] = array.view()
        return viewed
    lock = _locks.get(engine, array, first, end - first, device)
    pinned: NDArray[Any] = np.ndarray(
        array.shape,
        array.dtype,
        buffer=_bytes_of(lock, first, end - first, readonly=not array.flags.writeable),
        offset=array.__array_interface__["data"][0] - first,
        strides=array.strides,
    )
    return pinned


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """The addresses of the first byte and of the one behind the last, gaps included."""
    first = end = array.__array_interface__["data"][0]
    if array.size == 0:
        return first, first
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        first, end = (first + reach, end) if reach < 0 else (first, end + reach)
    return first, end + array.itemsize


class _Lock(Owner):
    failed = "Memory was not unlocked"

    def __init__(self, registration: Registration, array: NDArray[Any]) -> None:
        super().__init__(registration)
        self._array = array


class _Locks:
    """The locks of this process. Arrays of the same memory share one, because the driver locks memory only once."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._locks: weakref.WeakValueDictionary[tuple[str, int, int], _Lock] = weakref.WeakValueDictionary()

    def get(self, engine: Engine, array: NDArray[Any], first: int, nbytes: int, device: int) -> _Lock:
        key = (engine.RUNTIME, first, nbytes)
        with self._turn:
            lock = self._locks.get(key)
            if lock is not None:
                return lock
            try:
                registration = engine.Registration(first, nbytes, device, array.flags.writeable)
            except (CudaMemoryError, CudaUnavailableError, DeviceLostError):
                raise
            except CudaError as error:
                raise UsageError(
                    f"this array cannot be page-locked: {error} The driver locks neither memory of files nor pages "
                    f"with locked parts. Lock a copy instead: y = pyxfer.empty_pinned(x.shape, x.dtype); y[...] = x"
                ) from error
            lock = self._locks[key] = _Lock(registration, array)
            return lock

    def forget(self) -> None:
        """Forget all locks in a forked child, where no memory is locked. Another thread may have held the turn."""
        self._turn = threading.Lock()
        self._locks.clear()


_locks = _Locks()
os.register_at_fork(after_in_child=_locks.forget)


def empty_pinned(
    engine: Engine, shape: int | Iterable[int], dtype: DTypeLike | None = None, device: int = 0
) -> NDArray[Any]:
    extents = _extents(shape)
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        if isinstance(dtype, str) and dtype == BFLOAT16:
            raise UsageError("NumPy has no bfloat16: give ml_dtypes.bfloat16") from error
        raise UsageError(f"{dtype!r} is not a dtype of NumPy: give one such as np.float32") from error
    dtype_to_send(kind)  # raises if such arrays cannot be sent
    nbytes = math.prod(extents) * kind.itemsize
    if nbytes > MAX_BYTES:
        raise UsageError(f"an array of {kind} of shape {extents} is larger than any address space")
    pages = engine.HostBuffer(max(nbytes, 1), "pinned", device)
    array: NDArray[Any] = np.ndarray(extents, kind, buffer=_bytes_of(_Pages(pages), pages.address, pages.nbytes))
    return array


class _Pages(Owner):
    failed = "Page-locked memory was not freed"


def _bytes_of(owner: Owner, address: int, nbytes: int, *, readonly: bool = False) -> NDArray[Any]:
    return array_of(Source(address, np.dtype(np.uint8), 1, (nbytes,), (1,), nbytes, readonly, owner))


def _extents(shape: int | Iterable[int]) -> tuple[int, ...]:
    try:
        extents = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError as error:
        raise UsageError(f"{shape!r} is not a shape: give whole numbers, such as (512, 256, 256, 3)") from error
    if any(extent < 0 for extent in extents):
        raise UsageError(f"the shape {extents} has a negative dimension")
    return extents
