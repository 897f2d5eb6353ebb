"""The face of the compiled engine that this package needs, and no more of it."""

from __future__ import annotations

from typing import Protocol

HOST_REASON = "host memory, not a PCIe link"


class DeviceProperties(Protocol):
    """What CUDA says about one device."""

    @property
    def name(self) -> str:
        """Such as `NVIDIA H200`."""

    @property
    def uuid(self) -> str:
        """Such as `GPU-8d1f...`."""

    @property
    def pci(self) -> str | None:
        """Such as `0000:3b:00.0`; None off the PCI bus."""

    @property
    def memory_bytes(self) -> int:
        """All of the device's memory."""

    @property
    def compute_major(self) -> int:
        """The 9 of compute capability 9.0."""

    @property
    def compute_minor(self) -> int:
        """The 0 of compute capability 9.0."""

    @property
    def copy_engines(self) -> int:
        """How many copies can be under way at once."""

    @property
    def integrated(self) -> bool:
        """Whether the device shares one memory with the CPU."""


class Engine(Protocol):
    """One of the two compiled modules."""

    RUNTIME: str
    RUNTIME_VERSION: int

    def device_count(self) -> int:
        """Count the visible devices."""

    def driver_version(self) -> int:
        """Tell the newest CUDA that the driver serves, as 13000; 0 without a driver."""

    def device_properties(self, device: int) -> DeviceProperties:
        """Ask CUDA about one device."""

    def page_nodes(self, address: int, nbytes: int) -> dict[int, int]:
        """Count the pages of a buffer by NUMA node."""

    def prefer_node(self, node: int | None) -> None:
        """Prefer memory of a node for the calling thread; None puts back what was preferred before."""


def is_host(engine: Engine) -> bool:
    """Whether the engine copies between two pieces of ordinary memory."""
    return engine.RUNTIME == "host"
