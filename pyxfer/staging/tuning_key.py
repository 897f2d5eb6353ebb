"""What a tuning is true of: read in milliseconds, because every first use of a ring waits for it."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pyxfer.machine.engine import is_host
from pyxfer.machine.kernel_files import read_text
from pyxfer.machine.pci import canonical_address, hop_gbps, read_hops
from pyxfer.model_tuning import TuningKey
from pyxfer.staging.settings import node_of, usable_cpus

if TYPE_CHECKING:
    from pyxfer.native import Engine

_DRIVER = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def key_of(engine: Engine, device: int, root: Path = Path("/")) -> TuningKey:
    """That of a device here and now, without NVML, which takes long to start."""
    properties = engine.device_properties(device)
    return TuningKey(
        host=platform.node().encode(errors="backslashreplace").decode(),  # whatever its encoding, JSON can have it
        device=properties.uuid or properties.name,
        driver=_driver(engine, root),
        cpus_usable=usable_cpus(),
        numa_node=node_of(engine, device).value,
        link=None if is_host(engine) else _link(properties.pci, root),
        pyxfer=_version(),
    )


def _driver(engine: Engine, root: Path) -> str:
    """Its own version where the kernel tells it, beside that of its CUDA."""
    found = _DRIVER.search(read_text(root / "proc/driver/nvidia/version").value or "")
    return f"{found[1] if found else 'unknown'}, CUDA {engine.driver_version()}"


def _link(pci: str | None, root: Path) -> str | None:
    """What the device's link can do: what it does now depends on how busy it is."""
    address = canonical_address(pci or "")
    hops = read_hops(address, root) if address else ()
    most = [hop.most for hop in hops if hop.most.value is not None]
    if not most:
        return None
    least = min(most, key=hop_gbps).value
    return f"PCIe {least.generation}.0 x{least.width}" if least else None


def _version() -> str:
    try:
        return metadata.version("pyxfer")
    except metadata.PackageNotFoundError:
        return "unknown"
