"""What `copy_blocks` refuses, each before anything is copied, and how it goes on in trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from blocks.guarded import Guarded

import pyxfer
from pyxfer._blocks import api
from pyxfer._blocks.mover import BlockMover, Pool
from pyxfer._upload.api import shared_uploader
from pyxfer.native import Engine
from pyxfer.native._host import testing

pytestmark = pytest.mark.usefixtures("own_movers")


@pytest.fixture
def pools(own_movers: Engine) -> Iterator[tuple[Guarded, Guarded]]:
    shared_uploader("host")
    made = Guarded(own_movers, "pinned", 20, 64, seed=1), Guarded(own_movers, "device", 30, 64, seed=2)
    yield made
    for pool in made:
        pool.close()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"source_indices": [0, 20]}, r"source_indices\[1\] is 20, and the pool has the blocks 0 to 19"),
    ({"source_indices": [0, -1]}, r"source_indices\[1\] is -1"),
    ({"destination_indices": [30, 0]}, r"destination_indices\[0\] is 30"),
    ({"destination_indices": [7, 7]}, "block 7 twice"),
    ({"source_indices": [0.0, 1.0]}, "has the dtype float64: give whole numbers"),
    ({"source_indices": [True, False]}, "has the dtype bool: give whole numbers"),
    ({"source_indices": [[0, 1]]}, "has 2 dimensions"),
    ({"source_indices": [0, 1, 2]}, "3 source_indices and 2 destination_indices"),
    (
        {"source_indices": [0, 1, 2, 3, 4], "destination_indices": [2, 3, 4]},
        "5 source_indices and 3",
    ),
    ({"source_indices": [0, [1]]}, "source_indices: "),
    ({"method": "memcpy"}, "method 'memcpy' is unknown"),
    ({"method": 5}, "method 5 is unknown"),
    ({"method": "strided", "source_indices": [1, 0]}, "equal steps"),
    ({"block_bytes": 0}, "block_bytes 0 is not a whole number"),
    ({"block_bytes": -16}, "block_bytes -16"),
    ({"block_bytes": "7KiB"}, "not a multiple of blocks of 7168 bytes"),
    ({"block_bytes": 40, "method": "kernel"}, "words of 16 bytes"),
    ({"block_bytes": 40, "method": "packed"}, "words of 16 bytes"),
    ({"block_bytes": [64]}, "block_bytes"),
    ({"block": "no"}, "block is 'no'"),
    ({"stream": object()}, "object is not a stream"),
    ({"stream": -1}, "-1 is not the handle of a stream"),
    ({"stream": 1 << 70}, "is not the handle of a stream"),
    ({"source_indices": np.array([0, (1 << 64) - 1], np.uint64)}, "holds 18446744073709551615"),
    ({"source": np.zeros((20, 32), np.uint8)}, "a block of source has 32 bytes and one of destination 64"),
    ({"source": np.zeros((20, 64), np.uint8), "method": "kernel"}, "ordinary memory: page-lock it"),
    ({"source": np.zeros((20, 64), np.uint8), "method": "batch"}, "ordinary memory: page-lock it"),
    ({"destination": np.zeros((30, 64), np.uint8)}, "both pools are in host memory"),
    ({"source": np.zeros((20, 64, 2), np.uint8)[..., 0]}, "source: the blocks of this array are not contiguous"),
    ({"source": np.zeros((20, 64), np.uint8)[::-1]}, "source: the blocks of this array are not contiguous"),
    ({"source": np.float32(1)}, "source: this array has no axis"),
    ({"source": np.array([None, 1])}, "source: an array of object"),
    ({"source": 5}, "source: this int is not an array"),
    ({"source": np.zeros((20, 0), np.uint8)}, "a block of source has 0 bytes"),
]


@pytest.mark.parametrize(("changed", "said"), REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_is_refused_before_anything_is_copied(
    pools: tuple[Guarded, Guarded], changed: dict[str, Any], said: str
) -> None:
    source, destination = pools
    arguments: dict[str, Any] = {
        "source": source.rows,
        "destination": destination.rows,
        "source_indices": [0, 1],
        "destination_indices": [2, 3],
    }
    with pytest.raises(pyxfer.UsageError, match=said):
        pyxfer.copy_blocks(**{**arguments, **changed})
    destination.require(source.rows, [], [])


def test_pools_that_overlap_are_refused(own_movers: Engine) -> None:
    shared_uploader("host")
    memory = Guarded(own_movers, "device", 20, 64, seed=1)
    with pytest.raises(pyxfer.UsageError, match="overlap in memory"):
        pyxfer.copy_blocks(memory.rows[:10], memory.rows[9:], [0], [1])
    pyxfer.copy_blocks(memory.rows[:10], memory.rows[10:], [0], [1])
    memory.require(memory.rows.copy(), [0], [11])


def test_read_only_and_closed_pools_are_refused(pools: tuple[Guarded, Guarded]) -> None:
    source, destination = pools
    rows = destination.rows[...]
    rows.flags.writeable = False
    with pytest.raises(pyxfer.UsageError, match="destination is read-only"):
        pyxfer.copy_blocks(source.rows, rows, [0], [1])
    with pyxfer.BlockPool(4, 64, device="host") as pool:
        pyxfer.copy_blocks(pool, destination.rows, np.array([0]), np.array([1]))
    for _ in range(2):
        with pytest.raises(pyxfer.UsageError, match="this BlockPool is closed"):
            pyxfer.copy_blocks(pool, destination.rows, np.array([0]), np.array([1]))


def test_partly_locked_memory_is_refused(own_movers: Engine) -> None:
    shared_uploader("host")
    memory = np.zeros(1 << 16, np.uint8)
    rows, destination = memory.reshape(-1, 64), Guarded(own_movers, "device", 4, 64)
    lock = own_movers.Registration(memory.ctypes.data, 4096, 0)
    with pytest.raises(pyxfer.UsageError, match="page-locked in part only"):
        pyxfer.copy_blocks(rows, destination.rows, [0], [1])
    lock.close()


def test_ten_million_indices_are_checked(pools: tuple[Guarded, Guarded]) -> None:
    source, destination = pools
    indices = np.zeros(10_000_000, np.int64)
    with pytest.raises(pyxfer.UsageError, match="block 0 twice"):
        pyxfer.copy_blocks(source.rows, destination.rows, indices, indices)
    indices[-1] = 99
    with pytest.raises(pyxfer.UsageError, match=r"source_indices\[9999999\] is 99"):
        pyxfer.copy_blocks(source.rows, destination.rows, indices, indices)


# --- a capture, and streams ------------------------------------------------------------------------------------------


@pytest.fixture
def captured(pools: tuple[Guarded, Guarded], own_movers: Engine) -> Any:
    stream = own_movers.Stream(0)
    testing.begin_capture(stream.handle, "global")
    yield stream.handle
    assert testing.end_capture(stream.handle) == 0
    stream.close()


def test_a_capture_takes_kernels_of_few_blocks_and_copies(pools: tuple[Guarded, Guarded], captured: int) -> None:
    source, destination = pools
    pyxfer.copy_blocks(source.rows, destination.rows, [1, 7], [2, 0], stream=captured)
    pyxfer.copy_blocks(source.rows, destination.rows, np.array([1, 7]), np.array([2, 0]), stream=captured)
    pyxfer.copy_blocks(source.rows, destination.rows, [1, 7], [2, 0], stream=captured, method="loop", block=False)
    destination.require(source.rows, [], [])  # a graph has run nothing


def test_a_capture_of_many_blocks_takes_copies(own_movers: Engine, captured: int) -> None:
    source, destination = Guarded(own_movers, "pinned", 400, 64), Guarded(own_movers, "device", 400, 64)
    indices = np.arange(0, 400)
    before = testing.calls().get("cuLaunchKernel", 0)
    pyxfer.copy_blocks(source.rows, destination.rows, indices[::-1], indices, stream=captured)
    assert testing.calls().get("cuLaunchKernel", 0) == before
    with pytest.raises(pyxfer.UsageError, match="CUDA graph"):
        pyxfer.copy_blocks(source.rows, destination.rows, indices[::-1], indices, stream=captured, method="kernel")


@pytest.mark.parametrize("method", ["batch", "packed"])
def test_a_capture_refuses_what_it_cannot_hold(pools: tuple[Guarded, Guarded], captured: int, method: Any) -> None:
    source, destination = pools
    with pytest.raises(pyxfer.UsageError, match="CUDA graph"):
        pyxfer.copy_blocks(source.rows, destination.rows, [1, 7], [2, 0], stream=captured, method=method)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_capture_refuses_ordinary_memory(pools: tuple[Guarded, Guarded], captured: int, method: Any) -> None:
    ordinary = np.zeros((20, 64), np.uint8)
    with pytest.raises(pyxfer.UsageError, match="CUDA graph"):
        pyxfer.copy_blocks(ordinary, pools[1].rows, [1, 7], [2, 0], stream=captured, method=method)


def test_the_legacy_default_stream_refuses_batches(own_movers: Engine) -> None:
    shared_uploader("host")
    source, destination = Guarded(own_movers, "pinned", 4, 300 << 10), Guarded(own_movers, "device", 4, 300 << 10)
    with pytest.raises(pyxfer.UsageError, match="legacy default stream"):
        pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0], stream=0, method="batch")
    pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0], stream=0)
    destination.require(source.rows, [1, 3], [2, 0])


class OfCupy:
    def __init__(self, handle: int) -> None:
        self.ptr = handle


class OfTorch:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class OfAnyLibrary:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


@pytest.mark.parametrize("kind", [int, np.int64, OfCupy, OfTorch, OfAnyLibrary])
def test_copies_follow_the_work_of_a_stream(
    own_movers: Engine, pools: tuple[Guarded, Guarded], kind: Callable[[int], Any]
) -> None:
    source, destination = pools
    stream = own_movers.Stream(0)
    testing.kernel("work", 0.05, stream.handle)
    pyxfer.copy_blocks(source.rows, destination.rows, [1], [2], stream=kind(stream.handle), block=False)
    destination.require(source.rows, [], [])
    api._shared["host"].mover.wait(stream.handle)
    destination.require(source.rows, [1], [2])
    stream.close()


# --- fallbacks -------------------------------------------------------------------------------------------------------


def test_without_the_call_for_many_copies(own_movers: Engine) -> None:
    testing.set_missing("cuMemcpyBatchAsync", True)
    shared_uploader("host")
    source, destination = Guarded(own_movers, "pinned", 4, 300 << 10), Guarded(own_movers, "device", 4, 300 << 10)
    with pytest.raises(pyxfer.UsageError, match="no call for many copies"):
        pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0], method="batch")
    pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0])
    destination.require(source.rows, [1, 3], [2, 0])


@pytest.mark.parametrize("kind", ["pinned", "pageable"])
def test_without_a_compiler_of_kernels(own_movers: Engine, kind: str) -> None:
    testing.fail("cuModuleLoadData", 1, 221)  # cudaErrorJitCompilerNotFound
    shared_uploader("host")
    source, destination = Guarded(own_movers, kind, 20, 64, seed=1), Guarded(own_movers, "device", 30, 64)
    with pytest.raises(pyxfer.UsageError, match="libnvidia-ptxjitcompiler"):
        pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0], method="kernel")
    pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0])
    destination.require(source.rows, [1, 3], [2, 0])


def test_without_page_locked_memory_for_a_ring(own_movers: Engine) -> None:
    shared_uploader("host")
    source, destination = Guarded(own_movers, "pageable", 20, 64, seed=1), Guarded(own_movers, "device", 30, 64)
    pyxfer.copy_blocks(source.rows, destination.rows, [1], [1], method="loop")  # makes the mover
    testing.fail("cudaHostAlloc", 1, 2)
    with pytest.warns(pyxfer.FallbackWarning):
        pyxfer.copy_blocks(source.rows, destination.rows, [1, 3], [2, 0])
    destination.require(source.rows, [1, 1, 3], [1, 2, 0])


@pytest.mark.usefixtures("no_gpu", "own_movers")
def test_without_a_gpu_the_warning_is_at_the_callers_line_and_says_what_to_do_instead() -> None:
    host = np.zeros((4, 16), np.uint8)
    says_what_to_do = pytest.warns(pyxfer.FallbackWarning, match=r"destination\[\.\.\.\] = source")
    with says_what_to_do as caught, pytest.raises(pyxfer.UsageError, match="both pools are in host memory"):
        pyxfer.copy_blocks(host, host.copy(), [0], [1])
    assert [each.filename for each in caught] == [__file__]
    assert "device=" not in str(caught[0].message)


def test_a_lost_device_ends_the_call(pools: tuple[Guarded, Guarded]) -> None:
    source, destination = pools
    pyxfer.copy_blocks(source.rows, destination.rows, [1], [2])
    testing.lose_device(214)
    with pytest.raises(pyxfer.DeviceLostError):
        pyxfer.copy_blocks(source.rows, destination.rows, [1], [2])
    testing.reset()


def test_indices_on_the_device_are_checked_there(own_movers: Engine, pools: tuple[Guarded, Guarded]) -> None:
    source, destination = pools
    mover = BlockMover(own_movers, 0)
    first, second = (
        Pool(pool.rows.ctypes.data, len(pool.rows), 64, kind)  # type: ignore[arg-type]
        for pool, kind in zip(pools, ("pinned", "device"), strict=True)
    )
    given = Guarded(own_movers, "device", 2, 24)
    given.memory[:48].view(np.int64)[...] = [19, 20, 0, 29, 3, 4]
    address = given.memory.ctypes.data
    mover.move_given(first, second, address, address + 24, 3, 64, None)
    with pytest.raises(pyxfer.UsageError, match="outside its pool"):
        mover.wait()
    destination.require(source.rows, [19, 0], [29, 4])
    rows, to_rows, indices, to = source.rows, destination.rows, np.array([19, 0]), np.array([29, 4])
    for _ in range(2):  # the second takes the short way
        pyxfer.copy_blocks(rows, to_rows, indices, to)
    api._shared["host"].mover.move_given(first, second, address, address + 24, 3, 64, None)
    with pytest.raises(pyxfer.UsageError, match="outside its pool"):
        pyxfer.copy_blocks(rows, to_rows, indices, to)
    with pytest.raises(pyxfer.UsageError, match="page-lock it"):
        mover.move_given(first._replace(kind="pageable"), second, address, address + 24, 3, 64, None)
    mover.close()
    with pytest.raises(pyxfer.UsageError, match="closed"):
        mover.move("loop", first, second, np.array([1]), np.array([2]), 64, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_says_so(pools: tuple[Guarded, Guarded]) -> None:
    source, destination = pools
    indices = np.array([1])
    for _ in range(2):
        pyxfer.copy_blocks(source.rows, destination.rows, indices, indices)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pyxfer.copy_blocks(source.rows, destination.rows, indices, indices)
        except pyxfer.ForkedError:
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_python_ends_while_threads_copy() -> None:
    program = """
import ctypes, threading
import numpy as np
import pyxfer
from pyxfer._upload.api import shared_uploader

memory = shared_uploader("host").engine.DeviceBuffer(4096, 0)
rows = np.frombuffer((ctypes.c_uint8 * 4096).from_address(memory.address), np.uint8).reshape(64, 64)
pool = pyxfer.BlockPool(64, 64, device="host")
begun = threading.Semaphore(0)

def copy():
    try:
        while True:
            pyxfer.copy_blocks(pool, rows, np.array([1, 2]), np.array([3, 4]))
            begun.release()
    except pyxfer.UsageError:
        pass

for _ in range(3):
    threading.Thread(target=copy, daemon=True).start()
    begun.acquire()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
