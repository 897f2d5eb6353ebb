"""Two ways to read a window of files: through the ring to a device, and by threads to host memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from pyxfer._files.formats import identity_of, shown
from pyxfer._files.stored import without_readahead
from pyxfer._upload.arrays import source_of
from pyxfer._upload.movers import RingMover
from pyxfer._upload.pending import Dropped, FixedTicket, Started
from pyxfer.errors import ArrayFileError, DeviceTimeoutError
from pyxfer.native import HOST, choose

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyxfer._files.formats import StoredFiles
    from pyxfer._files.windows import Window
    from pyxfer._upload.movers import PlainMover, Ticket
    from pyxfer._upload.uploader import Uploader
    from pyxfer.native import Engine

    Read: TypeAlias = tuple[Future[None], Callable[..., None], tuple[int, int, int, int]]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in place of the file would block
_HOST_THREADS = 8
_HOST_PIECE_BYTES = 4 << 20


class OpenFiles:
    """Some of the files, open and as they were when their headers were read."""

    def __init__(self, engine: Engine, files: StoredFiles, numbers: Sequence[int]) -> None:
        self._files, self.numbers = files, numbers
        self._descriptors: list[int] = []
        with ExitStack() as opened:
            rows = []
            for number in numbers:
                path = files.paths[number]
                try:
                    buffered = os.open(path, _FLAGS)
                except OSError as error:
                    raise ArrayFileError(f"{shown(path)} cannot be opened again: {error.strerror}.") from error
                opened.callback(_close, buffered)
                self._descriptors.append(buffered)
                status = os.fstat(buffered)
                direct = self._direct(path, number, status, opened)
                if direct != -1:
                    without_readahead(buffered)
                rows.append((buffered, direct, status.st_size, shown(path)))
            self.check_unchanged()
            try:
                self.set = engine.FileSet(rows)
            except OSError as error:
                reason = f"{os.strerror(error.errno or 0)}: raise the limit (ulimit -n)"
                raise ArrayFileError(f"{rows[0][-1]} cannot be kept open: {reason}.") from error
            self._closing = opened.pop_all()

    def check_unchanged(self) -> None:
        """Refuse files that have changed since their headers were read."""
        for number, descriptor in zip(self.numbers, self._descriptors, strict=True):
            if identity_of(os.fstat(descriptor)) != self._files.identities[number]:
                raise ArrayFileError(
                    f"{shown(self._files.paths[number])} was changed or replaced while it was read: load it again."
                )

    def _direct(self, path: str, number: int, status: os.stat_result, opened: ExitStack) -> int:
        """A descriptor for reads past the page cache.

        It is -1 if the file system has none, such as tmpfs, or this user may not see what the cache holds of the file.
        """
        if os.geteuid() not in (0, status.st_uid) and not os.access(path, os.W_OK):
            return -1
        with suppress(OSError):
            direct = os.open(path, _FLAGS | os.O_DIRECT)
            opened.callback(_close, direct)
            if identity_of(os.fstat(direct)) == self._files.identities[number]:
                return direct
        return -1

    def __del__(self) -> None:
        if "_closing" in self.__dict__:
            self._closing.close()


def _close(descriptor: int) -> None:
    with suppress(OSError):  # of a network that is gone
        os.close(descriptor)


class DeviceReader:
    """Reads to a device by the ring of an uploader. Copies wait for the earlier work of `stream()`."""

    def __init__(self, uploader: Uploader, stream: Callable[[], int | None]) -> None:
        self._uploader, self._stream = uploader, stream

    def open(self, files: StoredFiles, numbers: Sequence[int]) -> OpenFiles:
        return OpenFiles(self._uploader.engine, files, numbers)

    def start(self, files: OpenFiles, window: Window, add: Callable[[Started], None]) -> None:
        made: list[Ticket] = []
        try:
            with self._uploader._usable_mover(of_files=True) as mover:
                if isinstance(mover, RingMover):
                    source = self._uploader.engine.FileWindow(files.set, *window.ranges_and_parts())
                    mover.start_read(source, self._stream(), made)
                else:
                    made.append(FixedTicket(is_done=False))  # a copy that Ctrl-C interrupts goes on
                    _send_by_driver(mover, files, window)
                    made[0] = FixedTicket(is_done=True)
            add(_started(made[0], files, window))
        except Exception:
            raise
        except BaseException:  # Ctrl-C, perhaps after the transfer has started
            self.leave([_started(ticket, files, window) for ticket in made])
            raise

    def leave(self, started: Sequence[Started]) -> None:
        """Keep what transfers use until they have ended."""
        self._uploader._dropped.add(started)


def _started(ticket: Ticket, files: OpenFiles, window: Window) -> Started:
    # Not only the memory: to close a file of a network that does not answer may block.
    return Started(ticket, lambda: None, (files, [block.keep for block in window.blocks]))


def _send_by_driver(mover: PlainMover, files: OpenFiles, window: Window) -> None:
    """For an uploader that could not page-lock memory for a ring."""
    buffer = np.empty(_HOST_PIECE_BYTES, np.uint8)
    for file, offset, nbytes, address in window.reads(_HOST_PIECE_BYTES):
        files.set.read(file, offset, nbytes, buffer.ctypes.data)
        mover.upload(source_of(buffer[:nbytes]), address, None)()


_left = Dropped()


class HostReader:
    """Reads to host memory by threads. Python does not wait for these at its exit, as it does for those of a pool."""

    def __init__(self) -> None:
        _left.sweep()
        self._engine = choose(HOST).engine
        self._reads: SimpleQueue[Read | None] = SimpleQueue()
        self._threads = 0

    def open(self, files: StoredFiles, numbers: Sequence[int]) -> OpenFiles:
        return OpenFiles(self._engine, files, numbers)

    def start(self, files: OpenFiles, window: Window, add: Callable[[Started], None]) -> None:
        reads: list[Read] = [(Future(), files.set.read, each) for each in window.reads(_HOST_PIECE_BYTES)]
        add(_started(_ThreadsTicket([future for future, _, _ in reads]), files, window))
        for read in reads:
            self._reads.put(read)
        while self._threads < _HOST_THREADS:
            Thread(target=_serve, args=(self._reads,), name="pyxfer-files", daemon=True).start()
            self._threads += 1

    def leave(self, started: Sequence[Started]) -> None:
        for each in started:
            if isinstance(each.ticket, _ThreadsTicket):
                each.ticket.cancel()
        _left.add(started)
        for _ in range(self._threads):
            self._reads.put(None)
        self._threads = 0


def _serve(reads: SimpleQueue[Read | None]) -> None:
    while read := reads.get():
        future, call, arguments = read
        del read
        if future.set_running_or_notify_cancel():
            try:
                call(*arguments)
            except Exception as error:  # noqa: BLE001 - raised where the result is taken
                future.set_exception(error)
            else:
                del call  # it keeps the files open
                future.set_result(None)
    _left.sweep()  # of a load that was left, with its last read


class _ThreadsTicket:
    def __init__(self, reads: Sequence[Future[None]]) -> None:
        self._reads = reads

    def done(self) -> bool:
        return all(read.done() for read in self._reads)

    def cancel(self) -> None:
        """Leave out the reads that have not begun."""
        for read in self._reads:
            read.cancel()

    def result(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for read in self._reads:
            try:
                read.result(max(0.0, until - time.monotonic()))
            except FutureTimeoutError as error:
                raise DeviceTimeoutError("The files have not been read.") from error
