"""Device memory that is used again: when it may be, how much is kept, and what happens when there is no more."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._upload.device_arrays import LEAST_BYTES, DevicePool, block_bytes
from pyxfer.errors import CudaMemoryError, DeviceLostError
from pyxfer.native import Engine
from pyxfer.native._host import testing

MIB = 1 << 20
BUSY_S = 0.05


@pytest.fixture
def pool(engine: Engine) -> Iterator[DevicePool]:
    assert engine.RUNTIME == "host"
    made = DevicePool(engine, 0)
    yield made
    made.close()


def on_device() -> int:
    return sum(nbytes for kind, _, nbytes in testing.allocated() if kind == "device")


def calls(name: str) -> int:
    return testing.calls().get(name, 0)


def test_what_came_back_is_given_away_again(pool: DevicePool) -> None:
    first = pool.take(MIB)
    address = first.address
    pool.give(first)
    del first
    again = pool.take(MIB - 7)
    assert (again.address, calls("cudaMalloc"), calls("cudaFree")) == (address, 1, 0)
    pool.give(again)


def test_nobody_gets_a_block_before_the_work_that_may_read_it_has_ended(engine: Engine, pool: DevicePool) -> None:
    with closing(engine.Stream()) as hidden, closing(engine.Bracket(0, hidden.handle)) as bracket:
        block = pool.take(MIB)
        testing.kernel("reads the block", BUSY_S, hidden.handle)
        bracket.begin()
        bracket.end()
        pool.give(block)  # as a framework does, when it has dispatched the last work that reads it
        assert not bracket.ended_within(0.0)
        again = pool.take(MIB)
        assert again.address == block.address
        assert bracket.ended_within(0.0)


def test_another_size_waits_for_nothing(engine: Engine, pool: DevicePool) -> None:
    with closing(engine.Stream()) as hidden, closing(engine.Bracket(0, hidden.handle)) as bracket:
        pool.give(pool.take(MIB))
        testing.kernel("reads the block", BUSY_S, hidden.handle)
        bracket.begin()
        bracket.end()
        other = pool.take(4 * MIB)
        assert not bracket.ended_within(0.0)
        assert bracket.ended_within(30.0)
        pool.give(other)


def test_one_synchronisation_is_for_all_that_came_back_before_it(pool: DevicePool) -> None:
    for block in [pool.take(MIB), pool.take(MIB)]:
        pool.give(block)
    taken = [pool.take(MIB), pool.take(MIB)]
    assert calls("cudaDeviceSynchronize") == 1
    pool.give(taken.pop())
    assert pool.take(MIB).nbytes == MIB
    assert calls("cudaDeviceSynchronize") == 2


def test_who_sweeps_before_lets_nobody_wait_later(pool: DevicePool) -> None:
    pool.sweep()
    assert calls("cudaDeviceSynchronize") == 0
    pool.give(pool.take(MIB))
    pool.sweep()
    pool.sweep()
    assert pool.take(MIB).nbytes == MIB
    assert calls("cudaDeviceSynchronize") == 1


@given(st.integers(0, 2**40))
def test_a_block_is_large_enough_and_an_eighth_too_large_at_most(nbytes: int) -> None:
    size = block_bytes(nbytes)
    assert max(nbytes, 1) <= size <= nbytes + max(LEAST_BYTES, nbytes // 8 + 1)
    assert size % LEAST_BYTES == 0
    assert block_bytes(size) == size


def test_twice_the_largest_is_kept_and_what_lay_unused_for_longest_goes(pool: DevicePool) -> None:
    small, large = pool.take(MIB), [pool.take(8 * MIB) for _ in range(3)]
    pool.give(small)
    for block in large:
        pool.give(block)
    assert pool.idle_bytes == on_device() == 16 * MIB


@pytest.mark.parametrize(("most_bytes", "kept"), [(0, 0), (MIB, MIB), (3 * MIB, 3 * MIB)])
def test_no_more_is_kept_than_was_said(engine: Engine, most_bytes: int, kept: int) -> None:
    pool = DevicePool(engine, 0, most_bytes)
    for block in [pool.take(MIB) for _ in range(4)]:
        pool.give(block)
    del block
    assert pool.idle_bytes == on_device() == kept
    pool.close()
    assert on_device() == 0


def test_after_it_was_closed_what_comes_back_is_freed(engine: Engine) -> None:
    pool = DevicePool(engine, 0)
    block = pool.take(MIB)
    pool.close()
    pool.give(block)
    assert on_device() == 0


def test_before_memory_runs_out_what_lies_idle_is_freed(pool: DevicePool) -> None:
    pool.give(pool.take(MIB))
    testing.fail("cudaMalloc", 1, 2)
    other = pool.take(2 * MIB)
    assert on_device() == 2 * MIB
    testing.fail("cudaMalloc", 1, 2)
    with pytest.raises(CudaMemoryError, match="cudaMalloc"):
        pool.take(MIB)
    pool.give(other)


def test_a_lost_device_is_an_error_and_closing_says_so(engine: Engine) -> None:
    pool = DevicePool(engine, 0)
    pool.give(pool.take(MIB))
    testing.lose_device(719)
    with pytest.raises(DeviceLostError):
        pool.take(MIB)
    with pytest.raises(DeviceLostError):
        pool.close()


def test_a_block_may_come_back_in_the_middle_of_a_call(engine: Engine) -> None:
    """As the collector does, which runs a destructor wherever it is."""
    pool = DevicePool(engine, 0, 0)
    late = [pool.take(MIB)]

    class Synchronizing:
        DeviceBuffer = engine.DeviceBuffer

        def synchronize(self, device: int) -> None:
            pool.give(late.pop())
            engine.synchronize(device)

    pool._most_bytes = 8 * MIB
    pool.give(pool.take(4 * MIB))
    pool._engine = Synchronizing()  # type: ignore[assignment]
    block = pool.take(4 * MIB)
    assert late == []
    assert pool.idle_bytes == MIB
    pool.give(block)
    pool.close()
    gc.collect()
    assert on_device() == 0


@pytest.mark.threads
def test_threads_never_get_the_same_block(pool: DevicePool) -> None:
    held: set[int] = set()
    twice: list[Any] = []

    def use() -> None:
        for _ in range(200):
            block = pool.take(4096)
            if block.address in held:
                twice.append(block.address)
            held.add(block.address)
            held.discard(block.address)
            pool.give(block)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert twice == []
    assert on_device() == pool.idle_bytes <= 8192
