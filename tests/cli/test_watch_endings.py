"""`pyxfer watch`: the exit code and the report for every way in which a script ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from cli.watched_scripts import COPYING, Script, copied
from marks import slow
from watch.programs import TIMEOUT_S, environment

from pyxfer._document.watches import Watched


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A folder for a script."""
    return Script(tmp_path)


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
