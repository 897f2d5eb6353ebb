"""Write files completely or not at all, and read them up to a limit. Errors become sentences.

A pipe, a terminal or a descriptor of this process (`/dev/fd/5`) is a stream: it cannot be replaced, so what is written
to it stays.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import io
import os
import secrets
import stat
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_size

Path = str | os.PathLike[str]

MAX_READ_BYTES = 1024**3
MAX_DECOMPRESSED_BYTES = 256 * 1024**2
"""A run of all frameworks has 6 MB with its trials, and a baseline has a few dozen runs."""

_PART_BYTES = 1024**2

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WBITS = 31
"""zlib then writes a gzip header without time and name, so equal documents give equal bytes."""

STDOUT = "-"
_STDOUT_DESCRIPTOR = 1
_STANDARD = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
# A signal that the kernel delivers to another thread does not end a wait, so it is in slices.
_SLICE_S = 0.05

_REMEDIES = {
    errno.ENOENT: "make the folder first, or name a file in another one",
    errno.EISDIR: "name a file inside the folder",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "name a file that you may write to"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space, or name a file on another disk"),
    errno.EPIPE: "name a file; the reader has ended",
}


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, compressed if its name ends in .gz. An old file stays if it fails."""
    if os.fspath(path).endswith(".gz"):
        packer = zlib.compressobj(wbits=_GZIP_WBITS)
        data = packer.compress(data) + packer.flush()
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, or is removed if the block raises.

    A stream is written to instead; of a FIFO this waits for the reader.
    """
    try:
        mode = _writable_mode(path)
    except (OSError, ValueError) as error:
        raise UsageError(_refusal(path, error)) from error
    try:
        if is_stream(path):
            descriptor = _descriptor_of(path)
            with open(path if descriptor is None else os.dup(descriptor), "wb") as stream:
                yield stream
        else:
            with _replacing(os.path.realpath(path), mode) as file:  # a symbolic link stays one
                yield file
    except OSError as error:
        raise UsageError(_refusal(path, error)) from error


def check_writable(path: Path) -> None:
    """Raise the error that `write_whole` would raise later. An existing file is not touched."""
    try:
        mode = _writable_mode(path)
        if not is_stream(path):
            descriptor, temporary = _create_beside(os.path.realpath(path), mode)
            os.close(descriptor)
            os.unlink(temporary)
    except (OSError, ValueError) as error:
        raise UsageError(_refusal(path, error)) from error


def is_stream(path: Path) -> bool:
    if _descriptor_of(path) is not None:
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def is_stdout(path: Path) -> bool:
    return os.fspath(path) == STDOUT or _descriptor_of(path) == _STDOUT_DESCRIPTOR


class Checkpoints:
    """Writes files in a thread of its own, so that a slow disk delays no caller.

    Only the newest data of each file is kept. `failures` has the files whose last write failed, with the reason.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self.failures: dict[str, str] = {}
        self._on_failure = on_failure
        self._newest: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._is_writing = False

    def put(self, path: str, data: bytes) -> None:
        with self._changed:
            self._newest[path] = data
            if not self._is_writing:
                self._is_writing = True
                threading.Thread(target=self._write_all, name="pyxfer-saving").start()

    def wait(self) -> None:
        with self._changed:
            while self._is_writing:
                self._changed.wait(_SLICE_S)

    def _write_all(self) -> None:
        while (taken := self._take()) is not None:
            path, data = taken
            try:
                write_whole(path, data)
                self.failures.pop(path, None)
            except (UsageError, MemoryError) as error:
                self.failures[path] = str(error) or f"{path!r} cannot be written (out of host memory)."
                self._on_failure(self.failures[path])

    def _take(self) -> tuple[str, bytes] | None:
        with self._changed:
            for path in self._newest:
                return path, self._newest.pop(path)
            self._is_writing = False
            self._changed.notify_all()
            return None


def read_whole(path: Path, most_bytes: int | None = None) -> bytes:
    """Read a file, and decompress it if it is gzip. `most_bytes`: before and after that, by default of any document."""
    most_read, most_unpacked = most_bytes or MAX_READ_BYTES, most_bytes or MAX_DECOMPRESSED_BYTES
    shown = repr(os.fspath(path))
    try:
        with open(path, "rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            data = b"" if size_bytes > most_read else _read_up_to(file, most_read + 1)
    except FileNotFoundError as error:
        raise DocumentError(f"There is no file {shown}: check the name.") from error
    except IsADirectoryError as error:
        raise DocumentError(f"{shown} is a folder, not a run: name a file inside it.") from error
    except (OSError, ValueError) as error:
        raise DocumentError(
            f"{shown} cannot be read ({_reason(error)}): check the name and who may read it."
        ) from error
    if max(size_bytes, len(data)) > most_read:
        limit = format_size(most_read)
        raise DocumentError(
            f"{shown} is larger than {limit}, which no such document is: name a file that pyxfer saved."
        )
    return _decompressed(data, shown, most_unpacked, most_read) if data.startswith(_GZIP_MAGIC) else data


def _read_up_to(file: BinaryIO | gzip.GzipFile, most_bytes: int) -> bytes:
    """Read in parts, because one read would take the memory of `most_bytes` first."""
    parts: list[bytes] = []
    while most_bytes > 0 and (part := file.read(min(most_bytes, _PART_BYTES))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def _decompressed(packed: bytes, shown: str, most_bytes: int, most_read: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            data = _read_up_to(file, most_bytes + 1)
    except EOFError as error:
        raise DocumentError(f"{shown} is cut short (gzip): fetch it again from where it came.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DocumentError(f"{shown} is damaged (gzip: {error}): fetch it again from where it came.") from error
    if len(data) > most_bytes:
        limit = format_size(most_bytes)
        what = "if pyxfer saved it, run gunzip first" if most_bytes < most_read else "name a file that pyxfer saved"
        raise DocumentError(f"{shown} is larger than {limit} once decompressed: {what}.")
    return data


def _writable_mode(path: Path) -> int:
    """The mode of the existing file, or of a new one. Raises OSError if it may not be written."""
    if not os.fspath(path):
        raise ValueError("the name is empty")
    descriptor = _descriptor_of(path)
    if descriptor is not None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return os.fstat(descriptor).st_mode
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return stat.S_IFREG | 0o666
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.W_OK):  # replacing a read-only file needs only permission for the folder
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


def _descriptor_of(path: Path) -> int | None:
    """The descriptor that a path such as /dev/stdout or /dev/fd/63 names.

    Opening such a path would give a file a second position, and replacing it would take the file from its owner.
    """
    name = os.fspath(path)
    folder, last = os.path.split(_STANDARD.get(name, name))
    return int(last) if last.isdecimal() and os.path.realpath(folder) == f"/proc/{os.getpid()}/fd" else None


@contextmanager
def _replacing(target: str, mode: int) -> Iterator[BinaryIO]:
    descriptor, temporary = _create_beside(target, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:  # also Ctrl-C
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _create_beside(target: str, mode: int) -> tuple[int, str]:
    temporary = os.path.join(os.path.dirname(target), f".pyxfer-{secrets.token_hex(8)}.tmp")
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(mode)), temporary


def _refusal(path: Path, error: OSError | ValueError) -> str:
    remedy = _REMEDIES.get(getattr(error, "errno", None) or 0, "name another file")
    return f"{os.fspath(path)!r} cannot be written ({_reason(error)}): {remedy}."


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
