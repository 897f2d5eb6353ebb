"""upload and prefetch with dtype and layout: contents of every pair, by the host and by kernels; what is refused."""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pyxfer._upload.arrays import BFLOAT16, source_of
from pyxfer._upload.conversions import Converter, Wanted, _order, wanted_by
from pyxfer._upload.device_arrays import DeviceArray, ScratchPool
from pyxfer._upload.movers import PlainMover
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, CudaMemoryError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

INTEGERS = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "float32", "float64")
PAIRS = [
    (before, after)
    for before in (*INTEGERS, *FLOATS)
    for after in (*INTEGERS, *FLOATS, BFLOAT16)
    if after in (*FLOATS, BFLOAT16, "bool") or before in INTEGERS
]
Pair = namedtuple("Pair", "images labels")


@dataclass
class Batch:
    images: Any
    labels: Any


@pytest.fixture(params=["host", "kernels"])
def way(request: pytest.FixtureRequest, up: Uploader) -> str:
    """Both ways: without a GPU the host converts, and here also the kernels, which the host runtime interprets."""
    up._converter.has_kernels = request.param == "kernels"
    up._converter.max_on_host_bytes = 0
    return str(request.param)


@pytest.fixture
def sent(up: Uploader, own: Target, engine: Engine) -> Any:
    """Uploads, and reads what is on the device."""

    def send(x: Any, **wishes: Any) -> Any:
        return downloaded(up.upload(x, own, **wishes), engine)

    return send


def downloaded(y: DeviceArray, engine: Engine) -> Any:
    made = np.empty(y.shape, np.uint16 if y.dtype == BFLOAT16 else y.dtype)
    with engine_copy(engine) as copier:
        copier(made, y.address)
    return made


class engine_copy:  # noqa: N801 - reads as a function
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Any:
        self._copier = self._engine.Copier(0)

        def copy(made: Any, address: int) -> None:
            if made.nbytes:
                lane = self._engine.Lane("d2h", made.ctypes.data, address, made.nbytes, made.nbytes, 1)
                self._copier.drained(lane, 0)

        return copy

    def __exit__(self, *_: object) -> None:
        self._copier.close()


def values_of(dtype: str, count: int = 700) -> Any:
    """Random bits, and the special numbers."""
    random = np.random.default_rng(3)
    kind = np.dtype(dtype)
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool)
    made = random.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)
    if kind.kind == "f":
        made[:9] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, np.finfo(kind).max, np.finfo(kind).tiny]
        made[9:200] = random.normal(size=191) * 100
    return made


def expected(x: Any, after: str) -> Any:
    with np.errstate(all="ignore"):
        if after != BFLOAT16:
            return x.astype(after)
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(x.astype(np.float32)), 0x7FC0, rounded).astype(np.uint16)


def assert_same(found: Any, wanted: Any, after: str) -> None:
    if after == BFLOAT16:
        is_nan = (wanted & 0x7FFF) > 0x7F80
        assert (((found & 0x7FFF) > 0x7F80) == is_nan).all()
        np.testing.assert_array_equal(found[~is_nan], wanted[~is_nan])
        return
    assert found.dtype == wanted.dtype
    if found.dtype.kind == "f":
        is_nan = np.isnan(wanted)
        assert (np.isnan(found) == is_nan).all()
        found, wanted = found[~is_nan], wanted[~is_nan]
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_pair_is_as_numpys(sent: Any, way: str, before: str, after: str) -> None:
    x = values_of(before)
    assert_same(sent(x, dtype=after), expected(x, after), after)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), "f4", float, "float"])
def test_a_dtype_is_given_as_for_numpy(sent: Any, dtype: Any) -> None:
    found = sent(np.arange(5, dtype=np.uint8), dtype=dtype)
    assert found.dtype == np.dtype(dtype)


