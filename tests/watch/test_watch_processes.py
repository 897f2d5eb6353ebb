"""Programs that fork, spawn, or end without stopping their watch, and windows that a signal opens and closes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from marks import slow
from watch.programs import TIMEOUT_S, output, run_program, start_program

from pyxfer._document.watches import Watched
from pyxfer._watch.launch import numbered

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
        os._exit(0)
    os.waitpid(child, 0)
    with w.step():
        pass
print(w.result.steps.watched, [row.name for row in w.result.ranges], children())
"""
    )
    assert lines[:2] == ["refused"] * 2
    assert lines[2].startswith("1 [] ['at least 1 child process")


def test_a_forked_child_that_leaves_the_block_closes_nothing() -> None:
    lines = output(
        STEPS
        + """
with w:
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with w.step():
            pass
if child:
    print(code, w.result.steps.watched, w.result.tracing.value is not None)
"""
    )
    assert lines == ["0 1 True"]


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


def test_earlier_and_spawned_children_are_counted_too() -> None:
    lines = output(
        STEPS
        + """
import multiprocessing
def start(method):
    process = multiprocessing.get_context(method).Process(target=time.sleep, args=(60,))
    process.start()
    return process
before = start("fork")
with w:
    during = [start("fork"), start("spawn")]
    with w.step():
        pass
for process in (before, *during):
    process.terminate()
print(children())
"""
    )
    assert "at least 3 child processes ran" in lines[0]


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


def test_an_exception_in_a_step_is_shown_without_frames_of_pyxfer() -> None:
    result = run_program(
        """
with pyxfer.watch(device="host") as w:
    with w.step():
        raise ValueError("the program's own")
"""
    )
    assert result.returncode == 1
    assert result.stderr.strip().endswith("ValueError: the program's own")
    assert "_watch/" not in result.stderr


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
    ("call", "word"),
    [
        ("signal.signal(signal.SIGUSR1, lambda *_: None); w.on_signal()", "SIGUSR1"),
        (
            "threading.excepthook = lambda args: print(args.exc_value)\n"
            "    thread = threading.Thread(target=w.on_signal)\n"
            "    thread.start()\n"
            "    thread.join()",
            "main thread",
        ),
        slow("w.on_signal(signal.SIGKILL)", "cannot be used"),
        slow("w.on_signal(4711)", "4711"),
        slow("w.on_signal(save_to='none/w.json')", "folder"),
    ],
)
def test_an_unusable_signal_is_refused(call: str, word: str) -> None:
    lines = output(f"w = pyxfer.watch()\ntry:\n    {call}\nexcept pyxfer.UsageError as error:\n    print(error)\n")
    assert word in lines[0]


@pytest.mark.parametrize(
    ("path", "expected"), [("w.json", "w-3.json"), ("a.b/trace.json.gz", "a.b/trace-3.json.gz"), ("plain", "plain-3")]
)
def test_the_number_is_inserted_before_the_extensions(path: str, expected: str) -> None:
    assert numbered(path, 3) == expected
