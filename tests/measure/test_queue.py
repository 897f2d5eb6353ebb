"""Processes of one user that wait for each other's measurements."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyxfer._measure.exclusive import Presence, queue_for

DEVICE = "GPU-6a1f2c3d-0001"
HOLDER = """
import sys
from pathlib import Path
from pyxfer._measure.exclusive import queue_for
with queue_for(sys.argv[1], Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.readline()
    print("done", flush=True)
"""
TIMEOUT_S = 30


def holder(folder: Path, device: str = DEVICE) -> subprocess.Popen[str]:
    """A process that holds the device until it is given a line, once it has come to it."""
    command = [sys.executable, "-c", HOLDER, device, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_one_waits_until_the_other_has_ended(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert said(first) == "held"
    second = holder(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.3)
    assert first.communicate("go\n", timeout=TIMEOUT_S)[0] == "done\n"
    assert said(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_one_that_is_killed_keeps_nobody_waiting(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert said(first) == "held"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=TIMEOUT_S)
    with queue_for(DEVICE, tmp_path):
        pass


def test_nobody_waits_for_another_device(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert said(first) == "held"
    with queue_for("GPU-other", tmp_path):
        pass
    first.communicate("go\n", timeout=TIMEOUT_S)


def test_the_same_thread_may_hold_it_again(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), queue_for(DEVICE, tmp_path):
        pass
    second = holder(tmp_path)
    assert said(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_an_error_gives_it_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(KeyError), queue_for(DEVICE, tmp_path):
        raise KeyError
    second = holder(tmp_path)
    assert said(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_where_no_file_can_be_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with queue_for(DEVICE, tmp_path / "file"):
        pass


def test_who_waits_is_not_taken_for_one_who_measures(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), Presence(DEVICE, tmp_path) as presence:
        presence.look()
    assert presence.met == set()
