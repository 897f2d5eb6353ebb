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
from typing import Any

import pytest
from watch.copying import in_threads

from pyxfer._measure.exclusive import Presence, queue_for, turn
from pyxfer._measure.interruptible import Ending, run_interruptible

DEVICE = "GPU-6a1f2c3d-0001"
TIMEOUT_S = 30
# Holds a device until it gets a line.
HOLDING = """
import sys
from pathlib import Path
from pyxfer._measure.exclusive import Presence, queue_for
with {"present": Presence, "held": queue_for}[sys.argv[1]](sys.argv[2], Path(sys.argv[3])):
    print(sys.argv[1], flush=True)
    sys.stdin.readline()
    print("done", flush=True)
"""


def holder(folder: Path, device: str = DEVICE, how: str = "held") -> Any:
    """A process that waits for the device, says `held`, and holds it until it gets a line."""
    command = [sys.executable, "-c", HOLDING, how, device, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def another_process(folder: Path, device: str = DEVICE) -> Iterator[subprocess.Popen[str]]:
    """A process that measures on the device during the block."""
    process = holder(folder, device, "present")
    try:
        assert process.stdout.readline() == "present\n"
        yield process
    finally:
        process.communicate(timeout=TIMEOUT_S)


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
    def measure() -> None:
        with Presence(DEVICE, tmp_path) as inner:
            found.append(inner.other_processes)

    found: list[set[int]] = []
    with Presence(DEVICE, tmp_path) as outer:
        in_threads(measure)
    assert found == [outer.other_processes] == [set()]


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


def test_the_folder_has_the_sticky_bit_and_a_device_name_is_converted_to_a_file_name(tmp_path: Path) -> None:
    folder = tmp_path / "measuring"
    with Presence("../host memory, not a PCIe link/*", folder):
        assert folder.stat().st_mode & 0o7777 == 0o1777
        (file,) = folder.iterdir()
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

    in_threads(*[measure] * 8)
    assert (most, inside) == (1, 0)


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert first.stdout.readline() == "held\n"
    second = holder(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.3)
    assert first.communicate("go\n", timeout=TIMEOUT_S)[0] == "done\n"
    assert second.communicate("go\n", timeout=TIMEOUT_S)[0] == "held\ndone\n"


def test_a_killed_process_releases_the_device(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert first.stdout.readline() == "held\n"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=TIMEOUT_S)
    with queue_for(DEVICE, tmp_path):
        pass


def test_a_thread_may_hold_the_device_repeatedly(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), queue_for(DEVICE, tmp_path):
        pass
    assert holder(tmp_path).communicate("go\n", timeout=TIMEOUT_S)[0] == "held\ndone\n"


def test_the_queues_file_is_not_a_presence(tmp_path: Path) -> None:
    with queue_for(DEVICE, tmp_path), Presence(DEVICE, tmp_path) as presence:
        presence.look()
    assert presence.other_processes == set()


@pytest.mark.threads
def test_work_that_ends_by_itself_is_done() -> None:
    ran_in: list[threading.Thread] = []
    assert run_interruptible(lambda: ran_in.append(threading.current_thread()), lambda: None) is Ending.DONE
    assert ran_in != [threading.current_thread()]


@pytest.mark.parametrize("error", [ValueError("of the work's own"), MemoryError(), SystemExit(3)])
@pytest.mark.threads
def test_an_exception_of_the_work_is_raised(error: BaseException) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_interruptible(work, lambda: None)
    assert caught.value is error


@pytest.mark.threads
@pytest.mark.parametrize(
    ("stops", "presses", "grace_s", "ending"),
    [(True, 1, 60.0, Ending.INTERRUPTED), (False, 1, 0.1, Ending.STUCK), (False, 2, 60.0, Ending.STUCK)],
    ids=["it stops", "stuck", "a second Ctrl-C ends the wait"],
)
def test_ctrl_c_cancels_the_work_and_waits(stops: bool, presses: int, grace_s: float, ending: Ending) -> None:
    started, cancelled, released = (threading.Event() for _ in range(3))

    def work() -> None:
        started.set()
        (cancelled if stops else released).wait(60)

    def press() -> None:
        for moment in (started, cancelled)[:presses]:
            moment.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    begun = time.perf_counter()
    assert run_interruptible(work, cancelled.set, grace_s=grace_s) is ending
    assert time.perf_counter() - begun < 30
    assert cancelled.is_set()
    released.set()
    presser.join()
