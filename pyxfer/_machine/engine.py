"""The part of the engine's interface that this package uses, so that tests can supply a small fake."""

from __future__ import annotations

from typing import Protocol

HOST_REASON = "host memory, not a PCIe link"


class DeviceProperties(Protocol):
    """CUDA's properties of one device."""

    @property
    def name(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def pci(self) -> str | None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def compute_major(self) -> int: ...
    @property
    def compute_minor(self) -> int: ...
    @property
    def copy_engines(self) -> int: ...
    @property
    def integrated(self) -> bool: ...


class Engine(Protocol):
    """One of the two compiled modules; `pyxfer/native/_cuda.pyi` documents the functions."""

    RUNTIME: str
    RUNTIME_VERSION: int

    def device_count(self) -> int: ...
    def driver_version(self) -> int: ...
    def device_properties(self, device: int) -> DeviceProperties: ...
    def page_nodes(self, address: int, nbytes: int) -> dict[int, int]: ...
    def prefer_node(self, node: int | None) -> None: ...


def is_host(engine: Engine) -> bool:
    """Whether the engine is `_host`, which copies between two pieces of ordinary memory."""
    return engine.RUNTIME == "host"
