"""A program that forks, spawns, or ends without leaving its watch."""

from __future__ import annotations

from watch.programs import output, run_program

STEPS = """
w = pyxfer.watch(device="host", ceilings=None)
def told():
    return [(remark.code, remark.text) for remark in w.result.remarks if remark.code == "children"]
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
print(w.result.steps.watched, [each.name for each in w.result.ranges], told())
"""
    )
    assert lines[0] == "This process was forked from the one that is watched, and nothing is watched in it."
    remark = "at least 1 child process was at work meanwhile, forked or spawned; what it does is not in this report"
    assert lines[1] == f"1 [] [('children', '{remark}')]"


def test_a_child_that_leaves_the_block_and_ends_in_the_ordinary_way_closes_nothing() -> None:
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
told = (w.result.steps.watched, sum(row.count for row in w.result.activity.value.copies))
os.write(1, b"%d %d\\n" % told)  # at once, for two processes write
if child:
    os.waitpid(child, 0)
"""
    )
    assert lines == ["1 1", "1 1"]


def test_a_child_of_a_watched_process_is_told_to_be_watched_by_itself() -> None:
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
    assert lines == ["This watch belongs to the process that this one was forked from: make one of its own."]


def test_children_that_were_there_before_and_children_that_are_spawned_are_counted_too() -> None:
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
for each in (before, *during):
    each.terminate()
print(told())
"""
    )
    assert "at least 3 child processes were at work meanwhile" in lines[0]


def test_a_watch_that_is_never_left_is_closed_when_the_program_ends() -> None:
    lines = output(
        """
import atexit
w = pyxfer.watch(device="host", ceilings=None)
atexit.register(lambda: print("at exit", w._session.is_at_work))
w.start()
with w.step():
    pass
w._session.on_closed = lambda window: print("closed", len(window.steps))
"""
    )
    # The program's own handler was registered first, so it is called last.
    assert lines == ["closed 1", "at exit False"]


def test_a_program_that_ends_by_an_exception_in_a_step_shows_it_and_nothing_else() -> None:
    result = run_program(
        """
with pyxfer.watch(device="host") as w:
    with w.step():
        raise ValueError("the program's own")
"""
    )
    assert result.returncode == 1
    assert result.stderr.strip().endswith("ValueError: the program's own")
    assert "watching/" not in result.stderr


def test_the_window_does_not_last_until_numpy_has_been_loaded() -> None:
    lines = output(
        """
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            time.sleep(2)
sys.meta_path.insert(0, Slow())
w = pyxfer.watch(device="host", lines=False)
w.start()
w.stop()
window = w._session.window
print("numpy" in sys.modules, window.end_ns - window.begin_ns < 1.5e9)
""",
        head="import sys, time, pyxfer\n",
    )
    assert lines == ["True True"]


def test_a_program_that_is_killed_inside_its_window_just_ends() -> None:
    result = run_program(
        """
with pyxfer.watch(device="host") as w:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (-9, "", "")


def test_ctrl_c_in_a_step_leaves_the_block_with_what_was_watched() -> None:
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


def test_a_program_that_watches_draws_nothing_and_loads_no_numpy_before_its_window_has_closed() -> None:
    lines = output(
        """
w = pyxfer.watch(device="host")
w.start()
print(sorted({"numpy", "rich", "typer", "torch"} & set(sys.modules)))
""",
        head="import sys, pyxfer\n",
    )
    assert lines == ["[]"]
