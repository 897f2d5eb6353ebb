"""Read small files of the kernel as facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pyxfer._document.machines import Fact

T = TypeVar("T")

_MOUNT = "sys/fs/cgroup"


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[tuple[int, Path]]:
    """This process's control group and those above it, each with its version (1 or 2) of control groups."""
    for line in (read_text(root / "proc/self/cgroup").value or "").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            yield from ((2, folder) for folder in _up_from(root / _MOUNT, group))
        elif controller in controllers.split(","):
            yield from ((1, folder) for folder in _up_from(root / _MOUNT / controller, group))


def _up_from(mount: Path, group: str) -> list[Path]:
    # In a container the group's path may be the host's, which does not exist here: only the mount's root does.
    parts = [part for part in group.split("/") if part not in ("", "..")]
    folders = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]


def read_text(path: Path) -> Fact[str]:
    """The file's contents without surrounding whitespace."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip("\0\n\t ")
    except OSError as error:
        return Fact(reason=f"{path} cannot be read: {error.strerror}")
    return Fact(text) if text else Fact(reason=f"{path} is empty")


def first_known(one: Fact[T], other: Fact[T]) -> Fact[T]:
    if one.value is not None:
        return one
    return other if other.value is not None else Fact(reason=f"{one.reason}; {other.reason}")


def read_int(path: Path) -> Fact[int]:
    return _parsed(path, int, "a number")


def read_cpu_list(path: Path) -> Fact[frozenset[int]]:
    return _parsed(path, parse_cpu_list, "a list of CPUs")


def _parsed(path: Path, parse: Callable[[str], T], what: str) -> Fact[T]:
    text = read_text(path)
    try:
        return text.then(parse)
    except ValueError:
        return Fact(reason=f"{path} contains {text.value!r}, which is not {what}")


def parse_cpu_list(text: str) -> frozenset[int]:
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: frozenset[int]) -> str:
    runs: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
