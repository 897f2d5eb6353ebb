"""All dtypes that can be sent, the items of a source, and the memory that the host runtime has allocated."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Source

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
