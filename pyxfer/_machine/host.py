"""Limits of this process on memory and processors: the machine's, or those of its control groups if less."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from pyxfer._document.examinations import Bound
from pyxfer._document.machines import Fact
from pyxfer._machine.numa import read_nodes
from pyxfer._machine.sysfs import group_folders, read_text
from pyxfer.errors import UsageError
from pyxfer.units import parse_size

_CACHES = "sys/devices/system/cpu/cpu0/cache"


def last_level_bytes(root: Path = Path("/")) -> int:
    """The size of the first processor's largest cache; 0 if the kernel does not show it."""
    sizes = [_size(path) for path in (root / _CACHES).glob("index*/size")]
    return max((size for size in sizes if size is not None), default=0)


def _size(path: Path) -> int | None:
    text = read_text(path).value
    if text is None:
        return None
    try:
        return parse_size(f"{text.strip()}iB" if text.strip()[-1:] in "KMG" else text)
    except UsageError:
        return None


def lock_limit_bytes() -> Fact[Bound]:
    """The memory that this process may lock (`ulimit -l`)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Fact(Bound(None if soft == resource.RLIM_INFINITY else float(soft)))


def memory_limit_bytes(root: Path = Path("/")) -> Fact[Bound]:
    return Fact(Bound(min((limit for limit, _ in _group_limits(root)), default=None)))


def cpu_limit(root: Path = Path("/")) -> Fact[Bound]:
    """The limit of the control groups on processor time, in processors."""
    quotas = (_quota(version, folder) for version, folder in group_folders("cpu", root))
    return Fact(Bound(min((quota for quota in quotas if quota is not None), default=None)))


def _quota(version: int, folder: Path) -> float | None:
    if version == 1:
        words = [read_text(folder / f"cpu.cfs_{name}_us").value for name in ("quota", "period")]
    else:
        words = [*(read_text(folder / "cpu.max").value or "").split()]
    numbers = [int(word) for word in words if word and word.isdecimal()]  # "max" and -1 are no limits
    quota, period = numbers if len(numbers) == 2 else (0, 0)  # noqa: PLR2004 - a quota and its period
    return quota / period if quota and period else None


def cpus_near(node: Fact[int], root: Path = Path("/")) -> Fact[int]:
    """The number of processors of a NUMA node that this process may run on."""
    nodes = read_nodes(root)
    if node.value is None or nodes.value is None:
        return Fact(reason=node.reason or nodes.reason)
    return Fact(len(nodes.value.get(node.value, frozenset()) & frozenset(os.sched_getaffinity(0))))


def shared_memory_bytes(root: Path = Path("/")) -> Fact[int]:
    """The size of /dev/shm, through which processes pass arrays."""
    path = root / "dev/shm"
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Fact(reason=f"{path} cannot be read: {error.strerror}")
    return Fact(found.f_blocks * found.f_frsize)


_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
_UNLIMITED_BYTES = 1 << 60


def host_bytes(root: Path = Path("/")) -> Fact[int]:
    """The machine's memory, or the memory limit of the control groups if less."""
    total = _meminfo_bytes("MemTotal", root)
    limits = [limit for limit, _ in _group_limits(root)]
    return total.then(lambda nbytes: min([nbytes, *limits]))


def available_host_bytes(root: Path = Path("/")) -> Fact[int]:
    """The memory that can be allocated now: the least that the machine and the control groups have left."""
    available = _meminfo_bytes("MemAvailable", root)
    left = [max(limit - used, 0) for limit, used in _group_limits(root)]
    return available.then(lambda nbytes: min([nbytes, *left]))


def _meminfo_bytes(name: str, root: Path) -> Fact[int]:
    path = root / "proc/meminfo"
    text = read_text(path)
    match = re.search(rf"^{name}:\s+(\d+) kB", text.value or "", re.MULTILINE)
    return Fact(int(match[1]) * 1024) if match else Fact(reason=text.reason or f"{path} has no line {name}")


def _group_limits(root: Path) -> list[tuple[int, int]]:
    pairs = (_limit(folder, _NAMES[version]) for version, folder in group_folders("memory", root))
    return [pair for pair in pairs if pair is not None]


def _limit(folder: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    limit, used = (read_text(folder / name).value for name in names[:2])
    if limit is None or not limit.isdecimal() or int(limit) >= _UNLIMITED_BYTES:
        return None
    # The kernel drops inactive file pages when memory is needed, so they count as free.
    cached = re.search(rf"^{names[2]} (\d+)", read_text(folder / "memory.stat").value or "", re.MULTILINE)
    return int(limit), max(int(used or 0) - (int(cached[1]) if cached else 0), 0)
