"""How the end of a worker is reported, workers of scripts that are interrupted or killed, and routes of scripts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import is_running
from frameworks.conftest import children
from marks import slow

from pyxfer._ceiling.plans import Limits
from pyxfer._frameworks import process
from pyxfer._frameworks.messages import Mark, Marker, Task
from pyxfer._frameworks.process import IN_WORKER, LOG_LINES, Outcome, Supervisor
from pyxfer._measure.sampler import OnProgress, silent
from pyxfer.units import format_seconds

TASK = Task("torch", "torch", "", ("torch.to",), (), "0", "copy", (4096,), Limits(0.005, 1.0, 1))
# The start of a real worker: its pipe, the marker and its task.
BEGIN = """
import os, signal, subprocess, time
from multiprocessing.connection import Connection
from pyxfer._document.machines import Fact
from pyxfer._frameworks.messages import Marker
from pyxfer._measure.sampler import Progress
from pyxfer._frameworks.messages import Doing, Failed, Finished, Hello, Refused, Remark, Rows, Stop, pack, unpack_order
pipe, marker = Connection(int(sys.argv[1])), Marker(int(sys.argv[2]))
task = unpack_order(pipe.recv_bytes())
def send(message):
    pipe.send_bytes(pack(message))
"""
HELLO = BEGIN + 'send(Hello("2.0", Fact("12.9"), {}, 0.5))\n'
Supervise = Callable[..., Outcome]


@pytest.fixture
def supervise(monkeypatch: pytest.MonkeyPatch) -> Supervise:
    """Run a script as the worker."""

    def run(script: str, patience_s: float = 20.0, **options: Any) -> Outcome:
        monkeypatch.setattr(process, "_BOOT", script)
        on_progress: OnProgress = options.get("on_progress", silent)
        environment = options.get("environment", {})
        return Supervisor(TASK, environment, patience_s, on_progress, lambda _: None).run()

    return run


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("os._exit(3)", "it ended by itself with exit code 3"),
        ("os.abort()", "it crashed (SIGABRT)"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 6)", f"it crashed (signal {signal.SIGRTMIN + 6})"),
        slow("sys.exit(0)", "it ended by itself with exit code 0"),
        slow("raise RuntimeError('no')", "it ended by itself with exit code 1"),
        slow("os.kill(os.getpid(), signal.SIGSEGV)", "it crashed (SIGSEGV)"),
        slow("os.kill(os.getpid(), signal.SIGTERM)", "it crashed (SIGTERM)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "it was killed (SIGKILL; possibly out of memory)"),
    ],
)
def test_the_reason_describes_how_the_worker_ended(supervise: Supervise, deed: str, words: str) -> None:
    outcome = supervise(HELLO + deed)
    assert (outcome.ended, outcome.reason) == ("crashed", words)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("timed", "being timed"),
        slow("verified", "being verified"),
        slow("set up", "being set up"),
        slow("first call", "making its first call"),
    ],
)
def test_the_reason_names_the_step_under_way(supervise: Supervise, phase: str, words: str) -> None:
    outcome = supervise(f'{HELLO}marker.set("torch.to", 4096, "{phase}")\nos._exit(9)')
    assert outcome.reason == f"it ended by itself with exit code 9, while torch.to at 4 KiB was {words}"


@pytest.mark.parametrize(
    ("script", "log"),
    [
        ("", ()),
        ("for number in range(100_000): print(number)", tuple(map(str, range(100_000 - LOG_LINES, 100_000)))),
        ('print("first", "\\n" * 1000, "last")', ("first", " last")),
        ('import sys\nprint("one")\nprint("two", file=sys.stderr)\nprint("three")', ("one", "two", "three")),
        ('import os\nos.write(1, b"\\xff\\xfe then\\n")', ("\ufffd\ufffd then",)),
    ],
    ids=["nothing", "long", "empty lines", "both streams", "invalid UTF-8"],
)
def test_the_log_has_the_last_lines_of_both_streams(supervise: Supervise, script: str, log: tuple[str, ...]) -> None:
    outcome = supervise(script)
    assert (outcome.ended, outcome.log, outcome.hello) == ("crashed", log, None)
    assert outcome.reason == "it ended by itself with exit code 0, while it started"


def test_the_log_of_a_crash_has_the_last_output_and_the_python_stack(supervise: Supervise) -> None:
    log = supervise(f'{HELLO}def deep():\n    os.abort()\nprint("last words")\ndeep()\n').log
    assert log[:2] == ("last words", "Fatal Python error: Aborted")
    assert [line.split()[-1] for line in log[2:4]] == ["deep", "<module>"]
    assert not any(line.startswith("Current thread") for line in log)


def test_native_stack_lines_are_dropped_from_the_log(supervise: Supervise) -> None:
    frame = "    @     0x7f30e38ab24c  tensorflow::Tensor::CheckTypeAndIsAligned()"
    said = "F0000 00:00 tensor.cc:899] Check failed: IsAligned()"
    log = supervise(f'{HELLO}print("{said}")\nfor _ in range(24): print("{frame}")\nos.abort()\n').log
    assert said in log
    assert "Fatal Python error: Aborted" in log


@pytest.mark.parametrize(("step_s", "start_s"), [(0.1, 0.4), (0.2, 0.5)])
def test_a_framework_has_more_time_to_start_than_for_a_step(
    step_s: float, start_s: float, supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MIN_START_S", 0.4)
    starting = supervise("import time\ntime.sleep(60)", step_s)
    assert (starting.ended, starting.how) == ("hung", f"it sent nothing for {format_seconds(start_s)}")
    assert starting.reason == f"{starting.how}, while it started"


def test_the_timeout_of_a_step_begins_with_the_first_message(supervise: Supervise) -> None:
    marked = BEGIN + 'marker.set("torch.to", 4096, "timed")\n'
    working = supervise(f"{marked}{HELLO.removeprefix(BEGIN)}time.sleep(60)", 0.4)
    assert working.ended == "hung"
    assert working.reason == "it sent nothing for 400 ms, while torch.to at 4 KiB was being timed"


@pytest.mark.slow
def test_every_message_restarts_the_timeout(supervise: Supervise) -> None:
    texts: list[str] = []
    life = 'for number in range(6):\n    send(Doing(Progress("measuring", number / 6, "x")))\n    time.sleep(0.6)\n'
    outcome = supervise(
        f"{HELLO}{life}send(Finished(()))", 3.0, on_progress=lambda progress: texts.append(progress.text)
    )
    assert outcome.ended == "complete"
    assert texts == ["x"] * 6
    assert outcome.duration_s > 3.6


@pytest.mark.parametrize(
    ("message", "ended", "reason"),
    [
        ('Refused("PyTorch is not installed")', "unavailable", "PyTorch is not installed"),
        ('Failed("out of memory")', "failed", "out of memory"),
        ('Finished((Remark("cleanup", "left over", None),))', "complete", None),
    ],
)
def test_the_last_message_decides_how_the_worker_ended(
    supervise: Supervise, message: str, ended: str, reason: str | None
) -> None:
    outcome = supervise(f"{HELLO}send({message})")
    assert (outcome.ended, outcome.reason) == (ended, reason)
    assert [remark.text for remark in outcome.remarks] == (["left over"] if ended == "complete" else [])


def test_a_message_that_cannot_be_read_ends_the_worker(supervise: Supervise) -> None:
    outcome = supervise(f"{HELLO}pipe.send_bytes(pack(Stop()))")
    assert outcome.ended == "failed"
    assert (outcome.reason or "").startswith("it sent an invalid message: ")


@pytest.mark.parametrize(
    ("steps", "read"),
    [
        ([("tf.data-prefetch-compatible", 1 << 30, "verified"), ("jax.x", 1, "timed")], Mark("jax.x", 1, "timed")),
        ([("torch.to", 4096, "timed"), None], None),
        ([("mine." + "x" * 1000, 4096, "timed")], None),
    ],
    ids=["a shorter one", "cleared", "too long"],
)
def test_the_last_step_is_read_through_another_handle(steps: list[Any], read: Mark | None) -> None:
    with contextlib.closing(Marker()) as marker:
        for step in steps:
            other = Marker(marker.handle)
            other.clear() if step is None else other.set(*step)
        assert marker.read() == read


def test_the_users_environment_overrides_the_frameworks(supervise: Supervise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    names = ("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH", IN_WORKER)
    outcome = supervise(
        f"import os\nfor name in {names}: print(os.environ[name])",
        environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
    )
    assert outcome.log == ("0", "true", "1")


def test_the_children_of_a_worker_end_with_it(supervise: Supervise) -> None:
    script = f'{HELLO}print(subprocess.Popen(["sleep", "600"]).pid)\nsend(Finished(()))\n'
    (pid,) = supervise(script).log
    wait_for_the_end(int(pid))


def wait_for_the_end(pid: int) -> None:
    """Fail if that process still runs after a minute."""
    for _ in range(1200):
        if not is_running(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("a process goes on without the one that it works for")


TESTS = Path(__file__).resolve().parent.parent

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import pyxfer
from pyxfer._frameworks import process
from frameworks import own_routes

process.STOP_PATIENCE_S = {patience}

def make(place):
    return own_routes.{make}(place)

if __name__ == "__main__":
    pyxfer.register_route(own_routes.make_route("mine.here", make))
    print("started", flush=True)
    def report(progress):
        if progress.phase.endswith(": measuring"):
            print("measuring", flush=True)

    asked = dict(device="host", size="64KiB", budget={budget}, precision=1e-6)
    run = pyxfer.frameworks(["mine"], **asked, on_progress=report)
    print(run.ended, [(each.route, len(each.trials) > 0, each.rate.reason) for each in run.measurements])
    print([worker.reason for worker in run.workers])
"""


