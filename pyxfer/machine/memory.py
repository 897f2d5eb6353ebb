"""How much host memory there is to take: the machine's, or less where a control group says so."""

from __future__ import annotations

import re
from pathlib import Path

from pyxfer.machine.kernel_files import read_text
from pyxfer.model import Fact

_GROUPS = "sys/fs/cgroup"
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


def _group_limits(root: Path) -> list[tuple[int, int]]:
    """Limit and use of every group on the way up from this process's own that has a limit."""
    pairs = []
    for line in (read_text(root / "proc/self/cgroup").value or "").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            pairs += _limits_above(root / _GROUPS, group, ("memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            pairs += _limits_above(root / _GROUPS / "memory", group, names)
    return pairs


def _limits_above(mount: Path, group: str, names: tuple[str, str, str]) -> list[tuple[int, int]]:
    # In a container the group may be named as the host sees it, and then only the mount's own root is there.
    parts = [part for part in group.split("/") if part not in ("", "..")]
    folders = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    pairs = (_limit(folder, names) for folder in folders if folder.is_dir())
    return [pair for pair in pairs if pair is not None]


def _limit(folder: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    limit, used = (read_text(folder / name).value for name in names[:2])
    if limit is None or not limit.isdecimal() or int(limit) >= _UNLIMITED_BYTES:
        return None
    # File pages that nobody used lately are given up when memory is asked for, so they are no use of it.
    cached = re.search(rf"^{names[2]} (\d+)", read_text(folder / "memory.stat").value or "", re.MULTILINE)
    return int(limit), max(int(used or 0) - (int(cached[1]) if cached else 0), 0)
