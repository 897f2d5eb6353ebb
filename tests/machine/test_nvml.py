from __future__ import annotations

import ctypes
import inspect
import re
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from machine.fake_host import GPU, NO_NVML, FakeBinding, NVMLError, gpu, nvml, nvml_link, processes, without_nvml
from samples import make_environment

from pyxfer._document.runs import Clocks, Fact, LinkState, unknown
from pyxfer._machine import nvml as management
from pyxfer._machine.nvml import IDLE, Nvml, throttled_by


def test_every_call_exists_in_the_binding() -> None:
    names = set(re.findall(r'"(nvml[A-Z]\w+|c_nvml\w+)"', inspect.getsource(management)))
    assert len(names) > 20
    assert [name for name in sorted(names) if not hasattr(management.import_binding(), name)] == []


@pytest.mark.skipif(Nvml().ask("nvmlSystemGetDriverVersion").value is not None, reason="NVML answers here")
def test_without_a_driver_the_reason_is_that_of_nvml() -> None:
    reason = management.driver_version(Nvml()).reason or ""
    assert "NVML" in reason
    assert "Not" in reason


def test_without_a_driver_every_fact_has_the_same_reason() -> None:
    absent, device = without_nvml(), gpu()
    reads: tuple[Any, ...] = (
        *(management.link_now, management.link_device_most, management.link_system_most),
        *(management.is_mig, management.is_vgpu, management.is_confidential, management.is_c2c),
        *(management.clocks, management.throttle_reasons, management.performance_state),
        *(management.temperature_c, management.persistence, management.process_ids, management.memory_node),
    )
    (reason,) = {read(absent, device).reason for read in reads}
    assert NO_NVML in reason


def test_missing_binding_names_the_package() -> None:
    def fail() -> object:
        raise ModuleNotFoundError("No module named 'pynvml'")

    assert "pip install nvidia-ml-py" in (Nvml(fail).ask("nvmlSystemGetDriverVersion").reason or "")


def test_a_call_missing_in_the_binding_is_named() -> None:
    old = nvml(nvmlDeviceGetC2cModeInfoV1=None)
    reason = management.is_c2c(old, gpu()).reason or ""
    assert all(words in reason for words in ("nvidia-ml-py", "nvmlDeviceGetC2cModeInfoV1"))


def test_a_failed_call_has_the_reason_of_nvml() -> None:
    lost = nvml(nvmlDeviceGetTemperature=NVMLError("GPU is lost"))
    assert management.temperature_c(lost, gpu()).reason == "nvmlDeviceGetTemperature: GPU is lost"


def test_threads_open_the_library_once() -> None:
    binding = FakeBinding(nvmlSystemGetDriverVersion="580.159")
    library = Nvml(lambda: binding)
    answers: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: answers.append(management.driver_version(library).value)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["580.159"] * 8
    assert binding.calls.count("nvmlInit") == 1