# --- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("NHWC->NCHW", (2, 5, 7, 3)),
        ("nchw -> nhwc", (2, 3, 5, 7)),
        ("HWC->CHW", (31, 17, 3)),
        ("ab->ba", (40, 33)),
        ("ab->ab", (4, 5)),
        ("a->a", (9,)),
        ("abcdef->fedcba", (2, 3, 2, 3, 2, 3)),
        ("abcdefgh->hgfedcba", (2, 1, 3, 2, 1, 2, 2, 3)),
        ("NHWC->NCHW", (1, 1, 1, 1)),
        ("NHWC->NCHW", (0, 4, 4, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [None, "float32", "uint8"])
def test_a_layout_is_a_transposition(sent: Any, way: str, layout: str, shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    before, _, after = layout.replace(" ", "").partition("->")
    wanted = x.transpose([before.index(axis) for axis in after]).astype(dtype or np.uint8)
    found = sent(x, layout=layout, dtype=dtype)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_permuted_by_the_host(sent: Any, way: str, dtype: str) -> None:
    x = np.random.default_rng(1).normal(size=(30, 8)).view(dtype)
    np.testing.assert_array_equal(sent(x, layout="ab->ba", dtype=dtype), x.T)


def test_a_cast_that_shrinks_and_a_permutation(sent: Any, way: str) -> None:
    x = np.random.default_rng(1).normal(size=(3, 50, 40))
    np.testing.assert_array_equal(sent(x, dtype="float16", layout="abc->cab"), x.transpose(2, 0, 1).astype(np.float16))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arrays_that_are_not_contiguous(sent: Any, way: str, dtype: str) -> None:
    x = np.random.default_rng(1).normal(size=(40, 60)).astype(np.float32)
    for part in (x[::2, ::-3], x.T, x[:, :1], x[3:3], np.broadcast_to(x[0], (7, 60)), x[0, 0]):
        np.testing.assert_array_equal(sent(part, dtype=dtype), part.astype(dtype))
        if part.ndim == 2:
            np.testing.assert_array_equal(sent(part, dtype=dtype, layout="ab->ba"), part.T.astype(dtype))


def test_the_same_dtype_and_no_layout_only_copy(up: Uploader, own: Target, engine: Engine) -> None:
    x = np.arange(10, dtype=np.float32)
    assert up._converter.plan(source_of(x), Wanted(x.dtype, None), mover(up))[1].conversion is None
    np.testing.assert_array_equal(downloaded(up.upload(x, own, dtype="float32"), engine), x)


def test_large_arrays_in_pieces(own: Target, engine: Engine) -> None:
    x = np.random.default_rng(1).integers(0, 256, 40_000, np.uint8)
    with Uploader("host", threads=3, chunk_bytes=4096, slots=4) as made:
        made._converter.has_kernels = True
        made._converter.max_on_host_bytes = 0
        for dtype in ("float32", "uint16"):
            np.testing.assert_array_equal(downloaded(made.upload(x, own, dtype=dtype), engine), x.astype(dtype))


# --- structures ------------------------------------------------------------------------------------------------------


IMAGES = np.arange(60, dtype=np.uint8).reshape(1, 4, 5, 3)
LABELS = np.arange(3, dtype=np.int64)


@pytest.mark.parametrize(
    ("batch", "wishes"),
    [
        ((IMAGES, LABELS), {"dtype": ("float32", None), "layout": ("NHWC->NCHW", None)}),
        ([IMAGES, LABELS], {"dtype": ["float32", None], "layout": ["NHWC->NCHW", None]}),
        (Pair(IMAGES, LABELS), {"dtype": ("float32", None), "layout": ("NHWC->NCHW", None)}),
        (
            {"images": IMAGES, "labels": LABELS},
            {
                "dtype": {"labels": None, "images": "float32"},
                "layout": {"images": "NHWC->NCHW", "labels": None},
            },
        ),
        (
            Batch(IMAGES, LABELS),
            {"dtype": {"images": "float32", "labels": None}, "layout": ("NHWC->NCHW", None)},
        ),
        (Batch(IMAGES, LABELS), {"dtype": Batch("float32", None), "layout": Batch("NHWC->NCHW", None)}),
        (Pair(IMAGES, LABELS), {"dtype": {"images": "float32", "labels": None}, "layout": Pair("NHWC->NCHW", None)}),
        (
            {"one": (IMAGES,), "two": LABELS},
            {"dtype": {"one": "float32", "two": None}, "layout": (("NHWC->NCHW",), None)},
        ),
    ],
)
@pytest.mark.parametrize("block", [True, False])
def test_each_array_of_a_structure(
    up: Uploader, own: Target, engine: Engine, way: str, batch: Any, wishes: Any, block: bool
) -> None:
    made = up.upload(batch, own, block, **wishes)
    result = made if block else made.result(60)
    assert type(result) is type(batch)
    images, labels = [downloaded(y, engine) for y in leaves(result)]
    np.testing.assert_array_equal(images, IMAGES.transpose(0, 3, 1, 2).astype(np.float32))
    np.testing.assert_array_equal(labels, LABELS)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)


def leaves(tree: Any) -> Iterator[DeviceArray]:
    if isinstance(tree, DeviceArray):
        yield tree
        return
    below = tree.values() if isinstance(tree, dict) else vars(tree).values() if isinstance(tree, Batch) else tree
    for each in below:
        yield from leaves(each)


def test_one_dtype_is_for_all_arrays(up: Uploader, own: Target) -> None:
    made = up.upload([IMAGES, LABELS, 7, "text", None], own, dtype="float32")
    assert [y.dtype for y in made[:2]] == [np.float32, np.float32]
    assert made[2:] == [7, "text", None]


def test_batches_of_a_prefetch(up: Uploader, own: Target, engine: Engine, way: str) -> None:
    batches = [(IMAGES + i, LABELS) for i in range(4)]
    with up.prefetch(iter(batches), own, dtype=("bfloat16", None), layout=("NHWC->NCHW", None)) as made:
        found = [downloaded(images, engine) for images, _ in made]
    for i, images in enumerate(found):
        wanted = expected((IMAGES + i).transpose(0, 3, 1, 2), BFLOAT16)
        np.testing.assert_array_equal(images, wanted)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "wishes"),
    [
        (np.zeros(3, np.float32), {"dtype": "int32"}),
        (np.zeros(3, np.complex64), {"dtype": "float32"}),
        (np.zeros(3, np.float32), {"dtype": "complex64"}),
        (np.zeros(3, np.float32), {"dtype": "float33"}),
        (np.zeros(3, np.float32), {"dtype": "longdouble"}),
        (np.zeros(3, np.float32), {"dtype": ">f4"}),
        (np.zeros(3, np.float32), {"dtype": object}),
        (np.zeros(3, np.float32), {"dtype": "U3"}),
        (np.zeros(3, np.float32), {"dtype": 7}),
        (np.zeros(3, np.float32), {"dtype": ("float16",)}),
        (np.zeros((2, 3), np.float32), {"layout": "abc->cba"}),
        (np.zeros((2, 3), np.float32), {"layout": "ab"}),
        (np.zeros((2, 3), np.float32), {"layout": "ab->ac"}),
        (np.zeros((2, 3), np.float32), {"layout": "aa->aa"}),
        (np.zeros((2, 3), np.float32), {"layout": "12->21"}),
        (np.zeros((2, 3), np.float32), {"layout": "->"}),
        (np.zeros((2, 3), np.float32), {"layout": (1, 0)}),
        (np.zeros((2, 3), np.float32), {"layout": 5}),
        ([np.zeros(3, np.float32)] * 2, {"dtype": ["float16"]}),
        ([np.zeros(3, np.float32)] * 2, {"dtype": []}),
        ([np.zeros(3, np.float32)] * 2, {"dtype": {"a": "float16", "b": None}}),
        ({"a": np.zeros(3, np.float32)}, {"dtype": {"b": "float16"}}),
        ([np.zeros(3, np.float32), np.zeros(3, np.float32)], {"dtype": ["float16", "int8"]}),
        (np.zeros(3, np.float32), {"dtype": np.dtype(">f4")}),
        (np.zeros(3, np.float32), {"dtype": np.dtype([("a", "f4")])}),
        (np.zeros(3, np.float32), {"dtype": np.zeros((2, 2))}),
        (np.zeros(3, np.float32), {"dtype": "(2,3"}),
        (np.zeros(3, np.float32), {"dtype": "\ud800"}),
        (np.zeros(3, np.float32), {"dtype": range(3)}),
        (np.zeros(3, np.float32), {"dtype": Batch("float32", None)}),
        (Pair(np.zeros(3), np.zeros(3)), {"dtype": {"images": "float32", "others": None}}),
    ],
)
@pytest.mark.parametrize("block", [True, False])
def test_a_wish_that_does_not_fit(up: Uploader, own: Target, x: Any, wishes: Any, block: bool) -> None:
    with pytest.raises(UsageError) as caught:
        up.upload(x, own, block, **wishes)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("wishes", [{"dtype": "float33"}, {"layout": "ab"}, {"dtype": ("float32", {"a": 7})}])
