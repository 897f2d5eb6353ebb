"""`pyxfer watch`: an unchanged script in a separate process, its report, its endings, lost writes, and `--step`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from in_process import Command
from marks import slow
from watch.copying import TIMEOUT_S, call, environment

from pyxfer._document.watches import Watched

PYTHON = (sys.executable, "-m", "pyxfer")
COMMAND = (*PYTHON, "watch", "--device", "host", "--ceilings", "none")
COPYING = """
import os, signal, sys, time
from watch.copying import copies
with copies() as made:
    made.send()
    made.fetch()
"""


class Script:
    """A script in a folder of its own, and the command that watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = folder / "watch.json"

    def arguments(self, text: str, options: Sequence[str]) -> list[str]:
        (self.folder / "script.py").write_text(textwrap.dedent(text))
        return [*COMMAND, *options, "script.py"]

    def run(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.call(self.arguments(text, options))

    def call(self, arguments: Sequence[str], **changes: str) -> subprocess.CompletedProcess[str]:
        return call(self.folder, *arguments, **changes)

    def watched(self, text: str, *options: str) -> Watched:
        result = self.run(text, "--export-json", self.report.name, *options)
        assert result.returncode == 0, result.stderr
        return Watched.load(self.report)

    def start(self, text: str, *options: str) -> subprocess.Popen[str]:
        """Start a script and wait for its first line of output."""
        process = subprocess.Popen(
            self.arguments(text, options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


def copied(watched: Watched) -> dict[str, int]:
    assert watched.activity.value is not None, watched.activity.reason
    return {row.direction: row.nbytes for row in watched.activity.value.copies}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A folder for a script."""
    return Script(tmp_path)


def test_the_page_goes_to_stderr_and_every_file_is_written_when_the_window_ends(script: Script) -> None:
    names = {"--trace": "t.json", "--export-json": "w.json", "--export-csv": "w.csv", "--export-md": "w.md"}
    if find_spec("vl_convert") is not None:  # of the extra `report`
        names["--report"] = "w.html"
    result = script.run(COPYING + "print('its own')", *(word for pair in names.items() for word in pair))
    assert (result.returncode, result.stdout) == (0, "its own\n"), result.stderr
    assert len(result.stderr.splitlines()) > 3
    assert "Traceback" not in result.stderr
    assert {path.name for path in script.folder.iterdir()} == {"script.py", *names.values()}
    assert json.loads((script.folder / "t.json").read_text())
    assert "--report" not in names or "<article" in (script.folder / "w.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "until", "inside"), [("--skip", "marks._recorder", "d2h"), ("--duration", "not marks._recorder", "h2d")]
)
def test_time_before_and_after_the_window_is_left_out(script: Script, option: str, until: str, inside: str) -> None:
    text = f"""
        import time
        from pyxfer._watch import marks
        from watch.copying import copies
        with copies() as made:
            made.send()
            while not ({until}):
                time.sleep(0.01)
            made.fetch()
    """
    watched = script.watched(text, option, "2s")
    assert copied(watched) == {inside: 64 << 10}
    assert option == "--skip" or watched.window_s >= 2.0


def test_a_script_that_ends_before_its_window_is_reported(script: Script) -> None:
    result = script.run("pass", "--skip", "1min")
    assert result.returncode == 0
    words = " ".join(result.stderr.split())
    assert "nothing was watched: the script ended within the 60.0 s that were to be skipped" in words


@pytest.mark.slow
@pytest.mark.parametrize("lasts_s", [0.1, 0.104])
def test_a_script_that_ends_as_its_window_opens_keeps_its_code(script: Script, lasts_s: float) -> None:
    result = script.run(f"import sys, time\ntime.sleep({lasts_s})\nsys.exit(3)", "--skip", "100ms")
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr


def test_a_script_without_steps_is_reported(script: Script) -> None:
    result = script.run("pass", "--skip", "5", "--steps", "3")
    assert result.returncode == 0
    words = " ".join(result.stderr.split())
    assert "the window never opened: 0 steps were taken, and 5 were to be skipped" in words
    assert "name the function that is called for each input, --step module:function, or skip a time" in words


def test_a_script_may_watch_itself(script: Script) -> None:
    text = """
        import pyxfer
        from watch.copying import copies
        with copies() as made:
            made.fetch()
            with pyxfer.watch(device="host", ceilings=None) as w:
                made.send()
            print([row.direction for row in w.result.activity.value.copies])
    """
    result = script.run(text, "--export-json", script.report.name)
    assert (result.returncode, result.stdout) == (0, "['h2d']\n"), result.stderr
    watched = Watched.load(script.report)
    assert (copied(watched), watched.ended) == ({"d2h": 64 << 10}, "ended")
    assert "gave-way" in {remark.code for remark in watched.remarks}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--trace", "none/trace.json"), "make the folder first"),
        (("--export-json", "-"), "--export-json cannot be stdout, which belongs to the script"),
        (("--trace", "one", "--export-csv", "./one"), "Two exports name the file"),
        (("--export-md", "./script.py"), "--export-md './script.py' is the script"),
        (("--signal", "--skip", "60s"), "--signal starts the window"),
        (("--skip", "soon"), "a number of steps such as 10"),
        (("--skip", "-1"), "--skip"),
        (("--duration", "0s"), "is not above zero"),
        (("--steps", "0"), "--steps 0 is not a whole number"),
        (("--capacity", "1KiB"), "--capacity '1KiB' is too little memory for records: give 1 MiB or more"),
        (("--ceilings", "none.json"), "none.json"),
        (("--device", "garbage"), "is none of the devices"),
        (("--trace", ""), "the name is empty"),
        (("--export-json", ""), "the name is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_options_exit_with_2_before_the_script_starts(
    script: Script, options: tuple[str, ...], sentence: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.folder)
    result = command(*script.arguments("open('ran', 'w')", options)[len(PYTHON) :])
    assert result.returncode == 2
    assert sentence in " ".join(result.stderr.split())
    assert not (script.folder / "ran").exists()


ENDS_WITH_7 = f"{COPYING}\nsys.exit(7)"


@pytest.mark.parametrize("redirection", ["2>/dev/full", slow("2>&-")])
def test_a_closed_stderr_keeps_the_exit_code_and_the_export(script: Script, redirection: str) -> None:
    arguments = script.arguments(ENDS_WITH_7, ("--export-json", script.report.name))
    shell = ["sh", "-c", f'"$@" {redirection}', "sh", *arguments]
    result = subprocess.run(shell, check=False, timeout=TIMEOUT_S, cwd=script.folder, env=environment())
    assert result.returncode == 7
    assert Watched.load(script.report).ended == "complete"


def test_a_failed_export_does_not_stop_the_others(script: Script) -> None:
    text = f"import shutil\nshutil.rmtree('gone')\n{ENDS_WITH_7}"
    (script.folder / "gone").mkdir()
    exports = ("--trace", "gone/t.json", "--export-json", script.report.name, "--export-md", "w.md")
    result = script.run(text, *exports)
    assert result.returncode == 7
    assert Watched.load(script.report).ended == "complete"
    assert (script.folder / "w.md").exists()
    words = " ".join(result.stderr.split())
    assert "--trace: " in words
    assert "gone/t.json" in words
    assert "window " in words


def test_a_lost_export_is_no_success(script: Script) -> None:
    result = script.run(COPYING, "--trace", "/dev/full", "--export-json", script.report.name)
    assert result.returncode == 4
    assert "--trace: '/dev/full' cannot be written" in " ".join(result.stderr.split())
    assert Watched.load(script.report).ended == "complete"


def test_a_script_with_an_undecodable_name_is_reported(script: Script) -> None:
    arguments = script.arguments(COPYING + "time.sleep(0.1)", ("--export-json", script.report.name))
    name = os.fsdecode(b"caf\xe9.py")
    (script.folder / "script.py").rename(script.folder / name)
    result = script.call([*arguments[:-1], name])
    assert result.returncode == 0, result.stderr
    assert copied(Watched.load(script.report))["h2d"] == 64 << 10


def test_a_missing_gpu_is_reported_once(script: Script) -> None:
    arguments = [word for word in script.arguments("pass", ()) if word not in ("--device", "host")]
    result = script.call(arguments, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0
    assert result.stderr.count("No usable GPU") == 1


# --- --step: the calls of a function are the steps -------------------------------------------------------------------


# Every way in which a script binds a function at its top level.
BINDING = """
from __future__ import annotations
import functools, pickle, sys
def plain(x): return x
class Model:
    def step(self, x): return x
    class Inner:
        @staticmethod
        def step(x): return x
assigned = functools.partial(plain)
from os.path import basename as imported
import os.path
if __name__ == "__main__":
    def nested(x: Missing): return x
    try:
        in_try = lambda x: x
    finally:
        pass
match 1:
    case 1:
        def matched(x): return x
pickled = pickle.dumps((plain, Model.step, Model.Inner.step))
for number in range(3):
    plain(number); Model().step(number); Model.Inner.step(number); assigned(number); imported("a"); nested(number)
    in_try(number); matched(number); os.path.isabs("a")
print([name for name in globals() if name[0] != "_"], __doc__, locals() is globals(), nested.__annotations__, pickled)
"""


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("plain", 6),
        *(slow(path, 3) for path in ("Model.Inner.step", "assigned", "imported", "in_try")),
        slow("matched", 3),
    ],
)
def test_a_function_of_the_script_itself_is_in_main(script: Script, path: str, count: int) -> None:
    result = script.run(BINDING, "--step", f"__main__:{path}", "--export-json", script.report.name)
    alone = script.call([sys.executable, "script.py"])
    assert (result.returncode, result.stdout) == (0, alone.stdout), result.stderr
    steps = Watched.load(script.report).steps
    assert (steps.finder, steps.functions, steps.watched) == ("named", (f"__main__:{path}",), count)


@pytest.mark.parametrize("program", [("-m", "package"), slow(("folder",))], ids=" ".join)
def test_a_function_of_a_module_that_is_run_is_in_main(tmp_path: Path, program: tuple[str, ...]) -> None:
    for place in ("package/__main__.py", "package/part.py", "folder/__main__.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(
            "def step(): pass\nfor _ in range(3): step()\nprint(type(__loader__).__name__, __spec__.name)\n"
        )
    (tmp_path / "package" / "__init__.py").write_text("")
    options = ("--step", "__main__:step", "--export-json", "w.json")
    watched, alone = (call(tmp_path, *command, *program) for command in ((*COMMAND, *options), (sys.executable,)))
    assert (watched.returncode, watched.stdout) == (0, alone.stdout), watched.stderr
    assert Watched.load(tmp_path / "w.json").steps.watched == 3


def test_a_function_of_a_module_is_skipped_and_counted(script: Script) -> None:
    (script.folder / "engine.py").write_text("class Model:\n    def generate(self, x):\n        return x\n")
    text = """
        from engine import Model
        model = Model()
        print([model.generate(number) for number in range(9)][-1])
    """
    options = ("--step", "engine:Model.generate", "--skip", "2", "--steps", "4", "--export-json", script.report.name)
    result = script.run(text, *options)
    assert (result.returncode, result.stdout) == (0, "8\n"), result.stderr
    assert "steps   calls of engine:Model.generate (--step)" in result.stderr
    watched = Watched.load(script.report)
    assert (watched.ended, watched.steps.skipped, watched.steps.watched) == ("complete", 2, 4)


def test_an_exception_of_a_counted_call_is_shown_as_without_a_watch(script: Script) -> None:
    text = """
        def f(x):
            return 1 / x
        def g():
            try:
                return f(0)
            except ZeroDivisionError as error:
                raise ValueError("its own") from error
        def h(x):
            return f(x)
        try:
            g()
        except ValueError:
            h("text")
    """
    result = script.run(text, "--step", "__main__:f")
    alone = script.call([sys.executable, "script.py"])
    assert result.returncode == alone.returncode == 1
    assert alone.stderr.strip() in result.stderr


def test_steps_that_the_script_marks_itself_have_precedence(script: Script) -> None:
    text = """
        import pyxfer
        def f(): pass
        f()
        with pyxfer.watch(device="host", ceilings=None) as w:
            for _ in range(3):
                with w.step():
                    f()
        print(w.result.steps.watched, w.result.steps.finder)
    """
    result = script.run(text, "--step", "__main__:f")
    assert (result.returncode, result.stdout) == (0, "3 None\n"), result.stderr


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("email:nothing", "the module 'email' has no 'nothing'"),
        slow("email:message_from_string", "email:message_from_string was never called in this process"),
        slow("wave:open", "the script did not import 'wave'; a function of the script itself is in __main__"),
    ],
)
def test_a_function_that_is_not_found_or_not_called_is_a_remark(script: Script, step: str, problem: str) -> None:
    result = script.run("import email, sys; sys.exit(5)", "--step", step, "--export-json", script.report.name)
    assert result.returncode == 5
    remark = Watched.load(script.report).remarks[0]
    assert (remark.code, remark.text) == ("step-function", f"--step: {problem}")


@pytest.mark.parametrize("step", ["nosuch:f", "__main__:nosuch", *map(slow, ["f", "script.py:f"])])
def test_a_function_that_cannot_be_found_exits_with_2_before_the_script_starts(script: Script, step: str) -> None:
    result = script.run("print('started')", "--step", step)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--step" in result.stderr
    assert "Traceback" not in result.stderr


# --- the exit code and the report for every way in which a script ends ------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "code", "ended"),
    [
        ("sys.exit(3)", 3, "complete"),
        slow("sys.exit('said')", 1, "complete"),
        slow("raise ValueError('its own')", 1, "failed"),
    ],
)
def test_a_script_that_ends_is_reported_and_keeps_its_exit_code(
    script: Script, ending: str, code: int, ended: str
) -> None:
    result = script.run(f"{COPYING}\n{ending}", "--export-json", script.report.name)
    assert result.returncode == code
    watched = Watched.load(script.report)
    assert (watched.ended, copied(watched)["h2d"]) == (ended, 64 << 10)


@pytest.mark.parametrize(
    ("ending", "code", "why"),
    [
        ("os._exit(5)", 5, "the script called os._exit or exec"),
        slow("os.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9 "),
        slow("os.execv('/bin/sh', ['sh', '-c', 'exit 6'])", 6, "the script called os._exit or exec"),
    ],
)
def test_a_script_that_dies_inside_its_window_has_no_report(script: Script, ending: str, code: int, why: str) -> None:
    result = script.run(f"{COPYING}\n{ending}")
    assert result.returncode == code
    assert f"nothing was watched: {why}" in " ".join(result.stderr.split())


@pytest.mark.slow
def test_a_script_that_is_killed_after_its_window_is_reported(script: Script) -> None:
    text = f"{COPYING}\ntime.sleep(1)\nos.kill(os.getpid(), signal.SIGKILL)"
    result = script.run(text, "--duration", "300ms", "--export-json", script.report.name)
    assert result.returncode == 137
    assert Watched.load(script.report).ended == "complete"


WAITS = """
import signal, sys, time
try:
    print("ready", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


def test_ctrl_c_sent_to_the_command_reaches_the_script_once(script: Script) -> None:
    process = script.start(WAITS)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (7, "interrupted\n"), err
    assert "Traceback" not in err


def test_an_uncaught_ctrl_c_ends_the_script_with_130(script: Script) -> None:
    process = script.start("import time\nprint('ready', flush=True)\ntime.sleep(30)", "--export-json", "watch.json")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in err
    assert "launch.py" not in err
    assert Watched.load(script.report).ended == "ended"


CLOSING = f"""
from pyxfer._watch.recording import Recording
{COPYING}
finish = Recording.finish
"""


@pytest.mark.parametrize(("ending", "code"), [("raise KeyboardInterrupt", 130), slow("sys.exit(3)", 3)])
def test_ctrl_c_while_the_window_closes_at_the_scripts_end_loses_nothing(
    script: Script, ending: str, code: int
) -> None:
    text = f"""{CLOSING}
def finish_interrupted(recording):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    return finish(recording)
Recording.finish = finish_interrupted
{ending}
"""
    result = script.run(text, "--export-json", script.report.name)
    assert result.returncode == code, result.stderr
    assert copied(Watched.load(script.report))["h2d"] == 64 << 10
    assert "atexit" not in result.stderr


def test_a_window_interrupted_while_it_closes_is_reported_as_lost(script: Script) -> None:
    text = f"""{CLOSING}
import pyxfer
def finish_never(recording):
    raise KeyboardInterrupt
Recording.finish = finish_never
try:
    pyxfer.watch(device="host").start()
except KeyboardInterrupt:
    sys.exit(4)
"""
    result = script.run(text)
    assert result.returncode == 4, result.stderr
    assert "nothing was watched: the window is lost: closing it was interrupted" in " ".join(result.stderr.split())


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_reaches_the_script_once(script: Script) -> None:
    import pty

    text = """
        import signal, time
        count = []
        signal.signal(signal.SIGINT, lambda *_: count.append(1))
        print("ready", flush=True)
        while not count:
            time.sleep(0.01)
        time.sleep(0.5)  # a second one would come at the same time
        print("interrupted", len(count), flush=True)
    """
    arguments = script.arguments(text, ())
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(script.folder)
        os.execve(arguments[0], arguments, environment())
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:  # on Linux reading a closed terminal fails with EIO
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, seen
    assert b"interrupted 1" in seen


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGUSR1)])
def test_signals_are_forwarded_to_the_script(script: Script, number: signal.Signals) -> None:
    text = f"""
        import signal, sys, time
        def leave(number, frame):
            sys.exit(number)
        signal.signal({int(number)}, leave)
        print("ready", flush=True)
        time.sleep(30)
    """
    process = script.start(text, "--export-json", script.report.name)
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == number
    assert Watched.load(script.report).ended == "complete"


def test_a_forked_child_does_not_write_the_report(script: Script) -> None:
    text = f"{COPYING}\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\n    time.sleep(0.2)\nsys.exit(4)"
    result = script.run(text, "--export-json", script.report.name)
    assert result.returncode == 4
    assert "children" in {remark.code for remark in Watched.load(script.report).remarks}


@pytest.mark.slow
def test_signals_start_and_stop_several_windows(script: Script) -> None:
    text = """
        import threading
        from watch.copying import copies
        def is_watched():
            return "pyxfer-watch-lines" in [thread.name for thread in threading.enumerate()]
        print("ready", flush=True)
        inside = 0
        with copies() as made:
            while True:
                made.send()
                before, inside = inside, inside + 1 if is_watched() else 0
                if inside == 3 or before > inside:
                    print("open" if inside else "closed", flush=True)
    """
    with script.start(text, "--signal", "--export-json", script.report.name) as process:
        assert process.stdout is not None
        for number in (1, 2):
            for expected in ("open\n", "closed\n"):
                process.send_signal(signal.SIGUSR1)
                assert process.stdout.readline() == expected
            expect_line(process, f"pyxfer: watch {number}\n")
        process.terminate()
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143, err
    assert [copied(Watched.load(script.folder / f"watch-{number}.json"))["h2d"] > 0 for number in (1, 2)] == [
        True,
        True,
    ]


def expect_line(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stderr is not None
    seen = ""
    while not seen.endswith(expected):
        line = process.stderr.readline()
        assert line, seen
        seen += line
