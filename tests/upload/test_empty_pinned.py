"""Page-locked arrays of `empty_pinned`."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from upload.memories import DTYPES

from pyxfer._upload.arrays import source_of
from pyxfer._upload.pinning import empty_pinned
from pyxfer.errors import CleanupWarning, CudaMemoryError, UsageError
from pyxfer.native import Engine, load
from pyxfer.native._host import testing


def locked() -> list[tuple[str, int, int]]:
    return [each for each in testing.allocated() if each[0] == "pinned"]


def test_an_array_has_its_own_page_locked_memory(engine: Engine) -> None:
    x = empty_pinned(engine, (5, 7), np.float32)
    assert locked() == [("pinned", x.ctypes.data, 5 * 7 * 4)]
    assert x.flags.c_contiguous
    assert x.flags.writeable


@given(shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0), dtype=DTYPES)
def test_an_array_has_the_given_shape_and_dtype(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = empty_pinned(load("host"), shape, dtype)
    x[...] = 1
    assert (x.shape, x.dtype, bool((x == 1).all())) == (shape, dtype, True)


@pytest.mark.parametrize("shape", [(), 0, 1, (0, 3), (1000, 3)])
def test_an_array_is_aligned_to_64_bytes(engine: Engine, shape: int | tuple[int, ...]) -> None:
    assert empty_pinned(engine, shape, np.uint8).ctypes.data % 64 == 0


def test_a_shape_is_an_integer_or_a_sequence(engine: Engine) -> None:
    assert empty_pinned(engine, 3, "i2").shape == (3,)
    assert empty_pinned(engine, [np.int64(2), 3]).shape == (2, 3)
    assert empty_pinned(engine, 3).dtype == np.float64


def test_the_memory_is_freed_with_the_last_view(engine: Engine) -> None:
    x = empty_pinned(engine, (4, 4), np.float32)
    view = memoryview(x[1:, ::2].T)
    del x
    gc.collect()
    assert len(locked()) == 1
    del view
    assert locked() == []


def test_a_source_keeps_the_memory(engine: Engine) -> None:
    source = source_of(empty_pinned(engine, 16, np.uint8))
    assert locked() == [("pinned", source.address, 16)]
    del source
    assert locked() == []


def test_bfloat16_of_ml_dtypes_is_accepted(engine: Engine) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = empty_pinned(engine, (2, 3), ml_dtypes.bfloat16)
    x[...] = 1.5
    assert float(x.sum()) == 9.0


REFUSED = {
    "negative": ((-1, 3), None, r"the shape \(-1, 3\) has a negative dimension"),
    "fraction": ((1.5,), None, r"\(1.5,\) is not a shape"),
    "text": ("3", None, "'3' is not a shape"),
    "too large": ((2**40, 2**40), None, "an array of float64 of shape .* is larger than any address space"),
    "dtype": (3, "bread", "'bread' is not a dtype of NumPy"),
    "objects": (3, object, "an array of object"),
    "big-endian": (3, ">i4", "an array of >i4"),
}


@pytest.mark.parametrize(("shape", "dtype", "why"), REFUSED.values(), ids=REFUSED)
def test_invalid_shapes_and_dtypes_are_refused(engine: Engine, shape: Any, dtype: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        empty_pinned(engine, shape, dtype)
    assert "cudaHostAlloc" not in testing.calls()


@pytest.mark.skipif("'ml_dtypes' in sys.modules", reason="with ml_dtypes NumPy has it")
def test_bfloat16_by_name_is_refused_with_a_hint(engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"NumPy has no bfloat16: give ml_dtypes\.bfloat16"):
        empty_pinned(engine, 3, "bfloat16")


def test_without_memory_to_lock_the_error_is_cudas(engine: Engine) -> None:
    testing.fail("cudaHostAlloc", 1, 2)
    with pytest.raises(CudaMemoryError, match="cudaHostAlloc"):
        empty_pinned(engine, 16, np.uint8)


def test_a_program_may_end_with_page_locked_arrays() -> None:
    program = """
import numpy as np
from pyxfer.native import load
from pyxfer._upload.pinning import empty_pinned
kept = empty_pinned(load("host"), 16, np.uint8)
circle = [empty_pinned(load("host"), 16, np.uint8)[::2]]
circle.append(circle)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_program_ends_cleanly_while_a_thread_drops_an_array() -> None:
    """The stall ends when Python's exit waits for native calls, at the latest when modules are cleared."""
    program = """
import sys, threading, time
import numpy as np
from pyxfer.native import load
from pyxfer.native._host import testing
from pyxfer._upload.native_calls import native_call
from pyxfer._upload.pinning import empty_pinned

class ReleasedLast:
    def __del__(self, release=testing.release_stalls, sleep=time.sleep):
        release()
        sleep(0.3)

def release_at_exit():
    while not native_call.exit_begun:
        time.sleep(0.001)
    testing.release_stalls()

sys.released_last = ReleasedLast()
held = [empty_pinned(load("host"), 16, np.uint8)]
testing.stall("cudaFreeHost", 1, 30)
threading.Thread(target=release_at_exit, daemon=True).start()
threading.Thread(target=held.clear, daemon=True).start()
while "cudaFreeHost" not in testing.calls():
    time.sleep(0.001)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_failed_free_gives_a_warning(engine: Engine) -> None:
    x = empty_pinned(engine, 16, np.uint8)
    testing.fail("cudaFreeHost", 1, 801)
    with pytest.warns(CleanupWarning, match="Page-locked memory was not freed: cudaFreeHost failed"):
        del x
