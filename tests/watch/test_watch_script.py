"""A script under `pyxfer watch` cannot tell that it is not run by Python alone."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from marks import slow
from watch.programs import TIMEOUT_S, environment

# Everything that a program may look at to see how it was started.
ABOUT = """
'''The program's own text.'''
import json, os, sys, threading
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "names": sorted(globals()), "name": __name__, "file": __file__,
    "package": __package__, "doc": __doc__, "cached": globals().get("__cached__"), "loader": type(__loader__).__name__,
    "spec": getattr(__spec__, "name", None), "main": sys.modules["__main__"].__dict__ is globals(),
    "flags": repr(sys.flags), "stdin": sys.stdin.read(), "cwd": os.getcwd(), "modules": "numpy" in sys.modules,
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


def both_ways(*program: str, cwd: Path, python: tuple[str, ...] = ()) -> tuple[dict[str, object], dict[str, object]]:
    """What a program sees of itself, alone and watched."""
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
def test_it_sees_of_itself_what_it_sees_alone(folder: Path, program: tuple[str, ...]) -> None:
    alone, watched = both_ways(*program, "first", "--skip", "3", "-m", cwd=folder)
    assert watched == alone


def test_a_script_in_another_folder_finds_its_own_modules(folder: Path) -> None:
    (folder / "package" / "helper.py").write_text("")
    (folder / "package" / "part.py").write_text("import helper; print(helper.__file__)")
    assert run(*WATCH, "package/part.py", cwd=folder).stdout.strip() == str(folder / "package" / "helper.py")


@pytest.mark.slow
def test_a_link_to_a_script_finds_the_modules_of_what_it_points_to(folder: Path) -> None:
    (folder / "package" / "link.py").symlink_to(folder / "script.py")
    alone, watched = both_ways("package/link.py", cwd=folder)
    assert watched == alone


@pytest.mark.parametrize("flag", ["-O", *(slow(flag) for flag in ("-u", "-B", "-Wignore"))])
def test_the_flags_of_this_python_are_the_scripts_too(folder: Path, flag: str) -> None:
    alone, watched = both_ways("script.py", cwd=folder, python=(flag,))
    assert watched == alone


def test_a_module_of_its_folder_with_the_name_of_one_of_pythons_disturbs_only_the_script(folder: Path) -> None:
    for name in ("json", "queue", "msgspec", "numpy"):
        (folder / f"{name}.py").write_text("raise SystemExit('taken for the real one')")
    (folder / "plain.py").write_text("print('ran')")
    result = run(*WATCH, "plain.py", cwd=folder, python=("-P",) if sys.version_info >= (3, 11) else ("-I",))
    assert (result.returncode, result.stdout) == (0, "ran\n"), result.stderr


def test_a_script_that_comes_through_a_pipe_is_run(folder: Path) -> None:
    command = [sys.executable, *WATCH, "/dev/stdin"]
    result = subprocess.run(
        command, input="print('ran')", capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment()
    )
    assert (result.returncode, result.stdout) == (0, "ran\n"), result.stderr


@pytest.mark.slow
def test_a_script_is_run_where_the_working_folder_is_gone(folder: Path) -> None:
    (folder / "plain.py").write_text("print('ran')")
    gone = folder / "gone"
    gone.mkdir()
    leave = f"import os, sys; os.rmdir({str(gone)!r}); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    result = run("-c", leave, *WATCH, str(folder / "plain.py"), cwd=gone)
    assert (result.returncode, result.stdout) == (0, "ran\n"), result.stderr
    assert "nothing was watched" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "import numpy\n"])
def test_a_numpy_of_its_folder_costs_at_most_the_window_and_leaves_the_script_its_end(
    folder: Path, before: str
) -> None:
    (folder / "folder" / "numpy.py").write_text("print('its own')")
    (folder / "folder" / "plain.py").write_text(before + "raise SystemExit(3)")
    result = run(*WATCH, "folder/plain.py", cwd=folder)
    assert (result.returncode, result.stdout) == (3, "its own\n" if before else ""), result.stderr
    assert "Traceback" not in result.stderr
    assert ("the window could not be put together: " in result.stderr) == bool(before)


@pytest.mark.slow
def test_a_compiled_script_runs_too(folder: Path) -> None:
    import py_compile

    py_compile.compile(str(folder / "script.py"), str(folder / "script.pyc"), doraise=True)
    alone, watched = both_ways("script.pyc", cwd=folder)
    assert {**watched, "loader": ""} == {**alone, "loader": ""}


def test_a_traceback_begins_where_the_script_does(folder: Path) -> None:
    (folder / "fails.py").write_text("def f():\n    raise ValueError('its own')\nf()\n")
    alone, watched = run("fails.py", cwd=folder), run(*WATCH, "fails.py", cwd=folder)
    assert alone.stderr.strip() in watched.stderr
    assert (watched.returncode, "launch.py" in watched.stderr) == (1, False)


@pytest.mark.slow
def test_what_it_pickles_is_found_in_its_own_main(folder: Path) -> None:
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
        (("-m", "nosuch.part"), "There is no module 'nosuch.part' to run"),
        (("wrong.py",), "wrong.py' is not Python (line 2: "),
        slow(*(("-m", "package.nosuch"), "There is no module 'package.nosuch' that can be run: check its name.")),
        slow(("binary.py",), "binary.py' is not Python ("),
        slow(("coded.py",), "coded.py' is not Python (unknown encoding: nosuch)"),
        slow(("-m", "wrong"), "wrong.py' is not Python (line 2: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_run_ends_with_2_and_a_sentence(folder: Path, program: tuple[str, ...], sentence: str) -> None:
    (folder / "wrong.py").write_text("x = 1\nx = = 2\n")
    (folder / "coded.py").write_text("# coding: nosuch\n")
    (folder / "binary.py").write_bytes(b"\x7fELF\x00\x01")
    result = run(*WATCH, *program, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
