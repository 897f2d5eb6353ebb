"""Prefetching on a GPU: contents, order, streams, the number of batches on the device, and CUDA graphs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import import_or_skip

import pyxfer
from pyxfer._document.runs import FrameworkName
from pyxfer._upload.pools import block_bytes
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import FallbackWarning
from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.threads, pytest.mark.filterwarnings("ignore")]
NBYTES = 8 << 20
SLEEP_CYCLES = 4_000_000


@pytest.fixture
def up(gpu_engine: Engine) -> Iterator[Uploader]:
    assert gpu_engine.RUNTIME == "cuda"
    with Uploader(0, threads=2, chunk_bytes=64 << 10, slots=128, require_gpu=True) as made:
        yield made


def filled(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8)


def summed(framework: FrameworkName, batch: Any) -> Any:
    """The sum of a batch by many additions, which the framework only queues."""
    tf: Any = import_or_skip("tensorflow") if framework == "tensorflow" else None
    add: dict[FrameworkName, Callable[[], Any]] = {
        "torch": lambda: batch.sum(dtype=import_or_skip("torch").int64),
        "cupy": lambda: batch.sum(dtype=np.int64),
        "tensorflow": lambda: tf.reduce_sum(tf.cast(batch, tf.int64)),
        "jax": lambda: batch.astype(import_or_skip("jax").numpy.uint32).sum(),
    }
    total = add[framework]()
    for _ in range(20):
        total = total + add[framework]() - add[framework]()
    return total


@pytest.mark.parametrize("layout", [None, "NHWC->NCHW"])
@pytest.mark.parametrize("dtype", ["float32", "float16", None])
def test_batches_are_cast_and_reordered_on_the_way(
    up: Uploader, framework: FrameworkName, dtype: str | None, layout: str | None
) -> None:
    images = [np.random.default_rng(n).integers(0, 256, (8, 64, 512, 3), np.uint8) for n in range(12)]
    batches = up.prefetch(iter(images), framework, dtype=dtype, layout=layout)
    for image, batch in zip(images, batches, strict=True):
        expected = image if layout is None else image.transpose(0, 3, 1, 2)
        assert np.array_equal(up.download(batch), expected.astype(dtype or np.uint8))


@pytest.mark.parametrize("depth", [1, 3])
def test_no_batch_is_overwritten_while_queued_work_reads_it(up: Uploader, framework: FrameworkName, depth: int) -> None:
    sums = []
    for batch in up.prefetch((filled(n) for n in range(30)), framework, depth):
        sums.append(summed(framework, batch))
        del batch  # while its work is only queued
    assert [int(total) for total in sums] == [int(filled(n).sum()) for n in range(30)]


def test_a_tensor_of_torch_is_for_the_stream_that_takes_it(up: Uploader, torch: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(3)]
    doubled = []
    with up.prefetch((filled(n) for n in range(24)), "torch", 2) as batches:
        for n in range(24):
            with torch.cuda.stream(streams[n % 3]):
                batch = next(batches)
                torch.cuda._sleep(SLEEP_CYCLES)
                doubled.append(batch ^ 0xFF)
                del batch
    torch.cuda.synchronize()
    for n, each in enumerate(doubled):
        assert np.array_equal(each.cpu().numpy(), ~filled(n))


def test_an_array_of_cupy_is_for_the_stream_that_takes_it(up: Uploader, cupy: Any) -> None:
    streams = [cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.ptds]
    inverted = []
    with up.prefetch((filled(n) for n in range(24)), "cupy", 2) as batches:
        for n in range(24):
            with streams[n % 3]:
                batch = next(batches)
                inverted.append(~batch)
                del batch
    cupy.cuda.Device(0).synchronize()
    for n, each in enumerate(inverted):
        assert np.array_equal(each.get(), ~filled(n))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_loop_that_runs_ahead_of_its_device_is_held_back(up: Uploader, torch: Any, depth: int) -> None:
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for batch in up.prefetch((filled(n) for n in range(30)), "torch", depth):
        torch.cuda._sleep(SLEEP_CYCLES)
        batch.bitwise_xor_(0xFF)
    assert torch.cuda.max_memory_allocated() - before <= (depth + 2) * NBYTES


def test_uploads_do_not_wait_for_work_on_the_previous_batch(up: Uploader, torch: Any) -> None:
    with up.prefetch((filled(n) for n in range(4)), "torch", 1) as batches:
        next(batches)
        torch.cuda._sleep(2_000_000_000)
        busy = torch.cuda.Event()
        busy.record()
        next(batches)
        assert not busy.query()
    torch.cuda.synchronize()


def test_at_most_depth_plus_two_blocks_are_on_the_device(up: Uploader, gpu_engine: Engine) -> None:
    own = Target(up._pool)
    next(up.prefetch([filled(0)], own))
    before, _ = gpu_engine.memory_info(0)
    least = before
    for batch in up.prefetch((filled(n) for n in range(40)), own, 2):
        least = min(least, gpu_engine.memory_info(0)[0])
        assert batch.nbytes == NBYTES
    assert before - least <= 4 * block_bytes(NBYTES)


def test_a_torch_loader_that_page_locks_its_batches_is_named_and_complete(up: Uploader, torch: Any) -> None:
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(np.stack([filled(n) for n in range(12)])))
    loader = torch.utils.data.DataLoader(tensors, batch_size=1, num_workers=1, pin_memory=True)
    with pytest.warns(FallbackWarning, match="pin_memory=False"):
        batches = up.prefetch(loader, "torch")
    for n, (batch,) in enumerate(batches):
        assert np.array_equal(batch[0].cpu().numpy(), filled(n))


def test_a_dataset_of_tensorflow_that_ends_on_the_gpu_is_prefetched(up: Uploader, tensorflow: Any) -> None:
    dataset = tensorflow.data.Dataset.from_tensor_slices(np.stack([filled(n) for n in range(12)]))
    for n, batch in enumerate(
        up.prefetch(dataset.apply(tensorflow.data.experimental.prefetch_to_device("/gpu:0")), "tensorflow")
    ):
        assert "GPU:0" in batch.device
        assert np.array_equal(batch.numpy(), filled(n))


# --- CUDA graphs ------------------------------------------------------------------------------------------------------

GRAPH_BYTES = 4 << 20
DISTINCT = 8
BATCHES = 400


@pytest.fixture
def sources() -> list[NDArray[np.uint8]]:
    return [np.random.default_rng(seed).integers(0, 256, GRAPH_BYTES, np.uint8) for seed in range(DISTINCT)]


class Loop:
    """Takes prefetched batches on a separate stream, and compares each on the device with the expected batch.

    It neither waits for the device nor allocates, both of which PyTorch would do in a way that disturbs a capture.
    """

    def __init__(self, torch: Any, sources: list[NDArray[np.uint8]]) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self._torch = torch
        self._sources = sources
        self._expected = [torch.from_numpy(each).cuda() for each in sources]
        self._stream = torch.cuda.Stream()
        self._different = torch.zeros_like(self._expected[0])
        self.wrong = torch.zeros_like(self._expected[0])
        self._compare(self._expected[0], self._expected[0])  # loads the kernels
        torch.cuda.synchronize()

    def run(self) -> int:
        """Take all batches; returns their number."""
        taken = 0
        with self._torch.cuda.stream(self._stream), pyxfer.prefetch(self._batches(), to="torch") as batches:
            for batch in batches:
                self._compare(batch, self._expected[taken % DISTINCT])
                taken += 1
                if taken == DISTINCT:
                    self.begun.set()
        return taken

    def _batches(self) -> Iterator[NDArray[np.uint8]]:
        """Batches until the captures have been made, at least `BATCHES` of them."""
        number = 0
        while number < BATCHES or not self.may_end.is_set():
            yield self._sources[number % DISTINCT]
            number += 1

    def _compare(self, batch: Any, expected: Any) -> None:
        self._torch.bitwise_xor(batch, expected, out=self._different)
        self.wrong.bitwise_or_(self._different)


def beside_prefetch(torch: Any, sources: list[NDArray[np.uint8]], capture: Callable[[], None]) -> None:
    """Make the captures while batches are uploaded, then check the batches."""
    loop = Loop(torch, sources)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(loop.run)
        try:
            loop.begun.wait(60)
            assert not ended.done(), ended.exception()
            capture()
        finally:
            loop.may_end.set()
        taken = ended.result(120)
    torch.cuda.synchronize()
    assert taken >= BATCHES
    assert not bool(loop.wrong.any())


def test_a_graph_is_captured_beside_prefetch(torch: Any, sources: list[NDArray[np.uint8]]) -> None:
    x = torch.ones(1024, device="cuda")
    doubled = x * 2 + 1  # loads the kernels

    def capture() -> None:
        nonlocal doubled
        for _ in range(20):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(200):
                    doubled = x * 2 + 1
            graph.replay()

    beside_prefetch(torch, sources, capture)
    assert bool((doubled == 3).all())


def test_a_module_is_compiled_with_graphs_beside_prefetch(torch: Any, sources: list[NDArray[np.uint8]]) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda().eval()
    x = torch.ones(16, 64, device="cuda")

    def compile_and_run() -> None:
        with torch.no_grad():
            compiled = torch.compile(layers, mode="reduce-overhead")
            for _ in range(5):
                torch.compiler.cudagraph_mark_step_begin()
                torch.testing.assert_close(compiled(x), layers(x))

    beside_prefetch(torch, sources, compile_and_run)
