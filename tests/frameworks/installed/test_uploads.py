"""Uploads to installed frameworks on the CPU, and downloads: contents, dtypes and memory ownership."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import import_or_skip
from upload.memories import Capsuled

import pyxfer
from pyxfer._document.runs import FrameworkName
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.pools import block_bytes
from pyxfer._upload.targets import Jax, Tensorflow, Torch
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaMemoryError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("own_uploaders")]
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
DTYPES = list("?bBhHiIlLefdFD")
NARROWED = list("lLdD")
SHAPES = [(), (0, 3), (1, 1), (3, 4), (7,)]
BITS = np.array([0x3F80, 0x4000, 0x4040], np.uint16)  # 1.0, 2.0 and 3.0 as bfloat16


@pytest.fixture
def up(engine: Engine) -> Iterator[Uploader]:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=3, chunk_bytes=4096, slots=2, pool=0) as made:
        yield made


def on_device() -> int:
    return sum(nbytes for kind, _, nbytes in testing.allocated() if kind == "device")


def values(dtype: str, shape: tuple[int, ...] = (3, 5)) -> NDArray[Any]:
    found = np.random.default_rng(0).integers(0, 2 if dtype == "?" else 100, shape)
    return np.asarray(found).astype(dtype)


@pytest.mark.parametrize("block", [True, False])
def test_an_array_is_uploaded_and_downloaded(up: Uploader, framework: FrameworkName, block: bool) -> None:
    array = np.random.default_rng(1).random((64, 300), np.float32)[::2, ::-1]
    sent = up.upload({"x": array}, framework, block)
    y = (sent if block else sent.result())["x"]
    assert type(y).__module__.partition(".")[0] in {framework, "jaxlib"}
    assert np.array_equal(np.asarray(y), array)
    assert np.array_equal(up.download(y), array)


def test_every_dtype_is_preserved(up: Uploader, framework: FrameworkName) -> None:
    for dtype in DTYPES if framework != "jax" else sorted(set(DTYPES) - set(NARROWED)):
        array = values(dtype)
        y = up.upload(array, framework)
        back = up.download(y)
        assert (back.dtype, np.asarray(y).dtype) == (array.dtype, array.dtype)
        assert np.array_equal(back, array)


def test_any_shape_is_sent(up: Uploader, framework: FrameworkName) -> None:
    for shape in SHAPES:
        array = values("f", shape)
        y = up.upload(array, framework)
        assert tuple(y.shape) == shape
        assert np.array_equal(up.download(y), array)


def test_bfloat16_is_preserved_in_every_framework(up: Uploader, framework: FrameworkName) -> None:
    y = up.upload(Capsuled(BITS, code=4), framework)
    assert "bfloat16" in str(y.dtype)
    out = np.zeros(3, np.uint16)
    up.download(y, Capsuled(out, code=4))
    assert np.array_equal(out, BITS)


def test_jax_without_64_bits_refuses_what_it_would_narrow(up: Uploader, jax: Any) -> None:
    assert not jax.config.jax_enable_x64
    for dtype in NARROWED:
        why = rf"^x: JAX has no {np.dtype(dtype).name}: .*jax_enable_x64"
        with pytest.raises(UsageError, match=why):
            up.upload(values(dtype), "jax")
    assert on_device() == 0


def test_jax_with_64_bits_takes_them(up: Uploader, jax: Any) -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        y = up.upload(values("d"), "jax")
        assert y.dtype == np.float64
        assert np.array_equal(np.asarray(y), values("d"))
    finally:
        jax.config.update("jax_enable_x64", False)


def test_jax_takes_memory_as_by_from_dlpack(up: Uploader, jax: Any) -> None:
    target: Any = up._target("jax")

    def refuse(*_: Any) -> Any:
        raise TypeError

    made = []
    for take in (target._take, refuse):
        target._take = take
        made.append(up.upload(VALUES, "jax"))
        assert np.array_equal(made[-1], VALUES)
    assert target._take is None  # and that of this version was not refused
    short, long = made
    assert type(short) is type(long)
    assert (short.dtype, short.weak_type, short.committed) == (long.dtype, long.weak_type, long.committed)
    assert (short.sharding, short.format) == (long.sharding, long.format)
    assert float(jax.jit(lambda a, b: (a + b).sum())(short, long)) == 2 * VALUES.sum()


@pytest.mark.parametrize("shape", [(128,), (2, 128), (4, 4, 4), (5,), (3, 5), (), (0, 3)])
def test_small_tensors_of_torch_are_no_views(up: Uploader, torch: Any, shape: tuple[int, ...]) -> None:
    arrays = [np.full(shape, n, np.float32) for n in range(5)]
    first, second, third, *others = up.upload(arrays, "torch")
    for y, x in zip([first, second, third, *others], arrays, strict=True):
        assert (tuple(y.shape), y.is_contiguous(), y._is_view()) == (shape, True, False)
        assert np.array_equal(y.numpy(), x)
    weight = torch.ones(shape, requires_grad=True)
    product = (weight * second).sum()
    third.add_(1)  # in the block of `second`, which backward needs
    assert (second._version, third._version) == (0, 1)
    product.backward()
    first.requires_grad_()
    assert np.array_equal(weight.grad.numpy(), arrays[1])


def test_a_tensor_of_torch_can_be_written_to(up: Uploader, torch: Any) -> None:
    y = up.upload(VALUES, "torch")
    y += 1
    assert torch.equal(y, torch.from_numpy(VALUES + 1))


def test_memory_is_freed_with_the_frameworks_array(up: Uploader, framework: FrameworkName) -> None:
    y = up.upload(VALUES, framework)
    assert on_device() == block_bytes(VALUES.nbytes)
    other = y[1:] * 2
    assert np.array_equal(np.asarray(other), VALUES[1:] * 2)
    del y, other
    gc.collect()
    assert on_device() == 0


def test_a_tensor_of_tensorflow_can_be_worked_with_on_the_cpu(up: Uploader, tensorflow: Any) -> None:
    y = up.upload(np.arange(1000, dtype=np.uint8)[::3], "tensorflow")
    assert float(tensorflow.reduce_sum(tensorflow.cast(y, tensorflow.float32))) == float(
        np.arange(1000, dtype=np.uint8)[::3].sum()
    )


def test_a_torch_tensor_of_any_layout_is_downloaded(up: Uploader, torch: Any) -> None:
    y = up.upload(VALUES, "torch").requires_grad_().permute(2, 0, 1)[::2]
    assert np.array_equal(up.download(y), VALUES.transpose(2, 0, 1)[::2])
    assert np.array_equal(up.download(torch.nn.Parameter(up.upload(VALUES, "torch"))), VALUES)
    turned = torch.from_numpy(np.array([1 + 2j, 3 - 1j])).conj()
    assert np.array_equal(up.download(turned), np.array([1 - 2j, 3 + 1j]))


def test_only_a_plain_torch_tensor_is_read_without_a_capsule(up: Uploader, torch: Any) -> None:
    target: Any = up._target("torch")
    y = up.upload(VALUES, "torch")
    assert target.plain(y) == target.plain(torch.nn.Parameter(y)) == (y.data_ptr(), VALUES.shape, VALUES.dtype)
    assert target.plain(y[1:].to(torch.bfloat16))[1:] == ((1, 3, 4), "bfloat16")
    assert target.plain(torch.empty(0, 3))[1:] == ((0, 3), np.float32)

    class Subclass(torch.Tensor):  # type: ignore[misc]
        pass

    pairs = torch.zeros(3, dtype=torch.complex64)
    others = [
        y.mT,
        y[:, ::2],
        y.as_subclass(Subclass),
        y.to("meta"),
        y.to(torch.float8_e4m3fn),
        torch.eye(3).to_sparse(),
    ]
    others += [pairs.conj(), pairs.conj().imag, torch.nested.nested_tensor([y[0], y[1]])]

    def see(part: Any) -> Any:
        others.append(part)
        return part

    torch.func.vmap(see)(y)
    assert [target.plain(other) for other in others] == [None] * 10


def test_results_are_used_again(up: Uploader, framework: FrameworkName) -> None:
    sources = [np.full((300, 300), seed, np.float32) for seed in range(3)]
    sent = [up.upload(source, framework) for source in sources]
    kept = up.download(sent[0])
    places = set()
    for turn in range(12):
        back = up.download(sent[turn % 3])
        assert np.array_equal(back, sources[turn % 3])
        places.add(back.ctypes.data)
    assert len(places) == 2
    assert np.array_equal(kept, sources[0])


def test_the_current_value_of_a_tensorflow_variable_is_downloaded(up: Uploader, tensorflow: Any) -> None:
    variable = tensorflow.Variable(up.upload(VALUES, "tensorflow"))
    variable.assign_add(tensorflow.ones_like(variable))
    assert np.array_equal(up.download(variable), VALUES + 1)


def test_a_download_goes_into_a_tensor(up: Uploader, torch: Any) -> None:
    out = torch.zeros(4, 3, 2)
    assert up.download(up.upload(VALUES.T, "torch"), out) is out
    assert np.array_equal(out.numpy(), VALUES.T)


def test_an_unsupported_dtype_is_not_downloaded(up: Uploader, torch: Any) -> None:
    with pytest.raises(UsageError, match=r"items of torch\.float8_e4m3fn cannot be downloaded"):
        up.download(torch.zeros(3, dtype=torch.float8_e4m3fn))


class OnGpu:
    """A tensor that says that it is on a GPU."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return "/job:localhost/device:GPU:0" if name == "device" else getattr(self.tensor, name)


