"""Where a download may go: an array of the caller's own that fits, and can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyxfer.errors import UsageError
from pyxfer.staging.dtypes import name_of
from pyxfer.staging.sources import source_of

if TYPE_CHECKING:
    from pyxfer.staging.dtypes import Dtype
    from pyxfer.staging.sources import Source


def destination_of(out: Any, shape: tuple[int, ...], dtype: Dtype) -> Source:
    """The memory of `out`, for an array of that shape and dtype.

    Raises:
        UsageError: it does not fit, or cannot be written; says what to do.

    """
    try:
        found = source_of(out)
    except UsageError as error:
        raise UsageError(f"out: {error}") from error
    if found.shape != shape:
        raise UsageError(f"out has the shape {found.shape} and what comes has {shape}: give np.empty({shape}, ...)")
    if name_of(found.dtype) != name_of(dtype):
        raise UsageError(
            f"out holds {name_of(found.dtype)} and what comes is {name_of(dtype)}: give an array of that dtype, and "
            f"convert it afterwards"
        )
    if found.readonly:
        raise UsageError("out cannot be written to: give an array of your own, such as np.empty makes")
    if not _is_disjoint(found):
        raise UsageError(
            "items of out share their bytes, or lie between one another: give an array with memory for each of them"
        )
    return found


def _is_disjoint(of: Source) -> bool:
    """As csrc/ring/layout.cpp tells it: from the nearest items outwards, each step leaves all before it behind."""
    if of.nbytes == 0:
        return True
    steps = sorted((abs(stride), extent) for stride, extent in zip(of.strides, of.shape, strict=True) if extent > 1)
    covered = of.itemsize
    for distance, extent in steps:
        if distance < covered:
            return False
        covered += distance * (extent - 1)
    return True
