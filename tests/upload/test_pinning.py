"""Page-locked arrays: of empty_pinned, and of pin."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from upload.memories import DTYPES

from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.pinning import empty_pinned, pin
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CleanupWarning, CudaMemoryError, UsageError
from pyxfer.native import Engine, load
from pyxfer.native._host import testing


def allocated(kind: str = "pinned") -> list[tuple[int, int]]:
    return [(address, nbytes) for found, address, nbytes in testing.allocated() if found == kind]


def locked() -> list[tuple[int, int]]:
    return allocated("registered")


@given(shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0), dtype=DTYPES)
def test_an_array_has_the_given_shape_and_dtype(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = empty_pinned(load("host"), shape, dtype)
    x[...] = 1
    assert (x.shape, x.dtype, bool((x == 1).all())) == (shape, dtype, True)


@pytest.mark.parametrize(
    ("shape", "expected"), [((), ()), (0, (0,)), (3, (3,)), ((0, 3), (0, 3)), ([np.int64(1000), 3], (1000, 3))]
)
def test_an_array_has_its_own_aligned_page_locked_memory(engine: Engine, shape: Any, expected: tuple[int, ...]) -> None:
    x = empty_pinned(engine, shape)
    assert (x.shape, x.dtype, x.ctypes.data % 64) == (expected, np.dtype(np.float64), 0)
    assert x.size == 0 or allocated() == [(x.ctypes.data, x.nbytes)]
    assert x.flags.c_contiguous
    assert x.flags.writeable


def test_the_memory_is_freed_with_the_last_view(engine: Engine) -> None:
    x = empty_pinned(engine, (4, 4), np.float32)
    view = memoryview(x[1:, ::2].T)
    del x
    gc.collect()
    assert len(allocated()) == 1
    del view
    assert allocated() == []


def test_bfloat16_of_ml_dtypes_is_accepted(engine: Engine) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = empty_pinned(engine, (2, 3), ml_dtypes.bfloat16)
    x[...] = 1.5
    y = pin(engine, np.array([1.0, 2.5], ml_dtypes.bfloat16))
    assert (float(x.sum()), float(y.sum()), y.dtype) == (9.0, 3.5, x.dtype)


MAKERS: dict[str, Callable[[Engine], NDArray[Any]]] = {
    "cudaHostAlloc": lambda engine: empty_pinned(engine, 16, np.uint8),
    "cudaHostRegister": lambda engine: pin(engine, np.zeros(16)),
}


@pytest.mark.parametrize("call", MAKERS)
def test_without_memory_the_error_is_cudas(engine: Engine, call: str) -> None:
    testing.fail(call, 1, 2)
    with pytest.raises(CudaMemoryError, match=call):
        MAKERS[call](engine)


@pytest.mark.parametrize(
    ("make", "call"), [("cudaHostAlloc", "cudaFreeHost"), ("cudaHostRegister", "cudaHostUnregister")]
)
def test_a_failed_release_gives_a_warning(engine: Engine, make: str, call: str) -> None:
    x = MAKERS[make](engine)
    testing.fail(call, 1, 719)
    with pytest.warns(CleanupWarning, match=f": {call} failed"):
        del x


def values() -> NDArray[np.float32]:
    return np.array(np.arange(24).reshape(4, 6), np.float32)


def flags(x: NDArray[Any]) -> tuple[bool, ...]:
    return (x.flags.c_contiguous, x.flags.f_contiguous, x.flags.writeable, x.flags.aligned)


def test_pin_refuses_masked_items_and_takes_a_mask_without_any(engine: Engine) -> None:
    with pytest.raises(UsageError, match="would lose its mask"):
        pin(engine, np.ma.MaskedArray(values(), mask=values() > 3))
    assert locked() == []
    assert np.array_equal(pin(engine, np.ma.MaskedArray(values())), values())


LAYOUTS = {
    "whole": lambda x: x,
    "Fortran": lambda x: x.T,
    "gaps": lambda x: x[::2, 1:5:2],
    "backwards": lambda x: x[::-1, ::-2],
    "one": lambda x: x[2, 3, ...],
    "repeated": lambda x: np.broadcast_to(x[0], (3, 6)),
    "unaligned": lambda x: x.view(np.uint8).reshape(-1)[3:-5].view(np.uint16),
}


@pytest.mark.parametrize("cut", LAYOUTS.values(), ids=LAYOUTS)
def test_a_pinned_view_has_the_same_layout_and_all_its_bytes_are_locked(engine: Engine, cut: Any) -> None:
    whole = values()
    x = cut(whole)
    y = pin(engine, x)
    assert (y.ctypes.data, y.shape, y.strides) == (x.ctypes.data, x.shape, x.strides)
    assert (y.dtype, flags(y)) == (x.dtype, flags(x))
    assert np.array_equal(y, x)
    addresses = [x[row : row + 1].ctypes.data for row in range(len(x))] if x.ndim else [x.ctypes.data]
    ((first, nbytes),) = locked()
    assert all(first <= address < first + nbytes for address in addresses)
    assert nbytes <= whole.nbytes


@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)), st.data())
def test_any_array_keeps_its_contents(x: NDArray[Any], data: st.DataObject) -> None:
    cut = x[data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))] if x.ndim else x
    x = np.asarray(cut)
    y = pin(load("host"), x)
    assert (y.shape, y.dtype, y.tobytes()) == (x.shape, x.dtype, x.tobytes())
    assert len(locked()) == (x.size > 0)
    del y
    assert locked() == []


def test_read_only_mapped_memory_is_locked_for_reading(engine: Engine) -> None:
    x = np.frombuffer(mmap.mmap(-1, 4096, prot=mmap.PROT_READ), np.uint8)
    y = pin(engine, x)
    assert locked() == [(x.ctypes.data, 4096)]
    assert not y.flags.writeable
    with Uploader("host", threads=2, chunk_bytes=4096, slots=2) as up:
        assert np.array_equal(np.from_dlpack(up.upload(y, Target(DevicePool(engine, 0, 0)))), x)


def test_the_lock_and_the_memory_stay_until_the_last_view_is_gone(engine: Engine) -> None:
    x = values()
    y = pin(engine, x)
    view = y[1:, ::2].T
    del x, y
    gc.collect()
    assert len(locked()) == 1
    assert view[0].tolist() == [6.0, 12.0, 18.0]
    del view
    assert locked() == []


def test_several_pins_of_an_array_share_one_lock(engine: Engine) -> None:
    x = values()
    first, second = pin(engine, x), pin(engine, x)
    third = pin(engine, second[1:, 2:])
    assert testing.calls()["cudaHostRegister"] == 1
    del first, second
    assert len(locked()) == 1
    del third
    assert locked() == []
    pin(engine, x)
    assert testing.calls()["cudaHostRegister"] == 2


def test_an_array_of_empty_pinned_needs_no_lock(engine: Engine) -> None:
    x = empty_pinned(engine, (3, 4), np.float32)
    y = pin(engine, x[1:])
    assert locked() == []
    assert y.ctypes.data == x[1:].ctypes.data
    del x
    gc.collect()
    y[:] = 3


def test_adjacent_arrays_have_separate_locks(engine: Engine) -> None:
    pages = np.zeros(8192, np.uint8)
    left, right = pin(engine, pages[:100]), pin(engine, pages[100:300])
    assert len(locked()) == 2
    del left
    assert locked() == [(right.ctypes.data, 200)]


def test_an_array_that_overlaps_locked_memory_is_refused(engine: Engine) -> None:
    x = values()
    y = pin(engine, x[1:3])
    with pytest.raises(UsageError, match=r"cannot be page-locked: cudaHostRegister failed .* pyxfer\.empty_pinned"):
        pin(engine, x)
    assert locked() == [(y.ctypes.data, y.nbytes)]


def test_memory_of_a_file_is_refused(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(4096))
    testing.fail("cudaHostRegister", 1, 1)
    testing.fail("cudaHostRegister", 2, 1)  # the second attempt, for reading only
    with pytest.raises(UsageError, match="cannot be page-locked"):
        pin(engine, np.memmap(path, np.uint8, "r"))
    assert locked() == []
