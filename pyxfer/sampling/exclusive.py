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


@contextlib.contextmanager
def turn(device: str) -> Iterator[None]:
    """Hold the device among this process's threads; the same thread may hold it again."""
    with _locks_guard:
        lock = _locks[device]
    with lock:
        yield


class Presence:
    """A file that says that this process measures on a device, while it does."""

    def __init__(self, device: str, folder: Path | None = None) -> None:
        self._folder = folder or _shared_folder()
        self._prefix = "".join(c if c.isalnum() else "-" for c in device)
        self._file: int | None = None
        self._path = self._folder / f"{self._prefix}.{os.getpid()}.{threading.get_ident()}"
        self.met: set[int] = set()

    def __enter__(self) -> Presence:
        with contextlib.suppress(OSError):
            if not self._folder.exists():
                self._folder.mkdir(parents=True, exist_ok=True)
                self._folder.chmod(0o1777)  # other users leave their files here too, and take away only their own
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
