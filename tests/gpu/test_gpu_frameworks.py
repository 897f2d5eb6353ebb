"""Timing on streams of PyTorch and CuPy, without disturbing them."""

from __future__ import annotations

import threading
import warnings
from types import ModuleType
from typing import Any

import pytest

import pyxfer

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
NBYTES = 64 << 20
# Faster than any link of a GPU to its host.
MIN_S = NBYTES / 1e12


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.fixture(scope="module")
def cupy() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip("cupy")
    return module


def tensors(torch: Any) -> tuple[Any, Any]:
    """Pinned host memory, and device memory of the same size."""
    host = torch.randint(0, 256, (NBYTES,), dtype=torch.uint8).pin_memory()
    return host, torch.empty_like(host, device="cuda")


@pytest.mark.parametrize("given", ["current", "own", "handle"])
def test_a_timer_on_a_torch_stream_times_its_work(torch: Any, given: str) -> None:
    host, device = tensors(torch)
    stream = torch.cuda.Stream() if given == "own" else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        device.copy_(host, non_blocking=True)
        stream.synchronize()
        with pyxfer.Timer(stream.cuda_stream if given == "handle" else stream) as timer:
            device.copy_(host, non_blocking=True)
    assert MIN_S < timer.elapsed_s < 1.0
    assert timer.dispatch_s < timer.elapsed_s
    assert timer.wall_s >= 0.9 * timer.elapsed_s


@pytest.mark.parametrize("own", [False, True])
def test_a_timer_on_a_cupy_stream_times_its_work(cupy: Any, own: bool) -> None:
    host = cupy.zeros(NBYTES, dtype=cupy.uint8).get()
    device = cupy.empty(NBYTES, dtype=cupy.uint8)
    stream = cupy.cuda.Stream(non_blocking=True) if own else cupy.cuda.get_current_stream()
    with stream, pyxfer.Timer(stream) as timer:
        device.set(host, stream=stream)
    assert MIN_S < timer.elapsed_s < 1.0


def test_a_timer_without_a_stream_waits_for_all_queued_work(torch: Any) -> None:
    host, device = tensors(torch)
    with pyxfer.Timer() as timer:
        device.copy_(host, non_blocking=True)
    assert MIN_S < timer.elapsed_s < 1.0
    assert timer.wall_s >= timer.dispatch_s


def test_torch_works_in_other_threads_during_a_measurement(torch: Any) -> None:
    sums: list[int] = []

    def work() -> None:
        sums.extend(int(torch.arange(1000, device="cuda").sum()) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    run = pyxfer.ceiling(sizes=(1 << 20,), budget_s=0.5)
    for thread in threads:
        thread.join(60)
    assert sums == [499500] * 150
    assert run.ended == "complete"
