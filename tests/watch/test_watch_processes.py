"""Programs that fork, spawn, or end without stopping their watch."""

from __future__ import annotations

import pytest
from watch.programs import output, run_program

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
        try:
            w.result
        except pyxfer.UsageError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    with w.step():
        pass
print(w.result.steps.watched, [row.name for row in w.result.ranges], children())
"""
    )
    assert lines[0] == "This process was forked from the watched one, and is not watched itself."
    assert lines[1].startswith("1 [] ['at least 1 child process ran during the window")


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


def test_a_forked_child_cannot_start_the_watch_of_its_parent() -> None:
    lines = output(
        STEPS
        + """
with w:
    child = os.fork()
    if child == 0:
        try:
            w.start()
        except pyxfer.UsageError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    assert lines == ["This watch belongs to the parent process of this fork: make a new one here."]


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


@pytest.mark.slow
def test_loading_numpy_is_not_part_of_the_window() -> None:
    lines = output(
        """
loaded = []
class Noting:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            loaded.append(time.perf_counter_ns())
sys.meta_path.insert(0, Noting())
w = pyxfer.watch(device="host", lines=False)
w.start()
w.stop()
window = w._session.window
print("numpy" in sys.modules, window.begin_ns <= loaded[0] <= window.end_ns)
""",
        head="import sys, time, pyxfer\n",
    )
    assert lines == ["True False"]


def test_a_program_that_is_killed_inside_its_window_prints_nothing() -> None:
    result = run_program(
        """
with pyxfer.watch(device="host") as w:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (-9, "", "")


def test_ctrl_c_in_a_step_ends_the_window() -> None:
    lines = output(
        """
w = pyxfer.watch(device="host", ceilings=None)
try:
    with w:
        with w.step():
            pass
        with w.step():
            signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
print(w.result.ended, w.result.steps.watched, w.result.steps.failure)
"""
    )
    assert lines == ["ended 1 KeyboardInterrupt"]


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
