from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from watch.copying import in_threads

from pyxfer._document.machines import HOST_MEMORY
from pyxfer._machine.devices import find_device
from pyxfer._measure import exclusive
from pyxfer._measure.exclusive import Presence, queue_for, turn
from pyxfer.native import load

DEVICE = "GPU-6a1f2c3d-0001"
MEASURING = """
import sys
from pyxfer._measure import exclusive
exclusive.PLACE = sys.argv[2]
with exclusive.Presence(sys.argv[1]):
    print("here", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(device: str = DEVICE) -> Iterator[subprocess.Popen[str]]:
    """A process that measures on the device during the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURING, device, exclusive.PLACE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        process.communicate(timeout=30)


def test_other_processes_on_the_device_are_met_at_the_beginning_and_later() -> None:
    with another_process() as first, another_process(f"{DEVICE}-2"):
        with Presence(DEVICE) as presence:
            assert presence.other_processes == {first.pid}
            with another_process() as later:
                presence.look()
        assert presence.other_processes == {first.pid, later.pid}
    with Presence(DEVICE) as presence:
        pass
    assert presence.other_processes == set()


def test_without_a_gpu_only_processes_with_one_temporary_folder_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_device(load("host"), 0).name == HOST_MEMORY
    with another_process(HOST_MEMORY) as other:
        with Presence(HOST_MEMORY) as presence:
            pass
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with Presence(HOST_MEMORY) as elsewhere:
            pass
    assert (presence.other_processes, elsewhere.other_processes) == ({other.pid}, set())


def test_a_killed_process_is_not_met() -> None:
    with another_process() as other:
        other.kill()
        other.wait()
        with Presence(DEVICE) as presence:
            pass
    assert presence.other_processes == set()


def test_threads_of_this_process_are_not_met() -> None:
    with Presence(DEVICE) as outer:
        found: list[set[int]] = []

        def measure() -> None:
            with Presence(DEVICE) as inner, Presence(DEVICE):
                found.append(inner.other_processes)

        in_threads(measure)
    assert found == [set()]
    assert outer.other_processes == set()


@pytest.mark.parametrize("device", ["../host memory, not a PCIe link/*", "x" * 500, "\n@(", ""])
def test_any_name_of_a_device_will_do(device: str) -> None:
    with another_process(device) as other, Presence(device) as presence:
        assert presence.other_processes == {other.pid}


def test_without_such_sockets_a_measurement_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(exclusive, "_SOCKETS", tmp_path / "none")
    with Presence(DEVICE) as presence, queue_for(DEVICE):
        presence.look()
    assert presence.other_processes == set()


def test_no_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Presence(DEVICE), queue_for(DEVICE):
        assert not list(tmp_path.iterdir())


@pytest.mark.threads
def test_threads_take_turns_on_a_device() -> None:
    inside = 0
    most = 0

    def measure() -> None:
        nonlocal inside, most
        with turn("turns"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.005)
            inside -= 1

    in_threads(*[measure] * 8)
    assert (most, inside) == (1, 0)


HOLDING = """
import sys
from pyxfer._measure import exclusive
exclusive.PLACE = sys.argv[2]
with exclusive.queue_for(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
    print("done", flush=True)
"""
TIMEOUT_S = 30


def holder(device: str = DEVICE) -> subprocess.Popen[str]:
    """A process that waits for the device, says `held`, and holds it until it gets a line."""
    command = [sys.executable, "-c", HOLDING, device, exclusive.PLACE]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_processes_wait_for_the_first() -> None:
    first = holder()
    assert next_line(first) == "held"
    others = [holder(), holder()]
    for other in others:
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
    assert first.communicate("go\n", timeout=TIMEOUT_S)[0] == "done\n"
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
    assert [other.communicate(timeout=TIMEOUT_S)[0] for other in others] == ["held\ndone\n"] * 2


def test_a_killed_process_releases_the_device() -> None:
    first = holder()
    assert next_line(first) == "held"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=TIMEOUT_S)
    with queue_for(DEVICE):
        pass


def test_a_thread_may_hold_the_device_repeatedly() -> None:
    with queue_for(DEVICE), queue_for(DEVICE):
        pass
    second = holder()
    assert next_line(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_another_user_cannot_make_this_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        theirs.bind(f"\0{exclusive._name('queue-4711', DEVICE)}")
        theirs.listen()
        with queue_for(DEVICE):
            pass


def test_who_waits_is_not_a_presence() -> None:
    with queue_for(DEVICE), Presence(DEVICE) as presence:
        presence.look()
    assert presence.other_processes == set()
