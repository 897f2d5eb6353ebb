"""How much host memory there is to take: the machine's, or less where a control group says so."""

from __future__ import annotations

import re
from pathlib import Path

from pyxfer.machine.control_groups import group_folders
from pyxfer.machine.kernel_files import read_text
from pyxfer.model import Fact

_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
_UNLIMITED_BYTES = 1 << 60


def host_bytes(root: Path = Path("/")) -> Fact[int]:
    """The memory that this process could ever have."""
    total = _meminfo_bytes("MemTotal", root)
    limits = [limit for limit, _ in _group_limits(root)]
    return total if total.value is None else Fact(min([total.value, *limits]))


def available_host_bytes(root: Path = Path("/")) -> Fact[int]:
    """The memory that can be taken now: of what the machine and every control group above have left, the least."""
    available = _meminfo_bytes("MemAvailable", root)
    left = [max(limit - used, 0) for limit, used in _group_limits(root)]
    return available if available.value is None else Fact(min([available.value, *left]))


def _meminfo_bytes(name: str, root: Path) -> Fact[int]:
    path = root / "proc/meminfo"
    text = read_text(path)
    if text.value is None:
        return Fact(reason=text.reason)
    match = re.search(rf"^{name}:\s+(\d+) kB", text.value, re.MULTILINE)
    return Fact(int(match[1]) * 1024) if match else Fact(reason=f"{path} has no line {name}")


def group_limit_bytes(root: Path = Path("/")) -> float | None:
    """What the control groups above this process leave it; None where none of them says."""
    return min((limit for limit, _ in _group_limits(root)), default=None)


def _group_limits(root: Path) -> list[tuple[int, int]]:
    """Limit and use of every group on the way up from this process's own that has a limit."""
    pairs = (_limit(folder, _NAMES[version]) for version, folder in group_folders("memory", root))
    return [pair for pair in pairs if pair is not None]


def _limit(folder: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    limit, used = (read_text(folder / name).value for name in names[:2])
    if limit is None or not limit.isdecimal() or int(limit) >= _UNLIMITED_BYTES:
        return None
    # File pages that nobody used lately are given up when memory is asked for, so they are no use of it.
    cached = re.search(rf"^{names[2]} (\d+)", read_text(folder / "memory.stat").value or "", re.MULTILINE)
    return int(limit), max(int(used or 0) - (int(cached[1]) if cached else 0), 0)
