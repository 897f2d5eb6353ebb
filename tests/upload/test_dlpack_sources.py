"""Sources that are read by DLPack."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from upload.memories import DTYPES, Capsuled, CapsuledVersion0, gathered, refused

from pyxfer._upload.arrays import is_array, source_of

pytestmark = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0",
    reason="NumPy has DLPack 1 from 2.1 on",
)
each_version = pytest.mark.parametrize("kind", [Capsuled, CapsuledVersion0])


@each_version
@given(x=hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0)))
def test_an_array_with_dlpack_is_read_in_place(kind: type[Capsuled], x: np.ndarray[Any, Any]) -> None:
    source = source_of(kind(x.T))
    assert (source.dtype, source.shape, source.address) == (x.dtype, x.T.shape, x.ctypes.data)
    assert gathered(source) == x.T.tobytes()


@each_version
def test_a_capsule_without_strides_is_in_c_order(kind: type[Capsuled]) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    source = source_of(kind(x, strides=0))
    assert (source.strides, gathered(source)) == (x.strides, x.tobytes())


def test_the_byte_offset_is_added_to_the_address() -> None:
    x = np.zeros(4)
    assert source_of(Capsuled(x, byte_offset=24)).address == x.ctypes.data + 24


def test_bfloat16_is_represented_by_its_name() -> None:
    source = source_of(Capsuled(np.arange(6, dtype=np.uint16).reshape(2, 3), code=4))
    assert (source.dtype, source.itemsize, source.nbytes, source.strides) == ("bfloat16", 2, 12, (6, 2))


def test_a_read_only_capsule_is_a_read_only_source() -> None:
    x = np.zeros(3)
    assert not source_of(Capsuled(x)).readonly
    x.flags.writeable = False
    assert source_of(Capsuled(x)).readonly


@each_version
def test_a_source_keeps_the_memory_of_its_capsule_alive(kind: type[Capsuled]) -> None:
    x = np.arange(1000)
    gone = weakref.ref(x)
    source = source_of(kind(x))
    del x
    gc.collect()
    assert gathered(source) == np.arange(1000).tobytes()
    del source
    assert gone() is None


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
    why = f"this upload.memories.Capsuled is on {where} already: use it as it is"
    assert refused(x) == why
    assert refused(Capsuled(np.zeros(3), device=device[0], index=device[1])) == why


@pytest.mark.parametrize("device", [3, 11])
def test_page_locked_memory_is_accepted(device: int) -> None:
    x = Capsuled(np.arange(3), device=device)
    x.device = (device, 0)
    assert gathered(source_of(x)) == np.arange(3).tobytes()


class Declining(Capsuled):
    """Refuses an export."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("tensors that require gradient\nand a page of more")


def test_the_first_line_of_an_export_error_is_in_the_message() -> None:
    assert refused(Declining(np.zeros(1))) == (
        f"this {Declining.__module__}.Declining cannot be exported by DLPack: tensors that require gradient"
    )


def test_a_tensor_on_a_gpu_is_an_array() -> None:
    x = Capsuled(np.zeros(3))
    x.device = (2, 0)
    assert is_array(x)
