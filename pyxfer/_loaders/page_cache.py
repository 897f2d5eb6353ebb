"""What the page cache holds of files, and how to take it out.

Only these files leave the cache. The caches of the machine are never dropped as a whole.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pyxfer._document.machines import Fact, unknown
from pyxfer.errors import ArrayFileError

EVICTED_BELOW = 0.01
"""The most that the page cache may hold of files that count as evicted."""
_READ_BYTES = 8 << 20
_MOUNTS = Path("/proc/self/mountinfo")
# They keep files in memory alone, so nothing can be evicted.
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def filesystem_of(path: str) -> Fact[str]:
    """The type of the file system that a file is on, such as `ext4`."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError as error:
        return unknown(f"{_MOUNTS} cannot be read ({error.strerror})")
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [wanted] and after:
            return Fact(after.split()[0])
    return unknown(f"{_MOUNTS} has no file system with the number {wanted}")


def why_not_evicted(paths: Sequence[str]) -> str | None:
    """Why the page cache cannot be emptied of these files; None if that has just been done."""
    kinds = {filesystem_of(path).value for path in paths}
    if kept := kinds.intersection(_IN_MEMORY):
        return f"the files are in memory ({', '.join(sorted(map(str, kept)))}), and on no disk"
    evict(paths)
    share = cached_share(paths)
    if share > EVICTED_BELOW:
        return (
            f"the page cache still shows {share * 100:.0f} % of the files: another program uses them, or this user may "
            "not see what it holds"
        )
    return None


def evict(paths: Sequence[str]) -> None:
    """Ask the kernel to drop the pages of these files, after it has written those that changed."""
    for path in paths:
        with _opened(path) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill(paths: Sequence[str]) -> None:
    """Read the files once, so that the page cache holds them."""
    buffer = bytearray(_READ_BYTES)
    for path in paths:
        with _opened(path) as file:
            while file.readinto(buffer):
                pass


def cached_share(paths: Sequence[str]) -> float:
    """The share of the files' pages that the page cache holds, page by page.

    The kernel shows this only to the owner of a file and to those who may write it. To others all pages are there.
    """
    held = pages = 0
    for path in paths:
        found = _held_pages(path)
        held += int(found.sum())
        pages += found.size
    return held / pages if pages else 1.0


def _held_pages(path: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    with _opened(path) as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        view = np.frombuffer(mapping, np.uint8)
        address, nbytes = view.ctypes.data, view.size
        del view  # the mapping can only be closed without it
        found = np.zeros(-(-nbytes // mmap.PAGESIZE), np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        held = ctypes.c_void_p(found.ctypes.data)
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), held) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise ArrayFileError(f"{path!r}: the system does not say what the page cache holds of it ({reason}).")
    return (found & 1).astype(np.bool_)


def _opened(path: str) -> io.FileIO:
    try:
        return io.FileIO(path)
    except OSError as error:
        raise ArrayFileError(f"{path!r} cannot be opened again: {error.strerror}.") from error
