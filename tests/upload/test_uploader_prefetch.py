"""Prefetching through an uploader: contents, memory on the device, errors, and early ends."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from upload.feeding import LONG_S, threads
from upload.memories import held

from pyxfer._upload.device_arrays import block_bytes
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

pytestmark = pytest.mark.threads
NBYTES = 1 << 16


@pytest.fixture
def up(engine: Engine) -> Iterator[Uploader]:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=2, chunk_bytes=4096, slots=4) as made:
        yield made


@pytest.fixture
def own(up: Uploader) -> Target:
    """Arrays in pyxfer's memory, like those of TensorFlow and JAX."""
    return Target(up.engine, up._pool)


def filled(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8)


@dataclass(frozen=True)
class Batch:
    images: Any
    labels: Any


def test_batches_arrive_complete_and_in_order(up: Uploader, own: Target) -> None:
    sent = (Batch(filled(n), [np.int32(n), f"batch {n}"]) for n in range(20))
    for n, batch in enumerate(up.prefetch(sent, own)):
        assert np.array_equal(np.from_dlpack(batch.images), filled(n))
        assert (int(np.from_dlpack(batch.labels[0])), batch.labels[1]) == (n, f"batch {n}")


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_at_most_depth_plus_two_batches_are_on_the_device(up: Uploader, own: Target, depth: int) -> None:
    seen = set()
    for batch in up.prefetch((filled(n) for n in range(40)), own, depth):
        assert batch.nbytes == NBYTES
        seen.add(held("device"))
    assert max(seen) <= (depth + 2) * block_bytes(NBYTES)


def test_a_batch_does_not_overwrite_memory_that_other_work_reads(engine: Engine, up: Uploader, own: Target) -> None:
    ended: list[bool] = []
    with (
        closing(engine.Stream()) as hidden,
        closing(engine.Bracket(0, hidden.handle)) as bracket,
        up.prefetch((filled(n) for n in range(12)), own, 1) as batches,
    ):
        first = next(batches)
        address = first.address
        testing.kernel("reads the first batch", 0.05, hidden.handle)
        bracket.begin()
        bracket.end()
        del first
        for batch in batches:
            if batch.address == address:
                ended.append(bracket.ended_within(0.0))
    assert ended
    assert all(ended)


def test_an_array_that_cannot_be_sent_is_named_in_place_of_its_batch(up: Uploader, own: Target) -> None:
    batches = up.prefetch([{"a": filled(0)}, {"a": np.array([object()])}], own)
    assert np.array_equal(np.from_dlpack(next(batches)["a"]), filled(0))
    with pytest.raises(UsageError, match=r'^batch\["a"\]: '):
        next(batches)
    assert list(batches) == []


def test_an_error_of_the_device_comes_in_place_of_the_batch(up: Uploader, own: Target) -> None:
    up.upload(filled(0), own)
    testing.fail("cudaMemcpyAsync", 2, 1)
    with pytest.raises(CudaError, match="cudaMemcpyAsync"):
        list(up.prefetch((filled(n) for n in range(9)), own))
    assert np.array_equal(np.from_dlpack(up.upload(filled(1), own)), filled(1))


def test_stopping_early_leaves_no_batch_on_the_device(engine: Engine) -> None:
    with Uploader("host", threads=2, chunk_bytes=4096, slots=4, pool=0) as up:
        for batch in up.prefetch((filled(n) for n in range(100)), Target(engine, up._pool), 3):
            assert batch.nbytes == NBYTES
            break
        for thread in threads():
            thread.join(LONG_S)  # leaving a loop does not wait for the thread
        del batch
        gc.collect()
    assert held("device") == 0


def test_closing_the_uploader_ends_the_loop_with_an_error(up: Uploader, own: Target) -> None:
    released = threading.Event()

    def source() -> Iterator[NDArray[np.uint8]]:
        yield filled(0)
        released.wait(LONG_S)
        yield filled(1)

    batches = up.prefetch(source(), own)
    assert np.array_equal(np.from_dlpack(next(batches)), filled(0))
    up.close()
    released.set()
    with pytest.raises(UsageError):
        next(batches)
