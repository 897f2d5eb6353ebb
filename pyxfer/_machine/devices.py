"""The devices in CUDA's order. NVML's values are joined by UUID or PCI address, because NVML counts differently."""

from __future__ import annotations

import numbers
import re

import msgspec

from pyxfer._document.machines import Device, Fact, Runtime
from pyxfer._machine import nvml as management
from pyxfer._machine.engine import HOST_REASON, is_host
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.pci import canonical_address
from pyxfer.errors import UsageError
from pyxfer.native import Engine, is_host_name

# A UUID, or the beginning of one. Without "GPU-" it has at least four digits, so that it does not look like an index.
_UUID_START = re.compile(r"(?:(?:gpu|mig)-(?=[0-9a-f])|(?=[0-9a-f]{4}))(?P<digits>[0-9a-f-]+)", re.IGNORECASE)
# `cuda` and `cuda:1`, as PyTorch writes them.
_CUDA_NAME = re.compile(r"cuda(:(?P<index>\d+))?", re.IGNORECASE)


def list_devices(engine: Engine, *, nvml: Nvml | None = None) -> tuple[Device, ...]:
    return tuple(_read_device(engine, index, nvml or management.shared()) for index in range(engine.device_count()))


def find_device(engine: Engine, selector: str | int, *, nvml: Nvml | None = None) -> Device:
    """Find a device by index, also as PyTorch writes it, UUID (or its beginning) or PCI address."""
    devices = list_devices(engine, nvml=nvml)
    matches = _matches(devices, str(selector).strip())
    if len(matches) == 1:
        return matches[0]
    problem = "matches more than one device" if matches else "is none of the devices that CUDA shows"
    keys = [(str(each.index), each.name, each.uuid.value, each.pci.value) for each in matches or devices]
    listing = "; ".join(" ".join(filter(None, known)) for known in keys) or "none"
    raise UsageError(f"device {str(selector)!r} {problem}: {listing}. Name one by index, UUID or PCI address.")


def could_be_device(selector: object) -> bool:
    """Whether it has the form of an index, a UUID (or its beginning) or a PCI address, or is `host`.

    Without a usable GPU this is the only way to find a mistyped device.
    """
    if not isinstance(selector, str):
        return isinstance(selector, numbers.Integral) and not isinstance(selector, bool) and int(selector) >= 0
    text = _without_cuda(selector.strip())
    is_index = text.isascii() and text.isdecimal()
    is_name = canonical_address(text) is not None or _UUID_START.fullmatch(text) is not None
    return is_index or is_name or is_host_name(text)


def _matches(devices: tuple[Device, ...], selector: str) -> tuple[Device, ...]:
    if is_host_name(selector):
        return tuple(device for device in devices if device.runtime == "host")[:1]
    selector = _without_cuda(selector)
    by_index = tuple(device for device in devices if str(device.index) == selector)
    if by_index:
        return by_index
    address = canonical_address(selector)
    if address is not None:
        return tuple(device for device in devices if device.pci.value == address)
    start = _UUID_START.fullmatch(selector)
    if start is None:
        return ()
    digits = start["digits"].lower()
    return tuple(d for d in devices if (d.uuid.value or "").lower().partition("-")[2].startswith(digits))


def _without_cuda(text: str) -> str:
    found = _CUDA_NAME.fullmatch(text)
    return text if found is None else found["index"] or "0"


def _read_device(engine: Engine, index: int, nvml: Nvml) -> Device:
    properties = engine.device_properties(index)
    runtime: Runtime = "host" if is_host(engine) else "cuda"
    bare = Device(
        index=index,
        runtime=runtime,
        name=properties.name,
        memory_bytes=properties.memory_bytes,
        uuid=_text_fact(properties.uuid, runtime, "CUDA gives this device no UUID"),
        pci=_text_fact(canonical_address(properties.pci or ""), runtime, "CUDA gives this device no PCI address"),
        compute_capability=_text_fact(f"{properties.compute_major}.{properties.compute_minor}", runtime, ""),
        copy_engines=Fact(reason=HOST_REASON) if runtime == "host" else Fact(properties.copy_engines),
        mig=Fact(reason=HOST_REASON),
        vgpu=Fact(reason=HOST_REASON),
        confidential=Fact(reason=HOST_REASON),
    )
    if runtime == "host":
        return bare
    return msgspec.structs.replace(
        bare,
        mig=management.is_mig(nvml, bare),
        vgpu=management.is_vgpu(nvml, bare),
        confidential=management.is_confidential(nvml, bare),
    )


def _text_fact(text: str | None, runtime: Runtime, why_not: str) -> Fact[str]:
    if runtime == "host":
        return Fact(reason=HOST_REASON)
    return Fact(text) if text else Fact(reason=why_not)
