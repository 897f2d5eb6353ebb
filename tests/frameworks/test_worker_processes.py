"""Worker processes of scripts that are interrupted or killed, and routes that a script defines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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

    asked = dict(device="host", sizes="64KiB", budget_s={budget}, precision=1e-6)
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


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def worker_of(pid: int) -> int:
    for _ in range(200):
        if found := children(pid):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("no worker was started")


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


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
    for _ in range(300):
        if not is_running(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker goes on without its run")


@pytest.mark.slow
def test_a_killed_worker_is_recorded(tmp_path: Path) -> None:
    process = script(tmp_path, "Slow", 8.0)
    worker = worker_of(process.pid)
    wait_for_trials(process)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert "complete" in out, err
    assert "it was killed (SIGKILL; possibly out of memory)" in out


GUARDED = """
import sys
sys.path.insert(0, {tests!r})
import pyxfer
from frameworks import own_routes

pyxfer.register_route(own_routes.make_route("mine.module", own_routes.Copied))

if __name__ == "__main__":
    class Guarded(own_routes.Copied): pass
    pyxfer.register_route(own_routes.make_route("mine.guarded", Guarded))
    run = pyxfer.frameworks(["mine"], device="host", sizes="64KiB", budget_s=0.3)
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
