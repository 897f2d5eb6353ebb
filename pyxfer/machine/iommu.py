"""Whether the addresses that a device asks for are translated on their way."""

from __future__ import annotations

from pathlib import Path

from pyxfer.machine.kernel_files import read_text
from pyxfer.machine.pci import device_path
from pyxfer.model import Device, Fact

UNTRANSLATED = ("none", "identity")
_GROUPS = "sys/kernel/iommu_groups"


def read_translation(device: Device, root: Path = Path("/")) -> Fact[str]:
    """The kernel's word for the device's domain (`identity`, `DMA`, `DMA-FQ`); `none` where it uses no IOMMU."""
    groups = root / _GROUPS
    if device.pci.value is None:
        return Fact(reason=device.pci.reason)
    group = device_path(device.pci.value, root) / "iommu_group"
    if group.is_dir():
        return read_text(group / "type")
    if groups.is_dir() and any(groups.iterdir()):
        return Fact(reason=f"none of the groups in {groups} holds {device.pci.value}")
    return Fact("none")
