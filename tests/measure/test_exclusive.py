from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyxfer._measure.exclusive import Presence, queue_for, turn

DEVICE = "GPU-6a1f2c3d-0001"
MEASURING = """
import sys
from pathlib import Path
from pyxfer._measure.exclusive import Presence
with Presence(sys.argv[1], Path(sys.argv[2])):
    print("here", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path, device: str = DEVICE) -> Iterator[subprocess.Popen[str]]:
    """A process that measures on the device during the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURING, device, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        process.communicate(timeout=30)


def test_a_presence_alone_meets_no_process_and_leaves_no_file(tmp_path: Path) -> None:
    with Presence(DEVICE, tmp_path) as presence:
        assert len(list(tmp_path.iterdir())) == 1
    assert presence.other_processes == set()
    assert list(tmp_path.iterdir()) == []


def test_other_processes_on_the_device_are_met_at_the_beginning_and_later(tmp_path: Path) -> None:
    with another_process(tmp_path) as first, another_process(tmp_path, f"{DEVICE}-2"):
        with Presence(DEVICE, tmp_path) as presence:
            assert presence.other_processes == {first.pid}
            with another_process(tmp_path) as later:
                presence.look()
        assert presence.other_processes == {first.pid, later.pid}


def test_a_presence_is_locked_before_others_can_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visible: list[list[Path]] = []
    lock = fcntl.flock

    def flock(file: int, operation: int) -> None:
        visible.append(list(tmp_path.glob(f"{DEVICE}.*")))
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Presence(DEVICE, tmp_path):
        assert len(list(tmp_path.glob(f"{DEVICE}.*"))) == 1
    assert visible == [[]]


def test_threads_of_this_process_are_not_met(tmp_path: Path) -> None:
    with Presence(DEVICE, tmp_path) as outer:
        found: list[set[int]] = []

        def measure() -> None:
            with Presence(DEVICE, tmp_path) as inner:
                found.append(inner.other_processes)

        thread = threading.Thread(target=measure)
        thread.start()
        thread.join()
    assert found == [set()]
    assert outer.other_processes == set()


def test_the_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    with another_process(tmp_path) as other:
        other.kill()
        other.wait()
        (stale,) = tmp_path.iterdir()
        with Presence(DEVICE, tmp_path) as presence:
            assert not stale.exists()
    assert presence.other_processes == set()


@pytest.mark.parametrize("name", ["GPU-6a1f2c3d-0001.notes.txt", "GPU-6a1f2c3d-0001.", "GPU-6a1f2c3d-0001..", "readme"])
def test_other_files_in_the_folder_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("kept")
    with Presence(DEVICE, tmp_path) as presence:
        pass
    assert presence.other_processes == set()
    assert (tmp_path / name).read_text() == "kept"


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    mine = folder / f"{DEVICE}.{os.getpid()}.{threading.get_ident()}"
    mine.symlink_to(victim)
    (folder / f"{DEVICE}.1.1").symlink_to(victim)
    with Presence(DEVICE, folder) as presence:
        pass
    assert victim.read_text() == "kept"
    assert presence.other_processes == set()


def test_a_folder_that_cannot_be_used_does_not_stop_a_measurement(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with Presence(DEVICE, blocked) as presence:
        presence.look()
    assert presence.other_processes == set()


def test_on_a_file_system_without_locks_no_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = set(os.listdir("/proc/self/fd"))
    with Presence("gpu", tmp_path):
        assert set(os.listdir("/proc/self/fd")) == before
        assert not list(tmp_path.iterdir())


def test_the_folder_is_created_with_the_sticky_bit(tmp_path: Path) -> None:
    folder = tmp_path / "measuring"
    with Presence(DEVICE, folder):
        assert folder.stat().st_mode & 0o7777 == 0o1777


def test_a_device_name_is_converted_to_a_file_name(tmp_path: Path) -> None:
    with Presence("../host memory, not a PCIe link/*", tmp_path):
        (file,) = tmp_path.iterdir()
        assert file.name.startswith("---host-memory--not-a-PCIe-link--.")


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

    threads = [threading.Thread(target=measure) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (1, 0)


HOLDING = """
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
    command = [sys.executable, "-c", HOLDING, device, str(folder)]
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


def test_a_thread_may_hold_the_device_repeatedly(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), queue_for(DEVICE, tmp_path):
        pass
    second = holder(tmp_path)
    assert next_line(second) == "held"
    second.communicate("go\n", timeout=TIMEOUT_S)


def test_the_queues_file_is_not_a_presence(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), Presence(DEVICE, tmp_path) as presence:
        presence.look()
    assert presence.other_processes == set()
