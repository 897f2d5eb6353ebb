"""`BlockPool`: page-locked memory with a list of free blocks."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyxfer
from pyxfer.native import Engine
from pyxfer.native._host import testing

pytestmark = pytest.mark.usefixtures("own_movers")


@pytest.fixture
def pool(own_movers: Engine) -> Any:
    del own_movers
    with pyxfer.BlockPool(10, "256B", np.float32, device="host") as made:
        yield made


def test_its_array_has_a_row_for_each_block(pool: pyxfer.BlockPool, own_movers: Engine) -> None:
    assert pool.array.shape == (10, 64)
    assert pool.array.dtype == np.float32
    assert own_movers.memory_of(pool.array.ctypes.data, pool.array.nbytes, 0) == "pinned"
    assert (pool.blocks, pool.block_bytes, pool.free_blocks) == (10, 256, 10)
    assert repr(pool) == "<BlockPool 10 blocks of 256 B: 10 free>"


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_warning_is_at_the_callers_line() -> None:
    with pytest.warns(pyxfer.FallbackWarning, match='device="host"') as caught:
        pyxfer.BlockPool(10, "256B").close()
    assert [each.filename for each in caught] == [__file__]


def test_new_blocks_are_neighbours_and_freed_ones_are_used_again(pool: pyxfer.BlockPool) -> None:
    first, second = pool.allocate(4), pool.allocate(6)
    assert first.tolist() == [0, 1, 2, 3]
    assert second.tolist() == [4, 5, 6, 7, 8, 9]
    pool.free(first[1:3])
    assert pool.allocate(2).tolist() == [1, 2]
    assert pool.allocate(0).tolist() == []


def test_an_exhausted_pool_takes_nothing(pool: pyxfer.BlockPool) -> None:
    pool.allocate(8)
    with pytest.raises(pyxfer.UsageError, match="3 blocks are wanted and 2 of 10 are free"):
        pool.allocate(3)
    assert pool.free_blocks == 2


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([0, 5], "block 5 is free already"),
        ([1, 1], "names a block twice"),
        ([0, 10], "block 10 is not in this pool"),
        ([-1], "block -1 is not in this pool"),
        ([0.5], "dtype float64: give whole numbers"),
    ],
)
def test_what_cannot_be_freed_is_refused_as_a_whole(pool: pyxfer.BlockPool, indices: Any, said: str) -> None:
    taken = pool.allocate(4)
    with pytest.raises(pyxfer.UsageError, match=said):
        pool.free(indices)
    assert pool.free_blocks == 6
    pool.free(taken)
    assert sorted(pool.allocate(10)) == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"blocks": 0, "block_bytes": 64}, "blocks 0 is not a whole number"),
        ({"blocks": 4, "block_bytes": 0}, "block_bytes 0"),
        ({"blocks": 4, "block_bytes": 6, "dtype": np.float32}, "a whole number of float32"),
        ({"blocks": 1 << 40, "block_bytes": 1 << 40}, "larger than any address space"),
        ({"blocks": 4, "block_bytes": 64, "dtype": object}, "no items of dtype object"),
        ({"blocks": 4, "block_bytes": 64, "dtype": "M8[s]"}, "no items of dtype datetime64"),
    ],
)
def test_what_cannot_be_made_is_refused(own_movers: Engine, arguments: Any, said: str) -> None:
    del own_movers
    with pytest.raises(pyxfer.UsageError, match=said):
        pyxfer.BlockPool(**{"device": "host", **arguments})


def test_its_memory_is_released_with_the_last_view(own_movers: Engine) -> None:
    del own_movers
    before = len(testing.allocated())
    pool = pyxfer.BlockPool(4, 64, device="host")
    row = pool.array[2]
    pool.close()
    for use in (lambda: pool.allocate(1), lambda: pool.free([0]), lambda: pool.array):
        with pytest.raises(pyxfer.UsageError, match="closed"):
            use()
    row[...] = 1
    del row
    assert len(testing.allocated()) == before


def test_its_memory_is_released_when_it_is_dropped(own_movers: Engine) -> None:
    del own_movers
    before = len(testing.allocated())
    pool = pyxfer.BlockPool(4, 64, device="host")
    pool.free(pool.allocate(2))
    gc.disable()
    try:
        del pool
        assert len(testing.allocated()) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_cannot_be_copied(pool: pyxfer.BlockPool, copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copied(pool)


@pytest.mark.threads
def test_threads_never_share_a_block(own_movers: Engine) -> None:
    del own_movers
    pool = pyxfer.BlockPool(64, 64, device="host")
    owners = np.full(64, -1)
    wrong: list[int] = []

    def use(number: int) -> None:
        for turn in range(300):
            mine = pool.allocate(1 + turn % 16)
            if (owners[mine] != -1).any():
                wrong.append(number)
            owners[mine] = number
            if (owners[mine] != number).any():
                wrong.append(number)
            owners[mine] = -1
            pool.free(mine)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.free_blocks == 64


def test_a_dtype_that_numpy_does_not_know_is_refused() -> None:
    with pytest.raises(pyxfer.UsageError, match="dtype 'foo'"):
        pyxfer.BlockPool(4, 64, "foo", device="host")
