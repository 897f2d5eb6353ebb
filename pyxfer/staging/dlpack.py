"""An array on the host that speaks DLPack, read without taking it over.

NumPy's own reader knows no bfloat16. A capsule that nobody consumes gives its memory back when it goes, so to hold the
capsule is to hold the memory. The structures are those of dlpack.h, versions 0 and 1.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

from pyxfer.errors import UsageError

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
