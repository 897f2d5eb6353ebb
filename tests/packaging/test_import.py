"""`import pyxfer` is small, quiet and alone; two engines live in one process; a wheel runs on other distributions."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from doctor.cases import run_of

from pyxfer._doctor.examine import references

MODULES = ("_cuda", "_host")
RELEASED = pytest.mark.unsanitized(reason="this is about the modules as they are released")


def module_file(name: str) -> Path:
    """The file of a compiled module, which is not loaded."""
    spec = importlib.util.find_spec(f"pyxfer.native.{name}")
    assert spec, f"pyxfer.native.{name} is not built"
    return Path(spec.origin or "")


def needed(name: str) -> set[str]:
    """The libraries that a module is linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", name)))


def exported(name: str) -> set[str]:
    """The symbols of a module that other libraries can see."""
    return {symbol for section, symbol in _dynamic_symbols(name) if section != "UND"}


def imported(name: str) -> set[str]:
    """The symbols that other libraries must provide, as NAME or NAME@VERSION."""
    return {symbol for section, symbol in _dynamic_symbols(name) if section == "UND"}


def _dynamic_symbols(name: str) -> list[tuple[str, str]]:
    """Section and name of all symbols. The columns are number, value, size, type, bind, visibility, section, name."""
    rows = [line.split() for line in _readelf("--dyn-syms", name).splitlines()]
    found = [(row[6], row[7]) for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]
    assert found, "readelf listed no symbols"
    return found


def _readelf(what: str, name: str) -> str:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("readelf is not here: install binutils")
    command = [tool, "--wide", what, str(module_file(name))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


MAX_MODULES = 12
SMOKE = Path(__file__).with_name("smoke.py")  # which `tools/release` also runs with each wheel
IMPORTED = """
import numpy, sys
before = set(sys.modules)
import pyxfer
from pyxfer.native import _cuda, _host
print(*set(sys.modules) - before)
"""
FIRST_CALLS = """
import numpy, sys
before = set(sys.modules)
import pyxfer
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native import load
y = pyxfer.upload(numpy.zeros((4, 2), "f4"), Target(DevicePool(load("host"), 0, 0)), "host")
assert pyxfer.load_tensors(sys.argv[1], "numpy")["x"].tolist() == [0.0, 0.0]
with pyxfer.BlockPool(4, 8, device="host") as pool:
    pyxfer.copy_blocks(pool, y, [0], [1])
found = set(sys.modules) - before
print(*found)
own = [(name, kind) for name in found if name.startswith("pyxfer") for kind in vars(sys.modules[name]).values()]
print(*(f"{name}.{kind.__name__}" for name, kind in own if hasattr(kind, "__dataclass_fields__")))
"""
# A first upload or load does not need what tunes a ring and what writes documents, nor what these and errors import.
NOT_AT_FIRST = {
    *("difflib", "hashlib", "importlib.metadata", "json", "random", "socket", "statistics", "tempfile"),
    *("pyxfer._measure.exclusive", "pyxfer._upload.tuning_search"),
}
DOCUMENTS_AT_FIRST = {"checks", "machines", "printing", "tunings"}
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


def test_importing_pyxfer_and_its_engines_after_numpy_imports_few_modules() -> None:
    found = set(python(IMPORTED).split())
    assert {name for name in found if name.startswith("pyxfer.")} == {
        *("pyxfer.errors", "pyxfer.native", "pyxfer.native._cuda", "pyxfer.native._host"),
        "pyxfer.native._host.testing",
    }
    assert len(found) <= MAX_MODULES, found


def test_importing_pyxfer_loads_neither_an_engine_nor_a_framework_nor_what_draws() -> None:
    loaded = set(python("import pyxfer, sys; print(*sys.modules)").split())
    late = {"torch", "tensorflow", "jax", "cupy", "rich", "typer", "pynvml", "numpy", "pyxfer.native._cuda"}
    assert not loaded & {*late, "pyxfer.native._host"}


def test_a_first_upload_load_and_copy_of_blocks_import_little_and_make_no_dataclasses(tmp_path: Path) -> None:
    header = b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    modules, _, dataclasses = python(FIRST_CALLS, str(path)).partition("\n")
    found = set(modules.split())
    assert not found & NOT_AT_FIRST
    documents = "pyxfer._document."
    assert {name.removeprefix(documents) for name in found if name.startswith(documents)} == DOCUMENTS_AT_FIRST
    assert dataclasses == ""  # to make one takes 0.2 to 0.7 ms


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


def test_pytest_finds_the_plugin() -> None:
    try:
        found = distribution("pyxfer").entry_points
    except PackageNotFoundError:
        pytest.skip("pyxfer is used from its source, and nothing is installed that could be found")
    (plugin,) = [each for each in found if each.group == "pytest11"]
    assert (plugin.name, plugin.value) == ("pyxfer", "pyxfer.pytest_plugin")
    assert callable(plugin.load().pytest_addoption)


def test_every_known_host_comes_with_its_run() -> None:
    files = {file.name for file in resources.files("pyxfer").joinpath("references").iterdir()}
    known = references()
    assert known
    assert files == {name for each in known for name in (each.document, each.document.replace(".run.json", ".json"))}
    assert all(run_of(each).measurements for each in known)


# libgcc_s.so.1 is what NumPy needs as well; the C++ library and CUDA's are linked in.
ANYWHERE = {
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
}
NEWEST_GLIBC = (2, 34)  # RHEL 9; threads and shm_open have that version wherever glibc is at least as new
each_module = pytest.mark.parametrize("name", [pytest.param(name, marks=RELEASED) for name in MODULES])


@each_module
def test_a_module_needs_only_what_every_linux_with_numpy_has(name: str) -> None:
    assert needed(name) <= ANYWHERE


@each_module
def test_a_module_shows_nothing_but_its_entry_point(name: str) -> None:
    assert exported(name) == {f"PyInit_{name}"}


@each_module
def test_a_module_takes_no_cuda_call_from_anybody(name: str) -> None:
    assert [symbol for symbol in imported(name) if symbol.startswith(("cuda", "cu"))] == []


@each_module
def test_a_module_asks_for_no_newer_glibc_than_stated(name: str) -> None:
    newer = defaultdict(list)
    for symbol, _, wanted in (each.partition("@GLIBC_") for each in imported(name)):
        if wanted and tuple(int(part) for part in wanted.split(".")) > NEWEST_GLIBC:
            newer[wanted].append(symbol)
    assert not newer, (
        f"these symbols want a newer glibc than {NEWEST_GLIBC[0]}.{NEWEST_GLIBC[1]}: {dict(newer)}. Where they come "
        "from the C++ library, see cmake/PyxferOptions.cmake; a lower bound than this takes a build on an older "
        "distribution, such as in manylinux_2_28."
    )
