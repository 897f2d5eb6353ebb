"""Where a CUPTI library may lie: in this process, in an installed wheel, in a toolkit, or where the loader looks.

Nothing is opened here; the tracer tries them in this order, and the first that the driver accepts is used.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyxfer.errors import CudaError

if TYPE_CHECKING:
    from pyxfer.native import Engine

MAPS = Path("/proc/self/maps")
TOOLKITS = Path("/usr/local")
SONAMES = ("libcupti.so.13", "libcupti.so.12")
_FILE = re.compile(r"libcupti\.so(\.\d+)*")
_SONAME = re.compile(r"libcupti\.so\.\d\d")


def candidates(driver_version: int) -> tuple[str, ...]:
    """What to try, in this order.

    One that the process has loaded comes first, because two of them would not know of each other. Then the newest that
    is not newer than the driver (as CUDA writes its version, 12090): a library that is newer refuses to start.
    """
    found = sorted([*_in_wheels(), *_in_toolkits()], key=lambda path: _fitness(path.name, driver_version))
    sonames = sorted(SONAMES, key=lambda name: _fitness(name, driver_version))
    return (*_each_once([*_loaded(), *found]), *sonames)


def candidates_here(engine: Engine) -> tuple[str, ...]:
    """What to try with the driver of this machine, if it has one."""
    try:
        return candidates(engine.driver_version())
    except CudaError:
        return candidates(0)


def _loaded() -> list[Path]:
    """Those that are mapped into this process."""
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    paths = {Path(line.split(maxsplit=5)[-1]) for line in lines if "libcupti.so" in line}
    return sorted((path for path in paths if _FILE.fullmatch(path.name)), reverse=True)


def _in_wheels() -> Iterator[Path]:
    """NVIDIA's wheels share the namespace package `nvidia`; it is looked for, not imported."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from _files(Path(root).glob("*/lib/libcupti.so*"))


def _in_toolkits() -> Iterator[Path]:
    named = [Path(value) for name in ("CUDA_HOME", "CUDA_PATH") if (value := os.environ.get(name))]
    for root in [*named, *TOOLKITS.glob("cuda*")]:
        for part in ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"):
            yield from _files((root / part).glob("libcupti.so*"))


def _files(found: Iterable[Path]) -> Iterator[Path]:
    """By the name that the loader knows; the file behind it is often called by the year."""
    return (path for path in sorted(found) if _SONAME.fullmatch(path.name) and path.is_file())


def _each_once(paths: Iterable[Path]) -> list[str]:
    """Each library once, however many links lead to it."""
    kept: dict[Path, str] = {}
    for path in paths:
        kept.setdefault(path.resolve(), str(path))
    return list(kept.values())


def _fitness(name: str, driver_version: int) -> tuple[bool, int]:
    """The smallest first: not newer than the driver, and then the newest."""
    major = int(name.rpartition(".")[2])  # of the CUDA that it belongs to
    return major > driver_version // 1000, -major
