"""`copy_blocks`: what arrives, by which method, and what it costs nobody else."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from blocks.guarded import Guarded

import pyxfer
from pyxfer._blocks import api
from pyxfer._upload.api import shared_uploader
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native import Engine
from pyxfer.native._host import testing

pytestmark = pytest.mark.usefixtures("own_movers")

METHODS: list[Any] = ["auto", "loop", "batch", "kernel", "packed"]


@pytest.fixture
def fresh_host(own_movers: Engine) -> Engine:
    """The host runtime, chosen by its name, so that no call warns."""
    shared_uploader("host")
    return own_movers


def shuffled(blocks: int, count: int, seed: int) -> Any:
    return np.random.default_rng(seed).permutation(blocks)[:count]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gap", [0, 32])
@pytest.mark.parametrize(("first", "second"), [("pinned", "device"), ("device", "pinned")])
def test_named_blocks_arrive_and_nothing_else_changes(
    fresh_host: Engine, method: Any, gap: int, first: str, second: str
) -> None:
    source = Guarded(fresh_host, first, 500, 64, gap=gap, seed=1)
    destination = Guarded(fresh_host, second, 400, 64, gap=gap, seed=2)
    indices, to = shuffled(500, 300, 3), shuffled(400, 300, 4)
    pyxfer.copy_blocks(source.rows, destination.rows, indices, to, method=method)
    destination.require(source.rows, indices, to)


@pytest.mark.parametrize("method", ["auto", "loop", "packed"])
@pytest.mark.parametrize(("first", "second"), [("pageable", "device"), ("device", "pageable")])
def test_ordinary_memory_works_as_well(fresh_host: Engine, method: Any, first: str, second: str) -> None:
    source = Guarded(fresh_host, first, 500, 48, seed=1)
    destination = Guarded(fresh_host, second, 400, 48, seed=2)
    indices, to = shuffled(500, 300, 3), shuffled(400, 300, 4)
    pyxfer.copy_blocks(source.rows, destination.rows, indices, to, method=method, block=False)
    if second == "device":
        api._shared["host"].mover.wait(None)
    destination.require(source.rows, indices, to)


@pytest.mark.parametrize("method", ["strided", "kernel"])
def test_regular_steps_and_blocks_on_the_device(fresh_host: Engine, method: Any) -> None:
    source = Guarded(fresh_host, "device", 100, 64, gap=16, seed=1)
    destination = Guarded(fresh_host, "device", 100, 64, seed=2)
    indices, to = np.arange(1, 90, 3), np.arange(0, 60, 2)
    pyxfer.copy_blocks(source.rows, destination.rows, indices, to, method=method)
    destination.require(source.rows, indices, to)


@pytest.mark.parametrize("method", ["auto", "loop", "batch"])
def test_blocks_that_are_no_multiple_of_16_bytes(fresh_host: Engine, method: Any) -> None:
    source = Guarded(fresh_host, "pinned", 50, 37, seed=1)
    destination = Guarded(fresh_host, "device", 60, 37, seed=2)
    pyxfer.copy_blocks(source.rows, destination.rows, [3, 1, 49], [59, 0, 7], method=method)
    destination.require(source.rows, [3, 1, 49], [59, 0, 7])


def test_block_bytes_cuts_an_array_into_blocks_of_another_size(fresh_host: Engine) -> None:
    source = Guarded(fresh_host, "pinned", 4, 4096, seed=1)
    destination = Guarded(fresh_host, "device", 8, 1024, seed=2)
    pyxfer.copy_blocks(source.rows, destination.rows, [15, 0], [7, 3], block_bytes="1KiB")
    destination.require(source.rows.reshape(16, 1024), [15, 0], [7, 3])


def test_no_blocks_are_no_work(fresh_host: Engine) -> None:
    source, destination = Guarded(fresh_host, "pinned", 4, 64), Guarded(fresh_host, "device", 4, 64)
    before = testing.calls().get("cuLaunchKernel", 0)
    pyxfer.copy_blocks(source.rows, destination.rows, [], [])
    pyxfer.copy_blocks(source.rows[:0], destination.rows, [], [])
    assert testing.calls().get("cuLaunchKernel", 0) == before
    destination.require(source.rows, [], [])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64])
def test_indices_may_have_any_type_of_whole_numbers(fresh_host: Engine, dtype: Any) -> None:
    source, destination = Guarded(fresh_host, "pinned", 9, 64, seed=1), Guarded(fresh_host, "device", 9, 64)
    pyxfer.copy_blocks(source.rows, destination.rows, np.array([3, 4], dtype), np.array([[8, 0]])[0])
    destination.require(source.rows, [3, 4], [8, 0])


@pytest.mark.parametrize(
    ("block_bytes", "indices", "call"),
    [
        (64, [5, 1, 7], "cuLaunchKernel"),
        (300 << 10, [5, 1, 7], "cuMemcpyBatchAsync"),
        (300 << 10, [5], "cuMemcpyAsync"),
        (128 << 10, [2, 3, 4, 5], "cuMemcpyAsync"),
        (24, [5, 1, 7], "cuMemcpyBatchAsync"),
    ],
)
def test_auto_chooses_by_size_and_places(fresh_host: Engine, block_bytes: int, indices: list[int], call: str) -> None:
    source = Guarded(fresh_host, "pinned", 8, block_bytes, seed=1)
    destination = Guarded(fresh_host, "device", 8, block_bytes)
    before = testing.calls().get(call, 0)
    pyxfer.copy_blocks(source.rows, destination.rows, indices, indices)
    assert testing.calls()[call] == before + 1
    destination.require(source.rows, indices, indices)


def test_repeated_copies_take_the_short_way_until_the_arrays_change(fresh_host: Engine) -> None:
    source, destination = Guarded(fresh_host, "pinned", 40, 64, seed=1), Guarded(fresh_host, "device", 40, 64)
    rows, to_rows = source.rows, destination.rows
    pyxfer.copy_blocks(rows, to_rows, np.array([1]), np.array([2]))
    assert len(api._prepared) == 1
    pyxfer.copy_blocks(rows, to_rows, np.array([30, 4]), np.array([5, 39]))
    destination.require(rows, [1, 30, 4], [2, 5, 39])
    for wrong in ([40], [-1]):
        with pytest.raises(pyxfer.UsageError, match=r"source_indices\[0\]"):
            pyxfer.copy_blocks(rows, to_rows, np.array(wrong), np.array([5]))
    to_rows.flags.writeable = False
    with pytest.raises(pyxfer.UsageError, match="read-only"):
        pyxfer.copy_blocks(rows, to_rows, np.array([30]), np.array([5]))
    del rows, source
    gc.collect()
    assert not api._prepared


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # NumPy 2.5 will end it
def test_pools_that_are_cut_otherwise_in_place_are_noticed(fresh_host: Engine) -> None:
    source, destination = Guarded(fresh_host, "pinned", 40, 64, seed=1), Guarded(fresh_host, "device", 40, 64)
    rows, to_rows = source.rows.view(), destination.rows.view()
    pyxfer.copy_blocks(rows, to_rows, np.array([1]), np.array([2]))
    rows.shape = to_rows.shape = (20, 128)
    with pytest.raises(pyxfer.UsageError, match=r"source_indices\[0\]"):
        pyxfer.copy_blocks(rows, to_rows, np.array([30]), np.array([5]))
    pyxfer.copy_blocks(rows, to_rows, np.array([3]), np.array([4]))
    destination.require(source.rows, [1, 6, 7], [2, 8, 9])


@pytest.mark.parametrize(("method", "count"), [("loop", 2000), ("packed", 200)])
def test_indices_that_lie_in_the_destination_are_read_first(
    fresh_host: Engine, method: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first blocks that arrive become indices, outside of the pool."""
    nbytes = 65536
    monkeypatch.setenv("PYXFER_RING", "threads=2,chunk=64KiB,slots=16")  # used several times for all blocks
    memory = np.zeros((count + 10, nbytes), np.uint8)
    pool = memory[: count + 2]
    device = Guarded(fresh_host, "device", count + 2, nbytes)
    device.rows[0].view(np.int64)[:] = count + 4
    indices = pool[0].view(np.int64)[:count]
    indices[:] = [0, *(1 + np.random.default_rng(0).permutation(count)[: count - 1])]
    wanted = indices.copy()
    pyxfer.copy_blocks(device.rows, pool, np.arange(count), indices, method=method)
    assert np.array_equal(pool[wanted], device.rows[:count])
    assert not memory[count + 2 :].any()


