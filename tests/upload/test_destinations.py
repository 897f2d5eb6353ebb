"""Destinations of downloads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._upload.arrays import destination_of
from pyxfer.errors import UsageError

F4 = np.dtype(np.float32)
as_strided = np.lib.stride_tricks.as_strided

FITTING = {
    "c order": np.zeros((2, 3), F4),
    "fortran order": np.zeros((2, 3), F4, order="F"),
    "backwards": np.zeros((2, 3), F4)[::-1, ::-1],
    "every other": np.zeros((4, 9), F4)[::2, ::3],
    "matrix": np.zeros((2, 3), F4).view(np.matrix),
}


@pytest.mark.parametrize("out", FITTING.values(), ids=FITTING)
def test_a_fitting_array_is_written_in_place(out: np.ndarray[Any, Any]) -> None:
    found = destination_of(out, (2, 3), F4)
    assert (found.address, found.strides) == (out.ctypes.data, out.strides)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1, 1)])
def test_an_array_of_any_shape_can_be_a_destination(shape: tuple[int, ...]) -> None:
    assert destination_of(np.zeros(shape, F4), shape, F4).shape == shape


def test_a_buffer_can_be_a_destination() -> None:
    assert destination_of(bytearray(3), (3,), np.dtype(np.uint8)).nbytes == 3


REFUSED = {
    "shape": (np.zeros((3, 2), F4), "out has shape (3, 2) and the array (2, 3): give np.empty((2, 3), ...)"),
    "dtype": (np.zeros((2, 3)), "out has dtype float64 and the array float32"),
    "read-only": (np.broadcast_to(F4.type(0), (2, 3)), "out is read-only"),
    "repeated": (as_strided(np.zeros(3, F4), (2, 3), (0, 4)), "items of out overlap or interleave"),
    "overlapping": (as_strided(np.zeros(4, F4), (2, 3), (4, 4)), "items of out overlap or interleave"),
    "unaligned": (as_strided(np.zeros(9, F4), (2, 3), (16, 2)), "items of out overlap or interleave"),
    "no array": ([1, 2], "out: this list is not an array"),
}


@pytest.mark.parametrize(("out", "why"), REFUSED.values(), ids=REFUSED)
def test_a_destination_that_does_not_fit_is_refused(out: Any, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        destination_of(out, (2, 3), F4)


def test_bfloat16_does_not_fit_into_float16() -> None:
    with pytest.raises(UsageError, match="out has dtype float16 and the array bfloat16"):
        destination_of(np.zeros(3, np.float16), (3,), "bfloat16")


extents = st.lists(st.integers(0, 4), min_size=1, max_size=3)


@given(extents, st.data())
def test_no_byte_of_an_accepted_destination_belongs_to_two_items(shape: list[int], data: st.DataObject) -> None:
    strides = data.draw(st.lists(st.integers(-12, 12), min_size=len(shape), max_size=len(shape)))
    memory = np.zeros(3 * 4 * 12 * 2 + 2, np.uint16)
    out = as_strided(memory[memory.size // 2 :], shape, [2 * stride for stride in strides])
    try:
        destination_of(out, tuple(shape), np.dtype(np.uint16))
    except UsageError:
        return
    places = [sum(i * s for i, s in zip(place, strides, strict=True)) for place in np.ndindex(*shape)]
    assert len(set(places)) == len(places)
