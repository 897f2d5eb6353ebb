"""The environment of a run: driver, processor, memory settings, IOMMU, containers and hypervisors."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import pytest
from machine.fake_host import (
    GPU,
    NO_NVML,
    FakeEngine,
    Port,
    Properties,
    gpu,
    make_path,
    nvml,
    processes,
    without_nvml,
    write,
)

from pyxfer._document.machines import Environment
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import (
    read_container,
    read_environment,
    read_system,
    read_translation,
    read_virtual_machine,
)
from pyxfer._machine.nvml import Nvml


def read(root: Path, library: Nvml | None = None) -> Environment:
    return read_environment(FakeEngine(), gpu(), root=root, nvml=library or nvml())


def test_environment_of_this_machine_matches_python() -> None:
    here = read_environment(FakeEngine(), gpu(), nvml=without_nvml())
    assert here.host == platform.node()
    assert here.kernel == platform.release()
    assert here.python == platform.python_version()
    assert here.numpy == np.__version__
    assert here.cpus_usable == len(os.sched_getaffinity(0))
    assert here.cpu_model.value is not None
    assert here.memory_bytes.value is not None


def test_missing_files_give_reasons(tmp_path: Path) -> None:
    bare = read(tmp_path, without_nvml())
    for fact, name in (
        (bare.cpu_model, f"{tmp_path}/proc/cpuinfo"),
        (bare.memory_bytes, f"{tmp_path}/proc/meminfo"),
        (bare.transparent_huge_pages, f"{tmp_path}/sys/kernel/mm/transparent_hugepage/enabled"),
        (bare.cpu_governor, "scaling_governor"),
    ):
        assert name in (fact.reason or "")
        assert "No such file or directory" in (fact.reason or "")
    assert NO_NVML in (bare.driver.reason or "")


def test_driver_is_read_from_the_kernel_module_if_nvml_is_missing(tmp_path: Path) -> None:
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\n"
    write(tmp_path, proc__driver__nvidia__version=line)
    assert read(tmp_path, without_nvml()).driver.value == "580.159.03"


@pytest.mark.parametrize(
    ("namespace", "pids", "others", "reason"),
    [
        ("pid:[4026531836]", [os.getpid(), 78, 77, 78], (77, 78), ""),
        ("pid:[4026532999]", [5, 77], None, "2 processes"),
        ("pid:[4026532999]", [], (), ""),
        (None, [5], None, "1 processes"),
    ],
    ids=["on the machine", "in a container", "unused", "unknown"],
)
def test_other_gpu_processes_are_known_outside_of_containers(
    tmp_path: Path, namespace: str | None, pids: list[int], others: tuple[int, ...] | None, reason: str
) -> None:
    if namespace is not None:
        link = tmp_path / "proc/self/ns/pid"
        link.parent.mkdir(parents=True)
        link.symlink_to(namespace)
    found = read(tmp_path, nvml(nvmlDeviceGetComputeRunningProcesses=processes(*pids))).other_gpu_processes
    assert found.value == others
    assert reason in (found.reason or "")


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor : 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8481C\n", "Intel(R) Xeon(R) Platinum 8481C"),
        (
            "processor : 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n",
            f"{platform.machine()}, implementer 0x41, part 0xd4f",
        ),
    ],
)
def test_processor_has_its_name_or_its_numbers(tmp_path: Path, text: str, model: str) -> None:
    write(tmp_path, proc__cpuinfo=text)
    assert read(tmp_path).cpu_model.value == model


def test_equal_governors_of_the_usable_cpus_are_listed_once(tmp_path: Path) -> None:
    for cpu in os.sched_getaffinity(0):
        write(tmp_path, **{f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "performance\n"})
    assert read(tmp_path).cpu_governor.value == "performance"


def test_selected_huge_page_mode_is_read(tmp_path: Path) -> None:
    write(tmp_path, sys__kernel__mm__transparent_hugepage__enabled="always [madvise] never\n")
    assert read(tmp_path).transparent_huge_pages.value == "madvise"


@pytest.mark.parametrize("kind", ["identity", "DMA", "DMA-FQ"])
def test_translation_is_that_of_the_devices_group_beside_the_kernels_options(kind: str, tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port("0000:3a:00.0"), Port(GPU))
    write(tmp_path, sys__kernel__iommu_groups__12__type=f"{kind}\n", proc__cmdline="quiet iommu=pt intel_iommu=on\n")
    (folder / "iommu_group").symlink_to(tmp_path / "sys/kernel/iommu_groups/12")
    assert read(tmp_path).iommu.value == f"group 12, {kind}; iommu=pt; intel_iommu=on"
    assert read_translation(gpu(), tmp_path).value == kind


def test_translation_of_a_device_without_a_group_is_unknown_or_none(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU))
    assert (read(tmp_path).iommu.value, read_translation(gpu(), tmp_path).value) == ("no groups", "none")
    write(tmp_path, sys__kernel__iommu_groups__3__type="DMA\n")
    assert (read(tmp_path).iommu.value or "").startswith("on, ")
    assert GPU in (read_translation(gpu(), tmp_path).reason or "")


def test_environment_of_the_host_runtime_has_no_gpu_facts() -> None:
    engine = FakeEngine([Properties(name="host memory", pci=None, uuid="")], RUNTIME="host")
    here = read_environment(engine, find_device(engine, 0))
    assert here.cuda_runtime == "12.9, host runtime"
    assert "host memory" in (here.gpu_clocks.reason or "")
    assert "host memory" in (here.other_gpu_processes.reason or "")


DMI = "sys/class/dmi/id"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
VIRTUAL_CPU = "processor : 0\nflags\t\t: fpu vme hypervisor\n"
BARE_CPU = "processor : 0\nflags\t\t: fpu vme\n"


CGROUP, VERSION = "proc/self/cgroup", "proc/version"


@pytest.mark.parametrize(
    ("files", "variables", "name"),
    [
        ({CGROUP: "0::/system.slice/docker-1234.scope\n"}, {}, "docker"),
        ({CGROUP: "0::/machine.slice/libpod-1234.scope\n"}, {}, "podman"),
        ({CGROUP: "4:memory:/kubepods/burstable/pod1/2\n"}, {}, "kubernetes"),
        ({CGROUP: "0::/lxc.payload.box\n"}, {}, "lxc"),
        ({CGROUP: "0::/user.slice/user-1000.slice\n"}, {}, "none"),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"var/run/secrets/kubernetes.io/serviceaccount/token": "x"}, {}, "kubernetes"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({VERSION: "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"}, {}, "gVisor"),
        ({VERSION: "Linux version 4.19.0-gvisor #1 SMP\n"}, {}, "gVisor"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "oci"}, "oci"),
        ({".dockerenv": "", CGROUP: "0::/kubepods/docker/1", VERSION: "gVisor"}, {}, "kubernetes, docker, gVisor"),
    ],
)
def test_containers_are_recognised_by_control_groups_files_and_variables(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], name: str
) -> None:
    write(tmp_path, **files)
    assert read_container(tmp_path, variables).value == name


@pytest.mark.parametrize(
    ("maker", "product", "name"),
    [
        ("Amazon EC2", "p5.48xlarge", "Amazon EC2"),
        ("Amazon EC2", "p5.metal", "none"),
        ("Google", "Google Compute Engine", "Google Compute Engine"),
        ("VMware, Inc.", "VMware7,1", "VMware"),
        ("Microsoft Corporation", "Virtual Machine", "Hyper-V"),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "KVM (QEMU)"),
        ("Red Hat", "KVM", "KVM"),
        ("Dell Inc.", "PowerEdge XE9680", "none"),
    ],
)
def test_virtual_machine_is_recognised_by_its_firmware(tmp_path: Path, maker: str, product: str, name: str) -> None:
    cpu = BARE_CPU if name == "none" else VIRTUAL_CPU
    write(tmp_path, **{f"{DMI}/sys_vendor": maker, f"{DMI}/product_name": product, "proc/cpuinfo": cpu})
    assert read_virtual_machine(tmp_path).value == name
    assert read_system(tmp_path).value == f"{maker} {product}"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"sys/firmware/acpi/tables/FACP": "FACP....\6fFIRECKFCVMDSDT"}, "Firecracker"),
        ({CLOCKS: "tsc kvm-clock"}, "KVM"),
        ({CLOCKS: "hyperv_clocksource_tsc_page acpi_pm"}, "Hyper-V"),
        ({CLOCKS: "xen tsc"}, "Xen"),
        ({}, "a hypervisor that gives no name"),
        ({"proc/cpuinfo": "processor : 0\nCPU part : 0xd4f\n"}, None),
    ],
)
def test_virtual_machine_without_firmware_is_recognised_by_tables_clocks_and_the_processor(
    tmp_path: Path, files: dict[str, str], name: str | None
) -> None:
    write(tmp_path, **{"proc/cpuinfo": VIRTUAL_CPU, **files})
    assert read_virtual_machine(tmp_path).value == name


def test_system_of_an_arm_board_is_read_from_the_device_tree(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/device-tree/model": "NVIDIA Jetson AGX Orin\0"})
    assert read_system(tmp_path).value == "NVIDIA Jetson AGX Orin"
