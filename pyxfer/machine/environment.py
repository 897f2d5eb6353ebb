"""What a reader needs to believe a result, or to explain its difference from another."""

from __future__ import annotations

import datetime
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from pyxfer.machine import nvml as management
from pyxfer.machine.confines import read_container, read_system, read_virtual_machine
from pyxfer.machine.engine import HOST_REASON, Engine, is_host
from pyxfer.machine.iommu import NO_GROUPS, has_groups
from pyxfer.machine.kernel_files import read_text
from pyxfer.machine.memory import available_host_bytes, host_bytes
from pyxfer.machine.nvml import Nvml
from pyxfer.machine.pci import device_path
from pyxfer.model import Device, Environment, Fact

# The inode of the machine's first pid namespace (PROC_PID_INIT_INO in linux/proc_ns.h).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

_GOVERNOR = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"


def read_environment(
    engine: Engine, device: Device, *, root: Path = Path("/"), nvml: Nvml | None = None
) -> Environment:
    """Everything, as it is at this moment; nothing takes root."""
    nvml = nvml or management.shared()
    return Environment(
        host=platform.node(),
        taken_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        pyxfer=_installed("pyxfer"),
        python=platform.python_version(),
        numpy=_installed("numpy"),
        cuda_runtime=cuda_version(engine.RUNTIME_VERSION) + (", host runtime" if is_host(engine) else ""),
        driver=_driver(nvml, root),
        driver_cuda=_driver_cuda(engine),
        visible_devices=_variable("CUDA_VISIBLE_DEVICES"),
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


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _variable(name: str) -> Fact[str]:
    value = os.environ.get(name)
    return Fact(reason=f"{name} is not set") if value is None else Fact(value)


def _driver(nvml: Nvml, root: Path) -> Fact[str]:
    version = management.driver_version(nvml)
    if version.value is not None:
        return version
    text = read_text(root / "proc/driver/nvidia/version").value or ""
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return Fact(match[1]) if match else version


def _driver_cuda(engine: Engine) -> Fact[str]:
    if is_host(engine):
        return Fact(reason=HOST_REASON)
    number = engine.driver_version()
    return Fact(cuda_version(number)) if number else Fact(reason="no CUDA driver is installed here")


def _other_processes(nvml: Nvml, device: Device, root: Path) -> Fact[tuple[int, ...]]:
    numbers = management.process_ids(nvml, device)
    if not numbers.value:
        return numbers
    if not _is_first_pid_namespace(root):
        return Fact(
            reason=f"the driver counts {len(numbers.value)} processes on the device by the machine's numbers; "
            "from inside this container none can be told to be this one"
        )
    return Fact(tuple(number for number in numbers.value if number != os.getpid()))


def _is_first_pid_namespace(root: Path) -> bool:
    try:
        return os.readlink(root / "proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _cpu_model(root: Path) -> Fact[str]:
    text = read_text(root / "proc/cpuinfo")
    if text.value is None:
        return text
    named = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(.+)$", text.value, re.MULTILINE)
    if named is not None:
        return Fact(named[1].strip())
    # 64-bit Arm gives numbers alone: 0x41 0xd4f is a Neoverse V2, which is what Grace has.
    codes = [re.search(rf"^CPU {key}\s*:\s*(\S+)$", text.value, re.MULTILINE) for key in ("implementer", "part")]
    words = [f"{name} {code[1]}" for name, code in zip(("implementer", "part"), codes, strict=True) if code]
    if not words:
        return Fact(reason=f"{root / 'proc/cpuinfo'} names no processor")
    return Fact(f"{platform.machine()}, {', '.join(words)}")


def _governor(root: Path) -> Fact[str]:
    answers = [read_text(root / _GOVERNOR.format(cpu)) for cpu in sorted(os.sched_getaffinity(0))]
    names = sorted({answer.value for answer in answers if answer.value is not None})
    return Fact(", ".join(names)) if names else Fact(reason=answers[0].reason)


def _huge_pages(root: Path) -> Fact[str]:
    path = root / "sys/kernel/mm/transparent_hugepage/enabled"
    text = read_text(path)
    if text.value is None:
        return text
    chosen = re.search(r"\[(\w+)\]", text.value)
    return Fact(chosen[1]) if chosen else Fact(reason=f"{path} holds {text.value!r}, where nothing is chosen")


def _iommu(device: Device, root: Path) -> Fact[str]:
    """Whether the device's addresses are translated, and what the kernel was told about it."""
    words = [_iommu_group(device, root), *_iommu_options(root)]
    return Fact("; ".join(word for word in words if word))


def _iommu_group(device: Device, root: Path) -> str:
    if device.pci.value is not None:
        group = device_path(device.pci.value, root) / "iommu_group"
        if group.is_dir():
            kind = read_text(group / "type").value or "of unknown type"
            return f"group {group.resolve().name}, {kind}"
    return "on, and none of its groups holds this device" if has_groups(root) else NO_GROUPS


def _iommu_options(root: Path) -> list[str]:
    command_line = read_text(root / "proc/cmdline").value or ""
    return [word for word in command_line.split() if re.match(r"(?:\w+_)?iommu(?:\.\w+)?=", word)]
