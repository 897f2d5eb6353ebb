"""One measurement at a time, because two measurements on one link halve each other's figures.

- `turn`: threads of this process wait for each other.
- `Presence`: other processes that measure on the device are noted, for a remark in the run. A run does not wait for
  them, because that would look like a hang.
- `queue_for`: processes wait for each other. Only the workers of one test run do so, because their turns are short.

Processes find each other by the names of sockets in Linux's abstract namespace. It holds no files: nothing is left of a
killed process, and no user can put a link where another one writes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import socket
import struct
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pyxfer._document.machines import HOST_MEMORY

PLACE = "pyxfer-measuring"
_SOCKETS = Path("/proc/net/unix")
_PEER = struct.Struct("3i")
"""Of SO_PEERCRED: the ids of a process, its user and its group."""

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
    """Shows other processes, by the name of a socket, that this one measures on a device.

    `other_processes` has the ids of those that did the same at its beginning, at its end or at a call of `look`.
    """

    def __init__(self, device: str) -> None:
        self._name = _name("presence", device)
        self._socket: socket.socket | None = None
        self.other_processes: set[int] = set()

    def __enter__(self) -> Presence:
        with contextlib.suppress(OSError):
            self._socket = _bound(f"{self._name}/{os.getpid()}.{threading.get_native_id()}")
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def look(self) -> None:
        with contextlib.suppress(OSError):
            sockets = _SOCKETS.read_text(errors="replace")
            found = re.findall(rf"@{re.escape(self._name)}/(\d+)\.\d+$", sockets, re.MULTILINE)
            self.other_processes |= {int(pid) for pid in found} - {os.getpid()}


@contextlib.contextmanager
def queue_for(device: str) -> Iterator[None]:
    """Wait until no other process of this user that calls this function holds the device, and hold it.

    If there are no such sockets, it does not wait. A thread may hold the device repeatedly.
    """
    held: set[str] = _queued.__dict__.setdefault("held", set())
    if device in held:
        yield
        return
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            closing.enter_context(_held(_name(f"queue-{os.getuid()}", device)))
        held.add(device)
        closing.callback(held.discard, device)
        yield


def _held(name: str) -> socket.socket:
    """The listening socket of this name. Nobody accepts: the connections of those who wait end with it."""
    while True:
        try:
            holding = _bound(name)
            holding.listen()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return holding
        with socket.socket(socket.AF_UNIX) as waiting:
            try:
                waiting.connect(f"\0{name}")
            except ConnectionRefusedError:  # it has ended, or does not listen yet
                continue
            _, user, _ = _PEER.unpack(waiting.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if user != os.getuid():
                raise PermissionError(errno.EPERM, "another user has the name")
            with contextlib.suppress(ConnectionResetError):
                waiting.recv(1)


def _bound(name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(f"\0{name}")
    except OSError:
        made.close()
        raise
    return made


def _name(what: str, device: str) -> str:
    """A name of a limited length, whatever that of the device is.

    Without a GPU only processes with one folder for temporary files meet: tests that run side by side have their own.
    """
    if device == HOST_MEMORY:
        device += tempfile.gettempdir()
    return f"{PLACE}-{what}-{hashlib.sha256(device.encode()).hexdigest()[:32]}"
