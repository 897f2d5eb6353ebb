"""The ends of the links between a device and the root: how they are set, and what they count.

Most of it is in configuration space beyond its first 64 bytes, which only root may read; a container's root may not.
"""

from __future__ import annotations

from pathlib import Path

from pyxfer.machine.kernel_files import read_text
from pyxfer.machine.pci import decode_device_control, find_pci_express, path_to_root, read_config
from pyxfer.model import Device, Fact
from pyxfer.model_findings import PortControl, PortErrors

_CLASSIC_BYTES = 256
_DEVICE_CAPABILITIES = 4
_LARGEST_CODE = 5  # 4096 bytes
_ACCESS_CONTROL = 0x000D
_ACS_CONTROL = 6
_REDIRECT = 0x000C  # requests (bit 2) and completions (bit 3)
_MOST_CAPABILITIES = 1024  # they lie on multiples of four in 4096 bytes


def read_ports(device: Device, root: Path = Path("/")) -> tuple[PortControl, ...]:
    """Every end from the device up to the root."""
    return tuple(_read_port(folder) for folder in _folders(device, root))


def read_port_errors(device: Device, root: Path = Path("/")) -> tuple[PortErrors, ...]:
    """What every end has counted; nothing where the kernel's error reporting is off."""
    return tuple(
        PortErrors(folder.name, *(_total(folder / f"aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")))
        for folder in _folders(device, root)
    )


def _folders(device: Device, root: Path) -> list[Path]:
    return [] if device.pci.value is None else path_to_root(device.pci.value, root)


def _total(path: Path) -> Fact[int]:
    """The last line of such a file is the sum of those above."""
    text = read_text(path)
    if text.value is None:
        return Fact(reason=text.reason)
    name, _, number = text.value.splitlines()[-1].rpartition(" ")
    if not name.startswith("TOTAL_ERR") or not number.isdecimal():
        return Fact(reason=f"{path} ends with {text.value.splitlines()[-1]!r}, which is no total")
    return Fact(int(number))


def _read_port(folder: Path) -> PortControl:
    config = read_config(folder)
    if config.value is None:
        return PortControl(folder.name, *(Fact(reason=config.reason) for _ in range(3)))
    redirects = _redirects(config.value, folder.name)
    offset = find_pci_express(config.value, folder.name)
    if offset.value is None:
        return PortControl(folder.name, Fact(reason=offset.reason), Fact(reason=offset.reason), redirects)
    control = decode_device_control(config.value, offset.value, folder.name)
    now: Fact[int] = Fact(reason=control.reason) if control.value is None else Fact(control.value.max_payload_bytes)
    return PortControl(folder.name, now, _payload_most(config.value, offset.value, folder.name), redirects)


def _payload_most(config: bytes, capability: int, name: str) -> Fact[int]:
    begin = capability + _DEVICE_CAPABILITIES
    code = int.from_bytes(config[begin : begin + 4], "little") & 7
    if code > _LARGEST_CODE:
        return Fact(reason=f"Device Capabilities of {name} hold a MaxPayload that is a reserved value")
    return Fact(128 << code)


def _redirects(config: bytes, name: str) -> Fact[bool]:
    if len(config) <= _CLASSIC_BYTES:
        return Fact(reason=f"the extended configuration space of {name} takes root with CAP_SYS_ADMIN to read")
    offset = _CLASSIC_BYTES
    for _ in range(_MOST_CAPABILITIES):
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