def test_page_lock_that_ends_is_noticed(fresh_host: Engine) -> None:
    memory = np.arange(4096 * 4, dtype=np.uint8)
    whole = np.frombuffer(memory, np.uint8)
    lock = fresh_host.Registration(whole.ctypes.data, whole.nbytes, 0)
    rows, destination = whole.reshape(-1, 64), Guarded(fresh_host, "device", 256, 64)
    pyxfer.copy_blocks(rows, destination.rows, np.array([1]), np.array([2]))
    assert api._prepared
    lock.close()
    pyxfer.copy_blocks(rows, destination.rows, np.array([3]), np.array([4]))
    destination.require(rows, [1, 3], [2, 4])


def test_arrays_of_torch(fresh_host: Engine, torch: Any) -> None:
    pool = pyxfer.BlockPool(30, 256, np.float32, device="host")
    pool.array[...] = np.random.default_rng(1).random(pool.array.shape)
    tensor = pyxfer.upload(np.zeros((20, 4, 16), np.float32), "torch", "host")
    for _ in range(2):
        pyxfer.copy_blocks(pool, tensor, torch.tensor([29, 0]), torch.tensor([3, 19]))
    assert np.array_equal(tensor.numpy()[[3, 19]].reshape(2, 64), pool.array[[29, 0]])
    assert not tensor.numpy()[4:19].any()
    back = torch.zeros(20, 64)
    pyxfer.copy_blocks(tensor, back, [3, 19], [0, 1])
    assert np.array_equal(back.numpy()[:2], pool.array[[29, 0]])


