"""Memory of arrays on the host: NumPy arrays, buffers, and tensors on the CPU that support DLPack.

`source_of` gives the memory of an array to send, `destination_of` that of an array to write to.

Items are numbers of the types that GPUs have, in this machine's byte order. NumPy has no bfloat16, so that type is
represented by its name, and ml_dtypes, which has it, is not required.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Dtype: TypeAlias = np.dtype[Any] | Literal["bfloat16"]

# --- arrays to send --------------------------------------------------------------------------------------------------

MAX_BYTES = 2**63 - 1
_CUDA_INTERFACE = "__cuda_array_interface__"
_ARRAY_METHODS = ("__dlpack__", _CUDA_INTERFACE, "__array_interface__", "__array__")


class Source(NamedTuple):
    """An array in host memory. The first item is at `address`; strides are in bytes."""

    address: int
    dtype: Dtype
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    """Bytes of all items without gaps, as on the device."""
    readonly: bool
    keep: Any
    """Keeps the memory alive."""


def is_array(x: object) -> bool:
    """Whether an object is an array, including arrays that cannot be sent."""
    if isinstance(x, (np.ndarray, np.generic)):
        return not isinstance(x, str)
    if x is None or isinstance(x, (str, int, float, complex, type)):  # a list may have thousands of these
        return False
    return any(hasattr(type(x), name) for name in _ARRAY_METHODS) or _is_buffer(x)


def source_of(x: Any) -> Source:
    if isinstance(x, (np.ndarray, np.generic)):
        return _of_array(base_array(x))
    if hasattr(type(x), "__dlpack__"):
        return _of_dlpack(x)
    if hasattr(type(x), _CUDA_INTERFACE):
        raise UsageError(f"this {type_name(type(x))} is on a GPU already: use it as it is")
    if _is_buffer(x):
        return _of_array(_buffer_array(x))
    raise UsageError(
        f"this {type_name(type(x))} is not an array, a buffer or a tensor on the CPU: np.asarray(x) converts numbers"
    )


def bases_of(array: NDArray[Any]) -> list[Any]:
    """An array, the object that it is a view of, and so on to the owner of the memory."""
    found: list[Any] = [array]
    while isinstance(found[-1], (np.ndarray, memoryview)):
        last = found[-1]
        base = last.base if isinstance(last, np.ndarray) else last.obj
        if base is None:
            break
        found.append(base)
    return found


def base_array(x: Any) -> NDArray[Any]:
    """`x` without its subclass. A scalar is copied, which is safe because it cannot change."""
    # Most arrays need no `np.ma`, which NumPy imports when it is first named. In a child that is forked while another
    # thread does that, the lock of the import stays held.
    is_subclass = isinstance(x, np.ndarray) and type(x) is not np.ndarray
    if is_subclass and isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise UsageError("a masked array would lose its mask: give x.filled(value), or both x.data and x.mask")
    return np.asarray(x)


def _of_array(array: NDArray[Any]) -> Source:
    dtype = dtype_to_send(array.dtype)
    _require_whole_file(array)
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
    kind = type(x)
    if hasattr(kind, "__dlpack_device__"):
        _require_host(x, *call_exporter(x, x.__dlpack_device__))
    if getattr(getattr(x, "dtype", None), "name", None) in NO_NUMBERS:
        raise UsageError(f"this {type_name(kind)} of {x.dtype.name} does not hold numbers: leave it on the host")
    if hasattr(kind, "is_neg") and x.is_neg():  # DLPack cannot express it, and PyTorch does not refuse
        raise UsageError(f"this {type_name(kind)} has the negative bit set: give x.resolve_neg()")

    def export() -> Any:
        try:
            return x.__dlpack__(max_version=(_KNOWN_MAJOR, 0))  # only version 1 says whether the array is read-only
        except TypeError:  # the library has only version 0
            return x.__dlpack__()

    return read_capsule(x, call_exporter(x, export), _require_host, "sent: send their bytes, as uint8")


def may_be_of_a_file(x: Any) -> bool:
    """Whether NumPy's array may be mapped from a file; if it may, `source_of` looks. Quick for most arrays."""
    base = x.base if type(x) is np.ndarray else None
    return base is not None and (type(base) is not np.ndarray or base.base is not None)


def _require_whole_file(array: NDArray[Any]) -> None:
    """Refuse an array mapped from a file that was cut, because a read behind its end ends the process (SIGBUS).

    If the file is cut later, during the transfer, this is not noticed.
    """
    bases = bases_of(array)
    mapped = bases[-1]
    if not isinstance(mapped, mmap.mmap):
        return
    skipped = next((base.offset for base in bases if isinstance(base, np.memmap)), 0)
    needed = skipped - skipped % mmap.ALLOCATIONGRANULARITY + len(mapped)
    try:
        nbytes = mapped.size()  # the current size of the file
    except (OSError, ValueError):  # the file is closed
        return
    if nbytes < needed:
        raise UsageError(
            f"this array is mapped from a file that was cut to {format_size(nbytes)}, and needs {format_size(needed)} "
            f"of it: map it again"
        )


