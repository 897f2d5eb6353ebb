"""What this process may have: memory to lock, memory and processors of its container, shared memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from pyxfer.machine.control_groups import group_folders
from pyxfer.machine.kernel_files import read_text
from pyxfer.machine.memory import group_limit_bytes
from pyxfer.machine.numa import read_nodes
from pyxfer.model import Fact
from pyxfer.model_findings import Bound


def lock_limit_bytes() -> Fact[Bound]:
    """How much memory this process may lock (`ulimit -l`)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Fact(Bound(None if soft == resource.RLIM_INFINITY else float(soft)))


def memory_limit_bytes(root: Path = Path("/")) -> Fact[Bound]:
    """How much memory the control groups leave this process."""
    return Fact(Bound(group_limit_bytes(root)))


def cpu_limit(root: Path = Path("/")) -> Fact[Bound]:
    """How many processors' worth of time the control groups leave this process."""
    quotas = (_quota(version, folder) for version, folder in group_folders("cpu", root))
    return Fact(Bound(min((quota for quota in quotas if quota is not None), default=None)))


def _quota(version: int, folder: Path) -> float | None:
    if version == 1:
        words = [read_text(folder / f"cpu.cfs_{name}_us").value for name in ("quota", "period")]
    else:
        words = [*(read_text(folder / "cpu.max").value or "").split()]
    numbers = [int(word) for word in words if word and word.isdecimal()]  # "max", and -1, bound nothing
    quota, period = numbers if len(numbers) == 2 else (0, 0)  # noqa: PLR2004 - a quota and its period
    return quota / period if quota and period else None


def cpus_near(node: Fact[int], root: Path = Path("/")) -> Fact[int]:
    """How many processors of the device's node this process may run on."""
    nodes = read_nodes(root)
    if node.value is None or nodes.value is None:
        return Fact(reason=node.reason or nodes.reason)
    return Fact(len(nodes.value.get(node.value, frozenset()) & frozenset(os.sched_getaffinity(0))))


def shared_memory_bytes(root: Path = Path("/")) -> Fact[int]:
    """How large /dev/shm is, through which processes hand each other arrays."""
    path = root / "dev/shm"
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Fact(reason=f"{path} cannot be looked at: {error.strerror}")
    return Fact(found.f_blocks * found.f_frsize)
