"""`upload`, `download` and `prefetch` with installed frameworks on the CPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from route_checks import import_or_skip

import pyxfer
from pyxfer._document.runs import FrameworkName
from pyxfer._upload.device_arrays import block_bytes
from pyxfer.native._host import testing

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("own_uploaders")]
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_an_array_is_uploaded_and_downloaded(framework: FrameworkName) -> None:
    y = pyxfer.upload(VALUES, to=framework, device="host")
    assert np.array_equal(pyxfer.download(y), VALUES)
    sent = pyxfer.upload({"x": VALUES.T}, to=framework, device="host", block=False)
    assert isinstance(sent, pyxfer.Upload)
    out = np.empty((4, 3, 2), np.float32)
    assert pyxfer.download(sent.result()["x"], out) is out
    assert np.array_equal(out, VALUES.T)


def test_prefetched_batches_arrive_in_order(framework: FrameworkName) -> None:
    batches = ((VALUES + n, np.arange(3, dtype=np.int32) * n) for n in range(9))
    for n, (images, labels) in enumerate(pyxfer.prefetch(batches, to=framework, device="host")):
        assert np.array_equal(np.asarray(images), VALUES + n)
        assert np.array_equal(np.asarray(labels), np.arange(3) * n)


def test_a_page_locked_array_is_imported_without_a_copy(framework: FrameworkName) -> None:
    x = pyxfer.empty_pinned((64, 32), np.float32, device="host")
    x[...] = 3
    module: Any = import_or_skip(framework)
    take = {"torch": "from_dlpack", "tensorflow": "experimental.dlpack.from_dlpack", "jax": "dlpack.from_dlpack"}
    for name in take[framework].split("."):
        module = getattr(module, name)
    tensor = module(x.__dlpack__() if framework == "tensorflow" else x)
    x[0, 0] = 7
    assert float(np.asarray(tensor)[0, 0]) == 7.0


def test_memory_of_dropped_arrays_is_reused(framework: FrameworkName) -> None:
    with pyxfer.Uploader("host", threads=2) as up:
        for n in range(20):
            array = np.random.default_rng(n).random((50, 70), np.float32)
            y = up.upload(array, framework)
            assert np.array_equal(np.asarray(y), array)
            del y
        gc.collect()
        assert testing.calls()["cudaMalloc"] <= 2
        assert 0 < up._pool.idle_bytes <= 2 * block_bytes(50 * 70 * 4)


def test_a_batch_that_a_loop_keeps_is_not_overwritten(framework: FrameworkName) -> None:
    batches = (np.full((64, 64), n, np.float32) for n in range(30))
    kept = [batch for n, batch in enumerate(pyxfer.prefetch(batches, to=framework, device="host")) if n % 3 == 0]
    assert [float(np.asarray(each).max()) for each in kept] == [float(n) for n in range(0, 30, 3)]
