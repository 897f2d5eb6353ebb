"""The environment of a run: driver, GPU state, processor, memory, kernel, container, hypervisor."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyxfer._document.machines import HOST_MEMORY, Device, Environment, Fact, version_of
from pyxfer._machine import nvml as management
from pyxfer._machine.engine import is_host
from pyxfer._machine.host import available_host_bytes, host_bytes
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.pci import device_path
from pyxfer._machine.sysfs import first_known, read_text
from pyxfer.native import Engine

_NONE = "none"

# gVisor reports the same invented build date on every host.
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
    """The kinds of container that were recognised, such as `docker` or `kubernetes, gVisor`; `none` outside of one."""
    return Fact(", ".join(dict.fromkeys(_container_signs(root, variables))) or _NONE)


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
    folder = root / "sys/class/dmi/id"
    parts = [read_text(folder / name) for name in ("sys_vendor", "product_name")]
    words = " ".join(part.value for part in parts if part.value is not None)
    if words:
        return Fact(words)
    return first_known(parts[1], read_text(root / "proc/device-tree/model"))


def read_virtual_machine(root: Path = Path("/")) -> Fact[str]:
    """The hypervisor; `none` on bare metal."""
    name = _hypervisor(root)
    if name is not None:
        return Fact(name)
    cpu = read_text(root / "proc/cpuinfo")
    flags = re.search(r"^flags\s*:(.*)$", cpu.value or "", re.MULTILINE)
    if flags is None:
        silent = "this processor does not say whether it is virtual, and the firmware names no hypervisor"
        return Fact(reason=cpu.reason or silent)
    return Fact("a hypervisor that gives no name" if "hypervisor" in flags[1].split() else _NONE)


def _hypervisor(root: Path) -> str | None:
    acpi = _acpi_maker(root)
    dmi = (read_system(root).value or "").lower()
    clocks = read_text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource").value or ""
    for text, signs in ((dmi, _DMI_SIGNS), (acpi, _ACPI_SIGNS), (clocks, _CLOCK_SIGNS)):
        for sign, name in signs:
            if sign in text:
                # EC2's bare-metal instances have the same maker as its virtual ones.
                return None if ".metal" in dmi else name
    return None


def _acpi_maker(root: Path) -> str:
    """The maker in the header of an ACPI table; empty if it may not be read."""
    try:
        with (root / "sys/firmware/acpi/tables/FACP").open("rb") as table:
            return table.read(16)[10:].decode("ascii", "replace").strip("\0 ")
    except OSError:
        return ""


UNTRANSLATED = ("none", "identity")
NO_GROUPS = "no groups"
"""The word for a host without an IOMMU in the environment of a run."""
_GROUPS = "sys/kernel/iommu_groups"


def read_translation(device: Device, root: Path = Path("/")) -> Fact[str]:
    """The kernel's type of the device's IOMMU domain (`identity`, `DMA`, `DMA-FQ`); `none` without an IOMMU."""
    if device.pci.value is None:
        return Fact(reason=device.pci.reason)
    group = device_path(device.pci.value, root) / "iommu_group"
    if group.is_dir():
        return read_text(group / "type")
    if has_groups(root):
        return Fact(reason=f"none of the groups in {root / _GROUPS} holds {device.pci.value}")
    return Fact("none")


def is_untranslated(iommu: str) -> bool:
    """Whether an environment's `iommu`, e.g. `identity; iommu=pt`, means that addresses are not translated."""
    return iommu.partition(";")[0] in (NO_GROUPS, *UNTRANSLATED)


def has_groups(root: Path = Path("/")) -> bool:
    groups = root / _GROUPS
    return groups.is_dir() and any(groups.iterdir())


# The inode of the machine's first pid namespace (PROC_PID_INIT_INO in linux/proc_ns.h).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

_GOVERNOR = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"


