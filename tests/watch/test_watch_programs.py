"""Watched programs in processes of their own: scripts of `pyxfer watch`, forks, signals and ends without a stop."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from marks import slow
from samples import known
from watch.copying import TIMEOUT_S, call, output, start_program

import pyxfer
from pyxfer import UsageError
from pyxfer._document.watches import Watched
from pyxfer._trace.records import CopyKind, Kind
from pyxfer._watch.launch import NOTE, FirstUse, Launch, numbered, window_path
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


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return call(cwd, sys.executable, *arguments)


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
        slow(("package/link.py",)),
        slow(("-m", "package.part")),
        slow(("folder",)),
    ],
    ids=" ".join,
)
def test_a_program_runs_as_under_python(folder: Path, program: tuple[str, ...]) -> None:
    (folder / "package" / "link.py").symlink_to(folder / "script.py")
    flags, arguments = ("-q", "-B", "-Wignore"), (*program, "first", "--skip", "3", "-m")
    alone, watched = (run(*flags, *watch, *arguments, cwd=folder) for watch in ((), WATCH))
    assert alone.returncode == watched.returncode == 0, (alone.stderr, watched.stderr)
    assert json.loads(watched.stdout) == json.loads(alone.stdout)


def test_a_script_in_another_folder_finds_its_own_modules(folder: Path) -> None:
    (folder / "package" / "helper.py").write_text("")
    (folder / "package" / "part.py").write_text("import helper; print(helper.__file__)")
    assert run(*WATCH, "package/part.py", cwd=folder).stdout.strip() == str(folder / "package" / "helper.py")


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
        (("",), "The script '' cannot be read (Is a directory): check its name."),
        (("none.py",), "The script 'none.py' cannot be read (No such file or directory): check its name."),
        (("-m", "nosuch.part"), "There is no module 'nosuch.part' to run: check its name."),
        (("wrong.py",), "The script 'wrong.py' cannot be compiled: "),
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
    result = run("-c", LAUNCH, launch.pack(), "script.py", str(driver), use, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_copies_before_the_first_use_of_cuda_are_not_watched_and_nvtx_is_set_up(tmp_path: Path, driver: Path) -> None:
    assert launched(tmp_path, driver, "use") == "named for NVTX: True\n"
    capture = known(load_window(window_path(str(tmp_path), 1)).capture)
    assert [capture.name(record) for record in capture.records if "cpy" in capture.name(record)]
    assert capture.of(Kind.COPY)["way"].tolist() == [CopyKind.D2H]


def test_a_script_that_does_not_use_cuda_leaves_a_note(tmp_path: Path, driver: Path) -> None:
    launched(tmp_path, driver, "do not")
    assert not window_path(str(tmp_path), 1).exists()
    assert (tmp_path / NOTE).read_text() == "the script has not used CUDA"


def test_cancel_prevents_the_callback_or_waits_for_it() -> None:
    called, inside, go_on = (threading.Event() for _ in range(3))
    early = FirstUse(60.0, called.set, needs_cuda=False)
    early.start()
    early.cancel()
    assert not early.is_alive()
    assert not called.is_set()

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


STEPS = """
w = pyxfer.watch(device="host", ceilings=None)
def children():
    return [remark.text for remark in w.result.remarks if remark.code == "children"]
"""


def test_a_forked_child_is_not_watched_and_the_parent_goes_on() -> None:
    lines = output(
        STEPS
        + """
with w:
    child = os.fork()
    if child == 0:
        with w.step():
            pass
        with pyxfer.mark("in the child"):
            pass
        for use in (lambda: w.result, w.start):
            try:
                use()
            except pyxfer.UsageError as error:
                print("refused", flush=True)
    else:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with w.step():
            pass
if child:
    print(code, w.result.steps.watched, [row.name for row in w.result.ranges], children())
"""
    )
    assert lines[:2] == ["refused"] * 2
    assert lines[2].startswith("0 1 [] ['at least 1 child process")


def test_a_child_may_watch_itself_if_nothing_was_used_before_the_fork() -> None:
    lines = output(
        """
child = os.fork()
with pyxfer.watch(device="host", ceilings=None) as w, copies() as made:
    with w.step():
        made.send()
counts = (w.result.steps.watched, sum(row.count for row in w.result.activity.value.copies))
os.write(1, b"%d %d\\n" % counts)  # at once, for two processes write
if child:
    os.waitpid(child, 0)
