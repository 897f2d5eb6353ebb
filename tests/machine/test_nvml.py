"""Values from NVML, also of NVLink, and devices by their index, address or UUID."""

from __future__ import annotations

import ctypes
import inspect
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from machine.fake_host import (
    GPU,
    NO_NVML,
    UUID,
    FakeBinding,
    FakeEngine,
    NVMLError,
    Properties,
    gpu,
    nvml,
    nvml_link,
    without_nvml,
)
from samples import make_environment
from watch.copying import in_threads

import pyxfer
from pyxfer import native
from pyxfer._document.links import Counter
from pyxfer._document.machines import Clocks, Fact, LinkState, unknown
from pyxfer._machine import health, nvlink
from pyxfer._machine import nvml as management
from pyxfer._machine.devices import could_be_device, find_device, list_devices
from pyxfer._machine.nvml import IDLE, Nvml, throttled_by
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

FIELDS = {
    "NVLINK_SPEED_MBPS_COMMON": 90,
    "PCIE_REPLAY_ROLLOVER_COUNTER": 95,
    "NVLINK_THROUGHPUT_DATA_TX": 138,
    "NVLINK_THROUGHPUT_DATA_RX": 139,
    "C2C_LINK_COUNT": 170,
    "C2C_LINK_GET_MAX_BW": 172,
    "PCIE_COUNT_CORRECTABLE_ERRORS": 173,
    "PCIE_COUNT_NON_FATAL_ERROR": 179,
    "PCIE_COUNT_FATAL_ERROR": 180,
    "PCIE_COUNT_TX_BYTES": 197,
    "PCIE_COUNT_RX_BYTES": 198,
    "NVLINK_COUNT_XMIT_BYTES": 202,
    "NVLINK_COUNT_RCV_BYTES": 204,
}


def test_every_call_and_number_exists_in_the_binding() -> None:
    binding = management.import_binding()
    source = "".join(map(inspect.getsource, (management, nvlink, health)))
    names = set(re.findall(r'"(nvml[A-Z]\w+|c_nvml\w+)"', source))
    assert len(names) > 25
    assert [name for name in sorted(names) if not hasattr(binding, name)] == []
    assert binding.NVML_P2P_CAPS_INDEX_NVLINK == 2
    assert {name: getattr(binding, f"NVML_FI_DEV_{name}") for name in FIELDS} == FIELDS
    assert {number: getattr(binding.c_nvmlValue_t(), name) for number, name in management._MEMBERS.items()}


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


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "the installed nvidia-ml-py has no nvmlSystemGetConfComputeState"),
        (NVMLError("Function Not Found"), "nvmlSystemGetConfComputeState: Function Not Found"),
    ],
)
def test_a_call_that_is_missing_or_fails_is_named(answer: object, reason: str) -> None:
    assert management.is_confidential(nvml(nvmlSystemGetConfComputeState=answer), gpu()).reason == reason


def test_threads_open_the_library_once() -> None:
    binding = FakeBinding(nvmlSystemGetDriverVersion="580.159")
    library = Nvml(lambda: binding)
    answers: list[str | None] = []
    in_threads(*[lambda: answers.append(management.driver_version(library).value)] * 8)
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


def test_mig_instance_is_read_from_its_gpu() -> None:
    library = nvml(
        nvmlDeviceGetHandleByUUID={"MIG-1234": "instance"},
        nvmlDeviceIsMigDeviceHandle=lambda handle: handle == "instance",
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle={"instance": "whole GPU"},
        nvmlDeviceGetMigMode={"whole GPU": [1, 1]},
    )
    assert management.is_mig(library, gpu(uuid="GPU-1234")).value is True


@pytest.mark.parametrize(("mode", "is_vgpu"), [(0, False), (1, False), (2, True), (3, False)])
def test_vgpu_is_virtualization_mode_2(mode: int, is_vgpu: bool) -> None:
    assert management.is_vgpu(nvml(nvmlDeviceGetVirtualizationMode=mode), gpu()).value is is_vgpu


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


def test_current_and_largest_link_states_are_read() -> None:
    library = nvml_link(now=(1, 16), most=(4, 16))
    assert management.link_now(library, gpu()).value == LinkState(1, 16)
    assert management.link_system_most(library, gpu()).value == LinkState(4, 16)
    assert management.link_device_most(library, gpu()).value == LinkState(5, 16)
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


def test_idle_is_no_throttle_reason() -> None:
    hot = make_environment(throttle_reasons=Fact((IDLE, "sync boost", "hardware thermal slowdown")))
    assert throttled_by(hot) == ("sync boost", "hardware thermal slowdown")
    assert throttled_by(make_environment(throttle_reasons=unknown("no NVML"))) == throttled_by(None) == ()


@pytest.mark.parametrize(("state", "text"), [(0, "P0"), (8, "P8"), (32, None)])
def test_performance_state_has_a_name(state: int, text: str | None) -> None:
    assert management.performance_state(nvml(nvmlDeviceGetPerformanceState=state), gpu()).value == text


