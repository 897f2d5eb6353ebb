"""The control groups of this process: where the kernel shows what they leave it of memory and processors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyxfer.machine.kernel_files import read_text

_MOUNT = "sys/fs/cgroup"


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[tuple[int, Path]]:
    """Every group on the way up from this process's own, with the version (1 or 2) whose files it has."""
    for line in (read_text(root / "proc/self/cgroup").value or "").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            yield from ((2, folder) for folder in _up_from(root / _MOUNT, group))
        elif controller in controllers.split(","):
            yield from ((1, folder) for folder in _up_from(root / _MOUNT / controller, group))


def _up_from(mount: Path, group: str) -> list[Path]:
    # In a container the group may be named as the host sees it, and then only the mount's own root is there.
    parts = [part for part in group.split("/") if part not in ("", "..")]
    folders = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]
