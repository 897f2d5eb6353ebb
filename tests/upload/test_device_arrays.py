"""Device memory that others take over: what it says of itself, and when it is freed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from pyxfer._upload.device_arrays import DeviceArray
from pyxfer.errors import CleanupWarning
from pyxfer.native import Engine
from pyxfer.native._host import testing


def made(engine: Engine) -> DeviceArray:
    return DeviceArray(engine, (2, 3), np.dtype("f4"))


def on_device() -> list[int]:
    return [nbytes for kind, _, nbytes in testing.allocated() if kind == "device"]


def test_a_device_array_tells_what_it_is(engine: Engine) -> None:
    y = made(engine)
    assert (y.shape, y.dtype, y.nbytes, y.address % 64) == ((2, 3), np.dtype("f4"), 24, 0)
    assert repr(y) == "DeviceArray(shape=(2, 3), dtype=float32, device=0)"
    assert y.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"stream": 1}, "memory of the host has no streams: give None, and not 1"),
        ({"dl_device": (2, 0)}, r"lies on \(1, 0\) and is not moved to \(2, 0\): download it instead"),
        ({"copy": True}, "handed over where it lies, and not copied"),
    ],
)
def test_a_device_array_refuses_what_it_cannot_do(engine: Engine, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(BufferError, match=why):
        made(engine).__dlpack__(**asked)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({}, "dltensor"),
        ({"max_version": (0, 8)}, "dltensor"),
        ({"max_version": (1, 0)}, "dltensor_versioned"),
        ({"max_version": (2, 3)}, "dltensor_versioned"),
        ({"dl_device": (1, 0), "copy": False}, "dltensor"),
    ],
)
def test_a_capsule_is_of_the_version_that_was_asked_for(engine: Engine, asked: dict[str, Any], name: str) -> None:
    assert f'"{name}"' in repr(made(engine).__dlpack__(**asked))


def test_the_memory_goes_with_the_last_who_took_it(engine: Engine) -> None:
    y = made(engine)
    first, second = np.from_dlpack(y), np.from_dlpack(y)[1:]
    first[...] = 7
    del y, first
    gc.collect()
    assert on_device() == [24]
    assert second.tolist() == [[7.0] * 3]
    del second
    assert on_device() == []


def test_a_capsule_that_nobody_takes_frees_the_memory(engine: Engine) -> None:
    capsule = made(engine).__dlpack__()
    assert on_device() == [24]
    del capsule
    assert on_device() == []


def test_memory_that_cannot_be_freed_is_warned_of(engine: Engine) -> None:
    y = made(engine)
    testing.fail("cudaFree", 1, 719)
    with pytest.warns(CleanupWarning, match=r"^Memory of a device was not released: cudaFree failed"):
        del y