def test_a_forked_child_opens_the_library_again() -> None:
    # In a separate process, because fork warns in a process with threads.
    program = """
import os
from pyxfer._machine import nvml
parents = nvml.shared()
child = os.fork()
if child == 0:
    os._exit(0 if nvml.shared() is not parents else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_device_is_found_by_pci_address_if_its_uuid_is_unknown() -> None:
    library = nvml(
        nvmlDeviceGetHandleByUUID=NVMLError("Not Found"),
        nvmlDeviceGetHandleByPciBusId={GPU: "by address"},
        nvmlDeviceGetTemperature=lambda handle, _: 31 if handle == "by address" else 0,
    )
    assert management.temperature_c(library, gpu()).value == 31


def test_unknown_device_has_the_last_reason() -> None:
    library = nvml(nvmlDeviceGetHandleByUUID={}, nvmlDeviceGetHandleByPciBusId={})
    assert management.clocks(library, gpu()).reason == "nvmlDeviceGetHandleByPciBusId: Not Found"


def test_device_without_uuid_and_address_is_not_found() -> None:
    reason = nvml().handle(gpu(pci=None, uuid=None)).reason or ""
    assert all(words in reason for words in ("UUID", "PCI address", "device 0"))


def test_mig_instance_is_read_from_its_gpu() -> None:
    library = nvml(
        nvmlDeviceGetHandleByUUID={"MIG-1234": "instance"},
        nvmlDeviceIsMigDeviceHandle=lambda handle: handle == "instance",
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle={"instance": "whole GPU"},
        nvmlDeviceGetMigMode={"whole GPU": [1, 1]},
    )
    assert management.is_mig(library, gpu(uuid="GPU-1234")).value is True


def test_gpu_without_mig_is_not_in_mig_mode() -> None:
    assert management.is_mig(nvml(), gpu()).value is False


@pytest.mark.parametrize(("mode", "is_vgpu"), [(0, False), (1, False), (2, True), (3, False)])
def test_vgpu_is_virtualization_mode_2(mode: int, is_vgpu: bool) -> None:
    assert management.is_vgpu(nvml(nvmlDeviceGetVirtualizationMode=mode), gpu()).value is is_vgpu


def test_confidential_computing_is_recognised() -> None:
    library = nvml(nvmlSystemGetConfComputeState=SimpleNamespace(ccFeature=1))
    assert management.is_confidential(library, gpu()).value is True


@pytest.mark.parametrize(("mode", "confidential"), [(0, False), (1, True)])
def test_protected_pcie_is_confidential(mode: int, confidential: bool) -> None:
    def fill(settings: Any) -> int:
        ctypes.cast(settings, ctypes.POINTER(ctypes.c_uint))[4] = mode
        return 0

    library = nvml(
        nvmlSystemGetConfComputeState=SimpleNamespace(ccFeature=0),
        nvmlSystemGetConfComputeSettings=fill,
    )
    assert management.is_confidential(library, gpu()).value is confidential


def test_system_without_confidential_computing_is_not_confidential() -> None:
    assert management.is_confidential(nvml(), gpu()).value is False


def test_confidential_computing_is_unknown_with_an_old_driver() -> None:
    library = nvml(nvmlSystemGetConfComputeState=NVMLError("Function Not Found"))
    assert management.is_confidential(library, gpu()).reason == "nvmlSystemGetConfComputeState: Function Not Found"


def test_current_and_largest_link_states_are_read() -> None:
    library = nvml_link(now=(1, 16), most=(4, 16))
    assert management.link_now(library, gpu()).value == LinkState(1, 16)
    assert management.link_system_most(library, gpu()).value == LinkState(4, 16)
    assert management.link_device_most(library, gpu()).value == LinkState(5, 16)


def test_link_of_generation_zero_is_unknown() -> None:
    reason = management.link_now(nvml_link(now=(0, 0)), gpu()).reason or ""
    assert all(words in reason for words in ("generation 0", "width 0"))


def test_current_and_largest_clocks_are_read() -> None:
    library = nvml(nvmlDeviceGetClockInfo={1: 1980, 2: 3201}, nvmlDeviceGetMaxClockInfo={1: 2000, 2: 3202})
    assert management.clocks(library, gpu()).value == Clocks(1980, 3201, 2000, 3202)


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, ()),
        (0x1, ("idle",)),
        (0x44, ("software power cap", "hardware thermal slowdown")),
        (0x1000, ("unnamed reason 0x1000",)),
    ],
)
def test_throttle_reasons_have_names(bits: int, words: tuple[str, ...]) -> None:
    assert management.throttle_reasons(nvml(nvmlDeviceGetCurrentClocksEventReasons=bits), gpu()).value == words


def test_throttle_reasons_of_older_drivers_are_read_by_the_older_call() -> None:
    library = nvml(
        nvmlDeviceGetCurrentClocksEventReasons=NVMLError("Function Not Found"),
        nvmlDeviceGetCurrentClocksThrottleReasons=0x4,
    )
    assert management.throttle_reasons(library, gpu()).value == ("software power cap",)


@pytest.mark.parametrize(("state", "text"), [(0, "P0"), (8, "P8"), (32, None)])
def test_performance_state_has_a_name(state: int, text: str | None) -> None:
    assert management.performance_state(nvml(nvmlDeviceGetPerformanceState=state), gpu()).value == text


def test_disabled_persistence_is_known() -> None:
    assert management.persistence(nvml(nvmlDeviceGetPersistenceMode=0), gpu()).value is False
    assert management.persistence(nvml(), gpu()).reason == "nvmlDeviceGetPersistenceMode: Not Supported"


def test_each_process_is_listed_once() -> None:
    library = nvml(nvmlDeviceGetComputeRunningProcesses=processes(7, 5, 7))
    assert management.process_ids(library, gpu()).value == (5, 7)


@pytest.mark.parametrize(
    ("words", "node", "reason"),
    [([0b10], 1, ""), ([0, 1], 64, ""), ([0b11], None, "2 NUMA nodes"), ([0], None, "0 NUMA nodes")],
)
def test_memory_node_is_known_if_nvml_names_one(words: list[int], node: int | None, reason: str) -> None:
    fact = management.memory_node(nvml(nvmlDeviceGetMemoryAffinity=words), gpu())
    assert fact.value == node
    assert reason in (fact.reason or "")


@pytest.mark.parametrize(("kind", "is_cpu"), [(0, False), (1, True), (2, False)])
def test_nvlink_to_a_cpu_is_recognised(kind: int, is_cpu: bool) -> None:
    library = nvml(nvmlDeviceGetNvLinkRemoteDeviceType={3: kind})
    assert management.has_cpu_nvlink(library, gpu()) is is_cpu


def test_an_idle_gpu_is_not_throttled() -> None:
    assert throttled_by(make_environment(throttle_reasons=Fact((IDLE,)))) == ()


def test_throttle_reasons_are_in_the_order_of_the_driver() -> None:
    hot = make_environment(throttle_reasons=Fact((IDLE, "sync boost", "hardware thermal slowdown")))
    assert throttled_by(hot) == ("sync boost", "hardware thermal slowdown")


def test_unknown_throttle_reasons_are_empty() -> None:
    assert throttled_by(make_environment(throttle_reasons=unknown("no NVML"))) == ()
    assert throttled_by(None) == ()
