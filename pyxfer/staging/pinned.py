"""NumPy arrays in page-locked memory, which a GPU reads and writes directly."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.errors import CleanupWarning, CudaError, UsageError
from pyxfer.staging.dtypes import BFLOAT16, dtype_to_send
from pyxfer.staging.natives import inside
from pyxfer.staging.sources import MOST_BYTES

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pyxfer.native import Engine
    from pyxfer.native._cuda import HostBuffer


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
