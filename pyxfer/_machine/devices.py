"""The devices in CUDA's order. NVML's values are joined by UUID or PCI address, because NVML counts differently."""

from __future__ import annotations

import numbers
import re
from typing import Any

import msgspec

from pyxfer._document.machines import HOST_MEMORY, Device, Fact, Runtime
from pyxfer._machine import nvml as management
from pyxfer._machine.engine import is_host
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.pci import canonical_address
from pyxfer.errors import CudaUnavailableError, UsageError
from pyxfer.native import Engine, choose, is_host_name, load

# A UUID, or the beginning of one. Without "GPU-" it has at least four digits, so that it does not look like an index.
_UUID_START = r"(?:(?:gpu|mig)-(?=[0-9a-f])|(?=[0-9a-f]{4}))(?P<digits>[0-9a-f-]+)"


def is_available() -> bool:
    """Whether a GPU can be used. False without a driver."""
    try:
        return load("cuda").device_count() > 0
    except CudaUnavailableError:
        return False


def devices() -> tuple[Device, ...]:
    """List the devices in CUDA's order. Without a usable GPU, the host's memory is the only device."""
    return list_devices(choose().engine)


def list_devices(engine: Engine, *, nvml: Nvml | None = None) -> tuple[Device, ...]:
    return tuple(_read_device(engine, index, nvml or management.shared()) for index in range(engine.device_count()))


def find_device(engine: Engine, selector: str | int, *, nvml: Nvml | None = None) -> Device:
    """Find a device by index, also as PyTorch writes it, UUID (or its beginning) or PCI address."""
    found = list_devices(engine, nvml=nvml)
    matches = _matches(found, str(selector).strip())
    if len(matches) == 1:
        return matches[0]
    shown = "that CUDA shows" if any(each.runtime == "cuda" for each in found) else "of this host"
    problem = "matches more than one device" if matches else f"is none of the devices {shown}"
    keys = [(str(each.index), each.name, each.uuid.value, each.pci.value) for each in matches or found]
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
    is_name = canonical_address(text) is not None or re.fullmatch(_UUID_START, text, re.IGNORECASE) is not None
    return is_index or is_name or is_host_name(text)


def _matches(found: tuple[Device, ...], selector: str) -> tuple[Device, ...]:
    if is_host_name(selector):
        return tuple(device for device in found if device.runtime == "host")[:1]
    selector = _without_cuda(selector)
    by_index = tuple(device for device in found if str(device.index) == selector)
    if by_index:
        return by_index
    address = canonical_address(selector)
    if address is not None:
        return tuple(device for device in found if device.pci.value == address)
    start = re.fullmatch(_UUID_START, selector, re.IGNORECASE)
    if start is None:
        return ()
    digits = start["digits"].lower()
    return tuple(d for d in found if (d.uuid.value or "").lower().partition("-")[2].startswith(digits))


def _without_cuda(text: str) -> str:
    found = re.fullmatch(r"cuda(:(?P<index>\d+))?", text, re.IGNORECASE)  # as PyTorch writes it
    return text if found is None else found["index"] or "0"


def _read_device(engine: Engine, index: int, nvml: Nvml) -> Device:
    properties = engine.device_properties(index)
    runtime: Runtime = "host" if is_host(engine) else "cuda"
    none: Fact[Any] = Fact(reason=HOST_MEMORY)
    device = Device(index, runtime, properties.name, properties.memory_bytes, *(none,) * 7)
    if runtime == "host":
        return device
    uuid, pci = properties.uuid, canonical_address(properties.pci or "")
    bare = msgspec.structs.replace(
        device,
        uuid=Fact(uuid) if uuid else Fact(reason="CUDA gives this device no UUID"),
        pci=Fact(pci) if pci else Fact(reason="CUDA gives this device no PCI address"),
        compute_capability=Fact(f"{properties.compute_major}.{properties.compute_minor}"),
        copy_engines=Fact(properties.copy_engines),
    )
    return msgspec.structs.replace(
        bare,
        mig=management.is_mig(nvml, bare),
        vgpu=management.is_vgpu(nvml, bare),
        confidential=management.is_confidential(nvml, bare),
    )
