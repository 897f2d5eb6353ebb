"""Headers that are changed at random: each is accepted with its arrays within the file, or is an ArrayFileError."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from files.making import DATA, by_the_library, entry
from files.making import safetensors as made
from marks import slow

from pyxfer._files.formats import stored_arrays
from pyxfer._files.stored import nbytes_of
from pyxfer.errors import ArrayFileError

# What changes the meaning of a header more often than a bit does.
PIECES = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"-", b"\\", b"0", b"9", b"1e9", b"null", b"\x00", b"\xff" * 4, b"L"),
    *(b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"\x80\x02", b"(", b"t", b"R", b"Q", b"b", b"c", b"\n", b"h\x00"),
]


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones((2, 3)))
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.ones((2, 3), order="F"), b=np.arange(4))
    return buffer.getvalue()


def _files() -> dict[str, bytes]:
    header = {"__metadata__": {"format": "pt"}, "a": entry(), "b": entry("BF16", [2, 2], [8, 16])}
    return {
        "m.npy": _npy(),
        "m.npz": _npz(),
        "m.pt": (DATA / "checkpoint.pt").read_bytes(),
        "m.safetensors": made(header, bytes(16)),
        "m.safetensors.index.json": b'{"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}',
        "m5.pt": (DATA / "protocol5.pt").read_bytes(),
    }


def _changed(data: bytes, chosen: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chosen.choice((1, 1, 1, 2, 4))):
        # Headers are at the begin, and in an archive at the end as well.
        within = len(found) if chosen.random() < 0.7 else min(len(found), 400)
        place = chosen.randrange(within + 1)
        piece = chosen.choice(PIECES)
        kind = chosen.randrange(5)
        if kind == 0:
            found[place : place + 1] = bytes([chosen.randrange(256)])
        elif kind == 1:
            found[place:place] = piece
        elif kind == 2:
            found[place : place + len(piece)] = piece
        elif kind == 3:
            del found[place : place + chosen.choice((1, 1, 2, 8, 1000))]
        else:
            other = chosen.randrange(len(found) + 1)
            found[place:place] = found[other : other + chosen.choice((1, 4, 30))]
    return bytes(found)


def _mutations(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    chosen = random.Random(seed)
    files = list(_files().items())
    for number in range(count):
        name, data = files[number % len(files)]
        yield name, _changed(data, chosen)


@pytest.mark.parametrize(("count", "seed"), [(1_000, 1), slow(10_000, 2)])
def test_a_changed_header_is_accepted_or_refused(tmp_path: Path, count: int, seed: int) -> None:
    accepted = dict.fromkeys(_files(), 0)
    said: set[str] = set()
    (tmp_path / "one.safetensors").write_bytes(made({"a": entry(), "b": entry("F32", [2], [8, 16])}, bytes(16)))
    for name, data in _mutations(count, seed):
        path = tmp_path / name
        path.write_bytes(data)
        try:
            files = stored_arrays(path)
        except ArrayFileError as error:
            said.add(str(error))
            continue
        accepted[name] += 1
        for array in files.arrays:
            size = Path(files.paths[array.file]).stat().st_size
            assert 0 <= array.offset <= array.offset + array.nbytes <= size
            assert array.nbytes == nbytes_of(array.dtype, array.shape)
    assert all(text.isprintable() and text.endswith(".") for text in said)
    assert min(accepted.values()) > 0
    assert sum(accepted.values()) < count / 2


@pytest.mark.parametrize(("count", "seed"), [(1_000, 3), slow(10_000, 4)])
def test_what_is_accepted_of_safetensors_its_library_accepts(tmp_path: Path, count: int, seed: int) -> None:
    chosen = random.Random(seed)
    data = _files()["m.safetensors"]
    path = tmp_path / "m.safetensors"
    for _ in range(count):
        changed = _changed(data, chosen)
        path.write_bytes(changed)
        try:
            ours = {array.name: array.nbytes for array in stored_arrays(path).arrays}
        except ArrayFileError:
            continue
        theirs = {name: len(array["data"]) for name, array in by_the_library(changed).items()}
        assert ours == theirs
