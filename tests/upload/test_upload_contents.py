"""Arrays of every dtype and layout, uploaded and downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from upload.memories import DTYPES

from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.native import load


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Of any dtype, sliced, reversed and transposed in any way."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9))
    dtype = draw(DTYPES)
    data = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2 if dtype.kind == "b" else 100, shape)
    array = np.asarray(data).astype(dtype).transpose(draw(st.permutations(range(len(shape)))))
    index = (..., *[draw(st.slices(extent)) for extent in array.shape])
    view: NDArray[Any] = array[index]
    return view


@pytest.fixture(scope="module")
def up() -> Iterator[Uploader]:
    with Uploader("host", threads=3, chunk_bytes=4096, slots=2) as made:
        yield made


@given(array=arrays(), block=st.booleans())
def test_any_array_arrives_and_comes_back(up: Uploader, array: NDArray[Any], block: bool) -> None:
    sent = up.upload(array, Target(load("host")), block)
    y = sent if block else sent.result()
    there = np.from_dlpack(y)
    assert (there.shape, there.dtype) == (array.shape, array.dtype)
    assert np.array_equal(there, array)
    back = up.download(y)
    assert (back.dtype, back.flags.owndata) == (array.dtype, True)
    assert np.array_equal(back, array)
