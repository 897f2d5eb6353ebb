"""Arrays of every dtype that is sent, and their memory looked at item by item, past NumPy."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Source

DTYPES = st.sampled_from("?bBhHiIlLqQefdFD").map(np.dtype)


def gathered(source: Source) -> bytes:
    """Every item that a source describes, in C order."""
    places = itertools.product(*(range(extent) for extent in source.shape))
    return b"".join(ctypes.string_at(_address(source, place), source.itemsize) for place in places)


def _address(source: Source, place: tuple[int, ...]) -> int:
    return source.address + sum(step * stride for step, stride in zip(place, source.strides, strict=True))
