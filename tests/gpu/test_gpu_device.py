from __future__ import annotations

import ctypes
import re
import threading
from contextlib import closing

import pytest
from native.scenarios import SCENARIOS

import pyxfer
from pyxfer.native import Engine

pytestmark = pytest.mark.gpu
GIB = 1 << 30


def current_context() -> int | None:
    """The context of the calling thread, read from the driver."""
    found = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(found)) == 0
    return found.value


def test_each_device_has_a_name_memory_and_identity(gpu_engine: Engine) -> None:
    devices = pyxfer.devices()
    assert [device.index for device in devices] == list(range(gpu_engine.device_count()))
    for device in devices:
        assert device.runtime == "cuda"
        assert device.name
        assert device.memory_bytes > GIB
        assert re.fullmatch(r"(GPU|MIG)-[0-9a-f-]{36}", device.uuid.value or "")
        assert re.fullmatch(r"\d+\.\d+", device.compute_capability.value or "")
        assert device.copy_engines.value


def test_the_link_has_peaks_or_a_reason() -> None:
    link = pyxfer.link(0)
    for side in (link.h2d_peak_gbps, link.d2h_peak_gbps):
        assert side.value is not None or side.reason
        if side.value is not None and link.raw_peak_gbps.value is not None:
            assert link.raw_peak_gbps.value / 2 < side.value < link.raw_peak_gbps.value
    if link.kind == "pcie":
        assert link.now.value is not None
        assert 1 <= link.now.value.generation <= 7
        assert link.now.value.width in {1, 2, 4, 8, 16, 32}


def test_free_memory_is_at_most_total_memory(gpu_engine: Engine) -> None:
    free, total = gpu_engine.memory_info(0)
    assert 0 < free <= total


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.__name__))
def test_scenarios_of_the_host_runtime_run_on_the_gpu(gpu_engine: Engine, scenario: object) -> None:
    assert callable(scenario)
    scenario(gpu_engine)
    assert gpu_engine.take_cleanup_failures() == []


def test_driver_entry_points_are_found_and_unknown_ones_are_not(gpu_engine: Engine) -> None:
    assert gpu_engine.driver_has("cuEventRecord", 12000)
    assert not gpu_engine.driver_has("cuTeleport", 12000)


def test_a_thread_without_a_context_gets_none(gpu_engine: Engine) -> None:
    contexts: list[int | None] = []

    def use() -> None:
        contexts.append(current_context())
        gpu_engine.memory_info(0)
        with closing(gpu_engine.Bracket(0)) as bracket:
            bracket.begin()
            bracket.end()
        gpu_engine.HostBuffer(4096, "pinned").close()
        contexts.append(current_context())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert contexts == [None, None]


@pytest.mark.threads
def test_several_threads_use_the_device_at_once(gpu_engine: Engine) -> None:
    finished: list[str] = []

    def use() -> None:
        for scenario in SCENARIOS:
            scenario(gpu_engine)
        finished.append("fine")

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert finished == ["fine"] * 4
