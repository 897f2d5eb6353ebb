"""Devices: found by index, UUID or address; and the public functions about this machine."""

from __future__ import annotations

import pytest
from machine.fake_host import GPU, UUID, FakeEngine, Properties, nvml

import pyxfer
from pyxfer import native
from pyxfer._machine.devices import could_be_device, find_device, list_devices
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

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