def _is_buffer(x: Any) -> bool:
    try:
        memoryview(x).release()
    except TypeError:
        return False
    except (ValueError, BufferError):  # closed or released: `_buffer_array` raises the error
        return True
    return True


def _buffer_array(x: Any) -> NDArray[Any]:
    """A buffer as an array, whose view prevents the buffer from being moved or resized."""
    try:
        return np.asarray(memoryview(x))
    except (ValueError, BufferError) as error:
        raise UsageError(f"the buffer of this {type_name(type(x))} cannot be read as an array: {error}") from error


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class ArrayInterface:
    """A source with the attribute by which NumPy reads it. Arrays keep this object."""

    def __init__(self, source: Source) -> None:
        self.keep = source.keep
        self.__array_interface__ = {
            "version": 3,
            "shape": source.shape,
            "typestr": "<u2" if isinstance(source.dtype, str) else source.dtype.str,
            "data": (source.address, source.readonly),
            "strides": source.strides,
        }


def array_of(source: Source) -> NDArray[Any]:
    return np.asarray(ArrayInterface(source))


# --- destinations ----------------------------------------------------------------------------------------------------


def destination_of(out: Any, shape: tuple[int, ...], dtype: Dtype) -> Source:
    try:
        found = source_of(out)
    except UsageError as error:
        raise UsageError(f"out: {error}") from error
    if found.shape != shape:
        raise UsageError(f"out has shape {found.shape} and the array {shape}: give np.empty({shape}, ...)")
    if found.dtype is not dtype and name_of(found.dtype) != name_of(dtype):  # a name takes 2 us
        raise UsageError(
            f"out has dtype {name_of(found.dtype)} and the array {name_of(dtype)}: give an out of that dtype, and "
            f"convert it afterwards"
        )
    if found.readonly:
        raise UsageError("out is read-only: give a writable array, such as one of np.empty")
    if not _is_disjoint(found):
        raise UsageError("items of out overlap or interleave in memory: give an array such as np.empty makes")
    return found


def _is_disjoint(source: Source) -> bool:
    """The rule of csrc/ring/layout.cpp: sorted by stride, each dimension steps over all items of the smaller ones."""
    if source.nbytes == 0:
        return True
    steps = sorted(
        (abs(stride), extent) for stride, extent in zip(source.strides, source.shape, strict=True) if extent > 1
    )
    covered = source.itemsize
    for distance, extent in steps:
        if distance < covered:
            return False
        covered += distance * (extent - 1)
    return True


# --- dtypes ----------------------------------------------------------------------------------------------------------

