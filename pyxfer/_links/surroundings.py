"""What is read of the machine before a run of links: devices, the links between them, NUMA nodes, the PCIe tree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from pyxfer._document.links import LinkDevice, PeerLink, Trait
from pyxfer._document.machines import Device, Fact, Link, LinkKind, unknown
from pyxfer._machine import nvlink
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import device_node, read_nodes
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.pci import path_to_root
from pyxfer._machine.sysfs import read_cpu_list, read_text
from pyxfer.errors import CudaError
from pyxfer.native import Engine

# cudaDeviceAttr of driver_types.h.
INTEGRATED = 18
MULTIPROCESSORS = 16
PAGEABLE_ACCESS = 88
HOST_PAGE_TABLES = 100

_HAS_MEMORY = "sys/devices/system/node/has_memory"
_NOT_READ = "the run ended before it was read"
_NO_LINK = "no NVLink joins the two, and the way over PCI Express has no peak of its own"
NO_TREE = "the machine shows no PCIe tree above the GPUs"
ONE_DEVICE = "one GPU shares no link with another"


def read_device(machine: Engine, device: Device, nvml: Nvml, root: Path = Path("/")) -> LinkDevice:
    link = read_link(machine, device, root=root, nvml=nvml)
    count = nvlink.active_links(nvml, device).then(len)
    return LinkDevice(
        device=device,
        link=link,
        node=device_node(device, root=root, nvml=nvml),
        pages_by_node=unknown(_NOT_READ),
        nvlinks=count,
        nvlink_gbps=_carried(nvml, device, count, "the GPU has no active NVLink"),
        c2c_gbps=nvlink.c2c_gbps(nvml, device),
        kernels_s=unknown(_NOT_READ),
        traits=traits(machine, device, link, root),
        other_processes=read_environment(machine, device, nvml=nvml, root=root).other_gpu_processes,
    )


def _carried(nvml: Nvml, device: Device, links: Fact[int], why_none: str) -> Fact[float]:
    """What that number of NVLinks of a device carries."""
    count = links.value
    if not count:
        return unknown(links.reason or why_none)
    return nvlink.link_gbps(nvml, device).then(lambda each: count * each)


def read_peers(machine: Engine, devices: Sequence[Device], nvml: Nvml) -> tuple[PeerLink, ...]:
    return tuple(_read_peer(machine, one, other, nvml) for one, other in permutations(devices, 2))


def _read_peer(machine: Engine, one: Device, other: Device, nvml: Nvml) -> PeerLink:
    try:
        # The writer of one end is the reader of the other, and needs the access of its own device.
        access: Fact[bool] = Fact(
            machine.can_access_peer(one.index, other.index) and machine.can_access_peer(other.index, one.index)
        )
    except CudaError as error:
        access = unknown(str(error))
    links = nvlink.links_between(nvml, one, other)
    kind: LinkKind = "unknown" if links.value is None else "nvlink" if links.value else "pcie"
    return PeerLink(one.index, other.index, access, kind, links, _carried(nvml, one, links, _NO_LINK))


def host_nodes(root: Path = Path("/")) -> Fact[tuple[int, ...]]:
    """The NUMA nodes with processors and memory. A GPU's own memory may be a node, but not one for host buffers."""
    nodes = read_nodes(root)
    if nodes.value is None:
        return unknown(nodes.reason or "")
    with_memory = read_cpu_list(root / _HAS_MEMORY)
    usable = [node for node in sorted(nodes.value) if with_memory.value is None or node in with_memory.value]
    return Fact(tuple(usable))


def read_tree(devices: Sequence[Device], root: Path = Path("/")) -> Fact[tuple[tuple[int, ...], ...]]:
    if len(devices) < 2:  # noqa: PLR2004 - a pair
        return unknown(ONE_DEVICE)
    below: dict[str, set[int]] = {}
    for device in devices:
        path = [] if device.pci.value is None else path_to_root(device.pci.value, root)
        if len(path) <= 1:
            return unknown(NO_TREE)
        for port in path[1:]:
            below.setdefault(str(port), set()).add(device.index)
    return Fact(tuple(sorted({tuple(sorted(members)) for members in below.values() if len(members) > 1})))


def attribute(machine: Engine, device: int, number: int) -> int | None:
    try:
        return machine.device_attribute(device, number)
    except CudaError:
        return None


def traits(machine: Engine, device: Device, link: Link, root: Path = Path("/")) -> tuple[Trait, ...]:
    if device.runtime == "host":
        return ()
    reads_pageable = bool(attribute(machine, device.index, PAGEABLE_ACCESS))
    through_tables = bool(attribute(machine, device.index, HOST_PAGE_TABLES))
    integrated = bool(attribute(machine, device.index, INTEGRATED))
    in_wsl = "microsoft" in (read_text(root / "proc/version").value or "").lower()
    tree = [] if device.pci.value is None else path_to_root(device.pci.value, root)
    found: dict[Trait, bool] = {
        "c2c": link.kind == "c2c" or (through_tables and not integrated),
        "integrated": integrated,
        "mig": bool(device.mig.value),
        "vgpu": bool(device.vgpu.value),
        "wsl2": in_wsl,
        "hmm": reads_pageable and not through_tables and not integrated,
        "no-tree": len(tree) <= 1 and not integrated,
    }
    return tuple(name for name, is_so in found.items() if is_so)
