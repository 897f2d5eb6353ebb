"""NumPy arrays in page-locked memory, which a GPU reads and writes directly."""

from __future__ import annotations

import math
import operator
import os
import threading
import warnings
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._upload.arrays import BFLOAT16, MOST_BYTES, called, dtype_to_send, owner_of
from pyxfer._upload.natives import inside
from pyxfer.errors import (
    CleanupWarning,
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    UsageError,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pyxfer.native import Engine
    from pyxfer.native._cuda import HostBuffer


def pin(engine: Engine, x: NDArray[Any], device: int = 0) -> NDArray[Any]:
    """The same memory as an array, page-locked until the last view of what is returned is gone.

    Raises:
        UsageError: it is no array, or its memory cannot be locked where it lies; says what to do.
        CudaMemoryError: no more memory can be page-locked.

    """
    if not isinstance(x, np.ndarray):
        raise UsageError(f"this {called(type(x))} is no NumPy array: give np.asarray(x)")
    array = np.asarray(x)
    dtype_to_send(array.dtype)
    first, end = _span(array)
    if first == end or isinstance(owner_of(array), (Pages, _Shown)):
        viewed: NDArray[Any] = array.view()
        return viewed
    owner = _known.owner(engine, array, first, end - first, device)
    made: NDArray[Any] = np.ndarray(
        array.shape,
        array.dtype,
        buffer=np.asarray(_Shown(owner, not array.flags.writeable)),
        offset=array.__array_interface__["data"][0] - first,
        strides=array.strides,
    )
    return made


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """From the first byte to the one behind the last, gaps included."""
    first = end = array.__array_interface__["data"][0]
    if array.size == 0:
        return first, first
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        first, end = (first + reach, end) if reach < 0 else (first, end + reach)
    return first, end + array.itemsize


class _Locked:
    """Page-locked memory of an array, which it keeps; its going unlocks it before the memory can go."""

    def __init__(self, engine: Engine, array: NDArray[Any], first: int, nbytes: int, device: int) -> None:
        self.first, self.nbytes = first, nbytes
        self._array = array
        try:
            self._registration = engine.Registration(first, nbytes, device, array.flags.writeable)
        except (CudaMemoryError, CudaUnavailableError, DeviceLostError):
            raise
        except CudaError as error:
            raise UsageError(
                f"this array cannot be page-locked where it lies: {error} Memory of a file and memory beside what is "
                f"page-locked already cannot be. A copy can: y = pyxfer.empty_pinned(x.shape, x.dtype); y[...] = x"
            ) from error

    def __del__(self, inside: type[inside] = inside) -> None:  # by name it may be gone when a process ends
        registration = self.__dict__.get("_registration")
        if registration is None:  # it was refused
            return
        with inside() as lasts:
            if not lasts:  # it goes with the process
                registration.abandon()
                return
            try:
                registration.close()
            except CudaError as error:
                warnings.warn(f"Memory was not unlocked: {error}", CleanupWarning, stacklevel=2)


class _Known:
    """What is locked stays so as long as anybody needs it; the driver locks no memory twice."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._locked: weakref.WeakValueDictionary[tuple[str, int, int], _Locked] = weakref.WeakValueDictionary()

    def owner(self, engine: Engine, array: NDArray[Any], first: int, nbytes: int, device: int) -> _Locked:
        key = (engine.RUNTIME, first, nbytes)
        with self._turn:
            found = self._locked.get(key)
            if found is None:
                found = self._locked[key] = _Locked(engine, array, first, nbytes, device)
            return found

    def forget(self) -> None:
        """In a forked child: nothing is locked there, and another thread may have had its turn."""
        self._turn = threading.Lock()
        self._locked.clear()


_known = _Known()
os.register_at_fork(after_in_child=_known.forget)


class _Shown:
    """The span as NumPy asks for it. Arrays hold this object."""

    def __init__(self, owner: _Locked, readonly: bool) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "shape": (owner.nbytes,),
            "typestr": "|u1",
            "data": (owner.first, readonly),
        }


def empty_pinned(
    engine: Engine, shape: int | Iterable[int], dtype: DTypeLike | None = None, device: int = 0
) -> NDArray[Any]:
    """An array like that of `np.empty`, page-locked and on pages of its own; it is freed with the last view of it.

    Raises:
        UsageError: there is no array of that shape, or none of that dtype is sent.
        CudaMemoryError: page-locked memory ran out.

    """
    extents = _extents(shape)
    kind = _dtype(dtype)
    nbytes = math.prod(extents) * kind.itemsize
    if nbytes > MOST_BYTES:
        raise UsageError(f"an array of {kind} of the shape {extents} is more than any machine addresses")
    pages = np.asarray(Pages(engine.HostBuffer(max(nbytes, 1), "pinned", device)))
    made: NDArray[Any] = np.ndarray(extents, kind, buffer=pages)
    return made


class Pages:
    """Page-locked memory as NumPy asks for it. Arrays hold this object, which frees the memory when they are gone."""

    def __init__(self, buffer: HostBuffer) -> None:
        self._buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (buffer.nbytes,),
            "typestr": "|u1",
            "data": (buffer.address, False),
        }

    def __del__(self, inside: type[inside] = inside) -> None:  # by name it may be gone when a process ends
        with inside() as lasts:
            if not lasts:  # the memory goes with the process; to free it would wait for the device
                self._buffer.abandon()
                return
            try:
                self._buffer.close()
            except CudaError as error:
                warnings.warn(f"Page-locked memory was not freed: {error}", CleanupWarning, stacklevel=2)


def _extents(shape: int | Iterable[int]) -> tuple[int, ...]:
    try:
        extents = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError as error:
        raise UsageError(f"{shape!r} is no shape: give whole numbers, such as (512, 256, 256, 3)") from error
    if any(extent < 0 for extent in extents):
        raise UsageError(f"the shape {extents} has a negative dimension: give whole numbers from 0 on")
    return extents


def _dtype(asked: DTypeLike | None) -> np.dtype[Any]:
    """As NumPy understands it."""
    try:
        found = np.dtype(asked)
    except (TypeError, ValueError) as error:
        if isinstance(asked, str) and asked == BFLOAT16:
            raise UsageError("NumPy has no bfloat16 of its own: give ml_dtypes.bfloat16") from error
        raise UsageError(f"{asked!r} is no dtype of NumPy: give one such as np.float32") from error
    dtype_to_send(found)
    return found