def test_a_prefetch_refuses_at_the_call_what_no_array_can_get(up: Uploader, own: Target, wishes: Any) -> None:
    with pytest.raises(UsageError):
        up.prefetch([LABELS], own, **wishes)


def test_a_framework_without_the_dtype_is_named(up: Uploader, own: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Target, dtype: Any) -> None:
        if dtype == np.float64:
            raise own.no_dtype(dtype, "call jax_enable_x64")

    monkeypatch.setattr(Target, "require_dtype", refuse)
    monkeypatch.setattr(Target, "title", "JAX", raising=False)
    with pytest.raises(UsageError, match="JAX has no float64 without jax_enable_x64"):
        up.upload(LABELS, own, dtype="float64")


def test_a_refused_array_is_named(up: Uploader, own: Target) -> None:
    with pytest.raises(UsageError, match=r"^x\[1\]: "):
        up.upload([LABELS, np.zeros(3, np.float32)], own, dtype="int8")


# --- trouble ---------------------------------------------------------------------------------------------------------


def test_without_kernels_the_host_converts(up: Uploader, own: Target, engine: Engine, sent: Any) -> None:
    up._converter.has_kernels = True
    up._converter.max_on_host_bytes = 0
    testing.fail("cuModuleLoadData", 1, 222)  # cudaErrorUnsupportedPtxVersion
    x = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    np.testing.assert_array_equal(sent(x, dtype="float64", layout="abc->cab"), x.transpose(2, 0, 1).astype(float))
    assert not up._converter.has_kernels