def script(folder: Path, make: str, budget: float, patience: float = 30.0) -> subprocess.Popen[str]:
    path = folder / "mine.py"
    path.write_text(SCRIPT.format(tests=str(TESTS), make=make, budget=budget, patience=patience))
    process = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def wait_for_trials(process: subprocess.Popen[str]) -> None:
    """Wait until every row has trials, which the program reports after its first rounds."""
    assert process.stdout is not None
    assert process.stdout.readline() == "measuring\n"


def worker_of(pid: int) -> int:
    for _ in range(1200):
        if found := children(pid):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("no worker was started")


def test_a_route_of_a_script_is_found_by_the_worker(tmp_path: Path) -> None:
    out, err = script(tmp_path, "Copied", 0.3).communicate(timeout=60)
    assert "complete" in out, err
    assert "('mine.here', True, None)" in out


def test_ctrl_c_ends_a_run_soon_with_its_results_and_leaves_no_process(tmp_path: Path) -> None:
    process = script(tmp_path, "Slow", 60.0)
    worker = worker_of(process.pid)
    wait_for_trials(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)  # and not the minute that it was to last
    assert "interrupted" in out, err
    assert "('mine.here', True, None)" in out
    assert not is_running(worker)


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_worker_that_hangs(tmp_path: Path) -> None:
    process = script(tmp_path, "Hanging", 60.0, patience=0.7)
    worker = worker_of(process.pid)
    time.sleep(3.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)  # and not the minute that it was to last
    assert "interrupted" in out, err
    assert not is_running(worker)


