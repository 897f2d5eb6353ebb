"""Whether the addresses that a device asks for are translated on their way."""

from __future__ import annotations

from pathlib import Path

from pyxfer.machine.kernel_files import read_text
from pyxfer.machine.pci import device_path
from pyxfer.model import Device, Fact

UNTRANSLATED = ("none", "identity")
NO_GROUPS = "no groups"
"""What an environment says of a host that uses no IOMMU."""
_GROUPS = "sys/kernel/iommu_groups"


def read_translation(device: Device, root: Path = Path("/")) -> Fact[str]:
    """The kernel's word for the device's domain (`identity`, `DMA`, `DMA-FQ`); `none` where it uses no IOMMU."""
    if device.pci.value is None:
        return Fact(reason=device.pci.reason)
    group = device_path(device.pci.value, root) / "iommu_group"
    if group.is_dir():
        return read_text(group / "type")
    if has_groups(root):
        return Fact(reason=f"none of the groups in {root / _GROUPS} holds {device.pci.value}")
    return Fact("none")


def lets_through(said: str) -> bool:
    """Whether addresses go through as they are, by what an environment says: `identity; iommu=pt`, `no groups`."""
    return said.partition(";")[0] in (NO_GROUPS, *UNTRANSLATED)


def has_groups(root: Path = Path("/")) -> bool:
    """Whether the kernel uses an IOMMU for any device."""
    groups = root / _GROUPS
    return groups.is_dir() and any(groups.iterdir())