@pytest.mark.parametrize(("before", "advises_real"), [("complex64", True), ("uint8", False)])
def test_the_advice_for_complex_numbers_fits_the_source(up: Uploader, before: str, advises_real: bool) -> None:
    with pytest.raises(UsageError) as raised:
        up.upload(np.zeros(4, before), Target(up._pool), dtype="float32" if advises_real else "complex64")
    assert ("x.real" in str(raised.value)) == advises_real


def test_scratch_memory_is_used_again_and_a_larger_block_serves(engine: Engine) -> None:
    pool = ScratchPool(engine, 0)
    first = pool.lend(10_000)
    address = first.address
    other = pool.lend(100)
    assert other.address != address
    del first
    again = pool.lend(5_000)
    assert again.address == address
    del again, other
    pool.close()


@pytest.mark.parametrize(("max_bytes", "kept"), [(None, 2), (20_000, 1), (0, 0)])
def test_two_blocks_of_scratch_memory_are_kept_at_most(engine: Engine, max_bytes: int | None, kept: int) -> None:
    pool = ScratchPool(engine, 0, max_bytes)
    lent = [pool.lend(12_000) for _ in range(4)]
    lent.clear()
    assert len(testing.allocated()) == kept
    late = pool.lend(12_000)
    pool.close()
    assert len(testing.allocated()) == 1
    del late
    assert not testing.allocated()


def test_a_failed_kernel_is_reported_and_leaks_nothing(up: Uploader, own: Target, engine: Engine, sent: Any) -> None:
    up._converter.has_kernels = True
    up._converter.max_on_host_bytes = 0
    x = np.arange(9000, dtype=np.uint8)
    sent(x, dtype="float32")
    testing.fail("cuLaunchKernel", 1, 801)
    with pytest.raises(CudaError):
        up.upload(x, own, dtype="float32")
    np.testing.assert_array_equal(sent(x, dtype="float32"), x.astype(np.float32))


def test_without_a_ring_the_driver_copies_what_the_host_converted(own: Target, engine: Engine) -> None:
    mover = PlainMover(engine, 0)
    x = np.arange(60, dtype=np.float64).reshape(4, 5, 3)
    wanted = Wanted(np.dtype("float32"), ("abc", "cab"))
    made = Converter(engine, 0, None).upload(mover, own, [x], 0, wanted)
    np.testing.assert_array_equal(downloaded(made, engine), x.transpose(2, 0, 1).astype(np.float32))
    start, finish, _ = Converter(engine, 0, None).prepared(mover, own, [x], 0, wanted)
    assert start(None).done()
    np.testing.assert_array_equal(downloaded(finish(), engine), x.transpose(2, 0, 1).astype(np.float32))
    mover.close()


# --- where ------------------------------------------------------------------------------------------------------------


def mover(up: Uploader) -> Any:
    with up._usable_mover() as found:
        return found


