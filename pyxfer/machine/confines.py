"""Whether this process runs in a container or a virtual machine, by the signs they leave."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyxfer.machine.kernel_files import read_text
from pyxfer.model import Fact

_NONE = "none"

# gVisor answers with one made-up build date whatever the host runs.
_GVISOR = re.compile(r"gvisor|#1 SMP Sun Jan 10 15:06:54 PST 2016", re.IGNORECASE)

_CGROUP_SIGNS = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
)
_FILE_SIGNS = (
    (".dockerenv", "docker"),
    ("run/.containerenv", "podman"),
    ("var/run/secrets/kubernetes.io", "kubernetes"),
)

_DMI_SIGNS = (
    ("amazon ec2", "Amazon EC2"),
    ("google", "Google Compute Engine"),
    ("vmware", "VMware"),
    ("microsoft corporation virtual machine", "Hyper-V"),
    ("innotek", "VirtualBox"),
    ("xen", "Xen"),
    ("qemu", "KVM (QEMU)"),
    ("kvm", "KVM"),
    ("cloud hypervisor", "KVM (Cloud Hypervisor)"),
    ("openstack", "KVM (OpenStack)"),
    ("alibaba cloud ecs", "Alibaba Cloud ECS"),
)
_ACPI_SIGNS = (("FIRECK", "Firecracker"), ("CLOUDH", "KVM (Cloud Hypervisor)"), ("BOCHS", "KVM (QEMU)"))
_CLOCK_SIGNS = (("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen"))


def read_container(root: Path = Path("/"), variables: Mapping[str, str] = os.environ) -> Fact[str]:
    """What kinds of container the signs speak of, such as `docker` or `kubernetes, gVisor`."""
    found = dict.fromkeys(_container_signs(root, variables))
    return Fact(", ".join(found) or _NONE)


def _container_signs(root: Path, variables: Mapping[str, str]) -> Iterator[str]:
    if "KUBERNETES_SERVICE_HOST" in variables:
        yield "kubernetes"
    groups = read_text(root / "proc/self/cgroup").value or ""
    yield from (name for sign, name in _CGROUP_SIGNS if sign in groups)
    yield from (name for sign, name in _FILE_SIGNS if (root / sign).exists())
    yield from filter(None, (variables.get("container"), read_text(root / "run/systemd/container").value))
    if _GVISOR.search(read_text(root / "proc/version").value or ""):
        yield "gVisor"


def read_system(root: Path = Path("/")) -> Fact[str]:
    """Maker and model of the machine, as its firmware gives them."""
    folder = root / "sys/class/dmi/id"
    parts = [read_text(folder / name) for name in ("sys_vendor", "product_name")]
    words = " ".join(part.value for part in parts if part.value is not None)
    if words:
        return Fact(words)
    model = read_text(root / "proc/device-tree/model")
    return model if model.value is not None else Fact(reason=f"{parts[1].reason}; {model.reason}")


def read_virtual_machine(root: Path = Path("/")) -> Fact[str]:
    """The hypervisor below, `none` on bare metal."""
    name = _hypervisor(root)
    if name is not None:
        return Fact(name)
    cpu = read_text(root / "proc/cpuinfo")
    if cpu.value is None:
        return Fact(reason=cpu.reason)
    flags = re.search(r"^flags\s*:(.*)$", cpu.value, re.MULTILINE)
    if flags is None:
        return Fact(reason="this processor does not say whether it is virtual, and the firmware names no hypervisor")
    return Fact("a hypervisor that gives no name" if "hypervisor" in flags[1].split() else _NONE)


def _hypervisor(root: Path) -> str | None:
    acpi = _acpi_maker(root)
    dmi = (read_system(root).value or "").lower()
    clocks = read_text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource").value or ""
    for text, signs in ((dmi, _DMI_SIGNS), (acpi, _ACPI_SIGNS), (clocks, _CLOCK_SIGNS)):
        for sign, name in signs:
            if sign in text:
                return None if _is_bare_metal(dmi) else name
    return None


def _is_bare_metal(dmi: str) -> bool:
    # EC2's bare-metal instances carry the same maker as its virtual ones.
    return ".metal" in dmi


def _acpi_maker(root: Path) -> str:
    """The maker in the header of an ACPI table; empty where only root may read it."""
    try:
        with (root / "sys/firmware/acpi/tables/FACP").open("rb") as table:
            return table.read(16)[10:].decode("ascii", "replace").strip("\0 ")
    except OSError:
        return ""
