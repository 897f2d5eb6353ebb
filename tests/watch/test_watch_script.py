"""A script runs under `pyxfer watch` as it runs under Python, and is watched from its first use of CUDA."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from marks import slow
from watch.programs import TIMEOUT_S, environment

from pyxfer._watch.launch import NOTE, FirstUse, Launch, window_path
from pyxfer._watch.options import WatchOptions
from pyxfer._watch.window import load_window

# Prints how the program was started.
ABOUT = """
'''The program's own text.'''
import json, os, sys, threading
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__, "package": __package__, "doc": __doc__,
    "loader": type(__loader__).__name__, "spec": getattr(__spec__, "name", None),
    "main": sys.modules["__main__"].__dict__ is globals(), "builtins": __builtins__ is sys.modules["builtins"],
    "flags": repr(sys.flags), "stdin": sys.stdin.read(), "cwd": os.getcwd(), "numpy": "numpy" in sys.modules,
    "main thread": threading.current_thread() is threading.main_thread(),
}))
"""
WATCH = ("-m", "pyxfer", "watch", "--device", "host", "--ceilings", "none")


def run(*arguments: str, cwd: Path, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python, *arguments],
        input="what it reads",
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=cwd,
        env=environment(),
    )


def alone_and_watched(
    *program: str, cwd: Path, python: tuple[str, ...] = ()
) -> tuple[dict[str, object], dict[str, object]]:
    """The output of the program alone, and watched."""
    alone, watched = run(*program, cwd=cwd, python=python), run(*WATCH, *program, cwd=cwd, python=python)
    assert alone.returncode == 0, alone.stderr
    assert watched.returncode == 0, watched.stderr
    return json.loads(alone.stdout), json.loads(watched.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same program as a script, a package, a folder and an archive."""
    (tmp_path / "script.py").write_text(ABOUT)
    for place in ("package/__main__.py", "package/part.py", "folder/__main__.py"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(ABOUT)
    (tmp_path / "package" / "__init__.py").write_text("")
    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.writestr("__main__.py", ABOUT)
    return tmp_path


@pytest.mark.parametrize(
    "program",
    [
        ("script.py",),
        ("-m", "package"),
        ("archive.pyz",),
        slow(("./script.py",)),
        slow(("-m", "package.part")),
        slow(("folder",)),
    ],
    ids=" ".join,
)
def test_a_program_runs_as_under_python(folder: Path, program: tuple[str, ...]) -> None:
    alone, watched = alone_and_watched(*program, "first", "--skip", "3", "-m", cwd=folder)
    assert watched == alone


def test_a_script_in_another_folder_finds_its_own_modules(folder: Path) -> None:
    (folder / "package" / "helper.py").write_text("")
    (folder / "package" / "part.py").write_text("import helper; print(helper.__file__)")
    assert run(*WATCH, "package/part.py", cwd=folder).stdout.strip() == str(folder / "package" / "helper.py")


@pytest.mark.slow
def test_a_symbolic_link_to_a_script_finds_the_modules_of_its_target(folder: Path) -> None:
    (folder / "package" / "link.py").symlink_to(folder / "script.py")
    alone, watched = alone_and_watched("package/link.py", cwd=folder)
    assert watched == alone


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-O", *(slow(flag) for flag in ("-u", "-B", "-Wignore"))])
def test_the_script_gets_the_flags_of_python(folder: Path, flag: str) -> None:
    alone, watched = alone_and_watched("script.py", cwd=folder, python=(flag,))
    assert watched == alone


def test_modules_of_the_scripts_folder_do_not_replace_those_of_pyxfer(folder: Path) -> None:
    for name in ("json", "queue", "msgspec", "numpy"):
        (folder / "folder" / f"{name}.py").write_text("raise SystemExit('imported by mistake')")
    (folder / "folder" / "plain.py").write_text("print('ran'); raise SystemExit(3)")
    result = run(*WATCH, "folder/plain.py", cwd=folder)
    assert (result.returncode, result.stdout) == (3, "ran\n"), result.stderr
    assert "Traceback" not in result.stderr


def test_a_traceback_has_no_frames_of_pyxfer(folder: Path) -> None:
    (folder / "fails.py").write_text("def f():\n    raise ValueError('its own')\nf()\n")
    alone, watched = run("fails.py", cwd=folder), run(*WATCH, "fails.py", cwd=folder)
    assert alone.stderr.strip() in watched.stderr
    assert (watched.returncode, "launch.py" in watched.stderr) == (1, False)


@pytest.mark.slow
def test_spawned_processes_find_the_main_module_of_the_script(folder: Path) -> None:
    (folder / "spawns.py").write_text(
        "import multiprocessing, os\n"
        "class Own:\n    pid = os.getpid()\n"
        "def work(own): return type(own).__module__\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(work, (Own(),)))\n"
    )
    result = run(*WATCH, "spawns.py", cwd=folder)
    assert result.stdout == "__mp_main__\n", result.stderr


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (("none.py",), "The script 'none.py' cannot be read (No such file or directory): check its name."),
        (("-m", "nosuch.part"), "There is no module 'nosuch.part' to run: check its name."),
        (("wrong.py",), "The script 'wrong.py' cannot be compiled: "),
        slow(("-m", "package.nosuch"), "There is no module 'package.nosuch' to run"),
        slow(("binary.py",), "'binary.py' cannot be compiled"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_program_that_cannot_be_run_is_a_usage_error(folder: Path, program: tuple[str, ...], sentence: str) -> None:
    (folder / "wrong.py").write_text("x = 1\nx = = 2\n")
    (folder / "binary.py").write_bytes(b"\x7fELF\x00\x01")
    result = run(*WATCH, *program, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


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
