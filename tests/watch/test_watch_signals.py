"""Windows that a signal opens and closes in a program that runs for long."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from marks import slow
from watch.programs import TIMEOUT_S, output, start_program

from pyxfer._document.watches import Watched
from pyxfer._watch.launch import numbered

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


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def expect_report(process: subprocess.Popen[str], number: int) -> None:
    assert process.stderr is not None
    seen = ""
    while f"pyxfer: watch {number} of process {process.pid}:\n" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line


@pytest.fixture
def looping(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The running program, which saves its documents in `tmp_path`."""
    with start_program(LOOP, str(tmp_path / "w.json")) as process:
        expect(process, "ready")
        yield process
        process.kill()


def test_signals_start_and_stop_windows_which_are_numbered(looping: subprocess.Popen[str], tmp_path: Path) -> None:
    for number in (1, 2):
        looping.send_signal(signal.SIGUSR1)
        expect(looping, "open")
        looping.send_signal(signal.SIGUSR1)
        expect(looping, "closed")
        expect_report(looping, number)
    watched = Watched.load(tmp_path / "w-1.json")
    assert watched.steps.watched > 0
    assert watched.ended == "complete"


def test_a_window_that_is_open_at_the_end_of_the_program_is_reported(
    looping: subprocess.Popen[str], tmp_path: Path
) -> None:
    looping.send_signal(signal.SIGUSR1)
    expect(looping, "open")
    looping.send_signal(signal.SIGINT)
    _, err = looping.communicate(timeout=TIMEOUT_S)
    assert f"pyxfer: watch 1 of process {looping.pid}:" in err
    assert Watched.load(tmp_path / "w-1.json").steps.watched > 0


def test_a_forked_child_ignores_the_signal() -> None:
    lines = output(
        """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal()
child = os.fork()
if child == 0:
    signal.raise_signal(signal.SIGUSR1)
    print("alive", w._session.is_active, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    assert lines == ["alive False"]


def test_another_active_watch_is_reported_on_stderr() -> None:
    program = """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal()
with pyxfer.watch(device="host", ceilings=None):
    signal.raise_signal(signal.SIGUSR1)
    time.sleep(60)
"""
    with start_program(program) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("pyxfer: Another watch is active, started at <string>:")
        process.kill()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("signal.signal(signal.SIGUSR1, lambda *_: None); w.on_signal()", "has a handler for SIGUSR1 already"),
        slow("w.on_signal(signal.SIGKILL)", "cannot be used here"),
        slow("w.on_signal(4711)", "4711 is not a signal"),
        slow("w.on_signal(save_to='none/w.json')", "make the folder first"),
    ],
)
def test_an_unusable_signal_is_refused(call: str, sentence: str) -> None:
    lines = output(f"w = pyxfer.watch()\ntry:\n    {call}\nexcept pyxfer.UsageError as error:\n    print(error)\n")
    assert sentence in lines[0]


def test_on_signal_is_refused_outside_of_the_main_thread() -> None:
    lines = output(
        """
def ask():
    try:
        pyxfer.watch().on_signal()
    except pyxfer.UsageError as error:
        print(error)
thread = threading.Thread(target=ask)
thread.start()
thread.join()
"""
    )
    assert "call this in the main thread" in lines[0]


@pytest.mark.parametrize(
    ("path", "expected"), [("w.json", "w-3.json"), ("a.b/trace.json.gz", "a.b/trace-3.json.gz"), ("plain", "plain-3")]
)
def test_the_number_is_inserted_before_the_extensions(path: str, expected: str) -> None:
    assert numbered(path, 3) == expected
