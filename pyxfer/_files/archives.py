"""Zip archives whose members are stored uncompressed, and NumPy's files: `.npy`, and `.npz` archives of them.

`zipfile` reads the list of members. Where the bytes of a member begin stands only before them.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib import format as npy

from pyxfer._files.stored import BITS_OF, FETCH_AGAIN, OpenFile, StoredArray, nbytes_of, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, KeysView

ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
NPY_MAGIC = b"\x93NUMPY"
_NPY = ".npy"

# The list of members of an archive with a million of them has 100 MB.
_MAX_READ_BYTES = 256 << 20
# Signature, version, flags, method, time, date, checksum, sizes, lengths of the name and of what follows it.
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_LOCAL_MAGIC = b"PK\x03\x04"
_EXTRA = struct.Struct("<HH")
_EXTRA_ZIP64 = 1
_ZIP64_SIZES = struct.Struct("<QQ")
_IN_ZIP64 = 0xFFFFFFFF
_ENCRYPTED = 0x1 | 0x40
_SIZES_FOLLOW = 0x8
_UTF8_NAME = 0x800
_USUAL_LOCAL_BYTES = 512

# NumPy's own limit of a header, without which it would take long, and the lengths before it.
_MAX_NPY_HEADER_BYTES = 10_000
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES = {bytes([letter]) for letter in b"\\'\"abfnrtvxNuU01234567\n"}
_NPY_READERS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # 3.0 differs in the names of fields, and arrays with fields are refused
}


class Member(NamedTuple):
    """A member of an archive, and where its bytes are in the file."""

    name: str
    offset: int
    nbytes: int
    checksum: int


class _LimitedFile(io.FileIO):
    """A file of which no damaged size makes `zipfile` read everything."""

    def read(self, size: int | None = -1, /) -> bytes | None:  # type: ignore[override]
        if size is not None and size > _MAX_READ_BYTES:
            raise zipfile.BadZipFile
        return super().read(-1 if size is None else size)


class Archive:
    """A zip archive."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        try:
            with zipfile.ZipFile(_LimitedFile(file.descriptor, closefd=False)) as opened:
                members = opened.infolist()
        # What zipfile raises for damaged lists of members, beside its own error.
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError, OverflowError, struct.error):
            raise file.refused(f"is a damaged or truncated zip archive: {FETCH_AGAIN}") from None
        self._members = {member.filename: member for member in members}
        if len(self._members) != len(members):
            raise file.refused(f"has two members of one name: {FETCH_AGAIN}")
        offsets = sorted(member.header_offset for member in members)
        self._next_of = dict(zip(offsets, [*offsets[1:], file.nbytes], strict=False))
        self._are_apart = len(self._next_of) == len(members)

    @property
    def names(self) -> KeysView[str]:
        return self._members.keys()

    def locate(self, name: str, remedy: str) -> Member:
        """Find a member's bytes. `remedy` says how to write the archive without compression."""
        listed = self._members.get(name)
        if listed is None:
            raise self.file.refused(f"has no member {shown_name(name)}, although it needs it: {FETCH_AGAIN}")
        if listed.flag_bits & _ENCRYPTED:
            raise self.file.refused("is encrypted: decrypt it first")
        if listed.compress_type != zipfile.ZIP_STORED:
            raise self.file.refused(f"is compressed, so that its bytes cannot be read as they are: {remedy}")
        begin = self._begin_of(listed)
        size = listed.file_size
        is_within = begin + size <= self._next_of[listed.header_offset]
        if listed.compress_size != size or not self._are_apart or not is_within:
            raise self._lies(name)
        return Member(name, begin, size, listed.CRC)

    def contents(self, member: Member) -> bytes:
        """The bytes of a small member, compared with their checksum."""
        data = self.file.read(member.offset, member.nbytes)
        if zlib.crc32(data) != member.checksum:
            raise self.file.refused(
                f"is damaged, because the member {shown_name(member.name)} does not fit its checksum: {FETCH_AGAIN}"
            )
        return data

    def _begin_of(self, listed: zipfile.ZipInfo) -> int:
        """Where the bytes begin, behind a header that has to say the same as the list of members."""
        head = self.file.read(listed.header_offset, _USUAL_LOCAL_BYTES) if listed.header_offset >= 0 else b""
        if len(head) < _LOCAL.size:
            raise self._lies(listed.filename)
        magic, _, flags, method, _, _, checksum, packed, size, name_bytes, extra_bytes = _LOCAL.unpack_from(head)
        length = _LOCAL.size + name_bytes + extra_bytes
        if length > len(head):
            head = self.file.read(listed.header_offset, length)
        name = head[_LOCAL.size : _LOCAL.size + name_bytes]
        expected = listed.orig_filename.encode("utf-8" if flags & _UTF8_NAME else "cp437", "replace")
        if _IN_ZIP64 in (packed, size):
            size, packed = _zip64_sizes(head[_LOCAL.size + name_bytes : length]) or (size, packed)
        said = (checksum, packed, size)
        # If they follow behind the bytes, zeros stand here.
        follow = bool(flags & _SIZES_FOLLOW) and not (packed or size)
        if (
            magic != _LOCAL_MAGIC
            or len(head) < length
            or name != expected
            or flags & _ENCRYPTED
            or method != listed.compress_type
            or (said != (listed.CRC, listed.compress_size, listed.file_size) and not follow)
        ):
            raise self._lies(listed.filename)
        return int(listed.header_offset + length)

    def _lies(self, name: str) -> Exception:
        return self.file.refused(
            f"is damaged, because its list of members does not fit the member {shown_name(name)}: {FETCH_AGAIN}"
        )


