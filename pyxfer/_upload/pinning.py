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

from pyxfer._upload.arrays import BFLOAT16, MAX_BYTES, base_array, dtype_to_send, owner_of, type_name
from pyxfer._upload.native_calls import Owner
from pyxfer.errors import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    UsageError,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pyxfer.native import Engine
    from pyxfer.native._cuda import HostBuffer, Registration


def pin(engine: Engine, x: NDArray[Any], device: int = 0) -> NDArray[Any]:
    """Page-lock the memory of an array until the last view of the returned array is gone."""
    if not isinstance(x, np.ndarray):
        raise UsageError(f"this {type_name(type(x))} is not a NumPy array: give np.asarray(x)")
    array = base_array(x)
    dtype_to_send(array.dtype)
    first, end = _span(array)
    if first == end or isinstance(owner_of(array), (_Pages, _LockedBytes)):
        viewed: NDArray[Any] = array.view()
        return viewed
    lock = _locks.get(engine, array, first, end - first, device)
    pinned: NDArray[Any] = np.ndarray(
        array.shape,
        array.dtype,
        buffer=np.asarray(_LockedBytes(lock, not array.flags.writeable)),
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
    """The page lock of an array's memory. It keeps the array."""

    failed = "Memory was not unlocked"

    def __init__(self, engine: Engine, array: NDArray[Any], first: int, nbytes: int, device: int) -> None:
        self.first, self.nbytes = first, nbytes
        self._array = array
        self._registration: Registration | None = None  # stays None if the constructor raises
        try:
            self._registration = engine.Registration(first, nbytes, device, array.flags.writeable)
        except (CudaMemoryError, CudaUnavailableError, DeviceLostError):
            raise
        except CudaError as error:
            raise UsageError(
                f"this array cannot be page-locked: {error} The driver locks neither memory of files nor pages with "
                f"locked parts. Lock a copy instead: y = pyxfer.empty_pinned(x.shape, x.dtype); y[...] = x"
            ) from error

    def _release(self) -> None:
        if self._registration is not None:
            self._registration.close()

    def _abandon(self) -> None:
        if self._registration is not None:
            self._registration.abandon()


class _Locks:
    """The locks of this process. Arrays of the same memory share one, because the driver locks memory only once."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._locks: weakref.WeakValueDictionary[tuple[str, int, int], _Lock] = weakref.WeakValueDictionary()

    def get(self, engine: Engine, array: NDArray[Any], first: int, nbytes: int, device: int) -> _Lock:
        key = (engine.RUNTIME, first, nbytes)
        with self._turn:
            lock = self._locks.get(key)
            if lock is None:
                lock = self._locks[key] = _Lock(engine, array, first, nbytes, device)
            return lock

    def forget(self) -> None:
        """Forget all locks in a forked child, where no memory is locked. Another thread may have held the turn."""
        self._turn = threading.Lock()
        self._locks.clear()


_locks = _Locks()
os.register_at_fork(after_in_child=_locks.forget)


class _LockedBytes:
    """The locked bytes with the attribute by which NumPy reads them. Arrays keep this object."""

    def __init__(self, lock: _Lock, readonly: bool) -> None:
        self._lock = lock
        self.__array_interface__ = _bytes_interface(lock.first, lock.nbytes, readonly)


def empty_pinned(
    engine: Engine, shape: int | Iterable[int], dtype: DTypeLike | None = None, device: int = 0
) -> NDArray[Any]:
    """Make an array like `np.empty` in page-locked memory, which is freed with the last view of the array."""
    extents = _extents(shape)
    kind = _dtype(dtype)
    nbytes = math.prod(extents) * kind.itemsize
    if nbytes > MAX_BYTES:
        raise UsageError(f"an array of {kind} of shape {extents} is larger than any address space")
    pages = np.asarray(_Pages(engine.HostBuffer(max(nbytes, 1), "pinned", device)))
    array: NDArray[Any] = np.ndarray(extents, kind, buffer=pages)
    return array


class _Pages(Owner):
    """Page-locked memory with the attribute by which NumPy reads it. Arrays keep this object."""

    failed = "Page-locked memory was not freed"

    def __init__(self, buffer: HostBuffer) -> None:
        self._buffer = buffer
        self.__array_interface__ = _bytes_interface(buffer.address, buffer.nbytes, readonly=False)

    def _release(self) -> None:
        self._buffer.close()

    def _abandon(self) -> None:
        self._buffer.abandon()


def _bytes_interface(address: int, nbytes: int, readonly: bool) -> dict[str, Any]:
    return {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, readonly)}


def _extents(shape: int | Iterable[int]) -> tuple[int, ...]:
    try:
        extents = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError as error:
        raise UsageError(f"{shape!r} is not a shape: give whole numbers, such as (512, 256, 256, 3)") from error
    if any(extent < 0 for extent in extents):
        raise UsageError(f"the shape {extents} has a negative dimension")
    return extents


def _dtype(dtype: DTypeLike | None) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        if isinstance(dtype, str) and dtype == BFLOAT16:
            raise UsageError("NumPy has no bfloat16: give ml_dtypes.bfloat16") from error
        raise UsageError(f"{dtype!r} is not a dtype of NumPy: give one such as np.float32") from error
    dtype_to_send(found)  # raises if such arrays cannot be sent
    return found