def test_tensorflow_fetches_small_tensors_itself(up: Uploader, tensorflow: Any) -> None:
    up.upload(VALUES, "tensorflow")
    fetched = up._targets["tensorflow"].fetched
    tensor = tensorflow.constant([1.0, 2.0])
    made = fetched(OnGpu(tensor), 8)
    assert made is not None
    made[:] = 5  # a copy
    assert tensor.numpy().tolist() == [1.0, 2.0]
    assert fetched(OnGpu(tensor), 7) is None
    assert fetched(tensor, 8) is None
    for other in (
        tensorflow.constant(["text"]),
        tensorflow.constant([1.0], tensorflow.bfloat16),
        tensorflow.Variable([1.0]),
    ):
        assert fetched(OnGpu(other), 1 << 20) is None


def test_a_tensor_of_text_is_not_downloaded(up: Uploader, tensorflow: Any) -> None:
    with pytest.raises(UsageError, match=r"^a tensor of string does not hold numbers: use it as it is$"):
        up.download(tensorflow.constant(["text"]))


def test_an_array_that_cannot_be_exported_is_refused_with_the_reason(up: Uploader, torch: Any) -> None:
    with pytest.raises(UsageError, match=r"^this torch\.Tensor cannot be exported by DLPack: \w+"):
        up.download(torch.eye(3).to_sparse())


