"""Calls of frameworks timed by pyxfer's events, which do not disturb the frameworks."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import pyxfer

pytestmark = pytest.mark.gpu

NBYTES = 64 << 20


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    return module


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy")


def test_an_empty_callable_takes_almost_no_time_on_a_stream() -> None:
    assert 0 < (pyxfer.measure(lambda: None, stream=0, budget_s=0.5).elapsed_s or 1) < 5e-6


def test_an_empty_callable_takes_one_round_trip_between_drains() -> None:
    found = pyxfer.measure(lambda: None, budget_s=0.5)
    assert 0 < (found.elapsed_s or 1) < 15e-6
    assert found.bracket == "drained"


def test_both_clocks_agree_on_a_sleep() -> None:
    found = pyxfer.measure(lambda: time.sleep(0.002), budget_s=0.5)
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
    pyxfer.ceiling(sizes=(1 << 20,), budget_s=0.5)
    assert torch.cuda.current_device() == device
    assert torch.cuda.current_stream() == stream
    assert torch.ones(8, device="cuda").sum().item() == 8


def test_threads_that_measure_take_turns(torch: Any) -> None:
    rates: list[float | None] = []

    def work() -> None:
        rates.append(pyxfer.ceiling(sizes=(64 << 20,), directions=("h2d",), budget_s=3).ceiling("h2d", 64 << 20).gbps)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    known = [rate for rate in rates if rate is not None]
    assert len(known) == 3
    assert max(known) < 1.05 * min(known)