def test_a_worker_ends_when_its_run_is_killed(tmp_path: Path) -> None:
    process = script(tmp_path, "Slow", 60.0)
    worker = worker_of(process.pid)
    wait_for_trials(process)
    process.kill()
    process.communicate(timeout=60)
    wait_for_the_end(worker)


GUARDED = """
import sys
sys.path.insert(0, {tests!r})
import pyxfer
from frameworks import own_routes

pyxfer.register_route(own_routes.make_route("mine.module", own_routes.Copied))

if __name__ == "__main__":
    class Guarded(own_routes.Copied): pass
    pyxfer.register_route(own_routes.make_route("mine.guarded", Guarded))
    run = pyxfer.frameworks(["mine"], device="host", size="64KiB", budget=0.3)
    print([(each.route, len(each.trials) > 0, each.rate.reason) for each in run.measurements])
"""


def test_a_route_that_the_worker_cannot_import_does_not_affect_others(tmp_path: Path) -> None:
    folder = tmp_path / "a folder, \u00fcml\u00e4ut"
    folder.mkdir()
    path = folder / "mine.py"
    path.write_text(GUARDED.format(tests=str(TESTS)))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert "('mine.module', True, None)" in done.stdout, done.stderr
    assert "does not define Guarded when imported" in done.stdout
    assert done.stdout.count("'mine.module'") == 1


def test_a_script_without_a_main_guard_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        SCRIPT.format(tests=str(TESTS), make="Copied", budget=0.3, patience=30.0).replace(
            'if __name__ == "__main__":', "if True:"
        )
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert 'put its calls under  if __name__ == "__main__":' in done.stdout
