"""The values that the doctor reads around its measurement: error counters, ports, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyxfer._document.examinations import Counters, DeviceMemory, FarRates, Health, PortControl, PortErrors
from pyxfer._document.machines import Device, Fact
from pyxfer._machine.devices import list_devices
from pyxfer._machine.environment import read_translation
from pyxfer._machine.host import cpu_limit, cpus_near, lock_limit_bytes, memory_limit_bytes, shared_memory_bytes
from pyxfer._machine.numa import device_node
from pyxfer._machine.nvml import Nvml, field
from pyxfer._machine.pci import LARGEST_CODE, decode_device_control, find_pci_express, path_to_root, read_config
from pyxfer._machine.sysfs import read_text
from pyxfer.native import Engine

# nvml.h: NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER and NVML_FI_DEV_PCIE_COUNT_*.
_ROLLOVERS, _CORRECTABLE, _NONFATAL, _FATAL = 95, 173, 179, 180
_UNCORRECTED, _SINCE_LOADED = 1, 0


def read_counters(nvml: Nvml, device: Device, root: Path = Path("/")) -> Counters:
    numbers = {"replay_rollovers": _ROLLOVERS, "correctable": _CORRECTABLE, "nonfatal": _NONFATAL, "fatal": _FATAL}
    counts: dict[str, Any] = {name: field(nvml, device, number) for name, number in numbers.items()}
    return Counters(replays=replays(nvml, device), ports=read_port_errors(device, root), **counts)


def replays(nvml: Nvml, device: Device) -> Fact[int]:
    """The number of packets that the device's link has sent again since the driver was loaded."""
    return nvml.ask_device(device, "nvmlDeviceGetPcieReplayCounter").then(int)


def read_device_memory(nvml: Nvml, device: Device) -> DeviceMemory:
    rows = nvml.ask_device(device, "nvmlDeviceGetRemappedRows")
    errors = nvml.ask_device(device, "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOADED)
    pending, failed = rows.then(lambda counts: bool(counts[2])), rows.then(lambda counts: bool(counts[3]))
    return DeviceMemory(errors.then(int), pending, failed)


_CLASSIC_BYTES = 256
_DEVICE_CAPABILITIES = 4
_ACCESS_CONTROL = 0x000D
_ACS_CONTROL = 6
_REDIRECT = 0x000C  # requests (bit 2) and completions (bit 3)
_MAX_CAPABILITIES = 1024  # they begin at multiples of four in 4096 bytes


def read_ports(device: Device, root: Path = Path("/")) -> tuple[PortControl, ...]:
    return tuple(_read_port(folder) for folder in _folders(device, root))


def read_port_errors(device: Device, root: Path = Path("/")) -> tuple[PortErrors, ...]:
    return tuple(
        PortErrors(folder.name, *(_total(folder / f"aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")))
        for folder in _folders(device, root)
    )


def _folders(device: Device, root: Path) -> list[Path]:
    return [] if device.pci.value is None else path_to_root(device.pci.value, root)


def _total(path: Path) -> Fact[int]:
    # The last line is the sum of those above it.
    last = read_text(path).then(lambda text: text.splitlines()[-1])
    name, _, number = (last.value or "").rpartition(" ")
    if name.startswith("TOTAL_ERR") and number.isdecimal():
        return Fact(int(number))
    return Fact(reason=last.reason or f"{path} ends with {last.value!r}, which is not a total")


def _read_port(folder: Path) -> PortControl:
    config, name = read_config(folder), folder.name
    offset = config.and_then(lambda read: find_pci_express(read, name))
    control = offset.and_then(lambda at: decode_device_control(config.value or b"", at, name))
    most = offset.and_then(lambda at: _payload_most(config.value or b"", at, name))
    redirects = config.and_then(lambda read: _redirects(read, name))
    return PortControl(name, control.then(lambda read: read.max_payload_bytes), most, redirects)


def _payload_most(config: bytes, capability: int, name: str) -> Fact[int]:
    begin = capability + _DEVICE_CAPABILITIES
    code = int.from_bytes(config[begin : begin + 4], "little") & 7
    if code > LARGEST_CODE:
        return Fact(reason=f"the MaxPayload in Device Capabilities of {name} is a reserved value")
    return Fact(128 << code)


def _redirects(config: bytes, name: str) -> Fact[bool]:
    if len(config) <= _CLASSIC_BYTES:
        return Fact(reason=f"reading the extended configuration space of {name} needs root with CAP_SYS_ADMIN")
    offset = _CLASSIC_BYTES
    for _ in range(_MAX_CAPABILITIES):
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return Fact(False)
        if header & 0xFFFF == _ACCESS_CONTROL:
            control = config[offset + _ACS_CONTROL : offset + _ACS_CONTROL + 2]
            return Fact(bool(int.from_bytes(control, "little") & _REDIRECT))
        offset = header >> 20
        if offset < _CLASSIC_BYTES:
            return Fact(False)
    return Fact(reason=f"the list of extended PCI capabilities of {name} runs in a circle")


def read_health(
    engine: Engine,
    device: Device,
    nvml: Nvml,
    before: Counters,
    moved_bytes: int,
    far: Fact[FarRates],
    root: Path = Path("/"),
) -> Health:
    """Read the present values, and keep the counters of before. It needs no root rights."""
    return Health(
        before=before,
        after=read_counters(nvml, device, root),
        moved_bytes=moved_bytes,
        ports=read_ports(device, root),
        iommu=read_translation(device, root),
        lock_limit_bytes=lock_limit_bytes(),
        memory_limit_bytes=memory_limit_bytes(root),
        cpu_limit=cpu_limit(root),
        cpus_near=cpus_near(device_node(device, root=root, nvml=nvml), root),
        shared_memory_bytes=shared_memory_bytes(root),
        device_memory=read_device_memory(nvml, device),
        devices=len(list_devices(engine, nvml=nvml)),
        far=far,
    )
