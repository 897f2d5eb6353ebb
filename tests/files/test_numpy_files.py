"""NumPy's files, and zip archives that are damaged."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files.making import bytes_of, found, written

from pyxfer._files.formats import stored_arrays
from pyxfer.errors import ArrayFileError

DTYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
)


def refusal(path: Path) -> str:
    with pytest.raises(ArrayFileError) as caught:
        stored_arrays(path)
    assert str(caught.value).isprintable()
    assert str(caught.value).endswith(".")
    return str(caught.value)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


# --- .npy and .npz ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_numpy_is_read(tmp_path: Path, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "weights.v1.npy", array)
    np.savez(tmp_path / "some.npz", a=array, **{"b/c": array.T, "d": array[0, 0]})
    (alone,) = stored_arrays(tmp_path / "weights.v1.npy").arrays
    assert (alone.name, alone.dtype, alone.shape) == ("weights.v1", dtype, (2, 3))
    assert bytes_of(alone, tmp_path / "weights.v1.npy") == array.tobytes()
    a, turned, d = found(tmp_path / "some.npz").values()
    assert (a.name, a.dtype, a.shape, a.fortran) == ("a", dtype, (2, 3), False)
    assert (turned.name, turned.dtype, turned.shape, turned.fortran) == ("b/c", dtype, (3, 2), True)
    assert (d.name, d.dtype, d.shape, d.fortran) == ("d", dtype, (), False)
    for member, expected in ((a, array), (turned, array), (d, array[0, 0])):
        assert bytes_of(member, tmp_path / "some.npz") == expected.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (2, 0), (2, 3)])
def test_every_version_and_shape_of_npy_is_read(
    tmp_path: Path, version: tuple[int, int], shape: tuple[int, ...]
) -> None:
    array = np.ones(shape, np.int16, "F")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version)
    path = written(tmp_path, "a.npy", buffer.getvalue())
    (read,) = stored_arrays(path).arrays
    assert (read.shape, read.nbytes, bytes_of(read, path)) == (shape, array.nbytes, array.tobytes("A"))
    assert read.fortran == (shape == (2, 3))


def test_one_dimension_has_no_order(tmp_path: Path) -> None:
    header = header_of_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }")
    assert not found(written(tmp_path, "a.npy", header + bytes(12)))["a"].fortran


def test_a_header_makes_python_print_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("always")
        refusal(written(tmp_path, "a.npy", described("'\\\x1b'")))
    assert not printed


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    for name in ("m.safetensors", "m.npy", "m.pt", "m"):
        assert "m" in found(written(tmp_path, name, npy(0)))
        assert "a" in found(written(tmp_path, name, bytes(npz())))


def header_of_npy(text: str) -> bytes:
    encoded = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(encoded)) + encoded


def described(dtype: str = "'<f4'", shape: str = "()") -> bytes:
    return header_of_npy(f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}")


REFUSED_NPY: dict[str, tuple[bytes, str]] = {
    "objects": (npy(np.array([{}, None], object)), "has objects of Python, which only pickle can read"),
    "texts": (npy(np.array(["a"])), "has dtype '<U1', which no GPU array has"),
    "bytes": (npy(np.array([b"a"])), "has dtype '|S1'"),
    "times": (npy(np.array(["2020-01-01"], "M8[D]")), "has dtype 'datetime64[D]'"),
    "fields": (npy(np.zeros(1, [("a", "i4")])), "which no GPU array has"),
    "fields of foreign names": (npy(np.zeros(1, [("\x1b[31m", "i4")])), "which no GPU array has"),
    "items without a type": (npy(np.zeros(2, "V2")), "such as bfloat16: save it as safetensors"),
    "long doubles": (npy(np.zeros(1, np.longdouble)), "which no GPU array has"),
    "another byte order": (npy(np.zeros(1, ">f4")), "in the byte order of other processors: save it after .astype("),
    "a header that is cut short": (npy(np.zeros(1))[:30], "damaged or not known"),
    "data that is cut short": (npy(np.zeros(1))[:-1], "is cut short (its array ends at byte 136, and it has 135)"),
    "the magic alone": (b"\x93NUMPY", "damaged or not known"),
    "a later version": (b"\x93NUMPY\x04\x00" + npy(0)[8:], "damaged or not known"),
    "a header that is too long": (header_of_npy(" " * 20_000), "damaged or not known"),
    "a length of 4 GB": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(99), "damaged or not known"),
    "no literal": (header_of_npy("__import__('os')"), "damaged or not known"),
    "deep brackets": (header_of_npy("(" * 9000), "damaged or not known"),
    "deep signs": (header_of_npy("-" * 9000 + "1"), "damaged or not known"),
    "an escape that Python does not know": (described("'\\\x1b'"), "damaged or not known"),
    "a zero byte": (header_of_npy("\0"), "damaged or not known"),
    "more keys": (header_of_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}"), "damaged"),
    "a negative shape": (described(shape="(-1,)"), "a shape that no array can have"),
    "a huge shape": (described(shape=f"({1 << 62}, 4)"), "a shape that no array can have"),
    "a huge empty shape": (described(shape=f"({1 << 62}, 4, 0)"), "a shape that no array can have"),
    "a shape of 4000 digits": (described(shape=f"({'1' * 4000},)"), "a shape that no array can have"),
    "a shape that is a number": (described(shape="1"), "damaged"),
    "an unknown dtype": (described("'<f5'"), "damaged or not known"),
}


@pytest.mark.parametrize("case", REFUSED_NPY)
def test_npy_files_that_are_no_plain_arrays_are_refused(tmp_path: Path, case: str) -> None:
    data, text = REFUSED_NPY[case]
    assert text in refusal(written(tmp_path, "a.npy", data))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("m.npy", data)
    said = refusal(tmp_path / "a.npz")
    assert "has the member 'm.npy', which " in said
    assert text in said


# --- zip archives ----------------------------------------------------------------------------------------------------

LISTED, LOCAL = b"PK\x01\x02", b"PK\x03\x04"


def npz() -> bytearray:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3), b=np.arange(4))
    return bytearray(buffer.getvalue())


def changed(sign: bytes, at: int, value: bytes) -> bytes:
    """An archive with other bytes in its first header of a kind."""
    whole = npz()
    begin = whole.index(sign) + at
    whole[begin : begin + len(value)] = value
    return bytes(whole)


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def with_one_place() -> bytes:
    """Both entries of the list lead to the first member."""
    data = npz()
    begin = data.rindex(LISTED) + 42
    data[begin : begin + 4] = bytes(4)
    return bytes(data)


def compressed() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.zeros(1000))
    return buffer.getvalue()


LIES = "its list of members does not fit the member 'a.npy'"
REFUSED_ZIP: dict[str, tuple[bytes, str]] = {
    "compressed": (compressed(), "is compressed, so that its bytes cannot be read as they are: write it with np.savez"),
    "cut short": (bytes(npz()[:-30]), "is a damaged or truncated zip archive"),
    "only its begin": (bytes(npz()[:100]), "is a damaged or truncated zip archive"),
    "encrypted": (changed(LISTED, 8, b"\x01"), "is encrypted"),
    "encrypted in the member": (changed(LOCAL, 6, b"\x01"), LIES),
    "another method": (changed(LOCAL, 8, b"\x08"), LIES),
    "another size": (changed(LISTED, 24, b"\x01"), LIES),
    "another packed size": (changed(LISTED, 20, b"\x01"), LIES),
    "another checksum": (changed(LISTED, 16, b"\x01\x02\x03\x04"), LIES),
    "another name": (changed(LOCAL, 30, b"x"), LIES),
    "another begin": (changed(LISTED, 42, b"\x07"), LIES),
    "a long name": (changed(LOCAL, 26, b"\xff\xff"), LIES),
    "a long extra field": (changed(LOCAL, 28, b"\xff\x00"), LIES),
    "two members in one place": (with_one_place(), "its list of members does not fit the member"),
    "a name twice": (bytes(npz().replace(b"b.npy", b"a.npy")), "has two members of one name"),
    "other members": (
        zipped({"a.npy": npy(0), "readme.txt": b"x"}),
        "has the member 'readme.txt', which is not an array",
    ),
    "no arrays": (zipped({"readme.txt": b"x"}), "which is not an array: write it with np.savez"),
}


@pytest.mark.parametrize("case", REFUSED_ZIP)
def test_damaged_archives_are_refused(tmp_path: Path, case: str) -> None:
    data, text = REFUSED_ZIP[case]
    assert text in refusal(written(tmp_path, "a.npz", data))


def test_an_empty_npz_has_no_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz")
    assert not found(tmp_path / "a.npz")


def test_a_member_whose_sizes_follow_it_is_read(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        archive.writestr("a.npy", npy(np.arange(3)))
    path = written(tmp_path, "a.npz", pipe.getvalue())
    assert bytes_of(found(path)["a"], path) == np.arange(3).tobytes()


def test_members_with_large_sizes_and_other_letters_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("größe.npy", "b.npy"):
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(npy(np.arange(3)))
    for name in ("größe", "b"):
        assert bytes_of(found(path)[name], path) == np.arange(3).tobytes()


def test_a_damaged_size_of_the_list_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyxfer._files.archives._MAX_READ_BYTES", 90)
    assert "is a damaged or truncated zip archive" in refusal(written(tmp_path, "a.npz", bytes(npz())))
