"""CUDA graphs that PyTorch captures during uploads, and uploads on a captured stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import import_or_skip

import pyxfer
from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
NBYTES = 4 << 20
DISTINCT = 8
BATCHES = 400


@pytest.fixture
def torch(gpu_engine: Engine) -> Any:
    assert gpu_engine.RUNTIME == "cuda"
    module: Any = import_or_skip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    return module


@pytest.fixture
def sources() -> list[NDArray[np.uint8]]:
    return [np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8) for seed in range(DISTINCT)]


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


def test_an_upload_on_a_captured_stream_is_refused_and_the_capture_stays_valid(
    torch: Any, sources: list[NDArray[np.uint8]]
) -> None:
    pyxfer.upload(sources[0], to="torch")  # makes the ring before the capture
    x = torch.ones(1024, device="cuda")
    doubled = x * 2
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = x * 2
        with pytest.raises(ValueError, match="captured"):
            pyxfer.upload(sources[0], to="torch")
    graph.replay()
    assert bool((doubled == 2).all())
    assert np.array_equal(pyxfer.upload(sources[0], to="torch").cpu().numpy(), sources[0])