"""
    )
    assert lines == ["1 1", "1 1"]


def test_earlier_and_spawned_children_are_counted_and_the_processor_time_of_ended_ones_is_said() -> None:
    lines = output(
        STEPS
        + """
import multiprocessing, subprocess
def start(method):
    process = multiprocessing.get_context(method).Process(target=time.sleep, args=(60,))
    process.start()
    return process
before = start("fork")
with w:
    during = [start("fork"), start("spawn")]
    busy = "import time; deadline = 0.3; all(time.process_time() < deadline for _ in iter(int, 1))"
    subprocess.run([sys.executable, "-c", busy], check=True)
for process in (before, *during):
    process.terminate()
print(children())
"""
    )
    assert "at least 3 child processes" in lines[0]
    (seconds,) = re.findall(r"used ([0-9.]+) m?s of processor time", lines[0])
    assert float(seconds) >= 0.3


def test_a_watch_that_was_never_stopped_is_closed_at_exit() -> None:
    lines = output(
        """
import atexit
w = pyxfer.watch(device="host", ceilings=None)
atexit.register(lambda: print("at exit", w._session.is_active))
w.start()
with w.step():
    pass
w._session.on_closed = lambda window: print("closed", len(window.steps))
"""
    )
    # The program's own handler was registered first, so it is called last.
    assert lines == ["closed 1", "at exit False"]


def test_watching_does_not_import_numpy_or_rich() -> None:
    lines = output(
        """
w = pyxfer.watch(device="host")
w.start()
print(sorted({"numpy", "rich", "typer", "torch"} & set(sys.modules)))
""",
        head="import sys, pyxfer\n",
    )
    assert lines == ["[]"]


# Takes steps without end. It prints when a window has some, and when it has closed, so that tests can wait for that.
LOOP = """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal(save_to=sys.argv[1])
print("ready", flush=True)
was = False
with copies() as made:
    while True:
        with w.step():
            made.send()
        if (w._session.is_active if was else getattr(w._session.steps, "count", 0) > 2) != was:
            was = not was
            print("open" if was else "closed", flush=True)
"""


def expect(process: Any, line: str) -> None:
    assert process.stdout.readline() == f"{line}\n"


def test_signals_start_and_stop_numbered_windows_and_one_that_is_open_at_the_end_is_reported(tmp_path: Path) -> None:
    process: Any
    with start_program(LOOP, str(tmp_path / "w.json")) as process:
        expect(process, "ready")
        process.send_signal(signal.SIGUSR1)
        expect(process, "open")
        process.send_signal(signal.SIGUSR1)
        expect(process, "closed")
        process.send_signal(signal.SIGUSR1)
        expect(process, "open")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    for number in (1, 2):
        assert f"pyxfer: watch {number} of process {process.pid}:" in err
        assert Watched.load(tmp_path / f"w-{number}.json").steps.watched > 0
    assert Watched.load(tmp_path / "w-1.json").ended == "complete"


def test_another_active_watch_is_reported_on_stderr() -> None:
    program = """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal()
with pyxfer.watch(device="host", ceilings=None):
    signal.raise_signal(signal.SIGUSR1)
    time.sleep(60)
"""
    process: Any
    with start_program(program) as process:
        assert process.stderr.readline().startswith("pyxfer: Another watch is active, started at <string>:")
        process.kill()


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ({"number": signal.SIGUSR1}, "has a handler for SIGUSR1"),
        ({"number": signal.SIGKILL}, "cannot be used"),
        ({"number": 4711}, "4711 is not a signal"),
        ({"save_to": "none/w.json"}, "folder"),
    ],
)
def test_an_unusable_signal_is_refused(words: dict[str, Any], word: str) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with pytest.raises(UsageError, match=word):
            pyxfer.watch().on_signal(**words)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_in_another_thread_is_refused() -> None:
    with ThreadPoolExecutor() as pool, pytest.raises(UsageError, match="main thread"):
        pool.submit(pyxfer.watch().on_signal).result()


@pytest.mark.parametrize(
    ("path", "expected"), [("w.json", "w-3.json"), ("a.b/trace.json.gz", "a.b/trace-3.json.gz"), ("plain", "plain-3")]
)
def test_the_number_is_inserted_before_the_extensions(path: str, expected: str) -> None:
    assert numbered(path, 3) == expected
