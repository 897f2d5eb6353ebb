"""What is known of a stored array, and a file while its header is read."""

from __future__ import annotations

import math
import os
import stat
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import TypeAlias

import msgspec

from pyxfer.errors import ArrayFileError

Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Identity: TypeAlias = tuple[int, int, int, int]

BITS_OF = {
    "bool": 8,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": bits for bits in (16, 32, 64)},
    "bfloat16": 16,
    "complex64": 64,
    "complex128": 128,
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 8),
    **dict.fromkeys(("float6_e2m3fn", "float6_e3m2fn"), 6),
    "float4_e2m1fn": 4,
}
"""The size of an item of each dtype."""

# NumPy's limit; PyTorch and JAX have none that matters.
_MAX_DIMENSIONS = 64
# What every framework counts items and bytes with.
_MAX_BYTES = 2**63 - 1
_BITS_IN_BYTE = 8

FETCH_AGAIN = "fetch it again from where it came"


# A dataclass takes four times as long to make, and a file has up to 100,000 of these.
class StoredArray(msgspec.Struct, frozen=True, gc=False):
    """An array in a file."""

    name: str
    dtype: str
    """As NumPy and ml_dtypes write it."""
    shape: tuple[int, ...]
    file: int
    """Its number in `StoredFiles.paths`."""
    offset: int
    """Of its first byte in the file."""
    nbytes: int
    fortran: bool = False
    """Whether the items are in Fortran order."""


class StoredFiles(msgspec.Struct, frozen=True):
    """Files, and the arrays in them."""

    paths: tuple[str, ...]
    identities: tuple[Identity, ...]
    """Of each file before its header was read."""
    arrays: tuple[StoredArray, ...]
    """In the order of the files, and within a file in that of their bytes."""


@lru_cache
def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """The bytes of an array, or None if no framework can have it or it does not end with a byte."""
    if len(shape) > _MAX_DIMENSIONS or (shape and min(shape) < 0):
        return None
    bits = math.prod(shape) * BITS_OF[dtype]
    # Also of an array without items, as NumPy does.
    most = bits or math.prod(count or 1 for count in shape) * BITS_OF[dtype]
    return None if bits % _BITS_IN_BYTE or most > _MAX_BYTES * _BITS_IN_BYTE else bits // _BITS_IN_BYTE


def identity_of(status: os.stat_result) -> Identity:
    """What differs between a file and another one, or the same one after it was written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def shown(path: str) -> str:
    """A path in a message: quoted, and with escapes for what cannot be printed."""
    return repr(path)


def shown_name(name: str) -> str:
    """A name out of a file in a message: as a path, and cut off if it is long."""
    return f"{name!r:.80}"


def without_readahead(descriptor: int) -> None:
    """Let the page cache get nothing ahead: that would count as cached, and what is behind it too in its turn."""
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


class OpenFile:
    """A regular file that is open for reading."""

    def __init__(self, path: str) -> None:
        self.path, self.shown = path, shown(path)
        try:
            self._require_file(os.stat(path))  # to open a device may change something
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except ArrayFileError:
            raise
        except FileNotFoundError as error:
            if os.path.islink(path):
                raise self.refused("is a link to a file that is missing: fetch that file") from error
            raise ArrayFileError(f"There is no file {self.shown}: check the name.") from error
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            reason = getattr(error, "strerror", None) or "no file can have this name"
            raise self.refused(f"cannot be read ({reason}): check the name and who may read it") from error
        try:
            status = os.fstat(self.descriptor)
            self._require_file(status)
            without_readahead(self.descriptor)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.identity, self.nbytes = identity_of(status), status.st_size

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.descriptor)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Read up to `nbytes`: fewer only at the end of the file."""
        parts = []
        while nbytes > 0:
            try:
                part = os.pread(self.descriptor, nbytes, offset)
            except OSError as error:
                raise self.refused(f"cannot be read ({error.strerror}): check its disk") from error
            if not part:
                break
            parts.append(part)
            offset += len(part)
            nbytes -= len(part)
        return b"".join(parts)

    def refused(self, what: str) -> ArrayFileError:
        """The error that this file `what`."""
        return ArrayFileError(f"{self.shown} {what}.")

    def _require_file(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise self.refused("is a folder where a file is needed: name a file inside it")
        if not stat.S_ISREG(status.st_mode):
            raise self.refused("is a pipe, a socket or a device, not a file: save its contents to a file first")
        if not status.st_size:
            raise self.refused(f"is empty: {FETCH_AGAIN}")
