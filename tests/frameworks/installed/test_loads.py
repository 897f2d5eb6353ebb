"""Loads from files to real frameworks, over host memory."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from route_checks import import_or_skip

import pyxfer
from pyxfer.errors import UsageError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("over_host_memory")]
ITEMS = 24
BYTES_OF = {
    "BOOL": 1,
    **{f"{sign}{8 * size}": size for sign in "UI" for size in (1, 2, 4, 8)},
    "F16": 2,
    "BF16": 2,
    "F32": 4,
    "F64": 8,
    "C64": 8,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}


@pytest.fixture
def contents() -> dict[str, bytes]:
    """Bytes of finite numbers that every type has, by the names of the types."""
    rng = np.random.default_rng(3)
    return {
        name: rng.integers(0, 2 if name == "BOOL" else 60, ITEMS * size, np.uint8).tobytes()
        for name, size in BYTES_OF.items()
    }


@pytest.fixture
def file(contents: dict[str, bytes], tmp_path: Path) -> Path:
    header, begin = {}, 0
    for name, data in contents.items():
        header[name] = {"dtype": name, "shape": [2, 3, 4], "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header).encode()
    path = tmp_path / "all.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(contents.values()))
    return path


def bytes_of(array: Any) -> bytes:
    if hasattr(array, "untyped_storage"):
        torch = import_or_skip("torch")
        return bytes(array.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return np.asarray(array).tobytes()


def check(found: dict[str, Any], contents: dict[str, bytes]) -> None:
    assert set(found) == set(contents)
    for name, array in found.items():
        assert tuple(array.shape) == (2, 3, 4)
        assert bytes_of(array) == contents[name], name


def test_torch_has_every_type(file: Path, contents: dict[str, bytes]) -> None:
    torch: Any = import_or_skip("torch")
    found = pyxfer.load_tensors(file, to="torch")
    check(found, contents)
    assert found["BF16"].dtype == torch.bfloat16
    assert found["F8_E4M3"].dtype == torch.float8_e4m3fn
    assert all(tensor.is_contiguous() for tensor in found.values())
    reference: Any = pytest.importorskip("safetensors.torch")
    for name, tensor in reference.load_file(file).items():
        assert found[name].dtype == tensor.dtype
        assert bytes_of(found[name]) == bytes_of(tensor)


def test_tensorflow_has_every_type_except_float8(file: Path, contents: dict[str, bytes]) -> None:
    tf: Any = import_or_skip("tensorflow")
    with pytest.raises(UsageError, match="float8_e4m3fn"):
        pyxfer.load_tensors(file, to="tensorflow")
    viewed = {name: data for name, data in contents.items() if not name.startswith("F8")}
    found = pyxfer.load_tensors(file, to="tensorflow", names=viewed)
    check(found, viewed)
    assert found["BF16"].dtype == tf.bfloat16


def test_jax_has_every_type_and_says_when_it_would_narrow_one(file: Path, contents: dict[str, bytes]) -> None:
    jax: Any = import_or_skip("jax")
    wide = {"I64", "U64", "F64"}
    with pytest.raises(UsageError, match="jax_enable_x64"):
        pyxfer.load_tensors(file, to="jax")
    narrow = {name: data for name, data in contents.items() if name not in wide}
    found = pyxfer.load_tensors(file, to="jax", names=narrow)
    check(found, narrow)
    assert found["F8_E4M3"].dtype == jax.numpy.float8_e4m3fn


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_converts_float64_without_numbers_of_64_bits(tmp_path: Path, dtype: str) -> None:
    jax: Any = import_or_skip("jax")
    numbers = np.random.default_rng(5).standard_normal((3, 1000))
    np.savez(
        tmp_path / "wide.npz", wide=numbers, fortran=np.asfortranarray(numbers), whole=np.arange(3, dtype=np.int32)
    )
    found = pyxfer.load_tensors(tmp_path / "wide.npz", to="jax", dtype=dtype)
    for name in ("wide", "fortran"):
        assert found[name].dtype == dtype
        assert found[name].shape == numbers.shape
        assert np.array_equal(np.asarray(found[name]), numbers.astype(jax.numpy.dtype(dtype)))
    assert found["whole"].dtype == "int32"
    assert not jax.config.jax_enable_x64
    assert (found["wide"] + 1).dtype == dtype


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_jax_without_numbers_of_64_bits_refuses_float64_that_stays_so(tmp_path: Path, dtype: str | None) -> None:
    import_or_skip("jax")
    np.save(tmp_path / "wide.npy", np.ones(3))
    with pytest.raises(UsageError, match="jax_enable_x64"):
        pyxfer.load_tensors(tmp_path / "wide.npy", to="jax", dtype=dtype)


def test_jax_without_numbers_of_64_bits_refuses_integers_beside_a_conversion(tmp_path: Path) -> None:
    import_or_skip("jax")
    np.save(tmp_path / "whole.npy", np.arange(3))
    with pytest.raises(UsageError, match="jax_enable_x64"):
        pyxfer.load_tensors(tmp_path / "whole.npy", to="jax", dtype="float32")


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_floating_point_arrays_are_converted(framework: str, file: Path) -> None:
    library: Any = import_or_skip(framework)
    wanted = {
        "torch": lambda: library.float16,
        "tensorflow": lambda: library.float16,
        "jax": lambda: library.numpy.float16,
    }
    for dtype in ("float16", np.float16, np.dtype("float16"), wanted[framework]()):
        found = pyxfer.load_tensors(file, to=framework, names=["F32", "BF16", "I32"], dtype=dtype)  # type: ignore[arg-type]
        assert "float16" in str(found["F32"].dtype)
        assert "float16" in str(found["BF16"].dtype)
        assert "bfloat16" not in str(found["BF16"].dtype)
        assert "int32" in str(found["I32"].dtype)
    with pytest.raises(UsageError, match="has no float99"):
        pyxfer.load_tensors(file, to=framework, dtype="float99")  # type: ignore[arg-type]


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_fortran_order_keeps_its_items(framework: str, tmp_path: Path) -> None:
    import_or_skip(framework)
    expected = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    np.save(tmp_path / "x.npy", expected)
    found = pyxfer.load_tensors(tmp_path / "x.npy", to=framework)["x"]  # type: ignore[arg-type]
    assert np.array_equal(np.asarray(found), expected)


def test_a_stream_gives_the_same_tensors(file: Path, contents: dict[str, bytes]) -> None:
    import_or_skip("torch")
    check(dict(pyxfer.stream_tensors(file, to="torch")), contents)


def test_existing_tensors_are_filled_and_others_refused(file: Path, contents: dict[str, bytes]) -> None:
    torch: Any = import_or_skip("torch")
    targets = {
        "F32": torch.zeros(2, 3, 4),
        "I64": torch.zeros(2, 3, 4, dtype=torch.int64),
        "BF16": torch.nn.Parameter(torch.zeros(2, 3, 4, dtype=torch.bfloat16)),
    }
    pyxfer.load_tensors_into(targets, file)
    for name, tensor in targets.items():
        assert bytes_of(tensor.detach()) == contents[name]
    with pytest.raises(UsageError, match=r"targets\['F32'\]"):
        pyxfer.load_tensors_into({"F32": torch.zeros(4, 3, 2)}, file)


def test_float8_tensors_are_filled(file: Path, contents: dict[str, bytes]) -> None:
    torch: Any = import_or_skip("torch")
    kinds = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
    targets = {name: torch.zeros(2, 3, 4).to(kind) for name, kind in kinds.items()}
    pyxfer.load_tensors_into(targets, file)
    check(targets, {name: contents[name] for name in kinds})
    for target in (targets["F8_E5M2"], torch.zeros(2, 3, 4)):
        with pytest.raises(UsageError, match=r"targets\['F8_E4M3'\]"):
            pyxfer.load_tensors_into({"F8_E4M3": target}, file)


# What PyTorch exports of these is a copy.
def test_views_that_would_not_be_filled_are_refused(file: Path) -> None:
    torch: Any = import_or_skip("torch")
    for view in (torch.zeros(4, 3, 2).permute(2, 1, 0), torch.zeros(1).expand(2, 3, 4)):
        with pytest.raises(UsageError, match="C order"):
            pyxfer.load_tensors_into({"F32": view}, file)
    conjugated = torch.zeros((2, 3, 4), dtype=torch.complex64).conj()
    negated = torch._neg_view(torch.zeros(2, 3, 4))
    for name, view in (("C64", conjugated), ("F32", negated)):
        with pytest.raises(UsageError, match="conjugated or negated"):
            pyxfer.load_tensors_into({name: view}, file)


def test_arrays_that_cannot_be_written_are_refused(file: Path) -> None:
    jax: Any = import_or_skip("jax")
    with pytest.raises(UsageError, match="cannot be written"):
        pyxfer.load_tensors_into({"F32": jax.numpy.zeros((2, 3, 4))}, file)


def test_pytorchs_own_files_give_its_own_tensors(tmp_path: Path) -> None:
    torch: Any = import_or_skip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7))
    torch.save({"model": model.state_dict(), "step": 3}, tmp_path / "x.pt")
    found = pyxfer.load_tensors(tmp_path / "x.pt", to="torch")
    for name, tensor in model.state_dict().items():
        assert torch.equal(found[f"model.{name}"], tensor)


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("shape", [(), (5,), (5, 0)])
def test_small_arrays_of_several_types_whatever_their_size(
    framework: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    import_or_skip(framework)
    kinds = (np.float32, np.float16, np.bool_, np.int8)
    arrays = {np.dtype(kind).name: np.ones(shape, kind) for kind in kinds}
    np.savez(tmp_path / "x.npz", **arrays)  # type: ignore[arg-type]
    found = pyxfer.load_tensors(tmp_path / "x.npz", to=framework)  # type: ignore[arg-type]
    for name, array in arrays.items():
        assert tuple(found[name].shape) == shape
        assert bytes_of(found[name]) == array.tobytes()


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_equal_arrays_that_lie_unevenly(framework: str, tmp_path: Path) -> None:
    import_or_skip(framework)
    sizes = {"a": 1, "between": 3, "b": 1, "c": 1, "short": 0, "d": 1}
    header, begin = {}, 0
    for name, rows in sizes.items():
        header[name] = {
            "dtype": "F32",
            "shape": [rows, 64] if rows != 1 else [64],
            "data_offsets": [begin, begin + 256 * rows],
        }
        begin += 256 * rows
    text = json.dumps(header).encode()
    data = np.repeat(np.arange(begin // 256, dtype=np.float32), 64)
    path = tmp_path / "uneven.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
    found = pyxfer.load_tensors(path, framework, ["a", "b", "c", "d"])  # type: ignore[arg-type]
    assert {name: set(np.asarray(array).tolist()) for name, array in found.items()} == {
        "a": {0.0},
        "b": {4.0},
        "c": {5.0},
        "d": {6.0},
    }
