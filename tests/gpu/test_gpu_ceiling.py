"""The ceiling of a real link; timers and `measure` on a GPU, of calls and of streams of PyTorch and CuPy."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from watch.copying import in_threads

import pyxfer
from pyxfer._ceiling.plans import MEMORIES
from pyxfer._document.runs import Measurement, Memory, Run
from pyxfer.errors import UsageError

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
MIB = 1 << 20


@pytest.fixture(scope="module")
def run() -> Run:
    return pyxfer.ceiling(size=(4096, MIB, 64 * MIB), budget=4, seed=1)


def test_the_device_has_a_name_a_uuid_and_memory() -> None:
    device = pyxfer.devices()[0]
    assert device.runtime == "cuda"
    assert device.name
    assert device.uuid.value is not None
    assert device.uuid.value.startswith("GPU-")
    assert device.memory_bytes > 1 << 30


def test_a_device_is_found_by_uuid_and_pci_address() -> None:
    device = pyxfer.devices()[0]
    for selector in filter(None, (device.uuid.value, device.pci.value)):
        assert pyxfer.link(selector) == pyxfer.link(0)


def test_every_row_is_measured_and_verified(run: Run) -> None:
    assert run.ended == "complete"
    assert [(m.route, m.direction, m.nbytes, m.rate.reason) for m in run.measurements if m.gbps is None] == []
    assert all(m.verified.value is True for m in run.measurements)


def test_no_bandwidth_exceeds_the_protocol_peak(run: Run) -> None:
    assert all(m.of_peak is None or 0 < m.of_peak <= 1 for m in run.measurements)


def test_large_pinned_copies_reach_most_of_the_peak(run: Run) -> None:
    for direction in ("h2d", "d2h"):
        share = run.ceiling(direction, 64 * MIB).of_peak
        if share is None:
            pytest.skip("this link has no protocol peak")
        assert 0.8 < share <= 1


def test_the_ceiling_is_100_percent_and_pageable_copies_are_below(run: Run) -> None:
    ceiling = run.ceiling("h2d", 64 * MIB)
    assert ceiling.memory == "pinned"
    assert ceiling.of_ceiling == pytest.approx(1.0)
    pageable = [m for m in run.measurements if (m.direction, m.memory, m.nbytes) == ("h2d", "pageable", 64 * MIB)]
    assert 0 < (pageable[0].of_ceiling or 0) < 1


def test_simultaneous_directions_are_slower_each_and_faster_in_sum(run: Run) -> None:
    alone, together = run.ceiling("h2d", 64 * MIB), run.ceiling("both", 64 * MIB)
    assert alone.gbps is not None
    assert together.gbps is not None
    assert alone.gbps < together.gbps < 2.1 * alone.gbps


@pytest.mark.parametrize("memory", MEMORIES)
def test_each_memory_is_verified_in_every_mode(memory: Memory) -> None:
    run = pyxfer.ceiling(
        direction=("h2d", "d2h"),
        memory=(memory,),
        mode=("memcpy", "async", "streams:3", "batch"),
        size=(4096 + 1, MIB + 12345),
        budget=2,
        seed=2,
    )
    wrong = [(m.route, m.direction, m.nbytes, m.verified) for m in run.measurements if m.verified.value is not True]
    assert [each for each in wrong if "no cudaMemcpyBatchAsync" not in (each[3].reason or "")] == []


def test_a_fresh_destination_is_slower_than_a_warm_one() -> None:
    run = pyxfer.ceiling(direction=("d2h",), memory=("pageable",), size=(64 * MIB,), fresh=True, budget=3)
    seconds = {m.variant: m.elapsed_s for m in run.measurements}
    assert seconds["fresh"] is not None
    assert seconds["warm"] is not None
    assert seconds["fresh"] > seconds["warm"]


def test_a_size_larger_than_the_device_is_refused() -> None:
    too_large = pyxfer.devices()[0].memory_bytes
    with pytest.raises(UsageError, match="device memory"):
        pyxfer.ceiling(size=(too_large,), budget=1)


def test_many_runs_leave_no_memory_allocated(gpu_engine: object) -> None:
    from pyxfer.native import load

    engine = load("cuda")
    pyxfer.ceiling(size=(MIB,), budget=0.3)
    before, _ = engine.memory_info(0)
    for _ in range(10):
        pyxfer.ceiling(size=(MIB,), budget=0.2)
    after, _ = engine.memory_info(0)
    assert abs(before - after) <= 16 * MIB


# --- consistency of the figures ---------------------------------------------------------------------------------------

KIB = 1024
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB)


@pytest.fixture(scope="module")
def figures() -> Run:
    return pyxfer.ceiling(direction=("h2d", "d2h"), size=SIZES, budget=4.0, seed=1)


def pinned(figures: Run, direction: str, nbytes: int) -> Measurement:
    (found,) = (
        each
        for each in figures.measurements
        if (each.route, each.direction, each.nbytes) == ("raw.pinned-async", direction, nbytes)
    )
    return found


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_larger_copies_are_faster(figures: Run, direction: str) -> None:
    rates = [pinned(figures, direction, nbytes).gbps or 0 for nbytes in SIZES]
    assert rates == sorted(rates)


def test_small_pinned_copies_have_the_speed_that_a_gate_shows(figures: Run) -> None:
    found = pinned(figures, "h2d", 4 * KIB)
    assert found.bracket == "gated"
    assert found.elapsed_s is not None
    assert found.elapsed_s < 5e-6


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_caller_waits_for_small_copies_no_shorter_than_the_device_takes(figures: Run, direction: str) -> None:
    found = pinned(figures, direction, 4 * KIB)
    assert found.has_both_clocks
    assert 0.95 * (found.elapsed_s or 0.0) < (found.wall_s or 0.0) < 50e-6


def test_the_fit_has_a_latency_of_microseconds_or_a_reason(figures: Run) -> None:
    (curve,) = (each for each in figures.curves if (each.route, each.direction) == ("raw.pinned-async", "h2d"))
    if curve.latency_s.value is None:
        assert curve.latency_s.reason
    else:
        assert 0 < curve.latency_s.value < 50e-6


def test_page_locking_has_a_cost_and_a_break_even(figures: Run) -> None:
    (cost,) = (each for each in figures.locking if each.memory == "pinned")
    assert cost.s_per_gib.value is not None
    assert 0 < cost.s_per_gib.value < 60
    assert cost.pays_after_transfers.value is not None
    assert 0 < cost.pays_after_transfers.value < 1000


def test_the_run_has_the_numa_node_of_its_memory(figures: Run) -> None:
    nodes = {path.name.removeprefix("node") for path in Path("/sys/devices/system/node").glob("node[0-9]*")}
    pages = figures.placement.pages_by_node.value
    assert pages is not None
    assert sum(pages.values()) > 0
    assert pages.keys() <= nodes


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

    in_threads(*[work] * 3)
    known = [rate for rate in rates if rate is not None]
    assert len(known) == 3
    assert max(known) < 1.05 * min(known)
