"""Safetensors: its headers, folders and indexes. What is no file of arrays, and what is no argument."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files.making import by_the_library, bytes_of, entry, found, tensor, torch_archive, written
from files.making import safetensors as made
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pyxfer._files.formats import StoredArray, identity_of, stored_arrays
from pyxfer._files.safetensors import _DTYPES
from pyxfer._files.stored import BITS_OF
from pyxfer.errors import ArrayFileError, UsageError

GIT_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
F32 = {"a": entry()}


def refusal(path: object, names: object = None) -> str:
    """What an ArrayFileError says: one line that ends with a full stop."""
    with pytest.raises(ArrayFileError) as caught:
        stored_arrays(path, names)  # type: ignore[arg-type]
    text = str(caught.value)
    assert text.endswith(".")
    assert text.isprintable()
    return text


# --- safetensors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", _DTYPES)
def test_every_dtype_of_safetensors_is_read_as_its_library_reads_it(tmp_path: Path, kind: str) -> None:
    size = BITS_OF[_DTYPES[kind]]
    data = made({"a": entry(kind, (2, 4), (0, size))}, bytes(range(size)))
    ((name, of_library),) = by_the_library(data).items()
    path = written(tmp_path, "m.safetensors", data)
    array = found(path)["a"]
    assert (name, of_library["dtype"], tuple(of_library["shape"])) == (array.name, kind, array.shape)
    assert bytes_of(array, path) == bytes(of_library["data"])
    assert array == StoredArray("a", _DTYPES[kind], (2, 4), 0, len(data) - size, size)


def test_a_file_of_the_safetensors_library_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    arrays: dict[str, np.ndarray[Any, Any]] = {
        'quotes " and: colons \\ é \n': np.arange(6, dtype=np.float32).reshape(2, 3),
        "number": np.array(7, np.int64),
        "empty": np.empty((0, 3), np.float16),
        "layer.0.weight": np.ones(5, np.uint8),
    }
    save_file(arrays, path, metadata={"format": "np: of NumPy", "shape": "[1]", "dtype": "F32"})
    read = found(path)
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].shape, read[name].fortran) == (array.dtype.name, array.shape, False)
        assert bytes_of(read[name], path) == array.tobytes()
    assert [array.offset for array in read.values()] == sorted(array.offset for array in read.values())


ACCEPTED: dict[str, tuple[object, bytes]] = {
    "nothing": ({}, b""),
    "an array": (F32, bytes(8)),
    "white space before": ('\n {"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"),
    "white space behind": ('{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}} \n\t\r', b"x"),
    "metadata": ({"__metadata__": {"a:b": "c:d", "shape": "text", "dtype": ""}, **F32}, bytes(8)),
    "no metadata": ({"__metadata__": None, **F32}, bytes(8)),
    "empty metadata": ({"__metadata__": {}}, b""),
    "a field that is not known": ({"a": {**entry(), "more": {"x": [1]}}}, bytes(8)),
    "an array that is called metadata": ({"metadata": entry()}, bytes(8)),
    "an empty name": ({"": entry()}, bytes(8)),
    "names with escapes": ({'"\\\u00e9\U0001f600': entry(), "\n": entry("U8", [1], [8, 9])}, bytes(9)),
    "any order": ({"b": entry("U8", [1], [8, 9]), "a": entry()}, bytes(9)),
    "no items": ({"b": entry("I8", [0], [0, 0]), "a": entry(), "c": entry("I8", [0], [8, 8])}, bytes(8)),
    "two items in a byte": ({"a": entry("F4", [3, 2], [0, 3])}, bytes(3)),
}
ESCAPED_COLON = "\\u003a"
EMPTY = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
REFUSED: dict[str, tuple[object, bytes, str]] = {
    "data that is cut short": (F32, bytes(7), "is cut short (its data ends at byte "),
    "data that is too long": (F32, bytes(9), "goes on behind its last array for 1 B"),
    "a gap": ({"a": entry(), "b": entry("U8", [1], [9, 10])}, bytes(10), "'b' begins at byte 9"),
    "a gap at the begin": ({"a": entry("U8", [1], [1, 2])}, bytes(2), "'a' begins at byte 1"),
    "an overlap": ({"a": entry(), "b": entry("U8", [1], [7, 8])}, bytes(8), "'b' begins at byte 7"),
    "the same place": ({"a": entry(), "b": entry()}, bytes(8), "'b' begins at byte 0"),
    "an end before its begin": ({"a": entry("U8", [0], [8, 0])}, bytes(8), "'a' begins at byte 8"),
    "an unknown dtype": ({"a": entry("F31")}, bytes(8), "of dtype 'F31', which pyxfer does not read"),
    "a dtype in small letters": ({"a": entry("f32")}, bytes(8), "of dtype 'f32'"),
    "a dtype that is a number": ({"a": entry(32)}, bytes(8), "Expected str, got int"),
    "too few bytes": ({"a": entry("F32", [3])}, bytes(8), "has 8 bytes, and its dtype and shape need 12"),
    "too many bytes": ({"a": entry("F32", [1])}, bytes(8), "has 8 bytes, and its dtype and shape need 4"),
    "half a byte": ({"a": entry("F4", [3], [0, 2])}, bytes(2), "a shape that no array can have"),
    "six bits": ({"a": entry("F6_E2M3", [2], [0, 2])}, bytes(2), "a shape that no array can have"),
    "a negative shape": ({"a": entry("U8", [-8, -1])}, bytes(8), "at its array 'a' (Expected int >= 0"),
    "a shape that overflows": ({"a": entry("F32", [1 << 62, 4], [0, 0])}, b"", "a shape that no array can have"),
    "a shape beyond 64 bits": ({"a": entry("F32", [1 << 64, 0], [0, 0])}, b"", "at its array 'a' (Expected int <="),
    "a shape of fractions": ({"a": entry("F32", [2.0])}, bytes(8), "Expected int, got float"),
    "a shape of truths": ({"a": entry("U8", [True])}, bytes(1), "Expected int, got bool"),
    "a shape that is a number": ({"a": entry("U8", 8)}, bytes(8), "Expected array, got int"),
    "too many dimensions": ({"a": entry("U8", [1] * 65, [0, 1])}, bytes(1), "a shape that no array can have"),
    "a negative offset": ({"a": entry("U8", [1], [-1, 0])}, bytes(1), "Expected int >= 0"),
    "a huge offset": (f'{{"a":{{"dtype":"U8","shape":[0],"data_offsets":[{"9" * 5000},0]}}}}', b"", "at its array 'a'"),
    "one offset": ({"a": entry("U8", [1], [0])}, bytes(1), "Expected array of length 2"),
    "no offsets": ({"a": {"dtype": "U8", "shape": []}}, bytes(1), "missing required field data_offsets"),
    "an array that is a list": ({"a": [1]}, b"", "Expected object, got array"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, b"", "Expected str, got int"),
    "metadata that is a text": ({"__metadata__": "a"}, b"", "Expected object | null, got str"),
    "a list": ("[]", b"", "Expected object, got array"),
    "no JSON": ("{a}", b"", "is malformed"),
    "JSON and more": ("{}{}", b"", "trailing characters"),
    "JSON that is cut short": ('{"a":', b"", "truncated"),
    "no text": (b'{"\xff":1}', b"", "its JSON cannot be read"),
    "no text where nobody looks": (
        f'{{"a":{EMPTY[:-1]},"b":"?"}}}}'.encode().replace(b"?", b"\xff"),
        b"",
        "JSON cannot",
    ),
    "half a letter where nobody looks": (f'{{"a":{EMPTY[:-1]},"b":"'.encode() + b'\xed\xa0\x80"}}', b"", "JSON cannot"),
    "deep JSON": ('{"a":' + "[" * 100_000, b"", "its JSON cannot be read"),
    "no header": ("", b"", "truncated"),
    "a name twice": (f'{{"a":{EMPTY},"a":{EMPTY}}}', b"", "(a name is there twice)"),
    "a name twice, once in escapes": (f'{{"a":{EMPTY},"\\u0061":{EMPTY}}}', b"", "(a name is there twice)"),
    "a name twice, beside escaped colons": (f'{{"a":{EMPTY},"a":{EMPTY},"{4 * ESCAPED_COLON}":{EMPTY}}}', b"", "twice"),
    "a name twice, once for nothing": (f'{{"a":1,"a":{EMPTY}}}', b"", "(a name is there twice)"),
    "a field twice": (f'{{"a":{{"dtype":"U8",{EMPTY[1:]}}}', b"", "(a name is there twice)"),
    "metadata twice": ('{"__metadata__":{},"__metadata__":{}}', b"", "(a name is there twice)"),
    "a name twice in the metadata": ('{"__metadata__":{"a":"b","a":"b"}}', b"", "(a name is there twice)"),
}
# The library keeps the last of a name that is there twice, and NumPy has no more than 64 dimensions.
MORE_THAN_THE_LIBRARY = {
    *("a name twice", "a name twice, once in escapes", "a name twice, beside escaped colons"),
    *("a name twice in the metadata", "too many dimensions"),
}


def is_read_by_the_library(data: bytes) -> bool:
    try:
        by_the_library(data)
    except SafetensorError:
        return False
    return True


@pytest.mark.parametrize("case", ACCEPTED)
def test_headers_that_the_library_accepts_are_accepted(tmp_path: Path, case: str) -> None:
    header, data = ACCEPTED[case]
    whole = made(header, data)
    path = written(tmp_path, "m", whole)
    of_library = {name: bytes(array["data"]) for name, array in by_the_library(whole).items()}
    assert {name: bytes_of(array, path) for name, array in found(path).items()} == of_library


@pytest.mark.parametrize("case", REFUSED)
def test_damaged_headers_are_refused(tmp_path: Path, case: str) -> None:
    header, data, text = REFUSED[case]
    whole = made(header, data)
    assert text in refusal(written(tmp_path, "m.safetensors", whole))
    assert is_read_by_the_library(whole) == (case in MORE_THAN_THE_LIBRARY)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x08", "is cut short (within its first 8 bytes)"),
        (struct.pack("<Q", 3) + b"{}", "is cut short (its header ends at byte 11, the file at 10)"),
        (struct.pack("<Q", 100_000_001) + b"{}", "has a header of 100000001 bytes"),
        (b"\xff" * 8 + b"{}", "has a header of 18446744073709551615 bytes"),
    ],
)
def test_a_length_beyond_the_file_is_refused(tmp_path: Path, data: bytes, text: str) -> None:
    assert text in refusal(written(tmp_path, "m.safetensors", data))
    assert not is_read_by_the_library(data)


def test_100_000_arrays_are_read_soon(tmp_path: Path) -> None:
    count = 100_000
    names = [f"model.layers.{number}.mlp.up_proj.weight" for number in range(count)]
    entries = (f'"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{at + 1}]}}' for at, name in enumerate(names))
    path = written(tmp_path, "m.safetensors", made(f"{{{','.join(entries)}}}", bytes(count)))
    begun = time.thread_time()
    assert len(stored_arrays(path, names).arrays) == count
    wrong = [name.replace("layers", "layer") for name in names[7:19]]
    with pytest.raises(UsageError, match=r"'model\.layer\.10\..*' \(did you mean 'model\.layers\..*'\?\).* and 9 more"):
        stored_arrays(path, [*names, *wrong])
    # A second here; what takes the square of the count takes minutes.
    assert time.thread_time() - begun < 20


# --- which files -----------------------------------------------------------------------------------------------------


def shard(*names: str) -> bytes:
    return made({name: entry("U8", [1], [at, at + 1]) for at, name in enumerate(names)}, bytes(len(names)))


def sharded(folder: Path, weight_map: object, **shards: bytes) -> Path:
    for name, data in shards.items():
        written(folder, f"{name}.safetensors", data)
    text = json.dumps({"metadata": {"total_size": 3}, "weight_map": weight_map})
    return written(folder, "model.safetensors.index.json", text.encode())


WEIGHTS = {"c": "two.safetensors", "a": "one.safetensors", "b": "one.safetensors"}


def test_an_index_leads_to_its_files(tmp_path: Path) -> None:
    index = sharded(tmp_path, WEIGHTS, one=shard("a", "b"), two=shard("c"))
    for path in (index, tmp_path, os.fspath(tmp_path), os.fsencode(tmp_path), [index]):
        files = stored_arrays(path)
        assert files.paths == (f"{tmp_path}/one.safetensors", f"{tmp_path}/two.safetensors")
        assert [(array.name, array.file) for array in files.arrays] == [("a", 0), ("b", 0), ("c", 1)]
        assert files.identities == tuple(identity_of(os.stat(each)) for each in files.paths)


def test_of_an_index_only_what_it_names_is_read(tmp_path: Path) -> None:
    index = sharded(tmp_path, {"a": "one.safetensors", "c": "none.safetensors"}, one=shard("a", "b"))
    files = stored_arrays(index, ["a"])
    assert [array.name for array in files.arrays] == ["a"]
    assert files.paths == (f"{tmp_path}/one.safetensors",)
    with pytest.raises(UsageError, match="do not have 'b'"):
        stored_arrays(index, ["b"])


def test_an_index_may_lead_to_files_of_pytorch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    torch_archive(tmp_path / "data" / "one.bin", {"w": tensor()})
    text = json.dumps({"weight_map": {"w": "data/one.bin"}}).encode()
    assert list(found(written(tmp_path, "pytorch_model.bin.index.json", text))) == ["w"]


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    sharded(tmp_path / "blobs", WEIGHTS, one=shard("a", "b"), two=shard("c"))
    (tmp_path / "snapshot").mkdir()
    for each in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / each.name).symlink_to(Path("..") / "blobs" / each.name)
    assert list(found(tmp_path / "snapshot")) == ["a", "b", "c"]


def test_a_folder_without_an_index_has_its_safetensors_files(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "c.txt", "._a.safetensors"):
        written(tmp_path, name, shard(name))
    assert stored_arrays(tmp_path).paths == (f"{tmp_path}/a.safetensors", f"{tmp_path}/b.safetensors")


def test_several_files_are_read_in_the_order_given(tmp_path: Path) -> None:
    b, a = (written(tmp_path, f"{name}.safetensors", shard(f"{name}1", f"{name}2")) for name in "ba")
    np.save(tmp_path / "c.npy", np.arange(3))
    files = stored_arrays(path for path in (b, a, tmp_path / "c.npy"))
    assert [array.name for array in files.arrays] == ["b1", "b2", "a1", "a2", "c"]
    assert [array.file for array in files.arrays] == [0, 0, 1, 1, 2]
    assert [array.name for array in stored_arrays([b, a], ("a2", "b1")).arrays] == ["b1", "a2"]
    assert stored_arrays([b, a], []).arrays == ()


INDEXES: dict[str, tuple[object, str]] = {
    "a file that is missing": ({"a": "none.safetensors"}, "names a file that cannot be opened: There is no file '"),
    "a file elsewhere": ({"a": "../one.safetensors"}, "names the file '../one.safetensors', which is outside"),
    "a file below and elsewhere": ({"a": "x/../../one.safetensors"}, "which is outside its folder: put both in one"),
    "a whole path": ({"a": "/etc/passwd"}, "names the file '/etc/passwd', which is outside its folder"),
    "its own folder": ({"a": "."}, "is a folder where a file is needed"),
    "no name": ({"a": ""}, "is a folder where a file is needed"),
    "a zero byte": ({"a": "a\0b"}, "no file can have this name"),
    "no letter": ({"a": "\ud800"}, "no file can have this name"),
    "itself": ({"a": "model.safetensors.index.json"}, "has no format that pyxfer reads"),
    "an array that is not there": ({"x": "one.safetensors"}, "has no array 'x', although the index says so"),
    "numbers": ({"a": 1}, "is JSON without a weight_map"),
    "a list": (["a"], "is JSON without a weight_map"),
    "nothing": (None, "is JSON without a weight_map"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_damaged_indexes_are_refused(tmp_path: Path, case: str) -> None:
    weight_map, text = INDEXES[case]
    assert text in refusal(sharded(tmp_path / "in", weight_map, one=shard("a", "b")))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"weight_map": {"a": "x", "a": "x"}}', "is a damaged index (a name is there twice)"),
        (b'{"weight_map": {"a": ', "is a damaged index (its JSON cannot be read)"),
        (b'{"weight_map": "\xff"}', "is a damaged index"),
        (b'{"weight_map": ' + b"[" * 100_000, "is a damaged index"),
        (b"{}", "is JSON without a weight_map"),
    ],
)
def test_indexes_that_are_no_json_are_refused(tmp_path: Path, data: bytes, text: str) -> None:
    assert text in refusal(written(tmp_path, "model.safetensors.index.json", data))


def test_an_index_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, "model.safetensors.index.json", b"{")
    os.truncate(path, 100_000_001)
    assert "is too long for an index" in refusal(path)


def test_folders_that_are_not_clear_are_refused(tmp_path: Path) -> None:
    assert "is a folder without safetensors files: name the files" in refusal(tmp_path)
    for name in ("a", "b"):
        written(tmp_path, f"{name}.safetensors.index.json", b"{}")
    assert "has 2 indexes: name one, such as 'a.safetensors.index.json'" in refusal(tmp_path)


def test_an_array_in_two_files_is_refused(tmp_path: Path) -> None:
    one, two = written(tmp_path, "1", shard("a", "b")), written(tmp_path, "2", shard("b", "c"))
    assert refusal([one, two]) == f"'{two}' has the array 'b', which is also in '{one}': load each on its own."
    assert [array.name for array in stored_arrays([one, two], ["a", "c"]).arrays] == ["a", "c"]
    assert "which is also in" in refusal([one, one])


# --- files that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is empty: fetch it again from where it came"),
        (b"GGUF\x03\0\0\0", "is a GGUF file, which pyxfer does not read: use the safetensors files"),
        (b"\x89HDF\r\n\x1a\n" + bytes(8), "is an HDF5 file, which pyxfer does not read: read it with h5py"),
        (b"\x80\x02}.", "is a pickle, which could run any code when it is read: load it where you trust it"),
        (b"\x80\x04}.", "is a pickle"),
        (bytes(257) + b"ustar\0", "is a tar archive, as PyTorch wrote them before 1.6"),
        (b"\x1f\x8b\x08", "is compressed with gzip: decompress it first"),
        (GIT_LFS, "is a pointer of Git LFS, not the file itself: run git lfs pull"),
        (b"anything else", "has no format that pyxfer reads: give safetensors, .npy, .npz or .pt files"),
    ],
)
def test_other_formats_are_refused_with_a_remedy(tmp_path: Path, data: bytes, text: str) -> None:
    assert f"'{tmp_path}/x' {text}" in refusal(written(tmp_path, "x", data))


def test_paths_that_are_no_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    Path("link").symlink_to("nothing")
    Path("circle").symlink_to("circle")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert "is a pipe, a socket or a device" in refusal("socket")
    assert "is a pipe, a socket or a device" in refusal("pipe")
    assert "is a pipe, a socket or a device" in refusal("/dev/null")
    assert "is a link to a file that is missing" in refusal("link")
    assert "cannot be read (Too many levels" in refusal("circle")
    assert refusal(tmp_path / "none") == f"There is no file '{tmp_path}/none': check the name."
    assert "no file can have this name" in refusal("a\0b")
    assert "cannot be read (File name too long)" in refusal("a" * 300)
    assert r"\x1b[31m" in refusal("\x1b[31m\udcff")


@pytest.mark.parametrize("call", ["stat", "open", "listdir"])
def test_what_one_may_not_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path, "x.safetensors", shard("a"))
    with monkeypatch.context() as patched:  # root may read everything
        patched.setattr(os, call, forbidden)
        said = refusal(tmp_path if call == "listdir" else path)
    assert "cannot be read (Permission denied): check " in said
    assert said.endswith("who may read it.")


def test_a_disk_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int, count: int, offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    path = written(tmp_path, "x", shard("a"))
    monkeypatch.setattr(os, "pread", failing)
    assert "cannot be read (Input/output error): check its disk" in refusal(path)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", a=np.ones(2))
    paths = [written(tmp_path, "a", shard("a")), tmp_path / "b.npz", written(tmp_path, "c", b"GGUF")]
    before = os.listdir("/proc/self/fd")
    for path in paths:
        try:
            stored_arrays(path)
        except ArrayFileError:
            assert path == paths[2]
    assert os.listdir("/proc/self/fd") == before


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [None, 3, [3], [None]])
def test_paths_that_are_none_are_refused(paths: Any) -> None:
    with pytest.raises(UsageError, match="is neither a path nor a list of paths: give one"):
        stored_arrays(paths)


def test_no_paths_are_refused() -> None:
    with pytest.raises(UsageError, match="paths is empty: give at least one"):
        stored_arrays([])


@pytest.mark.parametrize("names", ["weight", b"weight", 3, [3], [["a"]], [None]])
def test_names_that_are_no_list_of_texts_are_refused(tmp_path: Path, names: Any) -> None:
    with pytest.raises(UsageError, match=r"is not a list of texts: give one, such as \['weight'\]"):
        stored_arrays(tmp_path, names)


def test_names_that_are_not_there_are_said_with_the_closest(tmp_path: Path) -> None:
    path = written(tmp_path, "x", shard("layer.weight", "layer.bias"))
    with pytest.raises(UsageError) as caught:
        stored_arrays(path, ["layer.weight", "layer.wieght"])
    listed = "The files do not have 'layer.wieght' (did you mean 'layer.weight'?)"
    assert str(caught.value) == f"{listed}: choose among their 2 names."
    with pytest.raises(UsageError, match=r"do not have '0', '1', '2' and 7 more"):
        stored_arrays(path, map(str, range(10)))
    with pytest.raises(UsageError, match="they have no arrays"):
        stored_arrays(written(tmp_path, "y", made({})), ["a"])
