from __future__ import annotations

import pytest
from machine.fake_host import GPU, NO_NVML, UUID, FakeEngine, Properties, nvml, without_nvml

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


def test_devices_are_listed_in_the_order_of_cuda() -> None:
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
def test_device_is_found_by_uuid_or_its_beginning(selector: str) -> None:
    assert find(selector) == 1


@pytest.mark.parametrize("selector", ["0000:af:00.0", "00000000:AF:00.0", "af:00", "AF:00.0"])
def test_device_is_found_by_pci_address(selector: str) -> None:
    assert find(selector) == 1


@pytest.mark.parametrize("selector", [2, -1, "8d1", "", "gpu", "GPU-", "0000:01:00.0", "cuda:0", "host", "GPU-ffff"])
def test_unknown_device_is_refused_with_the_known_ones(selector: str | int) -> None:
    for words in (repr(str(selector)), f"0 NVIDIA H200 {UUID} {GPU}", f"1 NVIDIA L4 {SECOND_UUID} 0000:af:00.0"):
        assert words in refusal(selector)


@pytest.mark.parametrize(
    ("selector", "could_be"),
    [
        *((text, True) for text in ("0", " 17 ", SECOND_UUID, "GPU-8d1f9", "8d1f9", "MIG-8d1f9", "AF:00.0", GPU)),
        *((text, False) for text in ("ABC", "", "-1", "gpu", "GPU-", "cuda:0", "1.5", "\N{SUPERSCRIPT TWO}", "Host")),
        *((other, True) for other in ("host", 0, 7)),
        *((other, False) for other in (-1, True, 1.0, None)),
    ],
)
def test_selectors_are_checked_without_a_device(selector: object, could_be: bool) -> None:
    assert could_be_device(selector) == could_be


def test_ambiguous_uuid_is_refused_with_its_matches() -> None:
    for words in ("'GPU-8d1f'", f"0 NVIDIA H200 {UUID}", f"1 NVIDIA L4 {SECOND_UUID}"):
        assert words in refusal("GPU-8d1f")


def test_any_device_is_refused_on_a_machine_without_devices() -> None:
    with pytest.raises(UsageError, match="none"):
        find_device(FakeEngine([]), 0, nvml=nvml())


def test_facts_of_nvml_are_matched_by_uuid() -> None:
    first, second = list_devices(
        TWO,
        nvml=nvml(
            nvmlDeviceGetHandleByUUID={UUID: "a", SECOND_UUID: "b"},
            nvmlDeviceGetMigMode={"a": [0, 0], "b": [1, 1]},
        ),
    )
    assert (first.mig.value, second.mig.value) == (False, True)


def test_facts_of_nvml_have_its_reason_if_it_is_missing() -> None:
    (device,) = list_devices(FakeEngine(), nvml=without_nvml())
    for fact in (device.mig, device.vgpu, device.confidential):
        assert NO_NVML in (fact.reason or "")


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
