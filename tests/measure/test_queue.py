"""`queue_for`: processes of one user wait for each other."""

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
    """A process that waits for the device, says `held`, and holds it until it gets a line."""
    command = [sys.executable, "-c", HOLDER, device, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert next_line(first) == "held"
    second = holder(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.3)
    assert first.communicate("go\n", timeout=TIMEOUT_S)[0] == "done\n"
    assert next_line(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_a_killed_process_releases_the_device(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert next_line(first) == "held"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=TIMEOUT_S)
    with queue_for(DEVICE, tmp_path):
        pass


def test_devices_have_separate_queues(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert next_line(first) == "held"
    with queue_for("GPU-other", tmp_path):
        pass
    first.communicate("go\n", timeout=TIMEOUT_S)


def test_a_thread_may_hold_the_device_repeatedly(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), queue_for(DEVICE, tmp_path):
        pass
    second = holder(tmp_path)
    assert next_line(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_an_error_releases_the_device(tmp_path: Path) -> None:
    with pytest.raises(KeyError), queue_for(DEVICE, tmp_path):
        raise KeyError
    second = holder(tmp_path)
    assert next_line(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_without_a_lock_file_it_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with queue_for(DEVICE, tmp_path / "file"):
        pass


def test_the_queues_file_is_not_a_presence(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), Presence(DEVICE, tmp_path) as presence:
        presence.look()
    assert presence.met == set()
