"""What is read of a machine around a measurement, beside the environment that every run has."""

from __future__ import annotations

from pathlib import Path

from pyxfer.machine.devices import list_devices
from pyxfer.machine.engine import Engine
from pyxfer.machine.iommu import read_translation
from pyxfer.machine.limits import cpu_limit, cpus_near, lock_limit_bytes, memory_limit_bytes, shared_memory_bytes
from pyxfer.machine.link_errors import read_counters, read_device_memory
from pyxfer.machine.numa import device_node
from pyxfer.machine.nvml import Nvml
from pyxfer.machine.ports import read_ports
from pyxfer.model import Device, Fact
from pyxfer.model_findings import Counters, FarRates, Health


def read_health(
    engine: Engine,
    device: Device,
    nvml: Nvml,
    before: Counters,
    moved_bytes: int,
    far: Fact[FarRates],
    root: Path = Path("/"),
) -> Health:
    """Everything, as it is at this moment, with the counters of before; nothing takes root."""
    return Health(
        before=before,
        after=read_counters(nvml, device, root),
        moved_bytes=moved_bytes,
        ports=read_ports(device, root),
        iommu=read_translation(device, root),
        lock_limit_bytes=lock_limit_bytes(),
        memory_limit_bytes=memory_limit_bytes(root),
        cpu_limit=cpu_limit(root),
        cpus_near=cpus_near(device_node(device, root=root, nvml=nvml), root),
        shared_memory_bytes=shared_memory_bytes(root),
        device_memory=read_device_memory(nvml, device),
        devices=len(list_devices(engine, nvml=nvml)),
        far=far,
    )
