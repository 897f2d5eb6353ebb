"""Processes on a GPU: forks, exits, the plugin of pytest, and the facts of the driver that the engine relies on."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from native.scenarios import SCENARIOS
from watch.copying import in_threads

import pyxfer
from pyxfer._document.runs import Run
from pyxfer._document.sessions import XferSession
from pyxfer.errors import CudaError, CudaMemoryError, UsageError
from pyxfer.native import Engine

pytestmark = pytest.mark.gpu


def current_context() -> int | None:
    """The context of the calling thread, read from the driver."""
    found = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(found)) == 0
    return found.value


def test_the_link_has_peaks_or_a_reason() -> None:
    link = pyxfer.link(0)
    for side in (link.h2d_peak_gbps, link.d2h_peak_gbps):
        assert side.value is not None or side.reason
        if side.value is not None and link.raw_peak_gbps.value is not None:
            assert link.raw_peak_gbps.value / 2 < side.value < link.raw_peak_gbps.value
    if link.kind == "pcie":
        assert link.now.value is not None
        assert 1 <= link.now.value.generation <= 7
        assert link.now.value.width in {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.__name__))
def test_scenarios_of_the_host_runtime_run_on_the_gpu(gpu_engine: Engine, scenario: object) -> None:
    assert callable(scenario)
    scenario(gpu_engine)
    assert gpu_engine.take_cleanup_failures() == []


def test_a_thread_without_a_context_gets_none(gpu_engine: Engine) -> None:
    contexts: list[int | None] = []

    def use() -> None:
        contexts.append(current_context())
        gpu_engine.memory_info(0)
        with closing(gpu_engine.Bracket(0)) as bracket:
            bracket.begin()
            bracket.end()
        gpu_engine.HostBuffer(4096, "pinned").close()
        contexts.append(current_context())

    in_threads(use)
    assert contexts == [None, None]


@pytest.mark.threads
def test_several_threads_use_the_device_at_once(gpu_engine: Engine) -> None:
    finished: list[str] = []

    def use() -> None:
        for scenario in SCENARIOS:
            scenario(gpu_engine)
        finished.append("fine")

    in_threads(*[use] * 4)
    assert finished == ["fine"] * 4


MIB, TIB = 1 << 20, 1 << 40


def small() -> Run:
    return pyxfer.ceiling(size=(MIB,), direction=("h2d",), memory=("pinned",), precision=1.0, budget=1.0)


def test_a_buffer_larger_than_the_device_is_refused_and_a_smaller_one_is_not(gpu_engine: Engine) -> None:
    with pytest.raises(CudaMemoryError, match="ask for smaller sizes"):
        gpu_engine.DeviceBuffer(TIB)
    with closing(gpu_engine.DeviceBuffer(MIB)) as buffer:
        assert buffer.nbytes == MIB


def test_a_missing_device_is_an_error(gpu_engine: Engine) -> None:
    with pytest.raises(CudaError, match="invalid device ordinal"):
        gpu_engine.DeviceBuffer(MIB, gpu_engine.device_count())
    with pytest.raises(UsageError, match="none of the devices that CUDA shows"):
        pyxfer.ceiling(gpu_engine.device_count())


def test_another_process_on_the_device_is_named(meeting_place: str) -> None:
    script = (
        "import sys, pyxfer\n"
        "from pyxfer._measure import exclusive\n"
        "exclusive.PLACE = sys.argv[1]\n"
        "def began(_): print('measuring', flush=True)\n"
        "while True: pyxfer.ceiling(size=[64 << 20], precision=1e-9, budget=8.0, on_progress=began)\n"
    )
    command = [sys.executable, "-c", script, meeting_place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "measuring\n"
        run = small()
        other.kill()
    (remark,) = (remark for remark in run.remarks if remark.code == "contended")
    assert str(other.pid) in remark.text


FORKING = """
import os, pyxfer
pyxfer.ceiling(size=(1 << 20,), budget=0.3)
child = os.fork()
if child == 0:
    try:
        pyxfer.ceiling(size=(1 << 20,), budget=0.3)
    except pyxfer.ForkedError as error:
        os.write(1, str(error).encode())
        os._exit(0)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
pyxfer.ceiling(size=(1 << 20,), budget=0.3)
"""


@pytest.mark.parametrize("after_s", [0.3, 1.5, 3.0])
def test_ctrl_c_ends_a_run_within_a_second_and_saves_it(tmp_path: Path, after_s: float) -> None:
    saved = tmp_path / "run.json"
    command = [sys.executable, "-m", "pyxfer", "ceiling", "--budget", "60s", "--export-json", str(saved)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, said = process.communicate(timeout=20)
    # A library load or context creation ends before the signal is handled; the second begins after that.
    assert time.monotonic() - begun < (3.0 if after_s < 1 else 1.8)
    assert process.returncode == 130
    assert "Traceback" not in said
    if after_s > 1:
        assert Run.load(saved).ended == "interrupted"


def test_a_forked_child_raises_and_the_parent_continues() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True)
    assert "CUDA does not survive a fork" in done.stdout
    assert done.stdout.rstrip().endswith("0")


def test_without_visible_devices_the_host_is_measured_and_a_gpu_can_be_required() -> None:
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pyxfer", "list"]
    listed = subprocess.run(command, env=hidden, capture_output=True, text=True, timeout=60, check=True)
    assert "host memory, not a PCIe link" in listed.stdout
    required = [sys.executable, "-m", "pyxfer", "ceiling", "--require-gpu"]
    refused = subprocess.run(required, env=hidden, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 3
    assert "CUDA_VISIBLE_DEVICES" in refused.stderr


EXAMPLE = Path(__file__).parents[2] / "bench" / "pytest_example.py"

INSTALLED = any(each.value == "pyxfer.pytest_plugin" for each in entry_points(group="pytest11"))


# Not imported here: pytester removes the modules that a test imports, and PyTorch cannot be imported twice.
@pytest.mark.skipif(find_spec("torch") is None, reason="could not import 'torch'")
def test_the_tests_of_the_guide_measure_the_link(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=EXAMPLE.read_text())
    load = () if INSTALLED else ("-p", "pyxfer.pytest_plugin")
    result = pytester.runpytest_subprocess(*load, "--xfer-json=out.json", "--xfer-budget=1s", timeout=100)
    result.assert_outcomes(passed=8)
    result.stdout.re_match_lines([r"pyxfer: .*GPU 0.*", r"-+ pyxfer: .*GPU 0.* -+"])
    session = XferSession.load(pytester.path / "out.json")
    found = {test.test.partition("::")[2]: test for test in session.tests}
    assert session.places[0].runtime == "cuda"
    kept, pageable, nothing = (found[f"test_{name}[64MiB]"] for name in ("kept_pinned", "to", "already_there"))
    assert 0.85 < (kept.measurement.of_ceiling or 0) < 1.05
    assert kept.judged.word == "fine"
    assert (pageable.measurement.of_ceiling or 1) < (kept.measurement.of_ceiling or 0)
    assert nothing.measurement.gbps is None
    assert "above the link's peak" in (nothing.measurement.rate.reason or "")


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