def test_an_error_of_the_device_leaves_nothing(up: Uploader, framework: FrameworkName) -> None:
    before = on_device()
    testing.fail("cudaMemcpyAsync", 1, 1)
    with pytest.raises(RuntimeError, match="cudaMemcpyAsync"):
        up.upload(np.zeros(2 << 20, np.uint8), framework)  # more than goes past the ring
    gc.collect()
    assert on_device() == before
    assert np.array_equal(np.asarray(up.upload(VALUES, framework)), VALUES)


@pytest.mark.parametrize(
    ("name", "advice"), [("tensorflow", "set_memory_growth"), ("jax", "XLA_PYTHON_CLIENT_PREALLOCATE=false")]
)
def test_memory_that_a_framework_allocated_is_distinguished(up: Uploader, name: FrameworkName, advice: str) -> None:
    import_or_skip(name)
    testing.fail("cudaMalloc", 1, 2)
    with pytest.raises(CudaMemoryError, match=advice):
        up.upload(VALUES, name)


@pytest.mark.threads
def test_results_may_be_dropped_in_other_threads(up: Uploader, framework: FrameworkName) -> None:
    def use() -> None:
        for _ in range(20):
            right.append(np.array_equal(np.asarray(up.upload(VALUES, framework)), VALUES))

    right: list[bool] = []
    threads = [threading.Thread(target=use) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    gc.collect()
    assert right == [True] * 60
    assert on_device() == 0


@pytest.mark.parametrize("kind", [Torch, Tensorflow, Jax])
def test_an_uploader_for_a_gpu_refuses_a_framework_without_one(kind: Any) -> None:
    import_or_skip(kind.module)

    cuda: Any = SimpleNamespace(RUNTIME="cuda")

    with pytest.raises(UsageError, match=r"(has|sees) no GPU"):
        kind(DevicePool(cuda, 0))


def test_prefetched_batches_arrive_in_order(framework: FrameworkName) -> None:
    batches = ((VALUES + n, np.arange(3, dtype=np.int32) * n) for n in range(9))
    for n, (images, labels) in enumerate(pyxfer.prefetch(batches, to=framework, device="host")):
        assert np.array_equal(np.asarray(images), VALUES + n)
        assert np.array_equal(np.asarray(labels), np.arange(3) * n)


def test_a_page_locked_array_is_imported_without_a_copy(framework: FrameworkName) -> None:
    x = pyxfer.empty_pinned((64, 32), np.float32, device="host")
    x[...] = 3
    module: Any = import_or_skip(framework)
    take = {"torch": "from_dlpack", "tensorflow": "experimental.dlpack.from_dlpack", "jax": "dlpack.from_dlpack"}
    for name in take[framework].split("."):
        module = getattr(module, name)
    tensor = module(x.__dlpack__() if framework == "tensorflow" else x)
    x[0, 0] = 7
    assert float(np.asarray(tensor)[0, 0]) == 7.0


def test_memory_of_dropped_arrays_is_reused(framework: FrameworkName) -> None:
    with pyxfer.Uploader("host", threads=2) as up:
        for n in range(20):
            array = np.random.default_rng(n).random((300, 300), np.float32)
            y = up.upload(array, framework)
            assert np.array_equal(np.asarray(y), array)
            del y
        gc.collect()
        assert testing.calls()["cudaMalloc"] <= 2
        assert 0 < up._pool.idle_bytes <= 2 * block_bytes(300 * 300 * 4)


def test_a_batch_that_a_loop_keeps_is_not_overwritten(framework: FrameworkName) -> None:
    batches = (np.full((64, 64), n, np.float32) for n in range(30))
    kept = [batch for n, batch in enumerate(pyxfer.prefetch(batches, to=framework, device="host")) if n % 3 == 0]
    assert [float(np.asarray(each).max()) for each in kept] == [float(n) for n in range(0, 30, 3)]
