from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest
from machine.fake_host import NO_NVML, NVMLError, gpu, nvml, without_nvml

from pyxfer._machine import health
from pyxfer._machine import nvml as management
from pyxfer._machine.health import read_counters, read_device_memory, replays
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
    assert len(names) == 5
    assert [name for name in sorted(names) if not hasattr(binding, name)] == []
    assert binding.NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER == 95
    assert binding.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS == 173
    assert binding.NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR == 179
    assert binding.NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR == 180
    assert {number: getattr(binding.c_nvmlValue_t(), name) for number, name in health._MEMBERS.items()}


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
