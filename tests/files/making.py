"""Files of arrays that are made byte by byte, also such as no library writes."""

from __future__ import annotations

import json
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors as library

from pyxfer._files.formats import StoredArray, stored_arrays

DATA = Path(__file__).resolve().parent / "data"


def safetensors(header: object, data: bytes = b"") -> bytes:
    """A file with this header, which may be text or bytes that are no JSON."""
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def by_the_library(data: bytes) -> dict[str, dict[str, Any]]:
    """The arrays that the safetensors library reads, with dtype, shape and data."""
    return dict(library.deserialize(data))  # type: ignore[no-untyped-call]


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def found(path: Path, *names: str) -> dict[str, StoredArray]:
    return {array.name: array for array in stored_arrays(path, names or None).arrays}


def bytes_of(array: StoredArray, path: Path) -> bytes:
    return path.read_bytes()[array.offset : array.offset + array.nbytes]


# --- PyTorch's archives ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Global:
    """A name of a module."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """What a pickle calls, and with what."""

    function: Global
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Built:
    """A value whose attributes are set."""

    value: Any
    state: Any


@dataclass(frozen=True)
class Persistent:
    """What PyTorch keeps outside of the pickle."""

    identity: Any


@dataclass(frozen=True)
class Opcodes:
    """Part of a pickle as it is."""

    data: bytes


FLOAT = Global("torch", "FloatStorage")
ORDERED_DICT = Call(Global("collections", "OrderedDict"), ())
REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
REBUILD_OF_DTYPE = Global("torch._utils", "_rebuild_tensor_v3")


def storage(items: int = 4, key: object = "0", kind: object = FLOAT) -> Persistent:
    return Persistent(("storage", kind, key, "cpu", items))


def tensor(shape: object = (4,), strides: object = (1,), offset: object = 0, of: object = None, *more: object) -> Call:
    return Call(REBUILD, (of or storage(), offset, shape, strides, False, ORDERED_DICT, *more))


def pickled(value: object) -> bytes:
    return b"\x80\x02" + _pickled(value) + b"."


def _pickled(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        number = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(number)]) + number
    if isinstance(value, str):
        text = value.encode()
        return b"X" + struct.pack("<I", len(text)) + text
    if isinstance(value, (tuple, list)):
        items = b"".join(map(_pickled, value))
        return b"(" + items + b"t" if isinstance(value, tuple) else b"](" + items + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_pickled(key) + _pickled(each) for key, each in value.items()) + b"u"
    return _pickled_special(value)


def _pickled_special(value: Any) -> bytes:
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, Global):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, Call):
        return _pickled(value.function) + _pickled(value.arguments) + b"R"
    if isinstance(value, Built):
        return _pickled(value.value) + _pickled(value.state) + b"b"
    if isinstance(value, Persistent):
        return _pickled(value.identity) + b"Q"
    assert isinstance(value, Opcodes)
    return value.data


def torch_archive(path: Path, value: object, storages: dict[str, bytes] | None = None, order: str = "little") -> Path:
    """An archive of this value. By default it has the storage "0" of 16 bytes."""
    data = value if isinstance(value, bytes) else pickled(value)
    members = {"data.pkl": data, "byteorder": order.encode(), "version": b"3\n"}
    for key, contents in ({"0": bytes(range(16))} if storages is None else storages).items():
        members[f"data/{key}"] = contents
    with zipfile.ZipFile(path, "w") as archive:
        for name, contents in members.items():
            archive.writestr(f"archive/{name}", contents)
    return path
