from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machine.fake_host import GPU, NO_NVML, NVMLError, Port, config_space, gpu, make_path, nvml, without_nvml

from pyxfer._machine import health
from pyxfer._machine import nvml as management
from pyxfer._machine.health import read_counters, read_device_memory, read_port_errors, read_ports, replays
from pyxfer._machine.nvml import Nvml


def answering(**values: int) -> Nvml:
    """NVML with these numbered field values, each an unsigned integer."""
    known = {int(name.removeprefix("value_")): number for name, number in values.items()}

    def ask(_handle: object, numbers: list[int]) -> list[Any]:
        value = known.get(numbers[0])
        return [SimpleNamespace(nvmlReturn=3 if value is None else 0, valueType=1, value=SimpleNamespace(uiVal=value))]

    return nvml(nvmlDeviceGetFieldValues=ask, nvmlErrorString=b"Not Supported", nvmlDeviceGetPcieReplayCounter=7)


def test_every_call_and_number_exists_in_the_binding() -> None:
    binding = management.import_binding()
    names = set(re.findall(r'"(nvml[A-Z]\w+)"', inspect.getsource(health)))
    assert len(names) == 3
    assert [name for name in sorted(names) if not hasattr(binding, name)] == []
    assert binding.NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER == 95
    assert binding.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS == 173
    assert binding.NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR == 179
    assert binding.NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR == 180
    assert {number: getattr(binding.c_nvmlValue_t(), name) for number, name in management._MEMBERS.items()}


def test_counters_are_read_by_their_field_numbers() -> None:
    found = read_counters(answering(value_95=1, value_173=2, value_179=3, value_180=4), gpu(pci=None))
    read = (found.replays, found.replay_rollovers, found.correctable, found.nonfatal, found.fatal)
    assert [fact.value for fact in read] == [7, 1, 2, 3, 4]


def test_an_unsupported_counter_has_the_reason_of_nvml() -> None:
    found = read_counters(answering(), gpu(pci=None))
    assert all(words in (found.fatal.reason or "") for words in ("nvmlDeviceGetFieldValues", "180", "Not Supported"))


def test_a_value_that_is_not_an_integer_is_refused() -> None:
    odd = nvml(nvmlDeviceGetFieldValues=[SimpleNamespace(nvmlReturn=0, valueType=0, value=SimpleNamespace(dVal=1.5))])
    assert read_counters(odd, gpu(pci=None)).fatal.value is None


def test_without_a_driver_every_count_has_a_reason() -> None:
    assert NO_NVML in (replays(without_nvml(), gpu()).reason or "")
    assert read_device_memory(without_nvml(), gpu()).uncorrected.reason is not None


@pytest.mark.parametrize(("rows", "pending", "failed"), [((0, 0, 0, 0), False, False), ((1, 2, 1, 1), True, True)])
def test_memory_errors_and_remapped_rows_are_read(rows: tuple[int, ...], pending: bool, failed: bool) -> None:
    found = read_device_memory(nvml(nvmlDeviceGetRemappedRows=rows, nvmlDeviceGetTotalEccErrors=5), gpu())
    assert (found.uncorrected.value, found.remap_pending.value, found.remap_failed.value) == (5, pending, failed)


def test_memory_without_error_correction_has_the_reason_of_nvml() -> None:
    plain = nvml(nvmlDeviceGetTotalEccErrors=NVMLError("Not Supported"))
    reason = read_device_memory(plain, gpu()).uncorrected.reason or ""
    assert all(words in reason for words in ("nvmlDeviceGetTotalEccErrors", "Not Supported"))


ROOT_PORT = "0000:3a:00.0"
EXTENDED_BYTES = 4096
CORRECTABLE = "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n"


