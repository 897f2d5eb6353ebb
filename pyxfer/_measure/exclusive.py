"""One measurement at a time, because two measurements on one link halve each other's figures.

- `turn`: threads of this process wait for each other.
- `Presence`: other processes that measure on the device are noted, for a remark in the run. A run does not wait for
  them, because that would look like a hang.
- `queue_for`: processes wait for each other. Only the workers of one test run do so, because their turns are short.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_turns: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
_turns_guard = threading.Lock()
_queued = threading.local()


@contextlib.contextmanager
def turn(device: str) -> Iterator[None]:
    """Wait until no other thread of this process holds the device, and hold it. A thread may hold it repeatedly."""
    with _turns_guard:
        lock = _turns[device]
    with lock:
        yield


class Presence:
    """Shows other processes, by a locked file, that this one measures on a device.

    `other_processes` has the ids of those that did the same at its beginning, at its end or at a call of `look`.
    """

    def __init__(self, device: str, folder: Path | None = None) -> None:
        self._folder = folder or _shared_folder()
        self._prefix = _file_name(device)
        self._file: int | None = None
        self._path = self._folder / f"{self._prefix}.{os.getpid()}.{threading.get_ident()}"
        self.other_processes: set[int] = set()

    def __enter__(self) -> Presence:
        with contextlib.suppress(OSError):
            _make_shared(self._folder)
            # Locked before it gets the name that others look for: they remove a file that is not locked.
            unseen = self._path.with_name(f".{self._path.name}")
            handle = os.open(unseen, _OPEN, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unseen.rename(self._path)
                self._file = handle
            except BaseException:  # also a file system without locks
                os.close(handle)
                unseen.unlink()
                raise
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = None

    def look(self) -> None:
        try:
            found = list(self._folder.glob(f"{self._prefix}.*"))
        except OSError:
            return
        for path in found:
            pid = path.name.rsplit(".", 2)[1]
            if path != self._path and pid.isdigit() and int(pid) != os.getpid() and _is_held(path):
                self.other_processes.add(int(pid))


def _is_held(path: Path) -> bool:
    """Whether a process holds the file. If not, its owner was killed, and the file is removed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(handle)


@contextlib.contextmanager
def queue_for(device: str, folder: Path | None = None) -> Iterator[None]:
    """Wait until no other process of this user that calls this function holds the device, and hold it.

    If no file can be locked, it does not wait. A thread may hold the device repeatedly.
    """
    held: set[str] = _queued.__dict__.setdefault("held", set())
    if device in held:
        yield
        return
    folder = folder or _shared_folder()
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):  # also a file system without locks
            _make_shared(folder)
            # The file is never removed, because waiting processes have it open. It has the user's id in its name,
            # because the kernel may refuse to open another user's file in a shared folder.
            handle = os.open(folder / f"queue-{os.getuid()}-{_file_name(device)}", _OPEN, 0o600)
            closing.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        held.add(device)
        closing.callback(held.discard, device)
        yield


def _shared_folder() -> Path:
    return Path(tempfile.gettempdir()) / "pyxfer-measuring"


def _make_shared(folder: Path) -> None:
    if not folder.exists():  # with the sticky bit: all users create files in it, and remove only their own
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)


def _file_name(device: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in device)
