"""What an array may hold to be sent: numbers that a GPU knows, in this machine's byte order; anything else is refused.

NumPy has no bfloat16, so that one goes by its name, and ml_dtypes, which has it, is never needed.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from pyxfer.errors import UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LEGACY, _VERSIONED = b"dltensor", b"dltensor_versioned"
_KNOWN_MAJOR = 1
_READ_ONLY = 1
_ON_THE_HOST = {1, 3, 11}  # pageable, or page-locked by CUDA or by ROCm
_OTHERS = {2: "GPU", 10: "ROCm GPU", 13: "managed memory of GPU"}
# A capsule of version 0 cannot say that its array must not be written to; those of these libraries must not.
_IMMUTABLE = {"jax", "jaxlib", "tensorflow"}
# TensorFlow ends the process when it is asked for a capsule of these.
NO_NUMBERS = {"string", "resource", "variant"}


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# Prototypes of our own: those in ctypes.pythonapi belong to whoever sets their types last.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Exported(NamedTuple):
    """What a capsule says, with strides in items as DLPack has them; it lives as long as `capsule`."""

    address: int
    type: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    device: tuple[int, int]
    capsule: Any


def export(x: Any) -> Exported:
    """Ask an array on the host for its memory.

    Raises:
        UsageError: it lies on a GPU, or cannot be exported; says what to do, or what its library says.

    """
    kind = type(x)
    if hasattr(kind, "__dlpack_device__"):
        _require_host(kind, *_asked(x, x.__dlpack_device__))
    if getattr(getattr(x, "dtype", None), "name", None) in NO_NUMBERS:
        raise UsageError(f"this {called(kind)} of {x.dtype.name} holds no numbers: leave it on the host")
    if hasattr(kind, "is_neg") and x.is_neg():  # DLPack has no word for it, and PyTorch does not refuse
        raise UsageError(f"this {called(kind)} is a view that holds its numbers with the other sign: x.resolve_neg()")
    exported = described(x, _capsule(x))
    _require_host(kind, *exported.device)
    return exported


def described(x: Any, capsule: Any) -> Exported:
    """What a capsule of `x` says, wherever its memory is.

    Raises:
        UsageError: it is none that is known.

    """
    kind = type(x)
    tensor, flags = _opened(kind, capsule)
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    return Exported(
        address=(tensor.data or 0) + tensor.byte_offset,
        type=(tensor.type.code, tensor.type.bits, tensor.type.lanes),
        shape=shape,
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _without_gaps(shape),
        readonly=bool(flags & _READ_ONLY) or kind.__module__.partition(".")[0] in _IMMUTABLE,
        device=(tensor.device.kind, tensor.device.index),
        capsule=capsule,
    )


def _capsule(x: Any) -> Any:
    """Of version 1, which says whether it may be written to, where the library has it."""
    try:
        return x.__dlpack__(max_version=(_KNOWN_MAJOR, 0))
    except TypeError:  # it knows version 0 alone
        return _asked(x, x.__dlpack__)
    except Exception as error:
        raise _refused(x, error) from error


def _asked(x: Any, method: Any) -> Any:
    try:
        return method()
    except Exception as error:
        raise _refused(x, error) from error


def _refused(x: Any, error: Exception) -> UsageError:
    why = str(error).partition("\n")[0] or type(error).__name__
    return UsageError(f"this {called(type(x))} does not give its memory away by DLPack: {why}")


def _require_host(kind: type, device: int, index: int) -> None:
    if device not in _ON_THE_HOST:
        where = f"{_OTHERS[device]} {index}" if device in _OTHERS else f"a device of DLPack's kind {int(device)}"
        raise UsageError(f"this {called(kind)} lies on {where} already: use it as it is")


def _opened(kind: type, capsule: Any) -> tuple[_Tensor, int]:
    """The structure inside of a capsule, and its flags."""
    if _is_valid(capsule, _LEGACY):
        return _Tensor.from_address(_pointer(capsule, _LEGACY)), 0
    if not _is_valid(capsule, _VERSIONED):
        raise UsageError(f"this {called(kind)} gives what is no DLPack capsule, or one that has been consumed")
    versioned = _Versioned.from_address(_pointer(capsule, _VERSIONED))
    if versioned.major > _KNOWN_MAJOR:
        raise UsageError(
            f"this {called(kind)} speaks DLPack {versioned.major}, and pyxfer {_KNOWN_MAJOR}: np.asarray(x)"
        )
    return versioned.tensor, versioned.flags


def _without_gaps(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def called(kind: type) -> str:
    """What a reader knows a type by."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


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


