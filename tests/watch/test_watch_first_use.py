"""A script is watched from its first use of CUDA. pyxfer does not use CUDA before."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from watch.programs import TIMEOUT_S, environment

from pyxfer._watch.launch import NOTE, FirstUse, Launch, window_path
from pyxfer._watch.options import WatchOptions
from pyxfer._watch.window import load_window

# A driver with the two functions that are needed here.
DRIVER = """
static int is_up = 0;
int cuInit(unsigned flags) { is_up = 1; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return is_up ? 0 : 3; }
"""
LAUNCH = "import sys; from pyxfer._watch.launch import main; main(sys.argv[1], sys.argv[2:])"
SCRIPT = """
import ctypes, os, sys, threading, time
from watch.copying import copies
driver = ctypes.CDLL(sys.argv[1])
def waiting():
    return [thread.is_waiting_for_cuda for thread in threading.enumerate() if thread.name == "pyxfer-watch-start"]
while waiting() == [False]:
    time.sleep(0.001)
with copies() as made:
    made.send()
    print("named for NVTX:", "NVTX_INJECTION64_PATH" in os.environ)
    if sys.argv[2] == "use":
        driver.cuInit(0)
        while waiting():
            time.sleep(0.001)
    made.fetch()
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the name of the driver."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    library = folder / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(folder / "driver.c")]
    subprocess.run(command, check=True)
    return library


def launched(folder: Path, driver: Path, use: str) -> str:
    """The output of a script that is watched from its first use of CUDA."""
    (folder / "script.py").write_text(SCRIPT)
    launch = Launch(WatchOptions(device="host", lines=False), str(folder), driver=12090)
    result = subprocess.run(
        [sys.executable, "-c", LAUNCH, launch.pack(), "script.py", str(driver), use],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=folder,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_copies_before_the_first_use_of_cuda_are_not_in_the_window(tmp_path: Path, driver: Path) -> None:
    launched(tmp_path, driver, "use")
    capture = load_window(window_path(str(tmp_path), 1)).capture.value
    assert capture is not None
    assert [capture.name(record) for record in capture.records if "cpy" in capture.name(record)]
    ways = capture.records["way"][capture.records["kind"] == 1]
    assert ways.tolist() == [2]


def test_a_script_that_does_not_use_cuda_leaves_a_note(tmp_path: Path, driver: Path) -> None:
    launched(tmp_path, driver, "do not")
    assert not window_path(str(tmp_path), 1).exists()
    assert (tmp_path / NOTE).read_text() == "the script has not used CUDA"


def test_the_nvtx_library_is_set_before_the_script_runs(tmp_path: Path, driver: Path) -> None:
    assert launched(tmp_path, driver, "use") == "named for NVTX: True\n"


def test_cancel_prevents_the_callback_or_waits_for_it() -> None:
    called = threading.Event()
    early = FirstUse(60.0, called.set, needs_cuda=False)
    early.start()
    early.cancel()
    assert not early.is_alive()
    assert not called.is_set()

    inside, go_on = threading.Event(), threading.Event()

    def call() -> None:
        inside.set()
        go_on.wait(10)
        called.set()

    calling = FirstUse(0.0, call, needs_cuda=False)
    calling.start()
    assert inside.wait(10)
    threading.Timer(0.1, go_on.set).start()
    calling.cancel()
    assert called.is_set()
