"""The public functions about this machine: `is_available`, `devices`, `link`."""

from __future__ import annotations

from pyxfer._document.machines import Device, Link
from pyxfer._machine.devices import find_device, list_devices
from pyxfer._machine.link import read_link
from pyxfer.errors import CudaUnavailableError
from pyxfer.native import HOST, choose, load


def is_available() -> bool:
    """Whether a GPU can be used. False without a driver."""
    try:
        return load("cuda").device_count() > 0
    except CudaUnavailableError:
        return False


def devices() -> tuple[Device, ...]:
    """List the devices in CUDA's order. Without a usable GPU, the host's memory is the only device."""
    return list_devices(choose().engine)


def link(device: int | str = 0) -> Link:
    """Read the link between host memory and a device: its state, its settings and its theoretical peaks.

    Args:
        device: Index, UUID (or its beginning) or PCI address, or "host".

    Raises:
        UsageError: no device or more than one matches.
    """
    engine = choose(device).engine
    return read_link(engine, find_device(engine, 0 if device == HOST else device))