BFLOAT16: Final = "bfloat16"
_BFLOAT16_BYTES = 2
_SENT = frozenset("?bBhHiIlLqQefdFD")  # NumPy's letters: bool, integers, floats to 64 bits and complex to 128
_REFUSED = {
    "O": "holds Python objects: convert them to numbers, for example by np.stack(x) or x.astype(float)",
    **dict.fromkeys("SUT", "holds text: send numbers instead, such as indices into a list of texts"),
    **dict.fromkeys("Mm", "holds dates or durations: send their numbers, x.view(np.int64)"),
    "g": "has longer floats than GPUs have: send x.astype(np.float64)",
    "G": "has longer complex numbers than GPUs have: send x.astype(np.complex128)",
}
# By code and bits of dlpack.h.
_OF_DLPACK: dict[tuple[int, int], Dtype] = {
    **{(0, 8 * size): np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{(1, 8 * size): np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    **{(2, 8 * size): np.dtype(f"f{size}") for size in (2, 4, 8)},
    **{(5, 8 * size): np.dtype(f"c{size}") for size in (8, 16)},
    (4, 16): BFLOAT16,
    (6, 8): np.dtype(np.bool_),
}
DLPACK_TYPES = {dtype: code_and_bits for code_and_bits, dtype in _OF_DLPACK.items()}


def dtype_to_send(dtype: np.dtype[Any]) -> Dtype:
    if dtype.char in _SENT and dtype.isnative:
        return dtype
    if dtype.name == BFLOAT16 and dtype.itemsize == _BFLOAT16_BYTES:  # of ml_dtypes
        return BFLOAT16
    raise UsageError(f"an array of {dtype} {_why_not(dtype)}")


def itemsize_of(dtype: Dtype) -> int:
    return _BFLOAT16_BYTES if isinstance(dtype, str) else dtype.itemsize


@lru_cache(maxsize=64)  # NumPy takes 3 us for a name
def name_of(dtype: Dtype) -> str:
    """The name of a dtype. Two dtypes are equal if their names are."""
    return dtype if isinstance(dtype, str) else dtype.name


def dtype_name(dtype: Any) -> str:
    """The name of a dtype: of NumPy's or TensorFlow's, of a class of NumPy's or JAX's, of PyTorch's, or a text."""
    found = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(found).rpartition(".")[2]


def _why_not(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return f"has structured items: send one field at a time, x[{dtype.names[0]!r}] and so on"
    if dtype.char in _REFUSED or dtype.kind in _REFUSED:
        return _REFUSED[dtype.char if dtype.char in _REFUSED else dtype.kind]
    if not dtype.isnative:
        return 'is not in this machine\'s byte order: send x.astype(x.dtype.newbyteorder("="))'
    return "cannot be sent: send its bytes, x.view(np.uint8)"


# --- DLPack ----------------------------------------------------------------------------------------------------------

_LEGACY, _VERSIONED = b"dltensor", b"dltensor_versioned"
_KNOWN_MAJOR = 1
_READ_ONLY = 1
_HOST_KINDS = {1, 3, 11}  # pageable, or page-locked by CUDA or by ROCm
_OTHER_KINDS = {2: "GPU", 10: "ROCm GPU", 13: "managed memory of GPU"}
# Arrays of these libraries must not be written to, which a capsule of version 0 cannot say.
_IMMUTABLE = {"jax", "jaxlib", "tensorflow"}
# TensorFlow aborts the process if it exports tensors of these dtypes.
NO_NUMBERS = {"string", "resource", "variant"}


# Structures of dlpack.h. Reading one at once takes a third of the time that the fields of a ctypes.Structure take.
_TENSOR = struct.Struct("PiiiBBHPPQ")  # data; kind, index; dimensions; code, bits, lanes; shape; strides; byte_offset
_HEADER = struct.Struct("IIPPQ")  # major, minor; context; deleter; flags
_TensorBytes = ctypes.c_char * _TENSOR.size
_HeaderBytes = ctypes.c_char * _HEADER.size


# Separate prototypes, because every module can change the argument types of the functions in ctypes.pythonapi.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read_capsule(x: Any, capsule: Any, require_device: Callable[[Any, int, int], None], remedy: str) -> Source:
    """Read a capsule of `x`, which keeps the memory. `remedy` is for items of dtypes that GPUs do not have."""
    kind = type(x)
    address, flags = _opened(kind, capsule)
    fields = _TENSOR.unpack_from(_TensorBytes.from_address(address))
    data, device, index, dimensions, code, bits, lanes, extents, steps, offset = fields
    require_device(x, device, index)
    dtype = _OF_DLPACK.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        known = getattr(x, "dtype", f"DLPack's type {(code, bits, lanes)}")
        raise UsageError(f"items of {known} cannot be {remedy}")
    itemsize = itemsize_of(dtype)
    shape = _integers(extents, dimensions)
    strides = _integers(steps, dimensions) if steps else strides_of(shape)
    return Source(
        address=data + offset,
        dtype=dtype,
        itemsize=itemsize,
        shape=shape,
        strides=tuple([step * itemsize for step in strides]),
        nbytes=math.prod(shape) * itemsize,
        readonly=bool(flags & _READ_ONLY) or kind.__module__.partition(".")[0] in _IMMUTABLE,
        keep=capsule,
    )


@lru_cache(maxsize=1024)
def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in items."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _integers(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address)[:]) if count else ()


def call_exporter(x: Any, export: Callable[[], Any]) -> Any:
    try:
        return export()
    except PyxferError:
        raise
    except Exception as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"this {type_name(type(x))} cannot be exported by DLPack: {why}") from error


def _require_host(x: Any, device: int, index: int) -> None:
    if device not in _HOST_KINDS:
        known = device in _OTHER_KINDS
        where = f"{_OTHER_KINDS[device]} {index}" if known else f"a device of DLPack's type {int(device)}"
        raise UsageError(f"this {type_name(type(x))} is on {where} already: use it as it is")


def _opened(kind: type, capsule: Any) -> tuple[int, int]:
    """The address of the tensor, and the flags."""
    if _is_valid(capsule, _LEGACY):
        return _pointer(capsule, _LEGACY), 0
    if not _is_valid(capsule, _VERSIONED):
        raise UsageError(f"this {type_name(kind)} returned something other than an unused DLPack capsule")
    address = _pointer(capsule, _VERSIONED)
    major, _, _, _, flags = _HEADER.unpack_from(_HeaderBytes.from_address(address))
    if major > _KNOWN_MAJOR:
        raise UsageError(
            f"this {type_name(kind)} uses DLPack {major}, and pyxfer knows {_KNOWN_MAJOR}: give np.asarray(x)"
        )
    return address + _HEADER.size, flags
