"""Fakes of a machine: sysfs and procfs trees in a folder, an engine, and an NVML binding with chosen answers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyxfer._document.machines import Device, Fact
from pyxfer._machine.nvml import Nvml

GPU = "0000:3b:00.0"
UUID = "GPU-8d1f2c3a-0000-1111-2222-333344445555"
NO_NVML = "NVML Shared Library Not Found"
"""NVML's error without a driver, which is part of every reason on such a machine."""

GT = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
GT[6] = "64.0 GT/s PCIe"


@dataclass
class Properties:
    name: str = "NVIDIA H200"
    uuid: str = UUID
    pci: str | None = GPU
    memory_bytes: int = 141 << 30
    compute_major: int = 9
    compute_minor: int = 0
    copy_engines: int = 3
    integrated: bool = False


@dataclass
class EngineParts:
    """An engine that records `prefer_node` calls; with `refusal` its NUMA calls fail."""

    devices: list[Properties] = field(default_factory=lambda: [Properties()])
    RUNTIME: str = "cuda"
    RUNTIME_VERSION: int = 12090
    driver: int = 13000
    pages: dict[int, int] = field(default_factory=dict)
    refusal: OSError | None = None
    preferred: list[int | None] = field(default_factory=list)

    def device_count(self) -> int:
        return len(self.devices)

    def driver_version(self) -> int:
        return self.driver

    def device_properties(self, device: int) -> Properties:
        return self.devices[device]

    def page_nodes(self, address: int, nbytes: int) -> dict[int, int]:
        if self.refusal is not None:
            raise self.refusal
        return self.pages

    def prefer_node(self, node: int | None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.preferred.append(node)


FakeEngine: Any = EngineParts  # it has only the functions that this package uses


def gpu(pci: str | None = GPU, uuid: str | None = UUID, name: str = "NVIDIA H200") -> Device:
    no: Fact[bool] = Fact(False)
    return Device(
        index=0,
        runtime="cuda",
        name=name,
        memory_bytes=141 << 30,
        uuid=Fact(uuid) if uuid else Fact(reason="CUDA gives this device no UUID"),
        pci=Fact(pci) if pci else Fact(reason="CUDA gives this device no PCI address"),
        compute_capability=Fact("9.0"),
        copy_engines=Fact(3),
        mig=no,
        vgpu=no,
        confidential=no,
    )


@dataclass(frozen=True)
class Port:
    """One PCI function; `now` and `most` are its link's current and largest state, as (generation, width)."""

    address: str
    now: tuple[int, int] | None = (5, 16)
    most: tuple[int, int] | None = (5, 16)
    vendor: str = "0x10de"
    device: str = "0x2335"


def make_path(root: Path, *ports: Port) -> Path:
    """Create the sysfs folders of the ports, from the root port down to the device; return that of the device."""
    folder = root / "sys/devices/pci0000:3a"
    for port in ports:
        folder = folder / port.address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(port.vendor + "\n")
        (folder / "device").write_text(port.device + "\n")
        for which, state in (("current", port.now), ("max", port.most)):
            if state is not None:
                (folder / f"{which}_link_speed").write_text(GT[state[0]] + "\n")
                (folder / f"{which}_link_width").write_text(f"{state[1]}\n")
    link = root / "sys/bus/pci/devices" / ports[-1].address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder


def config_space(
    max_payload_bytes: int = 256, max_read_request_bytes: int = 4096, relaxed_ordering: bool = True
) -> bytes:
    """256 bytes of configuration space: power management at 0x40, then PCI Express at 0x60."""
    config = bytearray(256)
    config[0:2] = (0x10DE).to_bytes(2, "little")
    config[0x06] = 0x10
    config[0x34] = 0x40
    config[0x40:0x42] = bytes([0x01, 0x60])
    config[0x60:0x62] = bytes([0x10, 0x00])
    control = (max_payload_bytes.bit_length() - 8) << 5 | (max_read_request_bytes.bit_length() - 8) << 12
    config[0x68:0x6A] = (control | relaxed_ordering << 4).to_bytes(2, "little")
    return bytes(config)


class NVMLError(Exception):
    """The error class of the fake binding; the binding uses this name."""


class FakeBinding:
    """A fake of the module pynvml. Calls return or raise the given answers; others raise "Not Supported"."""

    def __init__(self, **answers: object) -> None:
        self.answers: dict[str, object] = {
            "nvmlInit": 0,
            "nvmlDeviceGetHandleByUUID": {UUID: "gpu handle"},
            "nvmlDeviceIsMigDeviceHandle": False,
            **answers,
        }
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "c_nvmlSystemConfComputeSettings_v1_t":
            return ConfidentialSettings
        if name in self.answers and self.answers[name] is None:
            raise AttributeError(name)
        return lambda *arguments: self._answer(name, *arguments)

    def _answer(self, name: str, *arguments: object) -> object:
        self.calls.append(name)
        answer = self.answers.get(name, NVMLError("Not Supported"))
        if isinstance(answer, dict):
            answer = answer.get(arguments[-1], NVMLError("Not Found"))
        if callable(answer):
            return answer(*arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ConfidentialSettings(ctypes.Structure):
    """The layout of c_nvmlSystemConfComputeSettings_v1_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("environment", ctypes.c_uint),
        ("ccFeature", ctypes.c_uint),
        ("devToolsMode", ctypes.c_uint),
        ("multiGpuMode", ctypes.c_uint),
    )


def nvml(**answers: object) -> Nvml:
    """NVML with one GPU, of UUID `UUID`, and these answers."""
    return Nvml(lambda: FakeBinding(**answers))


def nvml_link(now: tuple[int, int], most: tuple[int, int] = (5, 16), **answers: object) -> Nvml:
    """NVML with these states of the GPU's link, as (generation, width)."""
    return nvml(
        nvmlDeviceGetCurrPcieLinkGeneration=now[0],
        nvmlDeviceGetCurrPcieLinkWidth=now[1],
        nvmlDeviceGetMaxPcieLinkGeneration=most[0],
        nvmlDeviceGetMaxPcieLinkWidth=most[1],
        nvmlDeviceGetGpuMaxPcieLinkGeneration=5,
        **answers,
    )


def without_nvml() -> Nvml:
    """NVML on a machine without a driver."""
    return nvml(nvmlInit=NVMLError(NO_NVML))


def processes(*pids: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=1) for pid in pids]


def write(root: Path, **files: str) -> None:
    """Write files; names are paths, in which `__` stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
