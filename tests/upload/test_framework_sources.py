"""Tensors of installed frameworks on the CPU, as sources and destinations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from route_checks import import_or_skip
from upload.memories import gathered

from pyxfer._upload.arrays import destination_of, name_of, source_of
from pyxfer._upload.pinning import empty_pinned
from pyxfer.errors import UsageError
from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
# 1.0, 2.0 and 3.0 in the upper half of a float32.
BFLOAT16 = np.array([0x3F80, 0x4000, 0x4040], np.uint16).tobytes()


@pytest.fixture
def torch() -> Any:
    return import_or_skip("torch")


@pytest.fixture
def jax() -> Any:
    return import_or_skip("jax")


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    return import_or_skip("tensorflow")


@pytest.fixture
def ml_dtypes() -> Any:
    return pytest.importorskip("ml_dtypes")


def refused(x: Any) -> str:
    with pytest.raises(UsageError) as caught:
        source_of(x)
    return str(caught.value)


BFLOAT16_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda torch: torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
    "jax": lambda jax: jax.numpy.array([1.0, 2.0, 3.0], jax.numpy.bfloat16),
    "tensorflow": lambda tensorflow: tensorflow.constant([1.0, 2.0, 3.0], tensorflow.bfloat16),
    "ml_dtypes": lambda ml_dtypes: np.array([1.0, 2.0, 3.0], ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("library", BFLOAT16_ARRAYS)
def test_a_bfloat16_array_is_sent(library: str, request: pytest.FixtureRequest) -> None:
    source = source_of(BFLOAT16_ARRAYS[library](request.getfixturevalue(library)))
    assert (source.dtype, gathered(source)) == ("bfloat16", BFLOAT16)


IMMUTABLE: dict[str, Callable[[Any], Any]] = {
    "jax": lambda jax: jax.numpy.zeros(3),
    "tensorflow": lambda tensorflow: tensorflow.zeros(3),
}


@pytest.mark.parametrize("library", IMMUTABLE)
def test_an_immutable_array_is_refused_as_destination(library: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(UsageError, match="read-only"):
        destination_of(IMMUTABLE[library](request.getfixturevalue(library)), (3,), np.dtype(np.float32))


def test_a_tensor_of_torch_is_read_in_place(torch: Any) -> None:
    tensor = torch.from_numpy(VALUES.copy()).permute(2, 0, 1)[::2]
    source = source_of(tensor)
    assert (source.address, name_of(source.dtype), source.readonly) == (tensor.data_ptr(), "float32", False)
    assert gathered(source) == VALUES.transpose(2, 0, 1)[::2].tobytes()


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1)])
def test_a_tensor_of_torch_of_any_shape_is_sent(torch: Any, shape: tuple[int, ...]) -> None:
    source = source_of(torch.zeros(shape, dtype=torch.bool))
    assert (source.shape, name_of(source.dtype), source.nbytes) == (shape, "bool", int(np.prod(shape)))


def test_tensors_that_torch_cannot_export_are_refused(torch: Any) -> None:
    assert "torch.Tensor cannot be exported by DLPack: Can't export tensors that require gradient" in refused(
        torch.zeros(3, requires_grad=True)
    )
    assert "cannot be exported by DLPack" in refused(torch.zeros(3, 3).to_sparse())
    assert "cannot be exported by DLPack" in refused(torch.zeros(3, device="meta"))


def test_float8_of_torch_is_refused(torch: Any) -> None:
    assert refused(torch.zeros(3, dtype=torch.float8_e4m3fn)).startswith("items of torch.float8_e4m3fn ")


def test_a_tensor_of_torch_can_be_written_to(torch: Any) -> None:
    out = torch.zeros(2, 3)
    assert destination_of(out, (2, 3), np.dtype(np.float32)).address == out.data_ptr()


def test_an_array_of_jax_is_read(jax: Any) -> None:
    source = source_of(jax.numpy.asarray(VALUES) * 2)
    assert (name_of(source.dtype), source.shape, gathered(source)) == ("float32", (2, 3, 4), (VALUES * 2).tobytes())


def test_an_array_of_jax_is_complete_when_it_is_read(jax: Any) -> None:
    many = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: y @ y / 400.0, x))
    ones = jax.numpy.ones((400, 400))
    assert gathered(source_of(many(ones))) == np.ones((400, 400), np.float32).tobytes()


def test_arrays_that_jax_cannot_export_are_refused(jax: Any) -> None:
    assert "is not an array" in refused(jax.random.key(0))
    assert "cannot be exported by DLPack" in refused(jax.numpy.zeros(3, jax.numpy.int4))


def test_a_tensor_of_tensorflow_is_read_in_place(tensorflow: Any) -> None:
    tensor = tensorflow.constant(VALUES)
    source = source_of(tensor)
    assert source.address == np.asarray(memoryview(tensor)).ctypes.data
    assert (name_of(source.dtype), source.shape, gathered(source)) == ("float32", (2, 3, 4), VALUES.tobytes())


def test_texts_of_tensorflow_are_refused(tensorflow: Any) -> None:
    assert refused(tensorflow.constant(["a"])).endswith("of string does not hold numbers: leave it on the host")


def test_a_variable_of_tensorflow_is_refused(tensorflow: Any) -> None:
    assert refused(tensorflow.Variable([1.0])).endswith("np.asarray(x) converts numbers")


def test_a_negative_view_of_torch_is_refused_as_source_and_as_destination(torch: Any) -> None:
    negated = torch.tensor([1 + 2j]).conj().imag
    assert negated.is_neg()
    assert refused(negated).endswith("has the negative bit set: give x.resolve_neg()")
    assert gathered(source_of(negated.resolve_neg())) == np.array([-2.0], np.float32).tobytes()
    with pytest.raises(UsageError, match=r"out: .* negative bit"):
        destination_of(negated, (1,), np.dtype(np.float32))


def test_a_page_locked_array_becomes_a_tensor_of_torch_without_a_copy(torch: Any, engine: Engine) -> None:
    pinned = empty_pinned(engine, (3, 4), np.float32)
    tensor = torch.from_dlpack(pinned)
    assert tensor.data_ptr() == pinned.ctypes.data
    del pinned
    tensor.fill_(7.0)
    assert tensor.sum().item() == 84.0