def read_environment(
    engine: Engine, device: Device, *, root: Path = Path("/"), nvml: Nvml | None = None
) -> Environment:
    nvml, visible = nvml or management.shared(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return Environment(
        host=platform.node(),
        taken_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        pyxfer=version_of("pyxfer"),
        python=platform.python_version(),
        numpy=version_of("numpy"),
        cuda_runtime=cuda_version(engine.RUNTIME_VERSION) + (", host runtime" if is_host(engine) else ""),
        driver=_driver(nvml, root),
        driver_cuda=_driver_cuda(engine),
        visible_devices=Fact(reason="CUDA_VISIBLE_DEVICES is not set") if visible is None else Fact(visible),
        gpu_clocks=management.clocks(nvml, device),
        throttle_reasons=management.throttle_reasons(nvml, device),
        performance_state=management.performance_state(nvml, device),
        temperature_c=management.temperature_c(nvml, device),
        persistence=management.persistence(nvml, device),
        other_gpu_processes=_other_processes(nvml, device, root),
        cpu_model=_cpu_model(root),
        cpus_usable=len(os.sched_getaffinity(0)),
        cpu_governor=_governor(root),
        memory_bytes=host_bytes(root),
        memory_available_bytes=available_host_bytes(root),
        transparent_huge_pages=_huge_pages(root),
        iommu=_iommu(device, root),
        kernel=platform.release(),
        system=read_system(root),
        container=read_container(root),
        virtual_machine=read_virtual_machine(root),
    )


def cuda_version(number: int) -> str:
    """`12.9` for 12090."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver(nvml: Nvml, root: Path) -> Fact[str]:
    version = management.driver_version(nvml)
    if version.value is not None:
        return version
    text = read_text(root / "proc/driver/nvidia/version").value or ""
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return Fact(match[1]) if match else version


def _driver_cuda(engine: Engine) -> Fact[str]:
    if is_host(engine):
        return Fact(reason=HOST_MEMORY)
    number = engine.driver_version()
    return Fact(cuda_version(number)) if number else Fact(reason="no CUDA driver is installed here")


def _other_processes(nvml: Nvml, device: Device, root: Path) -> Fact[tuple[int, ...]]:
    numbers = management.process_ids(nvml, device)
    if not numbers.value:
        return numbers
    namespace = root / "proc/self/ns/pid"
    if not namespace.is_symlink() or os.readlink(namespace) != _FIRST_PID_NAMESPACE:
        return Fact(
            reason=f"the driver reports {len(numbers.value)} processes on the device by their ids on the machine; "
            "inside this container it is not known which of them is this one"
        )
    return Fact(tuple(number for number in numbers.value if number != os.getpid()))


def _cpu_model(root: Path) -> Fact[str]:
    text = read_text(root / "proc/cpuinfo")
    named = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(.+)$", text.value or "", re.MULTILINE)
    if named is not None:
        return Fact(named[1].strip())
    # 64-bit Arm gives numbers only: 0x41 0xd4f is a Neoverse V2, the core of Grace.
    words = re.findall(r"^CPU (implementer|part)\s*:\s*(\S+)$", text.value or "", re.MULTILINE)
    if not words:
        return Fact(reason=text.reason or f"{root / 'proc/cpuinfo'} does not name the processor")
    return Fact(f"{platform.machine()}, {', '.join(' '.join(each) for each in dict(words).items())}")


def _governor(root: Path) -> Fact[str]:
    answers = [read_text(root / _GOVERNOR.format(cpu)) for cpu in sorted(os.sched_getaffinity(0))]
    names = sorted({answer.value for answer in answers if answer.value is not None})
    return Fact(", ".join(names)) if names else Fact(reason=answers[0].reason)


def _huge_pages(root: Path) -> Fact[str]:
    path = root / "sys/kernel/mm/transparent_hugepage/enabled"
    text = read_text(path)
    chosen = re.search(r"\[(\w+)\]", text.value or "")
    unmarked = f"{path} contains {text.value!r}, which marks no choice"
    return Fact(chosen[1]) if chosen else Fact(reason=text.reason or unmarked)


def _iommu(device: Device, root: Path) -> Fact[str]:
    options = re.findall(r"(?<!\S)(?:\w+_)?iommu(?:\.\w+)?=\S*", read_text(root / "proc/cmdline").value or "")
    kind = "on, and none of its groups holds this device" if has_groups(root) else NO_GROUPS
    group = None if device.pci.value is None else device_path(device.pci.value, root) / "iommu_group"
    if group is not None and group.is_dir():
        kind = f"group {group.resolve().name}, {read_text(group / 'type').value or 'of unknown type'}"
    return Fact("; ".join([kind, *options]))
