"""Arrays for a ring on the host runtime, whose device memory can be read."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer.native._cuda import DeviceBuffer

Array = NDArray[Any]

CHUNK = 4096
FOREVER_S = 60.0


def contents_of(memory: DeviceBuffer) -> NDArray[np.uint8]:
    """The device memory as an array that can be read and written."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * memory.nbytes).from_address(memory.address))


def place(array: Array) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return array.__array_interface__["data"][0], array.itemsize, array.shape, array.strides


def filled(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    nbytes = np.dtype(dtype).itemsize * int(np.prod(shape))
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8).view(dtype).reshape(shape)
