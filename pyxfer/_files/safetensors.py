"""The header of a safetensors file: JSON with the type, shape and place of each array.

The safetensors library gives no places. What it refuses is refused here too, and a name that is there twice as well.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pyxfer._files.stored import FETCH_AGAIN, OpenFile, StoredArray, nbytes_of, shown_name

MAX_JSON_BYTES = 100_000_000
"""The library's limit of a header."""
_LENGTH_BYTES = 8

_DTYPES = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
    "F4": "float4_e2m1fn",
}

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_METADATA = "__metadata__"
_TWICE = "a name is there twice"


# Without gc, because Python would search 100,000 objects that hold no others for circles again and again.
class _Entry(msgspec.Struct, gc=False):
    dtype: str
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


class _EntryOrMetadata(msgspec.Struct, gc=False):
    """Either value of a header, so that one call decodes 10,000 of them."""

    dtype: str | None = None
    shape: tuple[_Count, ...] | None = None
    data_offsets: tuple[_Count, _Count] | None = None


class _Metadata(msgspec.Struct, rename={"texts": _METADATA}):
    texts: dict[str, str] | None = None


_all_in = msgspec.json.Decoder(dict[str, _EntryOrMetadata]).decode
_metadata_in = msgspec.json.Decoder(_Metadata).decode
_texts_in = msgspec.json.Decoder(dict[str, str] | None).decode
_parts_in = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_entry_in = msgspec.json.Decoder(_Entry).decode


class _EntryError(Exception):
    """The name of an array, and what is wrong with its entry."""


class _Decoded(msgspec.Struct):
    entries: dict[str, _Entry]
    metadata: dict[str, str]
    has_metadata: bool


def is_safetensors(head: bytes) -> bool:
    """Whether these first bytes of a file are a plausible length and the begin of a JSON object."""
    return _length_in(head) <= MAX_JSON_BYTES and head[_LENGTH_BYTES:].lstrip()[:1] == b"{"


def arrays_of_safetensors(file: OpenFile, number: int) -> list[StoredArray]:
    text, begin = _header_of(file)
    try:
        str(text, "utf-8")  # msgspec does not look at the texts that it skips
        found = _decoded(text) or _decoded_one_by_one(text)
        if _may_repeat(text, found):
            unique_json(text)
    except (ValueError, RecursionError) as error:  # those of msgspec are ValueErrors
        raise file.refused(f"has a damaged safetensors header ({reason_of(error)}): {FETCH_AGAIN}") from error
    except _EntryError as error:
        name, reason = error.args
        raise file.refused(
            f"has a damaged safetensors header, at its array {shown_name(name)} ({reason}): {FETCH_AGAIN}"
        ) from error
    return _arrays(file, number, found.entries, begin)


def _header_of(file: OpenFile) -> tuple[bytes, int]:
    """The JSON, and where the data begins."""
    if file.nbytes < _LENGTH_BYTES:
        raise file.refused(f"is cut short (within its first {_LENGTH_BYTES} bytes): {FETCH_AGAIN}")
    length = _length_in(file.read(0, _LENGTH_BYTES))
    if length > MAX_JSON_BYTES:
        raise file.refused(f"has a header of {length} bytes, and safetensors allows {MAX_JSON_BYTES}: {FETCH_AGAIN}")
    end = _LENGTH_BYTES + length
    if end > file.nbytes:
        raise file.refused(f"is cut short (its header ends at byte {end}, the file at {file.nbytes}): {FETCH_AGAIN}")
    return file.read(_LENGTH_BYTES, length), end


def _length_in(head: bytes) -> int:
    return int.from_bytes(head[:_LENGTH_BYTES], "little") if len(head) >= _LENGTH_BYTES else MAX_JSON_BYTES + 1


def _decoded(text: bytes) -> _Decoded | None:
    """None if something is missing or of another type."""
    try:
        entries: dict[str, Any] = _all_in(text)
        metadata = _metadata_in(text).texts
    except (ValueError, RecursionError):
        return None
    has_metadata = entries.pop(_METADATA, None) is not None
    is_complete = all(None not in (each.dtype, each.shape, each.data_offsets) for each in entries.values())
    return _Decoded(entries, metadata or {}, has_metadata) if is_complete else None


def _decoded_one_by_one(text: bytes) -> _Decoded:
    """The same. Its error names the array."""
    parts = _parts_in(text)
    metadata = parts.pop(_METADATA, None)
    texts = _texts_in(metadata or b"null") or {}
    entries = {}
    name = ""
    try:
        for name, part in parts.items():
            entries[name] = _entry_in(part)
    except (ValueError, RecursionError) as error:
        raise _EntryError(name, reason_of(error)) from error
    return _Decoded(entries, texts, metadata is not None)


def _arrays(file: OpenFile, number: int, entries: dict[str, _Entry], start: int) -> list[StoredArray]:
    found = []
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        dtype = _DTYPES.get(entry.dtype)
        if dtype is None or begin != at or end - begin != nbytes_of(dtype, entry.shape):
            raise file.refused(_fault(name, entry, at))
        found.append(StoredArray(name, dtype, entry.shape, number, start + begin, end - begin))
        at = end
    end = start + at
    if end > file.nbytes:
        raise file.refused(f"is cut short (its data ends at byte {end}, the file at {file.nbytes}): {FETCH_AGAIN}")
    if end < file.nbytes:
        raise file.refused(f"goes on behind its last array for {file.nbytes - end} B: {FETCH_AGAIN}")
    return found


def _fault(name: str, entry: _Entry, at: int) -> str:
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        return (
            f"has the array {shown_name(name)} of dtype {shown_name(entry.dtype)}, which pyxfer does not read:"
            " save it with another one"
        )
    begin, end = entry.data_offsets
    nbytes = nbytes_of(dtype, entry.shape)
    if nbytes is None:
        fault = "has a shape that no array can have"
    elif begin != at:
        fault = f"begins at byte {begin} of the data, and the arrays before it end at byte {at}"
    else:
        fault = f"has {end - begin} bytes, and its dtype and shape need {nbytes}"
    return f"is damaged, because its array {shown_name(name)} {fault}: {FETCH_AGAIN}"


# --- keys that are there twice ---------------------------------------------------------------------------------------


def _may_repeat(text: bytes, found: _Decoded) -> bool:
    """Whether a key may be there twice, of which msgspec keeps the last.

    In JSON without escapes each colon is behind a key or within a text. So if what was kept has all of them, nothing
    was left out.
    """
    texts = [*found.entries, *found.metadata, *found.metadata.values()]
    keys = len(found.entries) * (1 + len(_Entry.__struct_fields__)) + len(found.metadata) + found.has_metadata
    return b"\\" in text or text.count(b":") != keys + sum(each.count(":") for each in texts)


def unique_json(text: bytes) -> Any:
    """The value of JSON in which no object has a key twice, else ValueError."""
    import json  # few headers need it, and the import takes 1 ms

    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(_TWICE)
    return made


def reason_of(error: Exception) -> str:
    """Why JSON was refused, without text of the file."""
    if isinstance(error, msgspec.DecodeError):
        return str(error).replace("`", "")
    return _TWICE if str(error) == _TWICE else "its JSON cannot be read"
