"""What limits a load beside the link: reads of the disk past the page cache, of the page cache, and into slots."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING

from pyxfer._document.machines import Side
from pyxfer._document.runs import Trial
from pyxfer._files.readers import OpenFiles
from pyxfer._files.windows import PAGE_BYTES
from pyxfer._upload.settings import make_ring, read_settings
from pyxfer.errors import MeasurementError

if TYPE_CHECKING:
    from pyxfer._files.stored import StoredFiles
    from pyxfer.native import Engine

DISK_THREADS = (1, 4, 16)
MAX_THREADS = 16
PIECE_BYTES = 4 << 20
"""What a thread reads at a time from the page cache, and all threads together from the disk."""
# One trial, of files that have as much. The next one goes on behind it.
DISK_BYTES = 512 << 20
CACHE_BYTES = 1 << 30
PATIENCE_S = 60.0


class Reads:
    """Reads of pieces of files by threads, each into a buffer of its own: past the page cache, or from it."""

    anchor = None
    ceiling_of = None

    def __init__(self, key: str, paths: Sequence[str], threads: int, most_bytes: int, *, direct: bool) -> None:
        self.key = key
        self._is_direct = direct
        self._owned = ExitStack()
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        pieces: list[tuple[int, int, int]] = []
        piece_bytes = PIECE_BYTES // threads if direct else PIECE_BYTES
        try:
            for path in paths:
                handle = os.open(path, flags)
                self._owned.callback(os.close, handle)
                size = os.fstat(handle).st_size
                starts = range(0, size, piece_bytes)
                pieces += [(handle, start, min(piece_bytes, size - start)) for start in starts]
            # Memory of a mapping begins with a page, as O_DIRECT asks.
            memory = self._owned.enter_context(mmap.mmap(-1, piece_bytes * threads))
            with suppress(OSError):  # in large pages a disk reads faster than in small ones
                memory.madvise(mmap.MADV_HUGEPAGE)
            whole = self._owned.enter_context(memoryview(memory))
            self._buffers = [
                self._owned.enter_context(whole[lane * piece_bytes :][:piece_bytes]) for lane in range(threads)
            ]
        except OSError as error:
            self._owned.close()
            raise MeasurementError(f"the file system does not read past the page cache ({error.strerror})") from error
        self._pool = self._owned.enter_context(ThreadPoolExecutor(threads, "pyxfer-reads"))
        self._next = cycle(pieces)
        self._count = max(1, min(len(pieces), most_bytes // piece_bytes))
        self.nbytes = sum(nbytes for *_, nbytes in pieces[: self._count])

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        if not self._is_direct:  # once untimed, as a load is
            self._read()
        return {"ingest": Trial(round_index, self._read())}

    def _read(self) -> float:
        pieces = list(islice(self._next, self._count))
        moved = sum(nbytes for *_, nbytes in pieces)
        begun_s = time.perf_counter()
        lanes = len(self._buffers)
        reads = [self._pool.submit(_read, pieces[lane::lanes], self._buffers[lane]) for lane in range(lanes)]
        for each in reads:
            each.result()
        # The last piece of a file may be short, so that trials differ by a few per mille in what they read.
        return (time.perf_counter() - begun_s) * self.nbytes / moved

    def close(self) -> None:
        self._owned.close()


def _read(pieces: Sequence[tuple[int, int, int]], buffer: memoryview) -> None:
    for handle, offset, nbytes in pieces:
        try:
            found = os.preadv(handle, [buffer], offset)
        except OSError as error:
            raise MeasurementError(f"a file cannot be read ({error.strerror}): check its disk") from error
        if found < nbytes:
            raise MeasurementError("a file has become shorter while it was read")


class SlotReads:
    """Reads of files by the ring's threads into its page-locked slots, without the copies to the device."""

    anchor = None
    ceiling_of = None

    def __init__(self, key: str, engine: Engine, device: int, files: StoredFiles) -> None:
        self.key = key
        self._ring = make_ring(engine, device, read_settings(engine, device))
        numbers = range(len(files.paths))
        self._files = OpenFiles(engine, files, numbers)
        ranges: list[tuple[int, int, int]] = []
        left = CACHE_BYTES
        for number in numbers:
            # Beyond the end of a file nothing is read.
            size = min(left, -(-files.identities[number][2] // PAGE_BYTES) * PAGE_BYTES)
            ranges += [(number, 0, size)] if size else []
            left -= size
        self._window = engine.FileWindow(self._files.set, ranges, ())
        self.nbytes = sum(min(size, files.identities[number][2]) for number, _, size in ranges)
        self.threads = self._ring.threads

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self._read()  # once untimed, as above
        begun_s = time.perf_counter()
        self._read()
        return {"ingest": Trial(round_index, time.perf_counter() - begun_s)}

    def _read(self) -> None:
        self._ring.start_read(self._window, None).result(PATIENCE_S)

    def close(self) -> None:
        self._ring.close(PATIENCE_S)
