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

# Steps for ever; it says when some are in a window and when the window has closed, so that nobody waits for a time.
LOOP = """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal(save_to=sys.argv[1])
print("ready", flush=True)
was = False
with copies() as made:
    while True:
        with w.step():
            made.send()
        if (w._session.is_at_work if was else getattr(w._session.steps, "count", 0) > 2) != was:
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
    """The program, at work, with its documents beside the tests' own files."""
    with start_program(LOOP, str(tmp_path / "w.json")) as process:
        expect(process, "ready")
        yield process
        process.kill()


def test_one_signal_starts_and_the_next_stops_and_each_window_is_reported_with_its_number(
    looping: subprocess.Popen[str], tmp_path: Path
) -> None:
    for number in (1, 2):
        looping.send_signal(signal.SIGUSR1)
        expect(looping, "open")
        looping.send_signal(signal.SIGUSR1)
        expect(looping, "closed")
        expect_report(looping, number)
    watched = Watched.load(tmp_path / "w-1.json")
    assert watched.steps.watched > 0
    assert watched.ended == "complete"


def test_a_window_that_is_open_when_the_program_ends_is_reported_too(
    looping: subprocess.Popen[str], tmp_path: Path
) -> None:
    looping.send_signal(signal.SIGUSR1)
    expect(looping, "open")
    looping.send_signal(signal.SIGINT)
    _, err = looping.communicate(timeout=TIMEOUT_S)
    assert f"pyxfer: watch 1 of process {looping.pid}:" in err
    assert Watched.load(tmp_path / "w-1.json").steps.watched > 0


def test_a_forked_child_outlives_the_signal_and_watches_nothing() -> None:
    lines = output(
        """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal()
child = os.fork()
if child == 0:
    signal.raise_signal(signal.SIGUSR1)
    print("alive", w._session.is_at_work, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    assert lines == ["alive False"]


def test_another_watch_at_work_is_told_on_stderr_and_the_program_goes_on() -> None:
    program = """
w = pyxfer.watch(device="host", ceilings=None)
w.on_signal()
with pyxfer.watch(device="host", ceilings=None):
    signal.raise_signal(signal.SIGUSR1)
    time.sleep(60)
"""
    with start_program(program) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("pyxfer: A watch is at work already, begun at <string>:")
        process.kill()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("signal.signal(signal.SIGUSR1, lambda *_: None); w.on_signal()", "has a handler for SIGUSR1 already"),
        slow("w.on_signal(signal.SIGKILL)", "cannot be used here"),
        slow("w.on_signal(4711)", "4711 is no signal"),
        slow("w.on_signal(save_to='none/w.json')", "make the folder first"),
    ],
)
def test_a_signal_that_cannot_be_used_is_refused(call: str, sentence: str) -> None:
    lines = output(f"w = pyxfer.watch()\ntry:\n    {call}\nexcept pyxfer.UsageError as error:\n    print(error)\n")
    assert sentence in lines[0]


def test_another_thread_than_the_main_one_is_refused() -> None:
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
def test_the_number_stands_before_the_endings(path: str, expected: str) -> None:
    assert numbered(path, 3) == expected
