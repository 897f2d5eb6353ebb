"""One measurement at a time: threads of this process take turns, other processes are told apart and named.

Two measurements on one link halve each other's figures, so a thread waits for its turn. Another process is not waited
for, because that would look like a hang; the run says instead that somebody else was measuring.
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

_locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
_locks_guard = threading.Lock()
_queued = threading.local()


@contextlib.contextmanager
def turn(device: str) -> Iterator[None]:
    """Hold the device among this process's threads; the same thread may hold it again."""
    with _locks_guard:
        lock = _locks[device]
    with lock:
        yield


@contextlib.contextmanager
def queue_for(device: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the device among all processes of this user that ask for it here, and wait for it.

    For short turns, such as those of the workers of one test run. Where no file can be locked it goes on without. The
    same thread may hold it again.
    """
    held: set[str] = _queued.__dict__.setdefault("held", set())
    if device in held:
        yield
        return
    handle = _open_queue(folder or _shared_folder(), device)
    held.add(device)
    try:
        if handle is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        held.discard(device)
        if handle is not None:
            os.close(handle)


def _open_queue(folder: Path, device: str) -> int | None:
    """The file stays, because whoever waits has it open; in a shared folder a file of another user cannot be opened."""
    try:
        _make_shared(folder)
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(folder / f"queue-{os.getuid()}-{_file_name(device)}", flags, 0o600)
    except OSError:
        return None


class Presence:
    """A file that says that this process measures on a device, while it does."""

    def __init__(self, device: str, folder: Path | None = None) -> None:
        self._folder = folder or _shared_folder()
        self._prefix = _file_name(device)
        self._file: int | None = None
        self._path = self._folder / f"{self._prefix}.{os.getpid()}.{threading.get_ident()}"
        self.met: set[int] = set()

    def __enter__(self) -> Presence:
        with contextlib.suppress(OSError):
            _make_shared(self._folder)
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        """Note which other processes are measuring on the device just now."""
        try:
            found = list(self._folder.glob(f"{self._prefix}.*"))
        except OSError:
            return
        for path in found:
            pid = path.name.rsplit(".", 2)[1]
            if path != self._path and pid.isdigit() and int(pid) != os.getpid() and _is_held(path):
                self.met.add(int(pid))


def _shared_folder() -> Path:
    return Path(tempfile.gettempdir()) / "pyxfer-measuring"


def _make_shared(folder: Path) -> None:
    """Other users leave their files here too, and take away only their own."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)


def _file_name(device: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in device)


def _is_held(path: Path) -> bool:
    """A file whose owner was killed is not held any more; it is taken away."""
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
