"""Device arrays and the pool of their memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upload.memories import held

from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.pools import MIN_BLOCK_BYTES, block_bytes
from pyxfer.errors import CleanupWarning, CudaMemoryError, DeviceLostError
from pyxfer.native import Engine
from pyxfer.native._host import testing


def made(engine: Engine) -> DeviceArray:
    return DeviceArray(DevicePool(engine, 0, 0), (2, 3), np.dtype("f4"))


def test_a_device_array_has_its_shape_dtype_and_device(engine: Engine) -> None:
    y = made(engine)
    assert (y.shape, y.dtype, y.nbytes, y.address % 64) == ((2, 3), np.dtype("f4"), 24, 0)
    assert repr(y) == "DeviceArray(shape=(2, 3), dtype=float32, device=0)"
    assert y.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("arguments", [{"dl_device": (2, 0)}, {"copy": True}])
def test_a_device_array_refuses_moves_and_copies(engine: Engine, arguments: dict[str, Any]) -> None:
    with pytest.raises(BufferError):
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
    assert held("device") == block_bytes(24)
    assert second.tolist() == [[7.0] * 3]
    del second
    assert held("device") == 0


def test_a_failed_free_gives_a_warning(engine: Engine) -> None:
    y = made(engine)
    testing.fail("cudaFree", 1, 719)
    with pytest.warns(CleanupWarning, match=r"^Device memory was not released: cudaFree failed"):
        del y


MIB = 1 << 20
BUSY_S = 0.05


@pytest.fixture
def pool(engine: Engine) -> Iterator[DevicePool]:
    assert engine.RUNTIME == "host"
    made = DevicePool(engine, 0)
    yield made
    made.close()


def calls(name: str) -> int:
    return testing.calls().get(name, 0)


def test_a_returned_block_is_used_again(pool: DevicePool) -> None:
    first = pool.take(MIB)
    address = first.address
    pool.give(first)
    del first
    again = pool.take(MIB - 7)
    assert (again.address, calls("cudaMalloc"), calls("cudaFree")) == (address, 1, 0)
    pool.give(again)


def test_a_block_is_reused_only_after_the_work_that_may_read_it(engine: Engine, pool: DevicePool) -> None:
    with closing(engine.Stream()) as hidden, closing(engine.Bracket(0, hidden.handle)) as bracket:
        block = pool.take(MIB)
        testing.kernel("reads the block", BUSY_S, hidden.handle)
        bracket.begin()
        bracket.end()
        pool.give(block)  # like a framework that has queued the last work that reads the block
        again = pool.take(MIB)
        assert again.address == block.address
        assert bracket.ended_within(0.0)


def test_a_block_of_another_size_needs_no_wait(engine: Engine, pool: DevicePool) -> None:
    pool.give(pool.take(MIB))
    other = pool.take(4 * MIB)
    assert calls("cudaDeviceSynchronize") == 0
    pool.give(other)


def test_one_synchronisation_covers_all_blocks_returned_before(pool: DevicePool) -> None:
    for block in [pool.take(MIB), pool.take(MIB)]:
        pool.give(block)
    taken = [pool.take(MIB), pool.take(MIB)]
    assert calls("cudaDeviceSynchronize") == 1
    pool.give(taken.pop())
    assert pool.take(MIB).nbytes == MIB
    assert calls("cudaDeviceSynchronize") == 2


def test_one_synchronisation_serves_many_small_blocks(pool: DevicePool) -> None:
    for _ in range(65):
        pool.give(pool.take(4096))
    assert (calls("cudaMalloc"), calls("cudaDeviceSynchronize")) == (32, 2)
    assert pool.idle_bytes == 32 * 4096


def test_small_blocks_beyond_max_bytes_are_waited_for(engine: Engine) -> None:
    with closing(DevicePool(engine, 0, 3 * 4096)) as pool:
        for _ in range(7):
            pool.give(pool.take(4096))
        assert (calls("cudaMalloc"), calls("cudaDeviceSynchronize")) == (3, 2)


def test_a_sweep_makes_later_waits_unnecessary(pool: DevicePool) -> None:
    pool.sweep()
    assert calls("cudaDeviceSynchronize") == 0
    pool.give(pool.take(MIB))
    pool.sweep()
    pool.sweep()
    assert pool.take(MIB).nbytes == MIB
    assert calls("cudaDeviceSynchronize") == 1


def test_a_sweep_if_short_leaves_a_size_that_has_a_block_without_a_wait(pool: DevicePool) -> None:
    blocks = [pool.take(MIB) for _ in range(3)]
    pool.give(blocks.pop())
    pool.sweep(if_short=True)
    assert calls("cudaDeviceSynchronize") == 1
    pool.give(blocks.pop())
    pool.sweep(if_short=True)
    assert calls("cudaDeviceSynchronize") == 1
    blocks.append(pool.take(MIB))
    assert calls("cudaDeviceSynchronize") == 1
    pool.sweep(if_short=True)
    assert calls("cudaDeviceSynchronize") == 2
    for block in blocks:
        pool.give(block)


@given(st.integers(0, 2**40))
def test_block_sizes_are_rounded_up_by_an_eighth_at_most(nbytes: int) -> None:
    size = block_bytes(nbytes)
    assert max(nbytes, 1) <= size <= nbytes + max(MIN_BLOCK_BYTES, nbytes // 8 + 1)
    assert size % MIN_BLOCK_BYTES == 0
    assert block_bytes(size) == size


@pytest.mark.parametrize(("max_bytes", "kept"), [(0, 0), (MIB, MIB), (3 * MIB, 3 * MIB)])
def test_the_pool_keeps_at_most_max_bytes(engine: Engine, max_bytes: int, kept: int) -> None:
    pool = DevicePool(engine, 0, max_bytes)
    for block in [pool.take(MIB) for _ in range(4)]:
        pool.give(block)
    del block
    assert pool.idle_bytes == held("device") == kept
    pool.close()
    assert held("device") == 0


def test_a_closed_pool_frees_returned_blocks(engine: Engine) -> None:
    pool = DevicePool(engine, 0)
    block = pool.take(MIB)
    pool.close()
    pool.give(block)
    assert held("device") == 0


def test_idle_blocks_are_freed_before_memory_runs_out(pool: DevicePool) -> None:
    pool.give(pool.take(MIB))
    testing.fail("cudaMalloc", 1, 2)
    other = pool.take(2 * MIB)
    assert held("device") == 2 * MIB
    testing.fail("cudaMalloc", 1, 2)
    with pytest.raises(CudaMemoryError, match="cudaMalloc"):
        pool.take(MIB)
    pool.give(other)


def test_a_lost_device_is_an_error_of_take_and_close(engine: Engine) -> None:
    pool = DevicePool(engine, 0)
    pool.give(pool.take(MIB))
    testing.lose_device(719)
    with pytest.raises(DeviceLostError):
        pool.take(MIB)
    with pytest.raises(DeviceLostError):
        pool.close()


def test_a_block_may_be_returned_during_another_call(engine: Engine) -> None:
    """The garbage collector may run a destructor anywhere."""
    pool = DevicePool(engine, 0, 0)
    late = [pool.take(MIB)]

    class Synchronizing:
        DeviceBuffer = engine.DeviceBuffer

        def synchronize(self, device: int) -> None:
            pool.give(late.pop())
            engine.synchronize(device)

    pool._max_bytes = 8 * MIB
    pool.give(pool.take(4 * MIB))
    pool.engine = Synchronizing()  # type: ignore[assignment]
    block = pool.take(4 * MIB)
    assert late == []
    assert pool.idle_bytes == MIB
    pool.give(block)
    pool.close()
    gc.collect()
    assert held("device") == 0
