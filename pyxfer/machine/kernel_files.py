"""Small files of the kernel's, read as facts."""

from __future__ import annotations

from pathlib import Path

from pyxfer.model import Fact


def read_text(path: Path) -> Fact[str]:
    """The stripped contents, or why there are none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip("\0\n\t ")
    except OSError as error:
        return Fact(reason=f"{path} cannot be read: {error.strerror}")
    return Fact(text) if text else Fact(reason=f"{path} is empty")


def read_int(path: Path) -> Fact[int]:
    """The number in the file, or why there is none."""
    text = read_text(path)
    if text.value is None:
        return Fact(reason=text.reason)
    try:
        return Fact(int(text.value))
    except ValueError:
        return Fact(reason=f"{path} holds {text.value!r}, which is not a number")


def read_cpu_list(path: Path) -> Fact[frozenset[int]]:
    """The CPUs of a list such as `0-3,8`."""
    text = read_text(path)
    if text.value is None:
        return Fact(reason=text.reason)
    try:
        return Fact(parse_cpu_list(text.value))
    except ValueError:
        return Fact(reason=f"{path} holds {text.value!r}, which is not a list of CPUs")


def parse_cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as a set."""
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: frozenset[int]) -> str:
    """A set as `0-3,8`."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