def _zip64_sizes(extra: bytes) -> tuple[int, int] | None:
    """The size and the packed size of a large member."""
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if kind == _EXTRA_ZIP64 and length >= _ZIP64_SIZES.size and at + _ZIP64_SIZES.size <= len(extra):
            size, packed = _ZIP64_SIZES.unpack_from(extra, at)
            return size, packed
        at += length
    return None


# --- NumPy's files ---------------------------------------------------------------------------------------------------


def arrays_of_npy(file: OpenFile, number: int) -> list[StoredArray]:
    name = os.path.splitext(os.path.basename(file.path))[0]
    return [_npy_array(file, number, Member(name, 0, file.nbytes, 0), file.refused)]


def arrays_of_npz(archive: Archive, number: int) -> list[StoredArray]:
    file = archive.file
    found = []
    for name in archive.names:
        if not name.endswith(_NPY):
            raise file.refused(f"has the member {shown_name(name)}, which is not an array: write it with np.savez")
        member = archive.locate(name, "write it with np.savez, not np.savez_compressed")

        def refused(what: str, name: str = name) -> Exception:
            return file.refused(f"has the member {shown_name(name)}, which {what}")

        found.append(_npy_array(file, number, member._replace(name=name.removesuffix(_NPY)), refused))
    return sorted(found, key=lambda array: array.offset)


def _npy_array(file: OpenFile, number: int, member: Member, refused: Callable[[str], Exception]) -> StoredArray:
    head = io.BytesIO(file.read(member.offset, min(member.nbytes, _MAX_NPY_HEADER_BYTES + npy.MAGIC_LEN + 4)))
    try:
        version = npy.read_magic(head)
        lengths = 2 if version == (1, 0) else 4
        begin = npy.MAGIC_LEN + lengths
        text = head.getvalue()[begin : begin + int.from_bytes(head.getvalue()[npy.MAGIC_LEN : begin], "little")]
        if not set(_ESCAPED.findall(text)) <= _ESCAPES:  # Python would print a warning with what follows as it is
            raise ValueError
        shape, fortran, dtype = _NPY_READERS[version](head)
    # NumPy evaluates a literal of Python, for which Python raises more than it documents. Warnings may be errors.
    except Exception as error:
        raise refused(f"has a header of NumPy that is damaged or not known: {FETCH_AGAIN}") from error
    _require_plain(dtype, refused)
    nbytes = nbytes_of(dtype.name, shape)
    if nbytes is None:
        raise refused(f"has a shape that no array can have: {FETCH_AGAIN}")
    start = head.tell()
    if start + nbytes > member.nbytes:
        raise refused(
            f"is cut short (its array ends at byte {start + nbytes}, and it has {member.nbytes}): {FETCH_AGAIN}"
        )
    counts = tuple(int(count) for count in shape)
    return StoredArray(
        member.name, dtype.name, counts, number, member.offset + start, nbytes, fortran and len(counts) > 1
    )


def _require_plain(dtype: np.dtype, refused: Callable[[str], Exception]) -> None:
    """Refuse a type that is not one of `BITS_OF` in the byte order of this machine."""
    if dtype.hasobject:
        raise refused("has objects of Python, which only pickle can read: save arrays of numbers")
    if dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        raise refused(
            "has items without a type, as NumPy saves types of other libraries such as bfloat16: save it as safetensors"
        )
    if dtype.name not in BITS_OF:
        raise refused(f"has dtype {shown_name(str(dtype))}, which no GPU array has: save it as numbers")
    if not dtype.isnative:
        raise refused(
            "has numbers in the byte order of other processors: save it after .astype(array.dtype.newbyteorder('='))"
        )
