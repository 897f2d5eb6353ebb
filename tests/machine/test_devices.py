from __future__ import annotations

import pytest
from machine.fake_host import GPU, UUID, FakeEngine, Properties, nvml, without_nvml

from pyxfer._machine.devices import could_be_device, find_device, list_devices
from pyxfer.errors import UsageError

SECOND_UUID = "GPU-8d1f9999-0000-1111-2222-333344445555"
TWO = FakeEngine([Properties(), Properties(name="NVIDIA L4", uuid=SECOND_UUID, pci="0000:AF:00.0")])


def find(selector: str | int) -> int:
    return find_device(TWO, selector, nvml=nvml()).index


def refusal(selector: str | int) -> str:
    with pytest.raises(UsageError) as caught:
        find(selector)
    return str(caught.value)


def test_devices_are_listed_in_cudas_order() -> None:
    devices = list_devices(TWO, nvml=nvml())
    assert [(device.index, device.name, device.pci.value) for device in devices] == [
        (0, "NVIDIA H200", GPU),
        (1, "NVIDIA L4", "0000:af:00.0"),
    ]


@pytest.mark.parametrize("selector", [1, "1", " 1 "])
def test_device_is_found_by_index(selector: str | int) -> None:
    assert find(selector) == 1


@pytest.mark.parametrize(
    "selector", [SECOND_UUID, SECOND_UUID.upper(), SECOND_UUID[4:], "GPU-8d1f9", "8d1f9", "MIG-8d1f9"]
)
def test_device_is_found_by_uuid_or_the_beginning_of_it(selector: str) -> None:
    assert find(selector) == 1


@pytest.mark.parametrize("selector", ["0000:af:00.0", "00000000:AF:00.0", "af:00", "AF:00.0"])
def test_device_is_found_by_pci_address(selector: str) -> None:
    assert find(selector) == 1


@pytest.mark.parametrize("selector", [2, -1, "8d1", "", "gpu", "GPU-", "0000:01:00.0", "cuda:0", "host", "GPU-ffff"])
def test_unknown_device_is_refused_with_what_there_is(selector: str | int) -> None:
    assert refusal(selector) == (
        f"{str(selector)!r} is none of the devices that CUDA shows: 0 NVIDIA H200 {UUID} {GPU}; "
        f"1 NVIDIA L4 {SECOND_UUID} 0000:af:00.0. Name one by index, UUID or PCI address."
    )


@pytest.mark.parametrize(
    ("selector", "could_be"),
    [
        *((text, True) for text in ("0", " 17 ", SECOND_UUID, "GPU-8d1f9", "8d1f9", "MIG-8d1f9", "AF:00.0", GPU)),
        *((text, False) for text in ("ABC", "", "-1", "gpu", "GPU-", "cuda:0", "1.5", "\N{SUPERSCRIPT TWO}", "Host")),
        *((other, True) for other in ("host", 0, 7)),
        *((other, False) for other in (-1, True, 1.0, None)),
    ],
)
def test_what_is_mistyped_is_told_without_any_device(selector: object, could_be: bool) -> None:
    assert could_be_device(selector) == could_be


def test_beginning_of_two_uuids_is_refused_with_both() -> None:
    assert refusal("GPU-8d1f").startswith(f"'GPU-8d1f' is more than one device: 0 NVIDIA H200 {UUID}")


def test_machine_without_devices_says_none() -> None:
    with pytest.raises(UsageError, match="CUDA shows: none"):
        find_device(FakeEngine([]), 0, nvml=nvml())


def test_what_nvml_adds_is_joined_by_uuid() -> None:
    first, second = list_devices(
        TWO,
        nvml=nvml(
            nvmlDeviceGetHandleByUUID={UUID: "a", SECOND_UUID: "b"},
            nvmlDeviceGetMigMode={"a": [0, 0], "b": [1, 1]},
        ),
    )
    assert (first.mig.value, second.mig.value) == (False, True)


def test_without_nvml_labels_are_missing_with_the_reason() -> None:
    (device,) = list_devices(FakeEngine(), nvml=without_nvml())
    reason = "NVML cannot be opened: NVML Shared Library Not Found"
    assert (device.mig.reason, device.vgpu.reason, device.confidential.reason) == (reason,) * 3


def test_device_off_the_pci_bus_says_so() -> None:
    (device,) = list_devices(FakeEngine([Properties(pci=None, uuid="")]), nvml=nvml())
    assert device.pci.reason == "CUDA gives this device no PCI address"
    assert device.uuid.reason == "CUDA gives this device no UUID"


def test_host_runtime_offers_host_memory_openly_labelled() -> None:
    engine = FakeEngine([Properties(name="host memory", pci=None, uuid="")], RUNTIME="host")
    device = find_device(engine, "host")
    assert device.runtime == "host"
    assert {device.uuid.reason, device.pci.reason, device.compute_capability.reason, device.mig.reason} == {
        "host memory, not a PCIe link"
    }
