"""Small arrays of a structure, which cross together and share a block on the device."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upload.memories import DTYPES, held

from pyxfer._upload import trees
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.movers import PlainMover
from pyxfer._upload.pools import block_bytes
from pyxfer._upload.targets import Target, _even_runs
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaMemoryError, UsageError
from pyxfer.native import Engine, load
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Dtype


def filled(seed: int, *shape: int, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def assert_arrived(made: Any, x: list[Any]) -> None:
    for y, array in zip(made, x, strict=True):
        arrived = np.from_dlpack(y)
        assert (arrived.shape, arrived.dtype) == (np.shape(array), array.dtype)
        assert np.array_equal(arrived, array)


def copies() -> int:
    """By the ring and by the driver."""
    return sum(testing.calls().get(call, 0) for call in ("cudaMemcpyAsync", "cuMemcpyHtoDAsync"))


def blocks() -> list[int]:
    return sorted(nbytes for kind, _, nbytes in testing.allocated() if kind == "device")


@pytest.mark.parametrize("block", [True, False])
def test_small_arrays_share_one_block_and_one_copy(engine: Engine, own: Target, block: bool) -> None:
    x = [filled(seed, 7, 11) for seed in range(20)]
    with Uploader("host", threads=2, chunk_bytes=64 << 10, slots=2) as up:
        up.upload(np.zeros(1), own)
        before = copies()
        made: Any = up.upload(x, own, block) if block else up.upload(x, own, block=False).result()
        assert copies() - before == 1
    assert_arrived(made, x)
    spacing = {y.address % 256 for y in made}
    assert spacing == {0}
    assert blocks()[-1] == block_bytes(20 * 512)


arrays = st.builds(
    lambda seed, shape, dtype: np.random.default_rng(seed).integers(0, 2, shape).astype(dtype),
    st.integers(0, 1000),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    DTYPES,
)


@given(st.lists(arrays, min_size=4, max_size=12), st.booleans())
def test_any_small_arrays_come_back(x: list[Any], block: bool) -> None:
    with Uploader("host", threads=2, chunk_bytes=4096, slots=2) as up:
        own = Target(DevicePool(up.engine, 0, 0))
        made: Any = up.upload(x, own) if block else up.upload(x, own, block=False).result()
        assert_arrived(made, x)


def test_a_mixed_structure_keeps_its_order(up: Uploader, own: Target) -> None:
    shared = filled(0, 3)
    read_only = filled(1, 4)
    read_only.flags.writeable = False
    x = {
        "large": filled(2, 200_000),
        "small": [shared, shared, shared[1:], filled(3, 0, 5), np.array(7.5), read_only],
        "strided": filled(4, 10, 10)[::2, ::-1],
        "scalar": np.float32(2.5),
        "bytes": b"some bytes",
    }
    for made in (up.upload(x, own), up.upload(x, own, block=False).result()):
        assert list(made) == list(x)
        assert np.array_equal(np.from_dlpack(made["large"]), x["large"])
        assert_arrived(made["small"], x["small"])
        assert np.array_equal(np.from_dlpack(made["strided"]), x["strided"])
        assert np.from_dlpack(made["scalar"]) == 2.5
        assert bytes(np.from_dlpack(made["bytes"])) == x["bytes"]


def test_a_block_has_at_most_8_mib(up: Uploader, own: Target) -> None:
    x = [np.full(256 << 10, seed, np.uint8) for seed in range(40)]  # 10 MiB
    made = up.upload(x, own)
    assert_arrived(made, x)
    assert blocks() == [2 << 20, 8 << 20]


def test_the_block_exists_as_long_as_one_of_its_arrays(up: Uploader, own: Target) -> None:
    made = up.upload([filled(seed, 100) for seed in range(4)], own)
    kept = np.from_dlpack(made.pop())
    del made
    assert held("device") == block_bytes(4 * 512)
    assert np.array_equal(kept, filled(3, 100))
    del kept
    assert held("device") == 0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_small_arrays_have_memory_of_their_own(up: Uploader, own: Target, count: int) -> None:
    made = up.upload([filled(0, 100)] * count, own)
    assert len(blocks()) == count == len(made)


@pytest.mark.parametrize("block", [True, False])
def test_a_refused_array_is_named(up: Uploader, own: Target, block: bool) -> None:
    x = [filled(0, 3)] * 5 + [{"text": np.array(["a"])}]
    with pytest.raises(UsageError, match=r'^x\[5\]\["text"\]: an array of <U1 holds text'):
        up.upload(x, own, block=block)
    assert held("device") == 0


class NoFloats(Target):
    title = "Integers"

    def require_dtype(self, dtype: Dtype) -> None:
        if np.dtype(dtype).kind == "f":
            raise self.no_dtype(dtype, "send integers")


def test_a_dtype_that_the_framework_does_not_have_is_named(up: Uploader, engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"^x\[3\]: Integers has no float64"):
        up.upload([filled(0, 3)] * 3 + [np.ones(3)] + [filled(0, 3)] * 3, NoFloats(DevicePool(engine, 0, 0)))


def test_device_memory_that_runs_out_in_the_middle_leaves_nothing(up: Uploader, own: Target) -> None:
    up.upload(filled(0, 3), own)
    testing.fail("cudaMalloc", 2, 2)
    with pytest.raises(CudaMemoryError):
        up.upload([filled(0, 200_000)] + [filled(0, 3)] * 5, own)
    assert held("device") == 0


def test_without_a_ring_each_array_crosses_alone(up: Uploader, own: Target, engine: Engine) -> None:
    up._mover = PlainMover(engine, 0)
    x = [filled(seed, 3) for seed in range(6)]
    assert_arrived(up.upload(x, own), x)


def test_sources_may_change_after_the_call(up: Uploader, own: Target) -> None:
    x = [filled(seed, 50) for seed in range(6)]
    made = up.upload(x, own)
    for array in x:
        array[:] = -1
    assert_arrived(made, [filled(seed, 50) for seed in range(6)])


def test_groups_are_of_small_contiguous_arrays(own: Target) -> None:
    small, large = np.zeros(10), np.zeros(100_000)
    found = trees.groups_of([small, large, small, small[::2], small, small], own)
    assert found == [([1], None), ([3], None), ([0, 2, 4, 5], [small] * 4)]


@pytest.mark.parametrize(
    ("offsets", "runs"),
    [
        ([64], [(64, 0, 1)]),
        ([0, 256, 320, 384], [(0, 256, 2), (320, 64, 2)]),
        ([0, 64, 320, 384, 1024], [(0, 64, 2), (320, 64, 2), (1024, 0, 1)]),
    ],
)
def test_equal_arrays_are_views_together_where_they_are_equally_far_apart(
    offsets: list[int], runs: list[tuple[int, int, int]]
) -> None:
    dtype = np.dtype(np.float32)
    assert list(_even_runs([((4,), dtype, offset) for offset in offsets])) == [((4,), dtype, *run) for run in runs]


@given(st.lists(arrays, max_size=12), st.integers(1, 3))
def test_the_runs_of_a_pack_are_those_of_its_parts(x: list[Any], repeats: int) -> None:
    each = [array for array in x for _ in range(repeats)]
    ends = [0, *itertools.accumulate(-(-array.nbytes // 256) * 256 for array in each)]
    parts = [(array.shape, array.dtype, offset) for array, offset in zip(each, ends, strict=False)]
    assert load("host").Pack(each).runs == list(_even_runs(parts))


def test_a_plain_array_is_contiguous_and_of_no_other_object(engine: Engine, tmp_path: Path) -> None:
    whole = np.zeros((4, 6), np.int16)
    path = tmp_path / "mapped"
    path.write_bytes(bytes(48))
    mapped = np.memmap(path, np.int16, "r")
    others = [whole.T, whole[:, 1:], np.asarray(mapped), mapped, whole.view(np.recarray), np.int16(1), [0], b"1", None]
    others += [np.frombuffer(b"12", np.int16)]
    plain = [whole, whole[1:], whole[1:][1:], np.zeros(0), np.ones(1, np.float32)[0:1], np.array(1.5)]
    sizes, dtypes = engine.plain_arrays([*plain, *others])
    assert sizes == [48, 36, 24, 0, 4, 8] + [-1] * len(others)
    assert dtypes == [np.int16, np.float64, np.float32]


@pytest.mark.parametrize("block", [True, False])
def test_a_refusal_keeps_no_array(up: Uploader, own: Target, block: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        array = np.array(["text"])
        gone = weakref.ref(array)
        with suppress(UsageError):
            up.upload([filled(0, 3), array], own, block=block)
        del array
        assert gone() is None
    finally:
        gc.enable()
