"""Arrays as sources and destinations: NumPy arrays, scalars, buffers, mapped files, their dtypes and layouts."""

from __future__ import annotations

import array
import ctypes
import gc
import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from upload.memories import DTYPES, Capsuled, CapsuledVersion0, OnAGpu, gathered, needs_dlpack_1, refused

from pyxfer._upload.arrays import (
    destination_of,
    dtype_to_send,
    is_array,
    name_of,
    source_of,
)
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import UsageError
from pyxfer.native import Engine, load
from pyxfer.units import format_size

pytestmark = pytest.mark.filterwarnings("ignore")  # of frameworks


@st.composite
def views(draw: st.DrawFn) -> Any:
    """Transposed, sliced, reversed and repeated arrays, in C and Fortran order."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    dtype = draw(DTYPES)
    data = np.random.default_rng(draw(st.integers(0, 99))).bytes(math.prod(shape) * dtype.itemsize)
    x: Any = np.frombuffer(data, dtype).reshape(shape, order=draw(st.sampled_from("CF")))
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    x = np.asarray(x[draw(hnp.basic_indices(x.shape, allow_newaxis=True, max_dims=5))])
    if draw(st.booleans()):
        x = np.broadcast_to(x, (draw(st.integers(0, 3)), *x.shape))
    return x


@given(views())
def test_a_source_has_exactly_the_bytes_of_its_array(x: np.ndarray[Any, Any]) -> None:
    source = source_of(x)
    assert gathered(source) == x.tobytes()
    assert (source.dtype, source.shape, source.nbytes) == (x.dtype, x.shape, len(x.tobytes()))
    assert (source.address, source.strides) == (x.ctypes.data, x.strides)


BUFFERS = {
    "bytes": (b"abcdef", "uint8", (6,)),
    "bytearray": (bytearray(b"abc"), "uint8", (3,)),
    "array": (array.array("d", [1.0, 2.0]), "float64", (2,)),
    "memoryview": (memoryview(b"abcdef")[::-2], "uint8", (3,)),
    "shaped memoryview": (memoryview(b"abcdef").cast("H", (3, 1)), "uint16", (3, 1)),
    "ctypes array": (((ctypes.c_int32 * 2) * 3)(), "int32", (3, 2)),
    "empty": (b"", "uint8", (0,)),
    "scalar": (np.complex64(1 - 2j), "complex64", ()),
    "matrix": (np.arange(6).reshape(2, 3).view(np.matrix), "int64", (2, 3)),
    "nothing masked": (np.ma.MaskedArray([1, 2, 3], mask=np.zeros(3, bool)), "int64", (3,)),
}


@pytest.mark.parametrize(("buffer", "dtype", "shape"), BUFFERS.values(), ids=BUFFERS)
def test_what_is_no_plain_array_is_read_as_one(buffer: Any, dtype: str, shape: tuple[int, ...]) -> None:
    source = source_of(buffer)
    assert (name_of(source.dtype), source.shape) == (dtype, shape)
    assert gathered(source) == memoryview(buffer).tobytes()


@pytest.mark.parametrize(
    ("x", "readonly"),
    [
        (b"abc", True),
        (np.broadcast_to(1, 3), True),
        (memoryview(b"abc"), True),
        (bytearray(b"abc"), False),
        (np.zeros(3), False),
        (array.array("i", [1]), False),
        pytest.param(Capsuled(np.zeros(3)), False, marks=needs_dlpack_1),
        pytest.param(Capsuled(np.broadcast_to(1, 3)), True, marks=needs_dlpack_1),
    ],
)
def test_a_source_is_read_only_if_its_memory_is(x: Any, readonly: bool) -> None:
    assert source_of(x).readonly == readonly


@pytest.mark.parametrize(
    "seen_as", [np.asarray, *(pytest.param(kind, marks=needs_dlpack_1) for kind in (Capsuled, CapsuledVersion0))]
)
def test_a_source_keeps_the_memory_alive(seen_as: Callable[[Any], Any]) -> None:
    x = np.arange(1000)
    gone = weakref.ref(x)
    source = source_of(seen_as(x[::2]))
    del x
    gc.collect()
    assert gone() is not None
    assert gathered(source) == np.arange(0, 1000, 2).tobytes()
    del source
    assert gone() is None


def test_a_buffer_cannot_be_resized_while_its_source_exists() -> None:
    buffer = bytearray(b"abc")
    source = source_of(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"d")
    del source
    buffer.extend(b"d")


ARRAYS = [np.zeros(2), np.float64(1), np.array("a"), b"", bytearray(), memoryview(b""), array.array("i"), OnAGpu()]
OTHERS = [None, 1, 1.5, 2j, True, "a", np.str_("a"), [], (), {}, set(), np.ndarray, np.float32]


@pytest.mark.parametrize(("x", "expected"), [*((x, True) for x in ARRAYS), *((x, False) for x in OTHERS)])
def test_is_array_is_true_even_for_arrays_that_cannot_be_sent(x: object, expected: bool) -> None:
    assert is_array(x) == expected


@pytest.mark.parametrize("name", sorted({np.dtype(letter).name for letter in "?bBhHiIlLqQpPefdFD"}))
def test_numbers_are_sent_as_they_are(name: str) -> None:
    dtype = np.dtype(name)
    code = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[dtype.kind]
    assert dtype_to_send(dtype) == dtype
    assert source_of(Capsuled(np.zeros(16, np.uint8), code=code, bits=8 * dtype.itemsize)).dtype == dtype


@pytest.mark.parametrize("unknown", [(0, 4, 1), (2, 8, 1), (2, 128, 1), (3, 64, 1), (7, 8, 1), (10, 8, 1), (2, 32, 4)])
def test_other_types_of_dlpack_have_no_dtype(unknown: tuple[int, int, int]) -> None:
    code, bits, lanes = unknown
    with pytest.raises(UsageError, match=rf"^items of DLPack's type \({code}, {bits}, {lanes}\) cannot be sent: send"):
        source_of(Capsuled(np.zeros(16, np.uint8), code=code, bits=bits, lanes=lanes))


# --- DLPack ----------------------------------------------------------------------------------------------------------

each_version = pytest.mark.parametrize("kind", [Capsuled, CapsuledVersion0])


@needs_dlpack_1
@each_version
@given(x=hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0)))
def test_an_array_with_dlpack_is_read_in_place(kind: type[Capsuled], x: np.ndarray[Any, Any]) -> None:
    source = source_of(kind(x.T))
    assert (source.dtype, source.shape, source.address) == (x.dtype, x.T.shape, x.ctypes.data)
    assert gathered(source) == x.T.tobytes()


@needs_dlpack_1
@each_version
def test_a_capsule_without_strides_is_in_c_order(kind: type[Capsuled]) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    source = source_of(kind(x, strides=0))
    assert (source.strides, gathered(source)) == (x.strides, x.tobytes())


@needs_dlpack_1
def test_the_byte_offset_is_added_to_the_address() -> None:
    x = np.zeros(4)
    assert source_of(Capsuled(x, byte_offset=24)).address == x.ctypes.data + 24


@needs_dlpack_1
def test_bfloat16_is_represented_by_its_name() -> None:
    source = source_of(Capsuled(np.arange(6, dtype=np.uint16).reshape(2, 3), code=4))
    assert (source.dtype, source.itemsize, source.nbytes, source.strides) == ("bfloat16", 2, 12, (6, 2))


@needs_dlpack_1
@pytest.mark.parametrize(
    ("device", "where"),
    [
        ((2, 1), "GPU 1"),
        ((13, 0), "managed memory of GPU 0"),
        ((10, 0), "ROCm GPU 0"),
        ((8, 0), "a device of DLPack's type 8"),
    ],
)
def test_an_array_on_a_gpu_is_refused(device: tuple[int, int], where: str) -> None:
    x = Capsuled(np.zeros(3))
    x.device = device
    assert f"is on {where} already" in refused(x)
    assert f"is on {where} already" in refused(Capsuled(np.zeros(3), device=device[0], index=device[1]))


@needs_dlpack_1
@pytest.mark.parametrize("device", [3, 11])
def test_page_locked_memory_is_accepted(device: int) -> None:
    x = Capsuled(np.arange(3), device=device)
    x.device = (device, 0)
    assert gathered(source_of(x)) == np.arange(3).tobytes()


class Declining(Capsuled):
    """Refuses an export."""

    text = "tensors that require gradient\nand a page of more"

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError(self.text)


@needs_dlpack_1
def test_the_first_line_of_an_export_error_or_its_type_is_in_the_message() -> None:
    x = Declining(np.zeros(1))
    assert refused(x).endswith(": tensors that require gradient")
    x.text = ""
    assert "BufferError" in refused(x)


PAGES = 5 * mmap.ALLOCATIONGRANULARITY
CONTENTS = np.random.default_rng(0).integers(0, 256, PAGES, np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "images"
    made.write_bytes(CONTENTS.tobytes())
    return made


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("offset", [0, 1000, 3 * mmap.ALLOCATIONGRANULARITY + 5])
def test_an_array_in_a_file_is_sent(own: Target, path: Path, mode: str, offset: int) -> None:
    mapped = np.memmap(path, np.uint8, mode, offset=offset)  # type: ignore[call-overload]
    with Uploader("host", threads=2) as up:
        assert np.array_equal(np.from_dlpack(up.upload(mapped[::3], own)), CONTENTS[offset::3])


@pytest.mark.parametrize("offset", [0, 3 * mmap.ALLOCATIONGRANULARITY + 5])
def test_an_array_of_a_truncated_file_is_refused(path: Path, offset: int) -> None:
    with_gaps = np.memmap(path, np.uint8, "r", offset=offset)[::2].reshape(-1, 1)
    os.truncate(path, PAGES - mmap.ALLOCATIONGRANULARITY)
    left, whole = format_size(PAGES - mmap.ALLOCATIONGRANULARITY), format_size(PAGES)
    with pytest.raises(UsageError, match=f"was cut to {left}, and needs {whole} of it"):
        source_of(with_gaps)


def test_a_mapping_made_without_numpy_is_checked_too(path: Path) -> None:
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    found = source_of(np.frombuffer(mapped, np.int32))
    assert found.nbytes == PAGES
    os.truncate(path, 100)
    for x in (np.frombuffer(mapped, np.int32), mapped, memoryview(mapped)[8:]):
        with pytest.raises(UsageError, match=f"was cut to 100 B, and needs {format_size(PAGES)}"):
            source_of(x)


def test_a_download_into_a_truncated_file_is_refused(engine: Engine, path: Path) -> None:
    out = np.memmap(path, np.uint8, "r+")
    os.truncate(path, 10)
    with Uploader("host", threads=2) as up:
        y = up.upload(CONTENTS, Target(DevicePool(engine, 0, 0)))
        with pytest.raises(UsageError, match=r"^out: this array is mapped from a file that was cut"):
            up.download(y, out)


def test_mapped_memory_of_a_file_that_has_grown_or_was_deleted_or_of_none_is_accepted(path: Path) -> None:
    mapped = np.memmap(path, np.uint8, "r")
    os.truncate(path, 2 * PAGES)
    path.unlink()
    assert source_of(mapped).nbytes == PAGES
    assert source_of(np.frombuffer(mmap.mmap(-1, PAGES), np.uint8)).nbytes == PAGES


F4 = np.dtype(np.float32)
as_strided = np.lib.stride_tricks.as_strided

FITTING = {
    "c order": np.zeros((2, 3), F4),
    "fortran order": np.zeros((2, 3), F4, order="F"),
    "backwards": np.zeros((2, 3), F4)[::-1, ::-1],
    "every other": np.zeros((4, 9), F4)[::2, ::3],
    "matrix": np.zeros((2, 3), F4).view(np.matrix),
    "no dimensions": np.zeros((), F4),
    "no items": np.zeros((0, 3), F4),
}


@pytest.mark.parametrize("out", FITTING.values(), ids=FITTING)
def test_a_fitting_array_is_written_in_place(out: np.ndarray[Any, Any]) -> None:
    found = destination_of(out, out.shape, F4)
    assert (found.address, found.shape, found.strides) == (out.ctypes.data, out.shape, out.strides)


def test_a_buffer_can_be_a_destination() -> None:
    assert destination_of(bytearray(3), (3,), np.dtype(np.uint8)).nbytes == 3


extents = st.lists(st.integers(0, 4), min_size=1, max_size=3)


@given(extents, st.data())
def test_no_byte_of_an_accepted_destination_belongs_to_two_items(shape: list[int], data: st.DataObject) -> None:
    strides = data.draw(st.lists(st.integers(-12, 12), min_size=len(shape), max_size=len(shape)))
    memory = np.zeros(3 * 4 * 12 * 2 + 2, np.uint16)
    out = as_strided(memory[memory.size // 2 :], shape, [2 * stride for stride in strides])
    try:
        destination_of(out, tuple(shape), np.dtype(np.uint16))
    except UsageError:
        return
    places = [sum(i * s for i, s in zip(place, strides, strict=True)) for place in np.ndindex(*shape)]
    assert len(set(places)) == len(places)


@pytest.fixture(scope="module")
def up() -> Iterator[Uploader]:
    with Uploader("host", threads=3, chunk_bytes=4096, slots=2) as made:
        yield made


@given(array=views(), block=st.booleans())
def test_any_array_arrives_and_comes_back(up: Uploader, array: NDArray[Any], block: bool) -> None:
    sent = up.upload(array, Target(DevicePool(load("host"), 0, 0)), block)
    y = sent if block else sent.result()
    there, back = np.from_dlpack(y), up.download(y)
    for copy in (there, back):
        assert (copy.shape, copy.dtype, copy.tobytes()) == (array.shape, array.dtype, array.tobytes())
    assert back.flags.owndata


# --- tensors of frameworks -------------------------------------------------------------------------------------------

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
# 1.0, 2.0 and 3.0 in the upper half of a float32.
BFLOAT16_BITS = np.array([0x3F80, 0x4000, 0x4040], np.uint16).tobytes()


@pytest.fixture
def ml_dtypes() -> Any:
    return pytest.importorskip("ml_dtypes")


BFLOAT16_BITS_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda torch: torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
    "jax": lambda jax: jax.numpy.array([1.0, 2.0, 3.0], jax.numpy.bfloat16),
    "tensorflow": lambda tensorflow: tensorflow.constant([1.0, 2.0, 3.0], tensorflow.bfloat16),
    "ml_dtypes": lambda ml_dtypes: np.array([1.0, 2.0, 3.0], ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("library", BFLOAT16_BITS_ARRAYS)
def test_a_bfloat16_array_is_sent(library: str, request: pytest.FixtureRequest) -> None:
    source = source_of(BFLOAT16_BITS_ARRAYS[library](request.getfixturevalue(library)))
    assert (source.dtype, gathered(source)) == ("bfloat16", BFLOAT16_BITS)


REFUSED: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a gradient": (
        "torch",
        lambda torch: torch.zeros(3, requires_grad=True),
        "Can't export tensors that require",
    ),
    "sparse": ("torch", lambda torch: torch.zeros(3, 3).to_sparse(), "cannot be exported by DLPack"),
    "meta": ("torch", lambda torch: torch.zeros(3, device="meta"), "cannot be exported by DLPack"),
    "float8": ("torch", lambda torch: torch.zeros(3, dtype=torch.float8_e4m3fn), "items of torch.float8_e4m3fn "),
    "a key": ("jax", lambda jax: jax.random.key(0), "is not an array"),
    "int4": ("jax", lambda jax: jax.numpy.zeros(3, jax.numpy.int4), "cannot be exported by DLPack"),
    "texts": ("tensorflow", lambda tensorflow: tensorflow.constant(["a"]), "of string does not hold numbers"),
    "a variable": ("tensorflow", lambda tensorflow: tensorflow.Variable([1.0]), "np.asarray(x) converts numbers"),
}


@pytest.mark.parametrize(("library", "make", "word"), REFUSED.values(), ids=REFUSED)
def test_tensors_that_cannot_be_sent_are_refused(
    library: str, make: Callable[[Any], Any], word: str, request: pytest.FixtureRequest
) -> None:
    assert word in refused(make(request.getfixturevalue(library)))


@pytest.mark.parametrize(
    ("library", "make"),
    [("jax", lambda jax: jax.numpy.zeros(3)), ("tensorflow", lambda tensorflow: tensorflow.zeros(3))],
)
def test_an_immutable_array_is_refused_as_destination(
    library: str, make: Callable[[Any], Any], request: pytest.FixtureRequest
) -> None:
    with pytest.raises(UsageError, match="read-only"):
        destination_of(make(request.getfixturevalue(library)), (3,), np.dtype(np.float32))


def test_a_tensor_of_torch_is_read_in_place(torch: Any) -> None:
    tensor = torch.from_numpy(VALUES.copy()).permute(2, 0, 1)[::2]
    source = source_of(tensor)
    assert (source.address, name_of(source.dtype), source.readonly) == (tensor.data_ptr(), "float32", False)
    assert gathered(source) == VALUES.transpose(2, 0, 1)[::2].tobytes()


def test_an_array_of_jax_is_complete_when_it_is_read(jax: Any) -> None:
    many = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: y @ y / 400.0, x))
    ones = jax.numpy.ones((400, 400))
    assert gathered(source_of(many(ones))) == np.ones((400, 400), np.float32).tobytes()


def test_a_negative_view_of_torch_is_refused_as_source_and_as_destination(torch: Any) -> None:
    negated = torch.tensor([1 + 2j]).conj().imag
    assert negated.is_neg()
    assert refused(negated).endswith("has the negative bit set: give x.resolve_neg()")
    assert gathered(source_of(negated.resolve_neg())) == np.array([-2.0], np.float32).tobytes()
    with pytest.raises(UsageError, match=r"out: .* negative bit"):
        destination_of(negated, (1,), np.dtype(np.float32))
