"""What an array may hold to be sent: numbers that a GPU knows, in this machine's byte order; anything else is refused.

NumPy has no bfloat16, so that one goes by its name, and ml_dtypes, which has it, is never needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from typing import TypeAlias

    Dtype: TypeAlias = np.dtype[Any] | Literal["bfloat16"]

BFLOAT16: Final = "bfloat16"
_BFLOAT16_BYTES = 2
_SENT = frozenset("?bBhHiIlLqQefdFD")  # NumPy's letters: bool, whole numbers, floats to 64 bits and complex to 128
_TEXT = "holds text, which no GPU keeps: send numbers, such as places in a list of the texts"
_TIMES = "holds dates or durations: send its numbers, x.view(np.int64)"
_REFUSED = {
    "O": "holds Python objects, which stay on the host: make numbers of them, such as np.stack(x) or x.astype(float)",
    **dict.fromkeys("SUT", _TEXT),
    **dict.fromkeys("Mm", _TIMES),
    "g": "is longer than any float of a GPU: x.astype(np.float64)",
    "G": "is longer than any complex number of a GPU: x.astype(np.complex128)",
}
# By code and bits, as dlpack.h has them.
_OF_DLPACK: dict[tuple[int, int], Dtype] = {
    **{(0, 8 * size): np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{(1, 8 * size): np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    **{(2, 8 * size): np.dtype(f"f{size}") for size in (2, 4, 8)},
    **{(5, 8 * size): np.dtype(f"c{size}") for size in (8, 16)},
    (4, 16): BFLOAT16,
    (6, 8): np.dtype(np.bool_),
}


def dtype_to_send(dtype: np.dtype[Any]) -> Dtype:
    """The dtype as it is sent.

    Raises:
        UsageError: it is not; says what to do.

    """
    if dtype.char in _SENT and dtype.isnative:
        return dtype
    if dtype.name == BFLOAT16 and dtype.itemsize == _BFLOAT16_BYTES:  # of ml_dtypes
        return BFLOAT16
    raise UsageError(f"an array of {dtype} {_why_not(dtype)}")


def dtype_of_dlpack(code: int, bits: int, lanes: int) -> Dtype | None:
    """What DLPack calls a type; None where it is not sent."""
    return _OF_DLPACK.get((code, bits)) if lanes == 1 else None


def itemsize_of(dtype: Dtype) -> int:
    """Bytes of one item."""
    return _BFLOAT16_BYTES if isinstance(dtype, str) else dtype.itemsize


def name_of(dtype: Dtype) -> str:
    """Its name, by which two of them can be compared."""
    return dtype if isinstance(dtype, str) else dtype.name


def _why_not(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return f"has several fields an item: send them one by one, x[{dtype.names[0]!r}] and so on"
    if dtype.char in _REFUSED or dtype.kind in _REFUSED:
        return _REFUSED[dtype.char if dtype.char in _REFUSED else dtype.kind]
    if not dtype.isnative:
        return 'has its bytes in the order of other machines: x.astype(x.dtype.newbyteorder("="))'
    return "is of a type that is not passed on: send its bytes, x.view(np.uint8)"
