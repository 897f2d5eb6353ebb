"""What may be sent, and where it lies: of anything that shows its memory, without a copy."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.errors import UsageError
from pyxfer.staging.dlpack import called, export
from pyxfer.staging.dtypes import dtype_of_dlpack, dtype_to_send, itemsize_of
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.staging.dtypes import Dtype

MOST_BYTES = 2**63 - 1
MOST_DIMENSIONS = 64
_ON_A_GPU = "__cuda_array_interface__"
_SHOW_NUMBERS = ("__dlpack__", _ON_A_GPU, "__array_interface__", "__array__")


@dataclass(frozen=True, eq=False)
class Source:
    """Host memory as an array sees it. The first item lies at `address`, strides are in bytes."""

    address: int
    dtype: Dtype
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    """Of all items, as they lie on the device: without gaps."""
    readonly: bool
    keep: Any = field(repr=False)
    """What keeps the memory alive."""


def is_array(x: object) -> bool:
    """Whether it is meant as an array, be it one that cannot be sent."""
    if isinstance(x, (np.ndarray, np.generic)):
        return not isinstance(x, str)
    if x is None or isinstance(x, (str, int, float, complex, type)):  # there may be thousands of them in a list
        return False
    return any(hasattr(type(x), name) for name in _SHOW_NUMBERS) or _is_buffer(x)


def source_of(x: Any) -> Source:
    """The memory of a NumPy array or scalar, of a buffer, or of a tensor on the CPU that speaks DLPack.

    Raises:
        UsageError: it is none of these, lies on a GPU, or holds what is not sent; says what to do.

    """
    if isinstance(x, (np.ndarray, np.generic)):
        return _of_array(_plain(x))
    if hasattr(type(x), "__dlpack__"):
        return _of_dlpack(x)
    if hasattr(type(x), _ON_A_GPU):
        raise UsageError(f"this {called(type(x))} lies on a GPU already: use it as it is")
    if _is_buffer(x):
        return _of_array(_viewed(x))
    raise UsageError(
        f"this {called(type(x))} is no array, no buffer and no tensor on the CPU: np.asarray(x) makes one of numbers"
    )


def owner_of(array: NDArray[Any]) -> Any:
    """What owns the memory of an array: another one, or what showed it to NumPy."""
    return _chain(array)[-1]


def _chain(array: NDArray[Any]) -> list[Any]:
    """An array, what it is a view of, and so on."""
    found: list[Any] = [array]
    while isinstance(found[-1], (np.ndarray, memoryview)):
        last = found[-1]
        below = last.base if isinstance(last, np.ndarray) else last.obj
        if below is None:
            break
        found.append(below)
    return found


def _plain(x: Any) -> NDArray[Any]:
    """Without a subclass's own ways; a scalar cannot change, so NumPy may copy its few bytes."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise UsageError("a masked array would lose its mask: send x.filled(value), or x.data and x.mask each")
    return np.asarray(x)


def _of_array(array: NDArray[Any]) -> Source:
    dtype = dtype_to_send(array.dtype)
    _require_whole(array)
    return Source(
        address=array.__array_interface__["data"][0],
        dtype=dtype,
        itemsize=array.itemsize,
        shape=array.shape,
        strides=array.strides,
        nbytes=array.nbytes,
        readonly=not array.flags.writeable,
        keep=array,
    )


def _of_dlpack(x: Any) -> Source:
    exported = export(x)
    dtype = dtype_of_dlpack(*exported.type)
    if dtype is None:
        known = getattr(x, "dtype", f"DLPack's type {exported.type}")
        raise UsageError(f"an array of {known} is of a type that is not passed on: send its bytes, as uint8")
    itemsize = itemsize_of(dtype)
    nbytes = math.prod(exported.shape) * itemsize
    if nbytes > MOST_BYTES or len(exported.shape) > MOST_DIMENSIONS:
        raise UsageError(
            f"an array of the shape {exported.shape} is more than NumPy has: at most {MOST_DIMENSIONS} dimensions and "
            f"2**63 - 1 bytes"
        )
    return Source(
        address=exported.address,
        dtype=dtype,
        itemsize=itemsize,
        shape=exported.shape,
        strides=tuple(stride * itemsize for stride in exported.strides),
        nbytes=nbytes,
        readonly=exported.readonly,
        keep=exported.capsule,
    )


def _require_whole(array: NDArray[Any]) -> None:
    """Of a file that is mapped: to read behind its end ends the process. That it is cut meanwhile is not noticed."""
    chain = _chain(array)
    mapped = chain[-1]
    if not isinstance(mapped, mmap.mmap):
        return
    skipped = next((each.offset for each in chain if isinstance(each, np.memmap)), 0)
    needed = skipped - skipped % mmap.ALLOCATIONGRANULARITY + len(mapped)
    try:
        nbytes = mapped.size()  # of the file, as it is now
    except (OSError, ValueError):  # it is not open any more
        return
    if nbytes < needed:
        raise UsageError(
            f"this array is mapped from a file that was cut to {format_size(nbytes)}, and needs {format_size(needed)} "
            f"of it: map it anew"
        )


def _is_buffer(x: Any) -> bool:
    try:
        memoryview(x).release()
    except TypeError:
        return False
    except (ValueError, BufferError):  # closed, released, or not to be shown: what it says is said by `_viewed`
        return True
    return True


def _viewed(x: Any) -> NDArray[Any]:
    """A buffer as an array; the view that it holds keeps the buffer from moving or growing."""
    try:
        return np.asarray(memoryview(x))
    except (ValueError, BufferError) as error:
        raise UsageError(f"the buffer of this {called(type(x))} cannot be read as an array: {error}") from error