def extended(access_control: int | None, payload_most: int = 512) -> bytes:
    """Extended configuration space with Access Control Services after another capability."""
    config = bytearray(config_space()) + bytearray(EXTENDED_BYTES - 256)
    config[0x64:0x68] = (payload_most.bit_length() - 8).to_bytes(4, "little")
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x200 << 20).to_bytes(4, "little")
    if access_control is not None:
        config[0x200:0x204] = (0x000D | 1 << 16).to_bytes(4, "little")
        config[0x206:0x208] = access_control.to_bytes(2, "little")
    return bytes(config)


def host(root: Path, **configs: bytes) -> None:
    folder = make_path(root, Port(ROOT_PORT), Port(GPU))
    for name, config in configs.items():
        (folder if name == "gpu" else folder.parent).joinpath("config").write_bytes(config)


def test_ports_are_the_device_and_all_ports_above_it(tmp_path: Path) -> None:
    host(tmp_path, gpu=extended(None), port=extended(0x1D, payload_most=256))
    device, above = read_ports(gpu(), tmp_path)
    assert (device.pci, above.pci) == (GPU, ROOT_PORT)
    assert (device.max_payload_bytes.value, device.max_payload_most_bytes.value) == (256, 512)
    assert above.max_payload_most_bytes.value == 256


@pytest.mark.parametrize(
    ("control", "redirects"), [(None, False), (0x00, False), (0x01, False), (0x04, True), (0x08, True), (0x1D, True)]
)
def test_redirection_is_one_of_two_bits_of_access_control(control: int | None, redirects: bool, tmp_path: Path) -> None:
    host(tmp_path, gpu=extended(None), port=extended(control))
    assert read_ports(gpu(), tmp_path)[1].redirects.value is redirects


def test_fields_that_only_root_can_read_have_a_reason(tmp_path: Path) -> None:
    host(tmp_path, gpu=config_space()[:64], port=config_space())
    device, above = read_ports(gpu(), tmp_path)
    assert "root" in (device.max_payload_bytes.reason or "")
    assert "root" in (above.redirects.reason or "")
    assert above.max_payload_most_bytes.value == 128


def test_a_reserved_payload_size_gives_a_reason(tmp_path: Path) -> None:
    config = bytearray(extended(None))
    config[0x64] = 7
    host(tmp_path, gpu=bytes(config), port=extended(None))
    assert "reserved" in (read_ports(gpu(), tmp_path)[0].max_payload_most_bytes.reason or "")


def test_a_circular_list_of_extended_capabilities_gives_a_reason(tmp_path: Path) -> None:
    config = bytearray(extended(None))
    config[0x200:0x204] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    host(tmp_path, gpu=bytes(config), port=extended(None))
    assert "in a circle" in (read_ports(gpu(), tmp_path)[0].redirects.reason or "")


def test_a_device_missing_in_sysfs_has_no_ports(tmp_path: Path) -> None:
    assert read_ports(gpu(), tmp_path) == ()
    assert read_ports(gpu(pci=None), tmp_path) == ()


def test_errors_are_the_totals_of_each_port(tmp_path: Path) -> None:
    host(tmp_path)
    folder = make_folder(tmp_path)
    (folder / "aer_dev_correctable").write_text(CORRECTABLE)
    (folder / "aer_dev_nonfatal").write_text("Undefined 0\nTOTAL_ERR_NONFATAL 1\n")
    device, above = read_port_errors(gpu(), tmp_path)
    assert (device.correctable.value, device.nonfatal.value) == (3, 1)
    assert "aer_dev_fatal" in (device.fatal.reason or "")
    assert above.correctable.value is None


@pytest.mark.parametrize("text", ["RxErr 1\n", "TOTAL_ERR_COR many\n"])
def test_a_file_without_a_total_gives_a_reason(text: str, tmp_path: Path) -> None:
    host(tmp_path)
    (make_folder(tmp_path) / "aer_dev_correctable").write_text(text)
    correctable = read_port_errors(gpu(), tmp_path)[0].correctable
    assert correctable.value is None
    assert "aer_dev_correctable" in (correctable.reason or "")


def make_folder(root: Path) -> Path:
    return (root / "sys/bus/pci/devices" / GPU).resolve()
