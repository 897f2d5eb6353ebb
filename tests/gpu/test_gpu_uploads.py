"""Uploads on a GPU, page-locked arrays, and tuning."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import import_or_skip

from pyxfer._document.runs import FrameworkName
from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.pinning import pin
from pyxfer._upload.settings import usable_cpus
from pyxfer._upload.targets import Target
from pyxfer._upload.tuning import LIMIT_S, settings_for
from pyxfer._upload.tuning_search import tune
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import UsageError
from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
DTYPES = "?bBhHiIefF"
SIZES = (1, 4096, 65537, (24 << 20) + 13)


@pytest.fixture
def up(gpu_engine: Engine) -> Iterator[Uploader]:
    assert gpu_engine.RUNTIME == "cuda"
    with Uploader(0, threads=2, chunk_bytes=1 << 20, slots=3, require_gpu=True) as made:
        yield made


def filled(nbytes: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("nbytes", SIZES)
def test_an_array_arrives_and_comes_back(up: Uploader, framework: FrameworkName, nbytes: int, block: bool) -> None:
    array = filled(nbytes)
    sent = up.upload(array, framework, block)
    y = sent if block else sent.result()
    assert np.array_equal(up.download(y), array)


def test_every_dtype_and_layout_arrives(up: Uploader, framework: FrameworkName) -> None:
    for dtype in DTYPES:
        array = np.random.default_rng(1).integers(0, 2, (30, 7, 50)).astype(dtype).transpose(2, 0, 1)[::-3, :, 1:]
        back = up.download(up.upload(array, framework))
        assert back.dtype == array.dtype
        assert np.array_equal(back, array)


def test_an_array_of_cupy_is_downloaded_in_any_layout_after_the_work_of_its_stream(up: Uploader, cupy: Any) -> None:
    x = np.random.default_rng(6).random((512, 700), np.float32)
    with cupy.cuda.Stream(non_blocking=True):
        y = up.upload(x, "cupy")
        for _ in range(200):
            y += 1
        expected = x.copy()
        for _ in range(200):
            expected += 1
        assert np.array_equal(up.download(y), expected)
        assert np.array_equal(up.download(y.T), expected.T)
        assert np.array_equal(up.download(y[::2, 3:]), expected[::2, 3:])
        assert up.download(y[:0]).shape == (0, 700)


def test_the_framework_itself_sees_the_contents(up: Uploader, framework: FrameworkName) -> None:
    array = filled(1 << 20, 2)
    y = up.upload(array, framework)
    seen = y.cpu().numpy() if framework == "torch" else y.get() if framework == "cupy" else np.asarray(y)
    assert np.array_equal(seen, array)


def test_a_source_may_be_changed_after_an_upload(up: Uploader, framework: FrameworkName) -> None:
    array = filled(24 << 20, 3)
    contents = array.copy()
    y = up.upload(array, framework)
    array[:] = 0
    assert np.array_equal(up.download(y), contents)


def test_arrays_in_pyxfers_memory_release_it(up: Uploader, gpu_engine: Engine) -> None:
    own = Target(DevicePool(gpu_engine, 0, 0))
    up.upload(filled(16), own)
    before, _ = gpu_engine.memory_info(0)
    for seed in range(20):
        array = filled(8 << 20, seed)
        assert np.array_equal(up.download(up.upload(array, own)), array)
    gc.collect()
    assert gpu_engine.memory_info(0)[0] >= before - (32 << 20)  # the allowance for kept blocks


def test_a_device_array_accepts_the_stream_numbers_of_dlpack(gpu_engine: Engine) -> None:
    y = DeviceArray(DevicePool(gpu_engine, 0, 0), (3, 4), np.dtype("f4"))
    assert (y.__dlpack_device__(), y.address % 64) == ((2, 0), 0)
    for stream in (None, -1, 1, 2, 1 << 40):
        y.__dlpack__(stream=stream)


def test_an_upload_waits_for_a_busy_stream_of_torch(up: Uploader, torch: Any) -> None:
    array = filled(24 << 20, 4)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            torch.cuda._sleep(2_000_000)
            scratch = torch.full((24 << 20,), 7, dtype=torch.uint8, device="cuda")
            del scratch  # the upload gets its memory, which is still being written
            doubled = up.upload(array, "torch") ^ 0xFF
            assert np.array_equal(doubled.cpu().numpy(), ~array)


NBYTES = 4 << 20


def is_locked(x: Any) -> bool:
    torch: Any = import_or_skip("torch")
    torch.cuda.init()  # before this call PyTorch reports all memory as not pinned
    return bool(torch.from_numpy(x).is_pinned())


@pytest.mark.parametrize("offset", [0, 1, 64, 5000])
def test_an_array_at_any_offset_is_locked_until_its_last_view_is_gone(gpu_engine: Engine, offset: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, NBYTES + 5000, np.uint8)[offset : offset + NBYTES]
    y = pin(gpu_engine, x)
    assert is_locked(y)
    view = y[1:]
    del y
    assert is_locked(view)
    del view
    assert not is_locked(x)
    assert is_locked(pin(gpu_engine, x))


def test_an_array_on_the_same_page_is_locked_or_refused(gpu_engine: Engine, torch: Any) -> None:
    both = np.random.default_rng(2).integers(0, 256, 3000, np.uint8)
    contents = both.copy()
    left = pin(gpu_engine, both[:1000])
    try:
        right = pin(gpu_engine, both[1000:])
    except UsageError as error:
        assert "empty_pinned" in str(error)  # noqa: PT017
        right = both[1000:]
    for part, expected in ((left, contents[:1000]), (right, contents[1000:])):
        assert np.array_equal(torch.from_numpy(part).to("cuda").cpu().numpy(), expected)


def test_an_array_that_overlaps_locked_memory_is_refused(gpu_engine: Engine) -> None:
    x = np.zeros(NBYTES, np.uint8)
    y = pin(gpu_engine, x[4096:-4096])
    with pytest.raises(UsageError, match="cannot be page-locked"):
        pin(gpu_engine, x)
    assert is_locked(y)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_of_a_file_is_locked_or_refused(gpu_engine: Engine, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(os.urandom(NBYTES))
    mapped = np.memmap(path, np.uint8, mode)  # type: ignore[call-overload]
    try:
        y = pin(gpu_engine, mapped)
    except UsageError as error:
        assert "memory of files" in str(error)  # noqa: PT017
    else:
        assert is_locked(y)


def test_the_tuned_ring_beats_plain_copies_in_both_directions(gpu_engine: Engine) -> None:
    if usable_cpus() < 4:
        pytest.skip("a ring of three threads may be slower than plain copies")
    tuned = tune(gpu_engine, 0, limit_s=LIMIT_S)
    plain = {(rate.direction, rate.nbytes): rate.gbps for rate in tuned.plain}
    slower = [rate for rate in tuned.rates if rate.gbps < plain[rate.direction, rate.nbytes]]
    assert len(tuned.rates) == 6
    assert slower == []


def test_the_first_use_takes_under_two_seconds_and_the_second_under_100_ms(gpu_engine: Engine, tmp_path: Path) -> None:
    gpu_engine.synchronize(0)
    environ = {"PYXFER_CACHE": str(tmp_path)}
    took_s = []
    for _ in range(2):
        began_s = time.perf_counter()
        chosen = settings_for(gpu_engine, 0, environ=environ)
        took_s.append(time.perf_counter() - began_s)
    assert chosen.source == "cached"
    assert took_s[0] < 2.0
    assert took_s[1] < 0.1


SMALL = (1, 100, 4096, 64 << 10, 200_000, 256 << 10, 700_001)


def test_small_arrays_arrive_on_the_frameworks_stream(up: Uploader, framework: FrameworkName) -> None:
    up.upload(filled(1), framework)
    for seed, nbytes in enumerate(SMALL * 3):
        array = filled(nbytes, seed)
        expected = array.copy()
        y = up.upload(array, framework)
        array[:] = 0
        assert np.array_equal(up.download(y), expected)


def test_small_sources_of_every_kind_arrive(up: Uploader, framework: FrameworkName) -> None:
    locked = pin(up.engine, filled(5000))
    for dtype in DTYPES:
        x = np.random.default_rng(3).integers(0, 2, (20, 30)).astype(dtype)
        for source in (x, x.T, x[::-2, 3:], x[4], x[2:5][1], x[0, 0], x[:0], x.tobytes()):
            back = up.download(up.upload(source, framework))
            assert np.array_equal(back.ravel().view(np.uint8), np.ascontiguousarray(source).ravel().view(np.uint8))
    y = up.upload(locked, framework)
    locked[:] = 7
    assert np.array_equal(up.download(y), filled(5000))


def test_structures_of_small_arrays_arrive(up: Uploader, framework: FrameworkName) -> None:
    draw = np.random.default_rng(4)
    for block in (True, False):
        tree = {
            "many": [draw.integers(0, 2, (n % 9, 3 * n % 7)).astype(DTYPES[n % len(DTYPES)]) for n in range(200)],
            "equal": [filled(8192, seed) for seed in range(50)],
            "large": filled(3 << 20),
            "scalar": np.float32(2.5),
            "rows": draw.random((64, 64), np.float32)[::2, ::-1],
        }
        made: Any = up.upload(tree, framework) if block else up.upload(tree, framework, block=False).result()
        for name in ("many", "equal"):
            for y, x in zip(made[name], tree[name], strict=True):
                back = up.download(y)
                assert (back.shape, back.dtype) == (x.shape, x.dtype)
                assert np.array_equal(back, x)
        assert np.array_equal(up.download(made["large"]), tree["large"])
        assert np.array_equal(up.download(made["rows"]), tree["rows"])


def test_the_later_work_of_a_busy_stream_sees_small_arrays(up: Uploader, torch: Any) -> None:
    busy = torch.zeros(64 << 20, device="cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for seed in range(20):
                for _ in range(5):
                    busy.add_(1)
                array = filled(50_000, seed)
                expected = torch.from_numpy(array.copy())
                y = up.upload(array, "torch") + 0
                array[:] = 0
                trees = up.upload([np.full(3, seed + n, np.int32) for n in range(6)], "torch")
                total = torch.stack(trees).sum()
                assert torch.equal(torch.from_numpy(up.download(y)), expected)
                assert int(total) == 3 * (6 * seed + 15)


def test_tensors_of_torch_are_sent_as_arrays_are(up: Uploader, torch: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    for dtype in (torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.complex64):
        x = torch.randint(0, 2, (13, 17), generator=draw).to(dtype)
        for source in (x, x.t(), x[3:, ::2], x[5], x.pin_memory()):
            assert torch.equal(up.upload(source, "torch").cpu(), source)
        assert all(torch.equal(y.cpu(), x + n) for n, y in enumerate(up.upload([x + n for n in range(5)], "torch")))
    negative = torch.imag(torch.tensor([1 + 2j, 3 + 4j]).conj())
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for refused in (negative, torch.ones(3, requires_grad=True), torch.eye(3).to_sparse(), nested):
        with pytest.raises(UsageError):
            up.upload(refused, "torch")


def test_tensors_of_one_block_are_independent_for_autograd(up: Uploader, torch: Any) -> None:
    first, second, *_ = up.upload([np.ones(4, np.float32) for _ in range(5)], "torch")
    first.requires_grad_()
    loss = (first * second).sum()
    up_to_date = up.upload([np.ones(4, np.float32) for _ in range(5)], "torch")
    up_to_date[0].add_(1)
    _, third, fourth, *_ = up_to_date
    weight = torch.ones(4, device="cuda", requires_grad=True)
    product = (weight * third).sum()
    fourth.add_(1)  # in the same block as `third`, which backward needs
    product.backward()
    loss.backward()
    assert torch.equal(weight.grad.cpu(), torch.ones(4))
    assert not third._is_view()


def test_a_captured_stream_is_refused(up: Uploader, torch: Any) -> None:
    up.upload([filled(10)] * 5, "torch")
    y = up.upload(filled(10), "torch")
    calls: list[Callable[[], object]] = [
        lambda: up.upload(filled(10), "torch"),
        lambda: up.upload([filled(10)] * 5, "torch"),
        lambda: up.download(y),
    ]
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with pytest.raises(UsageError, match="CUDA graph"):
                call()
            y + 1
        graph.replay()
    torch.cuda.synchronize()
