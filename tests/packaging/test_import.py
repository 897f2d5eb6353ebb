"""`import pyxfer` is quick, quiet and alone; and the two engines live in one process, whatever else is in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOST_IMPORT_S = 0.060
ATTEMPTS = 10
SMOKE = Path(__file__).with_name("smoke.py")  # which `tools/wheels` also runs with each wheel

IMPORT_TIME = """
import numpy, time
begun = time.process_time()  # which other processes do not lengthen
import pyxfer
from pyxfer.native import _cuda, _host
print(time.process_time() - begun)
"""

# What TensorFlow does, in the small: calls of the CUDA runtime and driver for everybody in the process to find.
IMPOSTOR = """
static int calls = 0;
int impostor_calls(void) { return calls; }
int cudaGetDeviceCount(int* count) { ++calls; *count = 777; return 0; }
int cudaDriverGetVersion(int* version) { ++calls; *version = 777; return 0; }
int cudaRuntimeGetVersion(int* version) { ++calls; *version = 777; return 0; }
int cudaMalloc(void** address, unsigned long nbytes) { ++calls; *address = (void*)777; return 0; }
int cudaFree(void* address) { ++calls; return 0; }
int cudaGetLastError(void) { ++calls; return 0; }
int cuInit(unsigned flags) { ++calls; return 0; }
int cuDriverGetVersion(int* version) { ++calls; *version = 777; return 0; }
"""

AMONG_IMPOSTORS = """
import ctypes, sys
impostor = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from pyxfer.errors import CudaError
from pyxfer.native import _cuda, _host
found = [_host.device_count(), _host.driver_version()]
_host.DeviceBuffer(4096).close()
try:
    found += [_cuda.device_count(), _cuda.driver_version()]
    _cuda.DeviceBuffer(4096).close()
except CudaError as error:
    found.append(error.code)
print("impostor called", impostor.impostor_calls(), "times; 777 found:", 777 in found)
"""


def python(script: str, *arguments: str) -> str:
    """What a Python of its own prints."""
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.unsanitized(reason="sanitizers make every start slow")
def test_importing_pyxfer_and_its_engines_after_numpy_takes_less_than_60_ms() -> None:
    taken: list[float] = []
    while len(taken) < ATTEMPTS and (len(taken) < 3 or min(taken) > MOST_IMPORT_S):
        taken.append(float(python(IMPORT_TIME)))
    assert min(taken) < MOST_IMPORT_S, f"attempts, in seconds: {taken}"


def test_importing_pyxfer_loads_neither_an_engine_nor_a_framework_nor_what_draws() -> None:
    loaded = set(python("import pyxfer, sys; print(*sys.modules)").split())
    late = {"torch", "tensorflow", "jax", "cupy", "rich", "typer", "pynvml", "numpy", "pyxfer.native._cuda"}
    assert not loaded & {*late, "pyxfer.native._host"}


@pytest.mark.parametrize(("first", "second"), [("_cuda", "_host"), ("_host", "_cuda")])
def test_both_engines_work_side_by_side(first: str, second: str) -> None:
    assert python(SMOKE.read_text("utf-8"), first, second).startswith(f"{first} {second}: ")


def test_cuda_calls_of_another_library_hijack_neither_engine(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, library = tmp_path / "impostor.c", tmp_path / "impostor.so"
    source.write_text(IMPOSTOR)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    assert python(AMONG_IMPOSTORS, str(library)) == "impostor called 0 times; 777 found: False"
