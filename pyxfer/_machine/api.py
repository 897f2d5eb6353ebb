"""What a program asks of this machine in one call."""

from __future__ import annotations

from pyxfer._document.runs import Device, Link
from pyxfer._machine.devices import find_device, list_devices
from pyxfer._machine.link import read_link
from pyxfer.errors import CudaUnavailableError
from pyxfer.native import HOST, choose, load


def is_available() -> bool:
    """Whether a GPU can be used; False also where there is no driver."""
    try:
        return load("cuda").device_count() > 0
    except CudaUnavailableError:
        return False


def devices() -> tuple[Device, ...]:
    """Every device, as CUDA counts them; without a GPU, the host's memory as the one device."""
    return list_devices(choose().engine)


def link(device: int | str = 0) -> Link:
    """The way between host memory and a device: what it is now, and what it could do on paper."""
    engine = choose(device).engine
    return read_link(engine, find_device(engine, 0 if device == HOST else device))
