"""The dtypes that can be sent."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pyxfer._upload.arrays import BFLOAT16, dtype_of_dlpack, dtype_to_send, itemsize_of, name_of
from pyxfer.errors import UsageError

SENT = sorted({np.dtype(letter).name for letter in "?bBhHiIlLqQpPefdFD"})
REFUSED = {
    "object": ("O", "an array of object holds Python objects: convert them to numbers"),
    "text": ("U5", "holds text: send numbers instead"),
    "bytes": ("S5", "an array of |S5 holds text"),
    "dates": ("M8[s]", "an array of datetime64[s] holds dates or durations: send their numbers, x.view(np.int64)"),
    "durations": ("m8[ms]", "holds dates or durations"),
    "fields": ([("a", "i4"), ("b", "f8")], "has structured items: send one field at a time, x['a'] and so on"),
    "raw": ("V3", "cannot be sent: send its bytes, x.view(np.uint8)"),
    "swapped": (">f4", 'byte order: send x.astype(x.dtype.newbyteorder("="))'),
    "swapped dates": (">M8[s]", "holds dates or durations"),
    "long": ("longdouble", "longer floats than GPUs have: send x.astype(np.float64)"),
    "long complex": ("clongdouble", "longer complex numbers than GPUs have: send x.astype(np.complex128)"),
}


@pytest.mark.parametrize("name", SENT)
def test_numbers_are_sent_as_they_are(name: str) -> None:
    assert dtype_to_send(np.dtype(name)) == np.dtype(name)


@pytest.mark.parametrize(("dtype", "why"), REFUSED.values(), ids=REFUSED)
def test_other_dtypes_are_refused_with_advice(dtype: Any, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        dtype_to_send(np.dtype(dtype))


def test_the_advice_for_other_byte_orders_works() -> None:
    x = np.arange(4, dtype=">f4")
    assert dtype_to_send(x.astype(x.dtype.newbyteorder("=")).dtype) == np.float32


def test_bfloat16_of_ml_dtypes_is_represented_by_its_name() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    sent = dtype_to_send(np.dtype(ml_dtypes.bfloat16))
    assert (sent, itemsize_of(sent), name_of(sent)) == (BFLOAT16, 2, "bfloat16")


def test_float8_of_ml_dtypes_is_refused() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(UsageError, match="an array of float8_e4m3fn cannot be sent"):
        dtype_to_send(np.dtype(ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize("name", SENT)
def test_dlpack_types_map_to_dtypes(name: str) -> None:
    dtype = np.dtype(name)
    code = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[dtype.kind]
    assert dtype_of_dlpack(code, 8 * dtype.itemsize, 1) == dtype


@pytest.mark.parametrize("unknown", [(0, 4, 1), (2, 8, 1), (2, 128, 1), (3, 64, 1), (7, 8, 1), (2, 32, 4)])
def test_other_types_of_dlpack_have_no_dtype(unknown: tuple[int, int, int]) -> None:
    assert dtype_of_dlpack(*unknown) is None


def test_names_distinguish_dtypes() -> None:
    assert name_of(np.dtype("longlong")) == name_of(np.dtype("int64"))
    assert {name_of(BFLOAT16), name_of(np.dtype("f2")), name_of(np.dtype("u2"))} == {"bfloat16", "float16", "uint16"}
