from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from upload.capsules import Speaking, SpeakingTheOldWay
from upload.memories import DTYPES, gathered

from pyxfer._upload.arrays import is_array, source_of
from pyxfer.errors import UsageError

pytestmark = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy, which speaks here, speaks DLPack 1 from 2.1 on"
)
each_version = pytest.mark.parametrize("kind", [Speaking, SpeakingTheOldWay])


def refused(x: Any) -> str:
    with pytest.raises(UsageError) as caught:
        source_of(x)
    return str(caught.value)


@each_version
@given(x=hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0)))
def test_an_array_that_speaks_dlpack_is_read_where_it_lies(kind: type[Speaking], x: np.ndarray[Any, Any]) -> None:
    source = source_of(kind(x.T))
    assert (source.dtype, source.shape, source.address) == (x.dtype, x.T.shape, x.ctypes.data)
    assert gathered(source) == x.T.tobytes()


@each_version
def test_without_strides_it_is_in_c_order(kind: type[Speaking]) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    source = source_of(kind(x, strides=0))
    assert (source.strides, gathered(source)) == (x.strides, x.tobytes())


def test_its_offset_is_counted_in() -> None:
    x = np.zeros(4)
    assert source_of(Speaking(x, byte_offset=24)).address == x.ctypes.data + 24


def test_bfloat16_goes_by_its_name() -> None:
    source = source_of(Speaking(np.arange(6, dtype=np.uint16).reshape(2, 3), code=4))
    assert (source.dtype, source.itemsize, source.nbytes, source.strides) == ("bfloat16", 2, 12, (6, 2))


def test_what_a_capsule_forbids_to_write_to_is_read_only() -> None:
    x = np.zeros(3)
    assert not source_of(Speaking(x)).readonly
    x.flags.writeable = False
    assert source_of(Speaking(x)).readonly


@each_version
def test_the_capsule_keeps_the_memory_alive_and_gives_it_back(kind: type[Speaking]) -> None:
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
        ((8, 0), "a device of DLPack's kind 8"),
    ],
)
def test_what_lies_on_a_gpu_is_to_be_used_as_it_is(device: tuple[int, int], where: str) -> None:
    x = Speaking(np.zeros(3))
    x.device = device
    why = f"this upload.capsules.Speaking lies on {where} already: use it as it is"
    assert refused(x) == why
    assert refused(Speaking(np.zeros(3), device=device[0], index=device[1])) == why


@pytest.mark.parametrize("device", [3, 11])
def test_page_locked_memory_lies_on_the_host(device: int) -> None:
    x = Speaking(np.arange(3), device=device)
    x.device = (device, 0)
    assert gathered(source_of(x)) == np.arange(3).tobytes()


def test_a_type_that_is_not_sent_is_named() -> None:
    assert refused(Speaking(np.zeros(3, np.uint8), code=10)).startswith(
        "an array of DLPack's type (10, 8, 1) is of a type"
    )
    assert "(2, 32, 4)" in refused(Speaking(np.zeros(3, np.float32), lanes=4))


def test_more_bytes_than_can_be_counted_are_refused() -> None:
    shape = np.array([2**31, 2**31, 2**31], np.int64)
    x = Speaking(np.zeros((1, 1, 1)), shape=shape.ctypes.data)
    assert "at most 64 dimensions and 2**63 - 1 bytes" in refused(x)


def test_more_dimensions_than_numpy_has_are_refused() -> None:
    ones = np.ones(65, np.int64)
    assert "at most 64 dimensions" in refused(Speaking(np.zeros(1), ndim=65, shape=ones.ctypes.data, strides=0))


def test_a_later_dlpack_is_refused_by_number() -> None:
    assert "speaks DLPack 2, and pyxfer 1" in refused(Speaking(np.zeros(1), major=2))


def test_a_capsule_that_has_been_consumed_is_refused() -> None:
    class Consumed(Speaking):
        def __dlpack__(self, **asked: Any) -> Any:
            capsule = super().__dlpack__(**asked)
            np.from_dlpack(SpeakingOnce(capsule))
            return capsule

    assert "gives what is no DLPack capsule, or one that has been consumed" in refused(Consumed(np.zeros(1)))


class SpeakingOnce:
    """Hands on a capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


def test_what_is_no_capsule_is_refused() -> None:
    assert "gives what is no DLPack capsule" in refused(SpeakingOnce("tensor"))


class Declining(Speaking):
    """Says why not."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("tensors that require gradient\nand a page of more")


def test_what_a_library_says_against_it_is_said() -> None:
    assert refused(Declining(np.zeros(1))) == (
        f"this {Declining.__module__}.Declining does not give its memory away by DLPack: tensors that require gradient"
    )


def test_an_array_of_the_old_way_may_decline_as_well() -> None:
    class DecliningTheOldWay:
        def __dlpack__(self) -> Any:
            raise ValueError

    assert refused(DecliningTheOldWay()).endswith("does not give its memory away by DLPack: ValueError")


def test_an_array_of_texts_is_never_asked_for_a_capsule() -> None:
    class OfTexts(Declining):
        class dtype:  # noqa: N801 - as TensorFlow calls it
            name = "string"

    assert re.search(r"OfTexts of string holds no numbers: leave it on the host", refused(OfTexts(np.zeros(1))))


def test_a_tensor_is_an_array_wherever_it_lies() -> None:
    x = Speaking(np.zeros(3))
    x.device = (2, 0)
    assert is_array(x)
