"""Sources: NumPy arrays, scalars and buffers."""

from __future__ import annotations

import array
import ctypes
import gc
import math
import mmap
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from upload.memories import DTYPES, gathered

from pyxfer._upload.arrays import is_array, name_of, source_of
from pyxfer.errors import UsageError


@st.composite
def views(draw: st.DrawFn) -> Any:
    """Transposed, sliced, reversed and repeated arrays, in C and Fortran order."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    dtype = draw(DTYPES)
    data = np.random.default_rng(draw(st.integers(0, 99))).bytes(math.prod(shape) * dtype.itemsize)
    x: Any = np.frombuffer(data, dtype).reshape(shape, order=draw(st.sampled_from("CF")))
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    x = np.asarray(x[draw(hnp.basic_indices(x.shape, allow_newaxis=True, max_dims=5))])
    if draw(st.booleans()):
        x = np.broadcast_to(x, (draw(st.integers(0, 3)), *x.shape))
    return x


@given(views())
def test_a_source_has_exactly_the_bytes_of_its_array(x: np.ndarray[Any, Any]) -> None:
    source = source_of(x)
    assert gathered(source) == x.tobytes()
    assert (source.dtype, source.shape, source.nbytes) == (x.dtype, x.shape, len(x.tobytes()))


@given(views())
def test_the_source_of_a_view_has_its_address_and_strides(x: np.ndarray[Any, Any]) -> None:
    source = source_of(x)
    assert (source.address, source.strides) == (x.ctypes.data, x.strides)


@pytest.mark.parametrize("scalar", [np.float32(2.5), np.int64(-3), np.complex64(1 - 2j), np.bool_(True)])
def test_a_scalar_of_numpy_is_an_array_without_dimensions(scalar: np.generic) -> None:
    source = source_of(scalar)
    assert (source.shape, source.strides) == ((), ())
    assert gathered(source) == scalar.tobytes()


BUFFERS = {
    "bytes": (b"abcdef", "uint8", (6,)),
    "bytearray": (bytearray(b"abc"), "uint8", (3,)),
    "array": (array.array("d", [1.0, 2.0]), "float64", (2,)),
    "memoryview": (memoryview(b"abcdef")[::-2], "uint8", (3,)),
    "shaped memoryview": (memoryview(b"abcdef").cast("H", (3, 1)), "uint16", (3, 1)),
    "ctypes array": (((ctypes.c_int32 * 2) * 3)(), "int32", (3, 2)),
    "empty": (b"", "uint8", (0,)),
}


@pytest.mark.parametrize(("buffer", "dtype", "shape"), BUFFERS.values(), ids=BUFFERS)
def test_a_buffer_is_an_array_of_its_format_and_shape(buffer: Any, dtype: str, shape: tuple[int, ...]) -> None:
    source = source_of(buffer)
    assert (name_of(source.dtype), source.shape) == (dtype, shape)
    assert gathered(source) == memoryview(buffer).tobytes()


def test_a_mapped_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        source = source_of(mapped)
        assert gathered(source) == path.read_bytes()
        assert source.readonly
        del source
    assert gathered(source_of(np.memmap(path, np.int16, "r", shape=(8, 16)))) == path.read_bytes()


@pytest.mark.parametrize(
    ("x", "readonly"),
    [
        (b"abc", True),
        (np.broadcast_to(1, 3), True),
        (memoryview(b"abc"), True),
        (bytearray(b"abc"), False),
        (np.zeros(3), False),
        (array.array("i", [1]), False),
    ],
)
def test_a_source_is_read_only_if_its_memory_is(x: Any, readonly: bool) -> None:
    assert source_of(x).readonly == readonly


def test_a_source_keeps_the_memory_alive() -> None:
    x = np.arange(1000)
    gone = weakref.ref(x)
    source = source_of(x[::2])
    del x
    gc.collect()
    assert gone() is not None
    assert gathered(source) == np.arange(0, 1000, 2).tobytes()
    del source
    assert gone() is None


def test_a_buffer_cannot_be_resized_while_its_source_exists() -> None:
    buffer = bytearray(b"abc")
    source = source_of(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"d")
    del source
    buffer.extend(b"d")


def test_a_matrix_is_read_as_an_array() -> None:
    matrix = np.arange(6).reshape(2, 3).view(np.matrix)
    source = source_of(matrix)
    assert (source.address, source.shape, type(source.keep)) == (matrix.ctypes.data, (2, 3), np.ndarray)


def test_a_masked_array_without_masked_items_is_accepted() -> None:
    x = np.ma.MaskedArray([1, 2, 3], mask=np.zeros(3, bool))
    assert gathered(source_of(x)) == x.data.tobytes()


def test_a_masked_array_with_masked_items_is_refused() -> None:
    with pytest.raises(UsageError, match="would lose its mask"):
        source_of(np.ma.MaskedArray([1, 2, 3], mask=np.array([False, True, False])))


REFUSED = {
    "list": ([1, 2], "this list is not an array, a buffer or a tensor on the CPU: np.asarray(x) converts numbers"),
    "tuple": ((1, 2), "this tuple is not an array"),
    "int": (3, "this int is not an array"),
    "None": (None, "this NoneType is not an array"),
    "text": ("abc", "this str is not an array"),
    "objects": (np.array([{}, ()], object), "an array of object"),
    "numpy's text": (np.array(["a"]), "an array of <U1"),
    "a text of numpy": (np.str_("a"), "an array of <U1"),
    "characters": (np.array(["a"]).data, "an array of <U1"),
    "addresses": (
        (ctypes.c_void_p * 2)(),
        "the buffer of this .*cannot be read as an array: '<P' is not a valid PEP 3118",
    ),
    "big-endian buffer": ((ctypes.c_int.__ctype_be__ * 2)(), "an array of >i4"),
}


@pytest.mark.parametrize(("x", "why"), REFUSED.values(), ids=REFUSED)
def test_objects_that_cannot_be_sent_are_refused(x: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("(x)", re.escape("(x)"))):
        source_of(x)


def released_view() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


def closed_map() -> mmap.mmap:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    return mapped


@pytest.mark.parametrize("make", [released_view, closed_map])
def test_a_released_or_closed_buffer_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="cannot be read as an array"):
        source_of(make())


class OnAGpu:
    """Like a device array of numba."""

    __cuda_array_interface__ = None


def test_an_array_with_cuda_array_interface_is_refused() -> None:
    with pytest.raises(UsageError, match=r"this .*OnAGpu is on a GPU already"):
        source_of(OnAGpu())


@pytest.mark.parametrize("shape", [(2**60,), (2**59, 2), (0, 2**62)])
def test_numpy_refuses_arrays_of_more_than_2_63_bytes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="array is too big"):
        np.lib.stride_tricks.as_strided(np.zeros(1), shape, (0,) * len(shape))


def test_the_largest_possible_array_has_its_nbytes() -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(1), (2**60 - 1,), (0,))
    assert source_of(x).nbytes == 2**63 - 8


ARRAYS = [np.zeros(2), np.float64(1), np.array("a"), b"", bytearray(), memoryview(b""), array.array("i"), OnAGpu()]
OTHERS = [None, 1, 1.5, 2j, True, "a", np.str_("a"), [], (), {}, set(), np.ndarray, np.float32]


@pytest.mark.parametrize(("x", "expected"), [*((x, True) for x in ARRAYS), *((x, False) for x in OTHERS)])
def test_is_array_is_true_even_for_arrays_that_cannot_be_sent(x: object, expected: bool) -> None:
    assert is_array(x) == expected