def test_arrays_of_jax_are_read_and_not_written(fresh_host: Engine, jax: Any) -> None:
    array = pyxfer.upload(np.arange(1600, dtype=np.float32).reshape(25, 64), "jax", "host")
    host = np.zeros((25, 64), np.float32)
    pyxfer.copy_blocks(array, host, [24, 3], [0, 1])
    assert np.array_equal(host[:2], np.asarray(array)[[24, 3]])
    with pytest.raises(pyxfer.UsageError, match="JAX do not change"):
        pyxfer.copy_blocks(host, array, [0], [0])


@pytest.mark.threads
def test_threads_copy_at_once_beside_uploads(fresh_host: Engine) -> None:
    """100,000 blocks by four threads, with every byte checked, beside a loop of uploads."""
    threads, turns, count = 4, 25, 1000
    wrong: list[str] = []
    done = threading.Event()

    def copy(number: int) -> None:
        methods = ["kernel", "batch", "loop", "packed"]
        source = Guarded(fresh_host, "pinned", 1200, 16, seed=number)
        for turn in range(turns):
            destination = Guarded(fresh_host, "device", 1100, 16, seed=turn)
            indices, to = shuffled(1200, count, turn), shuffled(1100, count, turn + 1)
            try:
                pyxfer.copy_blocks(source.rows, destination.rows, indices, to, method=methods[(turn + number) % 4])  # type: ignore[arg-type]
                destination.require(source.rows, indices, to)
            except BaseException as error:  # noqa: BLE001 - shown by the test
                wrong.append(f"thread {number}, turn {turn}: {error!r}")
                return

    def upload() -> None:
        x = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
        target = Target(DevicePool(fresh_host, 0, 0))
        with pyxfer.Uploader("host", threads=2, chunk_bytes=4096, slots=4) as uploader:
            while not done.is_set():
                if not np.array_equal(uploader.download(uploader.upload(x, target)), x):
                    wrong.append("an upload")

    running = [threading.Thread(target=copy, args=(number,)) for number in range(threads)]
    beside = threading.Thread(target=upload)
    for thread in (*running, beside):
        thread.start()
    for thread in running:
        thread.join()
    done.set()
    beside.join()
    assert wrong == []
