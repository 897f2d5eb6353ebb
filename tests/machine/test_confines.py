from __future__ import annotations

from pathlib import Path

import pytest
from machine.fake_host import write

from pyxfer._machine.environment import read_container, read_system, read_virtual_machine

DMI = "sys/class/dmi/id"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
VIRTUAL_CPU = "processor : 0\nflags\t\t: fpu vme hypervisor\n"
BARE_CPU = "processor : 0\nflags\t\t: fpu vme\n"


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        ("0::/system.slice/docker-1234.scope\n", "docker"),
        ("0::/machine.slice/libpod-1234.scope\n", "podman"),
        ("4:memory:/kubepods/burstable/pod1/2\n", "kubernetes"),
        ("0::/lxc.payload.box\n", "lxc"),
        ("0::/user.slice/user-1000.slice\n", "none"),
    ],
)
def test_container_is_recognised_by_its_control_group(tmp_path: Path, groups: str, name: str) -> None:
    write(tmp_path, proc__self__cgroup=groups)
    assert read_container(tmp_path, {}).value == name


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("var/run/secrets/kubernetes.io/serviceaccount/token", "x", "kubernetes"),
        ("run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n", "gVisor"),
        ("proc/version", "Linux version 4.19.0-gvisor #1 SMP\n", "gVisor"),
    ],
)
def test_container_is_recognised_by_its_files(tmp_path: Path, file: str, text: str, name: str) -> None:
    write(tmp_path, **{file: text})
    assert read_container(tmp_path, {}).value == name


@pytest.mark.parametrize(
    ("variable", "name"), [({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"), ({"container": "oci"}, "oci")]
)
def test_container_is_recognised_by_environment_variables(tmp_path: Path, variable: dict[str, str], name: str) -> None:
    assert read_container(tmp_path, variable).value == name


def test_several_containers_are_each_listed_once(tmp_path: Path) -> None:
    write(tmp_path, **{".dockerenv": "", "proc/self/cgroup": "0::/kubepods/docker/1", "proc/version": "gVisor"})
    assert read_container(tmp_path, {}).value == "kubernetes, docker, gVisor"


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


def test_firecracker_is_recognised_by_its_acpi_tables(tmp_path: Path) -> None:
    write(tmp_path, proc__cpuinfo=VIRTUAL_CPU, sys__firmware__acpi__tables__FACP="FACP....\6fFIRECKFCVMDSDT")
    assert read_virtual_machine(tmp_path).value == "Firecracker"


@pytest.mark.parametrize(
    ("clocks", "name"),
    [("tsc kvm-clock", "KVM"), ("hyperv_clocksource_tsc_page acpi_pm", "Hyper-V"), ("xen tsc", "Xen")],
)
def test_virtual_machine_without_firmware_is_recognised_by_its_clocks(tmp_path: Path, clocks: str, name: str) -> None:
    write(tmp_path, **{CLOCKS: clocks, "proc/cpuinfo": VIRTUAL_CPU})
    assert read_virtual_machine(tmp_path).value == name


def test_unknown_hypervisor_is_recognised_by_the_processor(tmp_path: Path) -> None:
    write(tmp_path, proc__cpuinfo=VIRTUAL_CPU)
    assert "hypervisor" in (read_virtual_machine(tmp_path).value or "")


def test_virtual_machine_is_unknown_if_the_processor_has_no_flags(tmp_path: Path) -> None:
    write(tmp_path, proc__cpuinfo="processor : 0\nCPU part : 0xd4f\n")
    assert read_virtual_machine(tmp_path).value is None


def test_system_of_an_arm_board_is_read_from_the_device_tree(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/device-tree/model": "NVIDIA Jetson AGX Orin\0"})
    assert read_system(tmp_path).value == "NVIDIA Jetson AGX Orin"


def test_missing_system_names_the_files_that_were_read(tmp_path: Path) -> None:
    reason = read_system(tmp_path).reason or ""
    assert f"{tmp_path}/{DMI}/product_name" in reason
    assert f"{tmp_path}/proc/device-tree/model" in reason
