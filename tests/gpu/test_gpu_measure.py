"""Timers and `measure` on a GPU: figures of calls and of streams of PyTorch and CuPy, which are not disturbed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import pyxfer

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
NBYTES = 64 << 20
# Faster than any link of a GPU to its host.
MIN_S = NBYTES / 1e12


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
    run = pyxfer.ceiling(size=(1 << 20,), budget=0.5)
    for thread in threads:
        thread.join(60)
    assert sums == [499500] * 150
    assert run.ended == "complete"


# --- measure ----------------------------------------------------------------------------------------------------------


def test_an_empty_callable_takes_almost_no_time_on_a_stream() -> None:
    assert 0 < (pyxfer.measure(lambda: None, stream=0, budget=0.5).elapsed_s or 1) < 5e-6


def test_an_empty_callable_takes_one_round_trip_between_drains() -> None:
    found = pyxfer.measure(lambda: None, budget=0.5)
    assert 0 < (found.elapsed_s or 1) < 15e-6
    assert found.bracket == "drained"


def test_both_clocks_agree_on_a_sleep() -> None:
    found = pyxfer.measure(lambda: time.sleep(0.002), budget=0.5)
    assert found.elapsed_s == pytest.approx(0.002, rel=0.2)
    assert found.wall_s == pytest.approx(found.elapsed_s, abs=2e-5, rel=0.02)


def test_a_pinned_torch_copy_reaches_the_ceiling(torch: Any) -> None:
    host = torch.empty(NBYTES, dtype=torch.uint8).pin_memory()
    gpu = torch.empty_like(host, device="cuda")
    found = pyxfer.measure(
        lambda: gpu.copy_(host, non_blocking=True),
        nbytes=NBYTES,
        direction="h2d",
        stream=torch.cuda.current_stream(),
    )
    assert found.bracket == "stream"
    assert 0.9 < (found.of_ceiling or 0) < 1.05


def test_a_pageable_torch_copy_stays_below_the_ceiling(torch: Any) -> None:
    host = torch.empty(NBYTES, dtype=torch.uint8)
    found = pyxfer.measure(lambda: host.to("cuda"), nbytes=NBYTES, direction="h2d", sync=torch.cuda.synchronize)
    assert 0 < (found.of_ceiling or 0) < 0.9


def test_a_cupy_copy_is_timed_on_cupys_stream(cupy: Any) -> None:
    import numpy as np

    host = np.ones(NBYTES, np.uint8)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        found = pyxfer.measure(lambda: cupy.asarray(host), nbytes=NBYTES, direction="h2d", stream=stream)
    assert 0 < (found.of_ceiling or 0) <= 1.05


def test_torch_keeps_its_current_device(torch: Any) -> None:
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream()
    pyxfer.ceiling(size=(1 << 20,), budget=0.5)
    assert torch.cuda.current_device() == device
    assert torch.cuda.current_stream() == stream
    assert torch.ones(8, device="cuda").sum().item() == 8


def test_threads_that_measure_take_turns(torch: Any) -> None:
    rates: list[float | None] = []

    def work() -> None:
        rates.append(pyxfer.ceiling(size=(64 << 20,), direction=("h2d",), budget=3).ceiling("h2d", 64 << 20).gbps)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    known = [rate for rate in rates if rate is not None]
    assert len(known) == 3
    assert max(known) < 1.05 * min(known)
