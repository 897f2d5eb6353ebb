"""Dtypes and items of sources, memory that the host runtime has allocated, and DLPack capsules with changed fields."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from pyxfer._upload.arrays import Source, source_of
from pyxfer.errors import UsageError
from pyxfer.native._host import testing

DTYPES = st.sampled_from("?bBhHiIlLqQefdFD").map(np.dtype)


def held(kind: str) -> int:
    """Bytes that are allocated on the host runtime: `device`, `pinned` or `registered`."""
    return sum(nbytes for found, _, nbytes in testing.allocated() if found == kind)


def gathered(source: Source) -> bytes:
    """The bytes of all items of a source, in C order."""
    places = itertools.product(*(range(extent) for extent in source.shape))
    return b"".join(ctypes.string_at(_address(source, place), source.itemsize) for place in places)


def _address(source: Source, place: tuple[int, ...]) -> int:
    return source.address + sum(step * stride for step, stride in zip(place, source.strides, strict=True))


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
needs_dlpack_1 = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy has DLPack 1 from 2.1 on"
)
# Offsets and types of the fields of DLTensor, and the size of the header before it in version 1: from dlpack.h.
OFFSETS = {
    "data": (0, ctypes.c_uint64),
    "device": (8, ctypes.c_int32),
    "index": (12, ctypes.c_int32),
    "ndim": (16, ctypes.c_int32),
    "code": (20, ctypes.c_uint8),
    "bits": (21, ctypes.c_uint8),
    "lanes": (22, ctypes.c_uint16),
    "shape": (24, ctypes.c_uint64),
    "strides": (32, ctypes.c_uint64),
    "byte_offset": (40, ctypes.c_uint64),
}
HEADER_BYTES = 32


class OnAGpu:
    """Like a device array of numba."""

    __cuda_array_interface__ = None


def refused(x: Any) -> str:
    """The reason why `x` cannot be sent."""
    with pytest.raises(UsageError) as caught:
        source_of(x)
    return str(caught.value)


class Capsuled:
    """Exports `x` by DLPack with some fields changed."""

    def __init__(self, x: np.ndarray[Any, Any], **fields: int) -> None:
        self.x = x
        self.fields = fields
        self.device = (1, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        if max_version is None:
            return self.changed(self.x.__dlpack__(), b"dltensor", 0)
        return self.changed(self.x.__dlpack__(max_version=max_version), b"dltensor_versioned", HEADER_BYTES)

    def changed(self, capsule: Any, name: bytes, header_bytes: int) -> Any:
        """Change the fields in a capsule."""
        address = _pointer(capsule, name)
        for field, value in self.fields.items():
            if field == "major":
                ctypes.c_uint32.from_address(address).value = value
            else:
                offset, kind = OFFSETS[field]
                kind.from_address(address + header_bytes + offset).value = value
        return capsule


class CapsuledVersion0(Capsuled):
    """Exports only capsules of version 0."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return super().__dlpack__()
