"""A file system whose reads stall, like that of a network whose server does not answer.

`python stalling.py FOLDER FILE STALL_AT` mounts one with a copy of FILE, by the protocol of Linux's fuse(4). It prints
a line when it is mounted, and one for each read at STALL_AT or later, which gets no answer. A line on stdin answers
these, and the end of stdin unmounts it, which ends them with an error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
INTERRUPT, BATCH_FORGET = 36, 42
UNANSWERED = {FORGET, INTERRUPT, BATCH_FORGET}
REQUEST, REPLY = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
ROOT, FILE = 1, 2
VALID_S = 3600
MAX_READ = 128 << 10
MNT_DETACH = 2


class _Server:
    def __init__(self, folder: str, file: str, stall_at: int) -> None:
        self._name = os.path.basename(file).encode()
        self._data = Path(file).read_bytes()
        self._stall_at = stall_at
        self._turn = threading.Lock()
        self._stalled: list[tuple[int, bytes]] | None = []
        """The reads without an answer, and what it would be. None when all are answered."""
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"pyxfer-tests", folder.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, MAX_READ + (8 << 10))
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                raise
            self._answer(request)

    def release(self) -> None:
        with self._turn:
            for unique, data in self._stalled or ():
                self._reply(unique, data)
            self._stalled = None

    def _answer(self, request: bytes) -> None:
        _, operation, unique, node, *_ = REQUEST.unpack_from(request)
        body = request[REQUEST.size :]
        if operation in UNANSWERED:
            return
        if operation == READ:
            _, offset, count = struct.unpack_from("<QQI", body)
            data = self._data[offset : offset + count]
            with self._turn:
                if self._stalled is not None and offset + count > self._stall_at:
                    self._stalled.append((unique, data))
                    print(offset, flush=True)
                    return
            self._reply(unique, data)
        elif operation == INIT:
            self._reply(unique, struct.pack("<IIIIHHIIHH8I", 7, 31, 0, 0, 16, 12, 4096, 1, 0, 0, *[0] * 8))
        elif operation == LOOKUP and body.rstrip(b"\0") == self._name:
            self._reply(unique, struct.pack("<QQQQII", FILE, 0, VALID_S, VALID_S, 0, 0) + self._attributes(FILE))
        elif operation == GETATTR:
            self._reply(unique, struct.pack("<QII", VALID_S, 0, 0) + self._attributes(node))
        elif operation == OPEN:
            self._reply(unique, struct.pack("<QIi", 0, 0, 0))
        elif operation in (RELEASE, FLUSH):
            self._reply(unique)
        else:
            self._reply(unique, error=errno.ENOENT if operation == LOOKUP else errno.ENOSYS)

    def _attributes(self, node: int) -> bytes:
        mode = stat.S_IFREG | 0o444 if node == FILE else stat.S_IFDIR | 0o555
        size = len(self._data) if node == FILE else 0
        return struct.pack("<6Q10I", node, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _reply(self, unique: int, data: bytes = b"", error: int = 0) -> None:
        os.write(self._device, REPLY.pack(REPLY.size + len(data), -error, unique) + data)


def main(folder: str, file: str, stall_at: str) -> None:
    server = _Server(folder, file, int(stall_at))
    try:
        threading.Thread(target=server.serve, daemon=True).start()
        print("mounted", flush=True)
        for _ in sys.stdin:
            server.release()
    finally:
        ctypes.CDLL(None).umount2(folder.encode(), MNT_DETACH)


class Stalling:
    """The process of such a file system."""

    def __init__(self, process: Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._orders, self._lines = process.stdin, process.stdout
        self.is_mounted = bool(self._lines.readline())

    def await_stall(self) -> None:
        assert self._lines.readline()

    def release(self) -> None:
        self._orders.write("\n")
        self._orders.flush()

    def end(self) -> None:
        self._orders.close()


@contextmanager
def stalling(folder: Path, file: Path, stall_at: int) -> Iterator[Stalling | None]:
    """Mount one with this file; None if none can be mounted here."""
    command = [sys.executable, __file__, str(folder), str(file), str(stall_at)]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        made = Stalling(process)
        try:
            yield made if made.is_mounted else None
        finally:  # ends the process, for which a thread may wait that reads its output
            made.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