@pytest.mark.parametrize(
    ("words", "node", "reason"),
    [([0b10], 1, ""), ([0, 1], 64, ""), ([0b11], None, "2 NUMA nodes"), ([0], None, "0 NUMA nodes")],
)
def test_memory_node_is_known_if_nvml_names_one(words: list[int], node: int | None, reason: str) -> None:
    fact = management.memory_node(nvml(nvmlDeviceGetMemoryAffinity=words), gpu())
    assert fact.value == node
    assert reason in (fact.reason or "")


OTHER = "0000:5d:00.0"


def linked(up: int = 18, fields: dict[Any, int] | None = None, remote: str = "", joined: int = 0) -> Nvml:
    """NVML of a GPU with this many links, and these values of fields."""

    def ask(_handle: object, numbers: list[Any]) -> list[Any]:
        value = (fields or {}).get(numbers[0])
        return [SimpleNamespace(nvmlReturn=3 if value is None else 0, valueType=3, value=SimpleNamespace(ullVal=value))]

    def state(_handle: object, link: int) -> int:
        if not up:
            raise NVMLError("Not Supported")
        return int(link < up)

    def remote_of(_handle: object, link: int) -> Any:
        if not remote or link >= 2:
            raise NVMLError("Not Supported")
        return SimpleNamespace(busId=remote.encode())

    return nvml(
        nvmlDeviceGetFieldValues=ask,
        nvmlErrorString=b"Not Supported",
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemotePciInfo=remote_of,
        nvmlDeviceGetP2PStatus=lambda *_: joined,
    )


def test_active_links_and_their_speed() -> None:
    library = linked(6, {90: 26562})
    assert nvlink.active_links(library, gpu()).value == (0, 1, 2, 3, 4, 5)
    assert nvlink.link_gbps(library, gpu()).value == 26.562
    assert nvlink.active_links(linked(0), gpu()).value == ()
    assert nvlink.link_gbps(linked(fields={90: 0}), gpu()).value is None


def test_without_a_driver_every_fact_of_nvlink_has_the_reason() -> None:
    absent = without_nvml()
    facts: list[Fact[Any]] = [
        nvlink.active_links(absent, gpu()),
        nvlink.link_gbps(absent, gpu()),
        nvlink.links_between(absent, gpu(), gpu()),
        nvlink.c2c_gbps(absent, gpu()),
        *nvlink.read_counters(absent, gpu()).values(),
    ]
    assert all(NO_NVML in (fact.reason or "") for fact in facts)


@pytest.mark.parametrize(
    ("library", "links"),
    [
        (linked(18), 18),
        (linked(18, remote=OTHER), 2),
        (linked(18, remote="0000:99:00.0"), 18),
        (linked(18, joined=4), 0),
    ],
    ids=["through-switches", "direct", "another-gpu", "not-joined"],
)
def test_the_links_between_two_gpus(library: Nvml, links: int) -> None:
    assert nvlink.links_between(library, gpu(), gpu(pci=OTHER)).value == links


def test_c2c_carries_its_links_times_their_speed() -> None:
    assert nvlink.c2c_gbps(linked(fields={170: 10, 172: 45000}), gpu()).value == 450.0
    assert nvlink.c2c_gbps(linked(fields={170: 0, 172: 0}), gpu()).value is None
    assert "Not Supported" in (nvlink.c2c_gbps(linked(), gpu()).reason or "")


def test_counters_are_bytes_of_all_links() -> None:
    everything = 0xFFFFFFFF
    read = nvlink.read_counters(linked(fields={197: 5, 198: 6, (138, everything): 7, (139, everything): 8}), gpu())
    assert {name: fact.value for name, fact in read.items()} == {
        "pcie-sent": 5,
        "pcie-received": 6,
        "nvlink-sent": 7 * 1024,
        "nvlink-received": 8 * 1024,
    }


def test_counters_of_nvlink_5_are_those_of_each_link() -> None:
    library = linked(3, {202: 10, (202, 1): 20, (202, 2): 30})
    assert nvlink.read_counters(library, gpu())["nvlink-sent"].value == 60
    assert nvlink.read_counters(library, gpu())["nvlink-received"].value is None
    assert nvlink.read_counters(linked(0), gpu())["nvlink-sent"].value is None


@pytest.mark.parametrize(
    ("counter", "before", "after", "counted"),
    [
        ("pcie-sent", 10, 35, 25),
        ("pcie-received", 9, 3, (1 << 32) - 6),
        ("pcie-sent", 1 << 40, 1, None),
        ("nvlink-sent", 9, 8, None),
        ("nvlink-sent", None, 8, None),
    ],
    ids=["more", "wrapped at 32 bits", "more bits", "went back", "not read"],
)
def test_the_bytes_between_two_readings(counter: Counter, before: int | None, after: int, counted: int | None) -> None:
    begin: Fact[int] = Fact(reason="no") if before is None else Fact(before)
    assert nvlink.counted_between({counter: begin}, {counter: Fact(after)})[counter].value == counted


SECOND_UUID = "GPU-8d1f9999-0000-1111-2222-333344445555"
TWO = FakeEngine([Properties(), Properties(name="NVIDIA L4", uuid=SECOND_UUID, pci="0000:AF:00.0")])


