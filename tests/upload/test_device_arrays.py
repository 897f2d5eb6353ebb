"""Device arrays: their attributes and capsules, and when their memory is freed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from upload.memories import held

from pyxfer._upload.device_arrays import DeviceArray
from pyxfer.errors import CleanupWarning
from pyxfer.native import Engine
from pyxfer.native._host import testing


def made(engine: Engine) -> DeviceArray:
    return DeviceArray(engine, (2, 3), np.dtype("f4"))


def test_a_device_array_has_its_shape_dtype_and_device(engine: Engine) -> None:
    y = made(engine)
    assert (y.shape, y.dtype, y.nbytes, y.address % 64) == ((2, 3), np.dtype("f4"), 24, 0)
    assert repr(y) == "DeviceArray(shape=(2, 3), dtype=float32, device=0)"
    assert y.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"stream": 1}, "host memory has no streams"),
        ({"dl_device": (2, 0)}, r"is on \(1, 0\) and cannot be exported to \(2, 0\)"),
        ({"copy": True}, "exported without a copy"),
    ],
)
def test_a_device_array_refuses_streams_moves_and_copies(engine: Engine, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(BufferError, match=why):
        made(engine).__dlpack__(**arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "dltensor"),
        ({"max_version": (0, 8)}, "dltensor"),
        ({"max_version": (1, 0)}, "dltensor_versioned"),
        ({"max_version": (2, 3)}, "dltensor_versioned"),
        ({"dl_device": (1, 0), "copy": False}, "dltensor"),
    ],
)
def test_max_version_sets_the_version_of_the_capsule(engine: Engine, arguments: dict[str, Any], name: str) -> None:
    assert f'"{name}"' in repr(made(engine).__dlpack__(**arguments))


def test_the_memory_is_freed_with_the_last_array_made_of_it(engine: Engine) -> None:
    y = made(engine)
    first, second = np.from_dlpack(y), np.from_dlpack(y)[1:]
    first[...] = 7
    del y, first
    gc.collect()
    assert held("device") == 24
    assert second.tolist() == [[7.0] * 3]
    del second
    assert held("device") == 0


def test_an_unused_capsule_frees_the_memory(engine: Engine) -> None:
    capsule = made(engine).__dlpack__()
    assert held("device") == 24
    del capsule
    assert held("device") == 0


def test_a_failed_free_gives_a_warning(engine: Engine) -> None:
    y = made(engine)
    testing.fail("cudaFree", 1, 719)
    with pytest.warns(CleanupWarning, match=r"^Device memory was not released: cudaFree failed"):
        del y