def destination_of(out: Any, shape: tuple[int, ...], dtype: Dtype) -> Source:
    """The memory of `out`, for an array of that shape and dtype.

    Raises:
        UsageError: it does not fit, or cannot be written; says what to do.

    """
    try:
        found = source_of(out)
    except UsageError as error:
        raise UsageError(f"out: {error}") from error
    if found.shape != shape:
        raise UsageError(f"out has the shape {found.shape} and what comes has {shape}: give np.empty({shape}, ...)")
    if name_of(found.dtype) != name_of(dtype):
        raise UsageError(
            f"out holds {name_of(found.dtype)} and what comes is {name_of(dtype)}: give an array of that dtype, and "
            f"convert it afterwards"
        )
    if found.readonly:
        raise UsageError("out cannot be written to: give an array of your own, such as np.empty makes")
    if not _is_disjoint(found):
        raise UsageError(
            "items of out share their bytes, or lie between one another: give an array with memory for each of them"
        )
    return found


def _is_disjoint(of: Source) -> bool:
    """As csrc/ring/layout.cpp tells it: from the nearest items outwards, each step leaves all before it behind."""
    if of.nbytes == 0:
        return True
    steps = sorted((abs(stride), extent) for stride, extent in zip(of.strides, of.shape, strict=True) if extent > 1)
    covered = of.itemsize
    for distance, extent in steps:
        if distance < covered:
            return False
        covered += distance * (extent - 1)
    return True


if TYPE_CHECKING:
    from typing import TypeAlias

    Dtype: TypeAlias = np.dtype[Any] | Literal["bfloat16"]

BFLOAT16: Final = "bfloat16"
_BFLOAT16_BYTES = 2
_SENT = frozenset("?bBhHiIlLqQefdFD")  # NumPy's letters: bool, whole numbers, floats to 64 bits and complex to 128
_TEXT = "holds text, which no GPU keeps: send numbers, such as places in a list of the texts"
_TIMES = "holds dates or durations: send its numbers, x.view(np.int64)"
_REFUSED = {
    "O": "holds Python objects, which stay on the host: make numbers of them, such as np.stack(x) or x.astype(float)",
    **dict.fromkeys("SUT", _TEXT),
    **dict.fromkeys("Mm", _TIMES),
    "g": "is longer than any float of a GPU: x.astype(np.float64)",
    "G": "is longer than any complex number of a GPU: x.astype(np.complex128)",
}
# By code and bits, as dlpack.h has them.
_OF_DLPACK: dict[tuple[int, int], Dtype] = {
    **{(0, 8 * size): np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{(1, 8 * size): np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    **{(2, 8 * size): np.dtype(f"f{size}") for size in (2, 4, 8)},
    **{(5, 8 * size): np.dtype(f"c{size}") for size in (8, 16)},
    (4, 16): BFLOAT16,
    (6, 8): np.dtype(np.bool_),
}


def dtype_to_send(dtype: np.dtype[Any]) -> Dtype:
    """The dtype as it is sent.

    Raises:
        UsageError: it is not; says what to do.

    """
    if dtype.char in _SENT and dtype.isnative:
        return dtype
    if dtype.name == BFLOAT16 and dtype.itemsize == _BFLOAT16_BYTES:  # of ml_dtypes
        return BFLOAT16
    raise UsageError(f"an array of {dtype} {_why_not(dtype)}")


def dtype_of_dlpack(code: int, bits: int, lanes: int) -> Dtype | None:
    """What DLPack calls a type; None where it is not sent."""
    return _OF_DLPACK.get((code, bits)) if lanes == 1 else None


def itemsize_of(dtype: Dtype) -> int:
    """Bytes of one item."""
    return _BFLOAT16_BYTES if isinstance(dtype, str) else dtype.itemsize


def name_of(dtype: Dtype) -> str:
    """Its name, by which two of them can be compared."""
    return dtype if isinstance(dtype, str) else dtype.name


def _why_not(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return f"has several fields an item: send them one by one, x[{dtype.names[0]!r}] and so on"
    if dtype.char in _REFUSED or dtype.kind in _REFUSED:
        return _REFUSED[dtype.char if dtype.char in _REFUSED else dtype.kind]
    if not dtype.isnative:
        return 'has its bytes in the order of other machines: x.astype(x.dtype.newbyteorder("="))'
    return "is of a type that is not passed on: send its bytes, x.view(np.uint8)"