def find(selector: str | int) -> int:
    return find_device(TWO, selector, nvml=nvml()).index


def refusal(selector: str | int) -> str:
    with pytest.raises(UsageError) as caught:
        find(selector)
    return str(caught.value)


def test_devices_are_in_the_order_of_cuda_with_the_facts_that_nvml_has_of_their_uuids() -> None:
    handles = {UUID: "a", SECOND_UUID: "b"}
    library = nvml(nvmlDeviceGetHandleByUUID=handles, nvmlDeviceGetMigMode={"a": [0, 0], "b": [1, 1]})
    devices = list_devices(TWO, nvml=library)
    assert [(device.index, device.name, device.pci.value, device.mig.value) for device in devices] == [
        (0, "NVIDIA H200", GPU, False),
        (1, "NVIDIA L4", "0000:af:00.0", True),
    ]


@pytest.mark.parametrize(
    "selector",
    [
        *(1, "1", " 1 ", "cuda:1", "CUDA:1"),
        *(SECOND_UUID, SECOND_UUID.upper(), SECOND_UUID[4:], "GPU-8d1f9", "8d1f9", "MIG-8d1f9"),
        *("0000:af:00.0", "00000000:AF:00.0", "af:00", "AF:00.0"),
    ],
)
def test_device_is_found_by_index_uuid_or_its_beginning_or_pci_address(selector: str | int) -> None:
    assert find(selector) == 1
    assert find("cuda") == 0


@pytest.mark.parametrize(
    "selector", [2, -1, "8d1", "", "gpu", "GPU-", "0000:01:00.0", "cuda:2", "cuda:", "host", "GPU-ffff"]
)
def test_unknown_device_is_refused_with_the_known_ones(selector: str | int) -> None:
    for words in (repr(str(selector)), f"0 NVIDIA H200 {UUID} {GPU}", f"1 NVIDIA L4 {SECOND_UUID} 0000:af:00.0"):
        assert words in refusal(selector)


@pytest.mark.parametrize(
    ("selector", "could_be"),
    [
        *(
            (text, True)
            for text in ("0", " 17 ", SECOND_UUID, "GPU-8d1f9", "8d1f9", "MIG-8d1f9", "AF:00.0", GPU, "cuda", "cuda:0")
        ),
        *((text, False) for text in ("ABC", "", "-1", "gpu", "GPU-", "cuda:", "1.5", "\N{SUPERSCRIPT TWO}")),
        *((other, True) for other in ("host", "Host", "cpu", 0, 7)),
        *((other, False) for other in (-1, True, 1.0, None)),
    ],
)
def test_selectors_are_checked_without_a_device(selector: object, could_be: bool) -> None:
    assert could_be_device(selector) == could_be


def test_ambiguous_uuid_is_refused_with_its_matches() -> None:
    for words in ("'GPU-8d1f'", f"0 NVIDIA H200 {UUID}", f"1 NVIDIA L4 {SECOND_UUID}"):
        assert words in refusal("GPU-8d1f")


def test_missing_pci_address_and_uuid_have_reasons() -> None:
    (device,) = list_devices(FakeEngine([Properties(pci=None, uuid="")]), nvml=nvml())
    assert "PCI address" in (device.pci.reason or "")
    assert "UUID" in (device.uuid.reason or "")


def test_device_of_the_host_runtime_is_labelled_as_host_memory() -> None:
    engine = FakeEngine([Properties(name="host memory", pci=None, uuid="")], RUNTIME="host")
    device = find_device(engine, "host")
    assert device.runtime == "host"
    for fact in (device.uuid, device.pci, device.compute_capability, device.mig):
        assert "host memory" in (fact.reason or "")


def test_a_usable_gpu_is_available(as_gpu: Engine) -> None:
    assert pyxfer.is_available()


@pytest.mark.parametrize("code", [35, 100])
def test_no_gpu_is_available_without_a_driver_or_device(as_gpu: Engine, code: int) -> None:
    testing.set_no_driver(code)
    assert not pyxfer.is_available()


def test_without_a_gpu_the_only_device_is_host_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyxfer._machine.devices.choose", lambda: native.choose("host"))
    (device,) = pyxfer.devices()
    assert device.runtime == "host"
    assert device.pci.reason == device.name
    assert device.memory_bytes > 0


def test_host_memory_has_no_link(engine: Engine) -> None:
    link = pyxfer.link("host")
    assert link.kind == "none"
    assert link.hops == ()
    for fact in (link.now, link.under_load, link.raw_peak_gbps, link.h2d_peak_gbps, link.d2h_peak_gbps):
        assert fact.value is None
        assert fact.reason


@pytest.mark.parametrize("device", [7, "GPU-12345678", "ffff:ff:1f.0", "garbage"])
def test_the_link_of_an_unknown_device_is_refused_with_the_known_ones(as_gpu: Engine, device: int | str) -> None:
    with pytest.raises(UsageError, match="0 host memory"):
        pyxfer.link(device)
