"""The engine's assumptions about the driver, checked with the installed driver: csrc/tests/driver_facts.cpp."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyxfer.native import Engine

pytestmark = pytest.mark.gpu
SOURCES = Path(__file__).parents[2] / "csrc" / "tests"
NO_DEVICE = 3


def roots() -> Iterator[Path]:
    """Folders that may contain `include` and the runtime's library: toolkits and NVIDIA's wheels."""
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield Path(home)
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob("*"))


def headers(root: Path) -> list[Path]:
    """The header folders of a root, if complete. The wheels of CUDA 12 have the headers of `crt` in another root."""
    own = root / "include"
    of_compiler = (path.parents[1] for path in sorted(root.parent.glob("*/include/crt/host_defines.h")))
    folders = [own] if (own / "crt").exists() else [own, *of_compiler]
    needed = ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h")
    return folders if all(any((folder / name).exists() for folder in folders) for name in needed) else []


def library(root: Path) -> Path | None:
    found = (path for folder in ("lib64", "lib") for path in sorted((root / folder).glob("libcudart.so*")))
    return next(found, None)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The checks, compiled against the first CUDA runtime that is found."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    found = [(headers(root), library(root)) for root in roots()]
    whole = [(included, runtime) for included, runtime in found if included and runtime is not None]
    if not whole:
        pytest.skip("there are no headers of the CUDA runtime beside its library")
    included, runtime = whole[0]
    made = tmp_path / "driver_facts"
    sources = sorted(set(SOURCES.glob("driver_facts*.cpp")) - set(SOURCES.glob("*_test.cpp")))
    sources.append(SOURCES.parent / "links" / "kernel_text.cpp")
    options = ["-std=c++17", "-O1", "-pthread", f"-I{SOURCES.parent}", *(f"-isystem{folder}" for folder in included)]
    libraries = [str(runtime), f"-Wl,-rpath,{runtime.parent}", "-ldl", "-lrt"]
    subprocess.run([compiler, *options, *map(str, sources), "-o", made, *libraries], check=True)
    return made


def test_the_driver_behaves_as_the_engine_assumes(gpu_engine: Engine, program: Path) -> None:
    assert gpu_engine.device_count() > 0
    ended = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    if ended.returncode == NO_DEVICE:
        pytest.skip(ended.stdout)
    assert ended.returncode == 0, ended.stdout[-500:] + ended.stderr
    facts = [line.split("\t") for line in ended.stdout.splitlines()]
    assert facts
    assert [fact for fact in facts if fact[1] != fact[2]] == []
