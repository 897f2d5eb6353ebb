"""Bind the measuring thread and its memory to the device's NUMA node, check it, and undo it afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pyxfer._document.machines import HOST_MEMORY, Device, Fact, Placement
from pyxfer._machine import nvml as management
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.pci import read_node
from pyxfer._machine.sysfs import first_known, format_cpu_list, read_cpu_list, read_text
from pyxfer.native import Engine

_NODES = "sys/devices/system/node"

_NO_PAGES: Fact[dict[str, int]] = Fact(reason="no buffer was checked")
_WHY_NO_PAGES = {
    errno.EPERM: "the kernel refuses move_pages here, as a container's seccomp profile does without CAP_SYS_NICE",
    errno.ENOSYS: "this kernel has no move_pages, as one built without NUMA",
}


def device_node(device: Device, *, root: Path = Path("/"), nvml: Nvml | None = None) -> Fact[int]:
    if device.runtime == "host" or device.pci.value is None:
        return Fact(reason=HOST_MEMORY if device.runtime == "host" else device.pci.reason)
    return first_known(read_node(device.pci.value, root), management.memory_node(nvml or management.shared(), device))


def read_nodes(root: Path = Path("/")) -> Fact[dict[int, frozenset[int]]]:
    """The CPUs of every node. Nodes without CPUs (of a GPU, of a memory expander) are left out."""

    def processors(online: frozenset[int]) -> dict[int, frozenset[int]]:
        lists = {node: read_cpu_list(root / _NODES / f"node{node}/cpulist").value for node in sorted(online)}
        return {node: cpus for node, cpus in lists.items() if cpus}

    return read_cpu_list(root / _NODES / "online").then(processors)


def farthest_node(node: Fact[int], root: Path = Path("/")) -> Fact[int]:
    """The node with usable CPUs that is farthest from this one, by the firmware's distances."""
    nodes = read_nodes(root)
    if node.value is None or nodes.value is None:
        return Fact(reason=node.reason or nodes.reason)
    allowed = frozenset(os.sched_getaffinity(0))
    others = [other for other, cpus in nodes.value.items() if other != node.value and cpus & allowed]
    if not others:
        only = "this machine shows one NUMA node with CPUs" if len(nodes.value) <= 1 else "no CPU of another is allowed"
        return Fact(reason=f"{only}, so there is nothing to compare with")
    # The firmware's distances from a node to all nodes; 10 is the distance to itself.
    online = read_cpu_list(root / _NODES / "online").value or frozenset()
    words = (read_text(root / _NODES / f"node{node.value}/distance").value or "").split()
    distances = {other: int(word) for other, word in zip(sorted(online), words, strict=False) if word.isdecimal()}
    return Fact(max(others, key=lambda other: (distances.get(other, 0), other)))


@contextlib.contextmanager
def bind(engine: Engine, node: Fact[int], *, root: Path = Path("/")) -> Iterator[Placement]:
    """Bind the calling thread, and the memory that it touches first, to a node during the block.

    If that is not possible, the block runs unbound, and the placement has the reason.
    """
    cpus = _usable_cpus(node, root)
    if cpus.value is None or node.value is None:
        yield _unbound(node, cpus.reason)
        return
    before, shown = os.sched_getaffinity(0), format_cpu_list(cpus.value)
    refusal = _refusal(f"CPUs {shown}", os.sched_setaffinity, 0, cpus.value)
    if refusal is not None:
        yield _unbound(node, refusal)
        return
    try:
        refusal = _refusal(f"to prefer memory of NUMA node {node.value}", engine.prefer_node, node.value)
        yield Placement(node, Fact(shown), node if refusal is None else Fact(reason=refusal), _NO_PAGES)
    finally:
        os.sched_setaffinity(0, before)
        if refusal is None:
            engine.prefer_node(None)


def _refusal(what: str, call: Callable[..., None], *arguments: object) -> str | None:
    try:
        call(*arguments)
    except OSError as error:
        return f"the kernel refuses {what}: {error.strerror or error}"
    return None


def _usable_cpus(node: Fact[int], root: Path) -> Fact[frozenset[int]]:
    nodes = read_nodes(root)
    if node.value is None or nodes.value is None:
        return Fact(reason=node.reason or nodes.reason)
    if len(nodes.value) <= 1:
        return Fact(reason="this machine shows one NUMA node with CPUs, so there is nothing to choose")
    if node.value not in nodes.value:
        return Fact(reason=f"NUMA node {node.value} has no CPUs")
    allowed = frozenset(os.sched_getaffinity(0))
    usable = nodes.value[node.value] & allowed
    if not usable:
        has, may = format_cpu_list(nodes.value[node.value]), format_cpu_list(allowed)
        return Fact(reason=f"none of the CPUs of NUMA node {node.value} ({has}) is among those allowed here ({may})")
    return Fact(usable)


def _unbound(node: Fact[int], reason: str | None) -> Placement:
    return Placement(node, Fact(reason=f"not bound: {reason}"), Fact(reason=f"not bound: {reason}"), _NO_PAGES)


def verify_pages(engine: Engine, address: int, nbytes: int) -> Fact[dict[str, int]]:
    """Count a buffer's pages by node. In a large buffer only a sample of the pages is counted."""
    try:
        pages = engine.page_nodes(address, nbytes)
    except OSError as error:
        other = f"the kernel does not report the nodes of the pages: {error.strerror or error}"
        return Fact(reason=_WHY_NO_PAGES.get(error.errno or 0, other))
    return Fact({_node_name(node): count for node, count in sorted(pages.items())})


def _node_name(node: int) -> str:
    """The node's number, or the kernel's error for a page without a node."""
    if node >= 0:
        return str(node)
    return "untouched" if -node == errno.ENOENT else errno.errorcode.get(-node, f"error {-node}")
