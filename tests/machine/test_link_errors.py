from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest
from machine.fake_host import NVMLError, gpu, nvml, without_nvml

from pyxfer._machine import health
from pyxfer._machine import nvml as management
from pyxfer._machine.health import read_counters, read_device_memory, replays
from pyxfer._machine.nvml import Nvml


def answering(**values: int) -> Nvml:
    """NVML that knows these numbered values, each as a whole number without a sign."""
    known = {int(name.removeprefix("value_")): number for name, number in values.items()}

    def ask(_handle: object, numbers: list[int]) -> list[Any]:
        value = known.get(numbers[0])
        return [SimpleNamespace(nvmlReturn=3 if value is None else 0, valueType=1, value=SimpleNamespace(uiVal=value))]

    return nvml(nvmlDeviceGetFieldValues=ask, nvmlErrorString=b"Not Supported", nvmlDeviceGetPcieReplayCounter=7)


def test_every_call_and_number_is_one_of_the_bindings() -> None:
    binding = management.import_binding()
    names = set(re.findall(r'"(nvml[A-Z]\w+)"', inspect.getsource(health)))
    assert len(names) == 5
    assert [name for name in sorted(names) if not hasattr(binding, name)] == []
    assert binding.NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER == 95
    assert binding.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS == 173
    assert binding.NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR == 179
    assert binding.NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR == 180
    assert {number: getattr(binding.c_nvmlValue_t(), name) for number, name in health._MEMBERS.items()}


def test_counters_are_read_by_their_numbers() -> None:
    found = read_counters(answering(value_95=1, value_173=2, value_179=3, value_180=4), gpu(pci=None))
    read = (found.replays, found.replay_rollovers, found.correctable, found.nonfatal, found.fatal)
    assert [each.value for each in read] == [7, 1, 2, 3, 4]


def test_a_counter_that_the_device_does_not_have_gives_nvmls_reason() -> None:
    found = read_counters(answering(), gpu(pci=None))
    assert found.fatal.reason == "nvmlDeviceGetFieldValues 180: Not Supported"


def test_a_value_that_is_no_whole_number_is_no_count() -> None:
    odd = nvml(nvmlDeviceGetFieldValues=[SimpleNamespace(nvmlReturn=0, valueType=0, value=SimpleNamespace(dVal=1.5))])
    assert "no whole number" in (read_counters(odd, gpu(pci=None)).fatal.reason or "")


def test_without_a_driver_everything_has_its_reason() -> None:
    assert replays(without_nvml(), gpu()).reason == "NVML cannot be opened: NVML Shared Library Not Found"
    assert read_device_memory(without_nvml(), gpu()).uncorrected.reason is not None


@pytest.mark.parametrize(("rows", "pending", "failed"), [((0, 0, 0, 0), False, False), ((1, 2, 1, 1), True, True)])
def test_memory_errors_and_rows(rows: tuple[int, ...], pending: bool, failed: bool) -> None:
    found = read_device_memory(nvml(nvmlDeviceGetRemappedRows=rows, nvmlDeviceGetTotalEccErrors=5), gpu())
    assert (found.uncorrected.value, found.remap_pending.value, found.remap_failed.value) == (5, pending, failed)


def test_memory_without_error_correction_gives_nvmls_reason() -> None:
    plain = nvml(nvmlDeviceGetTotalEccErrors=NVMLError("Not Supported"))
    assert read_device_memory(plain, gpu()).uncorrected.reason == "nvmlDeviceGetTotalEccErrors: Not Supported"