@pytest.mark.parametrize(
    ("before", "after", "layout", "on_host", "has_kernel"),
    [
        ("float64", "float32", None, True, False),
        ("uint8", "float32", None, False, True),
        ("float32", "float32", "ab->ba", False, True),
        ("float64", "float16", "ab->ba", True, True),
        ("int32", "float32", None, False, True),
    ],
)
def test_small_arrays_cross_in_the_smaller_type(
    up: Uploader,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    layout: str | None,
    on_host: bool,
    has_kernel: bool,
) -> None:
    up._converter.has_kernels = True
    up._converter.max_on_host_bytes = 0
    monkeypatch.setattr(Converter, "_measured", lambda *_: True)
    wanted = wanted_by(np.zeros((4, 5)), after, layout)
    assert wanted is not None
    assert wanted[0] is not None
    _, plan = up._converter.plan(source_of(np.zeros((4, 5), before)), wanted[0], mover(up))
    assert plan.conversion is not None
    assert (plan.conversion.casts_on_host, plan.conversion.has_kernel) == (on_host, has_kernel)
    smaller = min(np.dtype(before).itemsize, np.dtype(after).itemsize)
    assert plan.conversion.crossing_bytes(20 * np.dtype(before).itemsize) == 20 * smaller


@pytest.mark.parametrize("host_is_faster", [True, False])
def test_large_arrays_go_the_way_that_was_faster(
    up: Uploader, monkeypatch: pytest.MonkeyPatch, host_is_faster: bool
) -> None:
    up._converter.has_kernels = True
    up._converter.max_on_host_bytes = 0
    measured: list[Any] = []

    def measure(_: Converter, *given: Any) -> bool:
        measured.append(given)
        return host_is_faster

    monkeypatch.setattr(Converter, "_measured", measure)
    large = source_of(np.zeros(1 << 20))
    for _ in range(3):
        _, plan = up._converter.plan(large, Wanted(np.dtype("float32"), None), mover(up))
        assert plan.conversion is not None
        assert plan.conversion.casts_on_host == host_is_faster
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("nbytes", "trial"),
    [
        (8, 256 << 10),
        (256 << 10, 256 << 10),
        ((256 << 10) + 8, 1 << 20),
        (4 << 20, 4 << 20),
        ((4 << 20) + 8, 16 << 20),
        (32 << 20, 16 << 20),
    ],
)
def test_a_trial_has_the_next_larger_of_four_sizes(
    up: Uploader, monkeypatch: pytest.MonkeyPatch, nbytes: int, trial: int
) -> None:
    up._converter.has_kernels = True
    up._converter.max_on_host_bytes = 0
    measured: list[int] = []

    def measure(*given: Any) -> bool:
        measured.append(given[-1])
        return True

    monkeypatch.setattr(Converter, "_measured", measure)
    x = np.broadcast_to(np.float64(0), nbytes // 8)
    up._converter.plan(source_of(x), Wanted(np.dtype("float32"), None), mover(up))
    assert measured == [trial]


@pytest.mark.parametrize("wishes", [{"dtype": "float32"}, {"layout": "HW->WH"}])
@pytest.mark.parametrize("in_list", [True, False])
def test_an_upload_to_memory_without_a_stream_returns_what_has_arrived(
    up: Uploader, own: Target, wishes: Any, in_list: bool
) -> None:
    x = np.random.default_rng(3).integers(1, 256, (1 << 10, 3 << 10), np.uint8)
    up._converter.max_on_host_bytes = 0
    up.upload(x, own, **wishes)  # makes what a first upload needs
    testing.stall("cudaMemcpyAsync", 1, 0.2)
    y = up.upload([x] if in_list else x, own, **wishes)
    arrived = np.from_dlpack(y[0] if in_list else y).copy()
    np.testing.assert_array_equal(arrived, x.astype("float32") if "dtype" in wishes else x.T)


def test_without_memory_for_a_trial_the_host_casts(
    up: Uploader, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise CudaMemoryError(2, "cudaErrorMemoryAllocation", "cudaMalloc", "here", "out of memory", "wait")

    monkeypatch.setattr(engine, "DeviceBuffer", refuse)
    assert up._converter._measured(mover(up), np.dtype("float64"), np.dtype("float32"), 1 << 20)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 4), (2, 3, 4, 5)])
def test_an_order_has_few_axes_and_is_numpys(shape: tuple[int, ...]) -> None:
    x = np.arange(math.prod(shape)).reshape(shape)
    for axes in itertools.permutations(range(len(shape))):
        extents, strides = _order(shape, axes)
        found = np.empty(x.size, x.dtype)
        if extents:
            places = sum(np.ix_(*[np.arange(n) * s for n, s in zip(extents, strides, strict=True)]), np.array(0))
            found[np.ravel(places)] = x.ravel()
        else:
            found = x.ravel()
        np.testing.assert_array_equal(found.reshape([shape[axis] for axis in axes]), x.transpose(axes))
