"""In what a GPU differs from a card in a slot, by CUDA's attributes and NVML and not by the name of the product."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyxfer._document.links import Trait
from pyxfer._document.machines import Device, Link
from pyxfer._machine.pci import path_to_root
from pyxfer._machine.sysfs import read_text
from pyxfer.errors import CudaError

# cudaDeviceAttr of driver_types.h.
INTEGRATED = 18
MULTIPROCESSORS = 16
PAGEABLE_ACCESS = 88
HOST_PAGE_TABLES = 100


class Attributes(Protocol):
    """The part of the engine that this module uses."""

    def device_attribute(self, device: int, attribute: int) -> int: ...


def attribute(engine: Attributes, device: int, number: int) -> int | None:
    """An attribute of a device; None if the driver does not know it."""
    try:
        return engine.device_attribute(device, number)
    except CudaError:
        return None


def natures(engine: Attributes, device: Device, link: Link, root: Path = Path("/")) -> tuple[Trait, ...]:
    """What is unusual about a GPU and its way to the host."""
    if device.runtime == "host":
        return ()
    reads_pageable = bool(attribute(engine, device.index, PAGEABLE_ACCESS))
    through_tables = bool(attribute(engine, device.index, HOST_PAGE_TABLES))
    integrated = bool(attribute(engine, device.index, INTEGRATED))
    in_wsl = "microsoft" in (read_text(root / "proc/version").value or "").lower()
    tree = [] if device.pci.value is None else path_to_root(device.pci.value, root)
    found: dict[Trait, bool] = {
        "c2c": link.kind == "c2c" or (through_tables and not integrated),
        "integrated": integrated,
        "mig": bool(device.mig.value),
        "vgpu": bool(device.vgpu.value),
        "wsl2": in_wsl,
        "hmm": reads_pageable and not through_tables and not integrated,
        "no-tree": len(tree) <= 1 and not integrated,
    }
    return tuple(name for name, is_so in found.items() if is_so)
