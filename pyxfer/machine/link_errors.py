"""What the device itself counts: errors of its link, and of its memory; through NVML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyxfer.machine.nvml import Nvml
from pyxfer.machine.ports import read_port_errors
from pyxfer.model import Device, Fact
from pyxfer.model_findings import Counters, DeviceMemory

# nvml.h: NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER and NVML_FI_DEV_PCIE_COUNT_*.
_ROLLOVERS, _CORRECTABLE, _NONFATAL, _FATAL = 95, 173, 179, 180
# NVML_VALUE_TYPE_*: which member of the union holds the answer.
_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
_UNCORRECTED, _SINCE_LOADED = 1, 0


def read_counters(nvml: Nvml, device: Device, root: Path = Path("/")) -> Counters:
    """Everything that has been counted so far."""
    return Counters(
        replays=replays(nvml, device),
        replay_rollovers=_field(nvml, device, _ROLLOVERS),
        correctable=_field(nvml, device, _CORRECTABLE),
        nonfatal=_field(nvml, device, _NONFATAL),
        fatal=_field(nvml, device, _FATAL),
        ports=read_port_errors(device, root),
    )


def replays(nvml: Nvml, device: Device) -> Fact[int]:
    """How many packets the device's link had to send again since the driver was loaded."""
    return _whole(nvml.ask_device(device, "nvmlDeviceGetPcieReplayCounter"))


def read_device_memory(nvml: Nvml, device: Device) -> DeviceMemory:
    """Errors of the device's memory since the driver was loaded, and whether rows of it wait to be replaced."""
    rows = nvml.ask_device(device, "nvmlDeviceGetRemappedRows")
    pending, failed = (_flag(rows, place) for place in (2, 3))
    errors = nvml.ask_device(device, "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOADED)
    return DeviceMemory(_whole(errors), pending, failed)


def _flag(rows: Fact[Any], place: int) -> Fact[bool]:
    return Fact(reason=rows.reason) if rows.value is None else Fact(bool(rows.value[place]))


def _whole(answer: Fact[Any]) -> Fact[int]:
    return answer if answer.value is None else Fact(int(answer.value))


def _field(nvml: Nvml, device: Device, number: int) -> Fact[int]:
    """One of the values that NVML numbers, each with a return code and a type of its own."""
    answers = nvml.ask_device(device, "nvmlDeviceGetFieldValues", [number])
    if answers.value is None:
        return Fact(reason=answers.reason)
    answer = answers.value[0]
    if answer.nvmlReturn:
        why = nvml.ask("nvmlErrorString", answer.nvmlReturn).value
        return Fact(reason=f"nvmlDeviceGetFieldValues {number}: {_text(why) or f'error {answer.nvmlReturn}'}")
    member = _MEMBERS.get(answer.valueType)
    if member is None:
        return Fact(reason=f"nvmlDeviceGetFieldValues {number} gave a value that is no whole number")
    return Fact(int(getattr(answer.value, member)))


def _text(words: Any) -> str:
    return words.decode() if isinstance(words, bytes) else str(words or "")
