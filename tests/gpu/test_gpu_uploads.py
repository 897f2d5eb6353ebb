"""Uploads to every installed framework on a GPU, and back: contents, streams, and released memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import import_or_skip

from pyxfer._document.runs import FrameworkName
from pyxfer._upload.device_arrays import DeviceArray
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
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
    own = Target(gpu_engine)
    up.upload(filled(16), own)
    before, _ = gpu_engine.memory_info(0)
    for seed in range(20):
        array = filled(8 << 20, seed)
        assert np.array_equal(up.download(up.upload(array, own)), array)
    gc.collect()
    assert gpu_engine.memory_info(0)[0] >= before - (32 << 20)  # the allowance for kept blocks


def test_a_device_array_accepts_the_stream_numbers_of_dlpack(gpu_engine: Engine) -> None:
    y = DeviceArray(gpu_engine, (3, 4), np.dtype("f4"))
    assert (y.__dlpack_device__(), y.address % 64) == ((2, 0), 0)
    for stream in (None, -1, 1, 2, 1 << 40):
        y.__dlpack__(stream=stream)
    for wrong in (0, -2, True):
        with pytest.raises(BufferError, match="a DLPack stream is 1 or more"):
            y.__dlpack__(stream=wrong)


def test_an_upload_waits_for_a_busy_stream_of_torch(up: Uploader) -> None:
    torch: Any = import_or_skip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    array = filled(24 << 20, 4)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            torch.cuda._sleep(2_000_000)
            scratch = torch.full((24 << 20,), 7, dtype=torch.uint8, device="cuda")
            del scratch  # the upload gets its memory, which is still being written
            doubled = up.upload(array, "torch") ^ 0xFF
            assert np.array_equal(doubled.cpu().numpy(), ~array)
