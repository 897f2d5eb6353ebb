"""Find CUPTI libraries: in this process, in installed wheels, in toolkits, and in the loader's path.

Nothing is opened here. The tracer tries the candidates in order, and uses the first that the driver accepts.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from pyxfer.errors import CudaError
from pyxfer.native import Engine

MAPS = Path("/proc/self/maps")
TOOLKITS = Path("/usr/local")
# The folders of a toolkit for other systems, by architecture: sbsa is servers, such as Grace, and aarch64 is Jetson.
_TARGETS = {"x86_64": ("targets/x86_64-linux/lib",), "aarch64": ("targets/sbsa-linux/lib", "targets/aarch64-linux/lib")}
SONAMES = ("libcupti.so.13", "libcupti.so.12")
_FILE = re.compile(r"libcupti\.so(\.\d+)*")
_SONAME = re.compile(r"libcupti\.so\.\d\d")


def candidates(driver_version: int) -> tuple[str, ...]:
    """The paths and names to try, in order.

    A library that the process has loaded comes first, because two copies would conflict. Then come those that are not
    newer than the driver, the newest first: a newer library refuses to start. `driver_version` is e.g. 12090.
    """

    def fitness(name: str) -> tuple[bool, int]:
        major = int(name.rpartition(".")[2])  # the CUDA version that the library belongs to
        return major > driver_version // 1000, -major

    kept: dict[Path, str] = {}
    for path in [*_loaded(), *sorted(_installed(), key=lambda path: fitness(path.name))]:
        kept.setdefault(path.resolve(), str(path))
    return (*kept.values(), *sorted(SONAMES, key=fitness))


def candidates_here(engine: Engine) -> tuple[str, ...]:
    try:
        return candidates(engine.driver_version())
    except CudaError:
        return candidates(0)


def _loaded() -> list[Path]:
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    paths = {Path(line.split(maxsplit=5)[-1]) for line in lines if "libcupti.so" in line}
    return sorted((path for path in paths if _FILE.fullmatch(path.name)), reverse=True)


def _installed() -> Iterator[Path]:
    # NVIDIA's wheels share the namespace package `nvidia`. Finding it does not import it.
    spec = importlib.util.find_spec("nvidia")
    wheels = (spec.submodule_search_locations or ()) if spec is not None else ()
    folders = [folder for root in wheels for folder in sorted(Path(root).glob("*/lib"))]
    named = [Path(value) for name in ("CUDA_HOME", "CUDA_PATH") if (value := os.environ.get(name))]
    parts = ("extras/CUPTI/lib64", "lib64", *_TARGETS.get(platform.machine(), ()))
    folders += [root / part for root in [*named, *TOOLKITS.glob("cuda*")] for part in parts]
    for folder in folders:
        # By the name that the loader uses; the file behind the link often has the year in its name.
        found = sorted(folder.glob("libcupti.so*"))
        yield from (path for path in found if _SONAME.fullmatch(path.name) and path.is_file())
