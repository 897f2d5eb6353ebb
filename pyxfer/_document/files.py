"""Write files completely or not at all, and read them up to a limit. Errors become sentences."""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_size

Path = str | os.PathLike[str]

MAX_READ_BYTES = 1024**3
MAX_DECOMPRESSED_BYTES = 256 * 1024**2
"""A run of all frameworks has 6 MB with its trials, and a baseline has a few dozen runs."""

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WBITS = 31
"""zlib then writes a gzip header without time and name, so equal documents give equal bytes."""

_REMEDIES = {
    errno.ENOENT: "make the folder first, or name a file in another one",
    errno.ENOTDIR: "a file is named where a folder is needed; name a file in a folder",
    errno.EISDIR: "it is a folder; name a file inside it",
    errno.EACCES: "name a file that you may write to",
    errno.EPERM: "name a file that you may write to",
    errno.EROFS: "name a file on a disk that can be written to",
    errno.ENOSPC: "free some space, or name a file on another disk",
    errno.EDQUOT: "free some space, or name a file on another disk",
    errno.EFBIG: "raise the limit (ulimit -f), or name a file on another disk",
    errno.ENAMETOOLONG: "give it a shorter name",
}


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, compressed if its name ends in .gz. An old file stays if it fails.

    Raises:
        UsageError: the file cannot be written; the text says why.

    """
    if os.fspath(path).endswith(".gz"):
        packer = zlib.compressobj(wbits=_GZIP_WBITS)
        data = packer.compress(data) + packer.flush()
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, or is removed if the block raises.

    Raises:
        UsageError: the file cannot be written; the text says why.

    """
    try:
        mode = _writable_mode(path)
    except (OSError, ValueError) as error:
        raise UsageError(_refusal(path, error)) from error
    try:
        if stat.S_ISREG(mode):
            with _replacing(os.path.realpath(path), mode) as file:  # a symbolic link stays one
                yield file
        else:
            with open(path, "wb") as file:  # a pipe or a terminal cannot be replaced
                yield file
    except OSError as error:
        raise UsageError(_refusal(path, error)) from error


def check_writable(path: Path) -> None:
    """Raise the error that `write_whole` would raise later. An existing file is not touched."""
    try:
        mode = _writable_mode(path)
        if stat.S_ISREG(mode):
            descriptor, temporary = _create_beside(os.path.realpath(path), mode)
            os.close(descriptor)
            os.unlink(temporary)
    except (OSError, ValueError) as error:
        raise UsageError(_refusal(path, error)) from error


def read_whole(path: Path) -> bytes:
    """Read a file, and decompress it if it is gzip.

    Raises:
        DocumentError: the file cannot be read; the text says why.

    """
    shown = repr(os.fspath(path))
    try:
        with open(path, "rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            data = b"" if size_bytes > MAX_READ_BYTES else file.read(MAX_READ_BYTES + 1)
    except FileNotFoundError as error:
        raise DocumentError(f"there is no file {shown}; check the name") from error
    except IsADirectoryError as error:
        raise DocumentError(f"{shown} is a folder, not a run; name a file inside it") from error
    except (OSError, ValueError) as error:
        raise DocumentError(f"{shown} cannot be read ({_reason(error)}); check the name and who may read it") from error
    if max(size_bytes, len(data)) > MAX_READ_BYTES:
        limit = format_size(MAX_READ_BYTES)
        raise DocumentError(f"{shown} is larger than {limit}, which no run is; name a file that pyxfer saved")
    return _decompressed(data, shown) if data.startswith(_GZIP_MAGIC) else data


def _decompressed(packed: bytes, shown: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            data = file.read(MAX_DECOMPRESSED_BYTES + 1)
    except EOFError as error:
        raise DocumentError(f"{shown} is cut short (gzip); fetch it again from where it came") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DocumentError(f"{shown} is damaged (gzip: {error}); fetch it again from where it came") from error
    if len(data) > MAX_DECOMPRESSED_BYTES:
        limit = format_size(MAX_DECOMPRESSED_BYTES)
        raise DocumentError(f"{shown} is larger than {limit} once decompressed; if pyxfer saved it, run gunzip first")
    return data


def _writable_mode(path: Path) -> int:
    """The mode of the existing file, or of a new one. Raises OSError if it may not be written."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return stat.S_IFREG | 0o666
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.W_OK):  # replacing a read-only file needs only permission for the folder
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


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
    """Create an empty file in the target's folder, with the target's permissions (less the umask)."""
    temporary = os.path.join(os.path.dirname(target), f".pyxfer-{secrets.token_hex(8)}.tmp")
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(mode)), temporary


def _refusal(path: Path, error: OSError | ValueError) -> str:
    remedy = _REMEDIES.get(getattr(error, "errno", None) or 0, "name another file")
    return f"{os.fspath(path)!r} cannot be written ({_reason(error)}); {remedy}"


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
