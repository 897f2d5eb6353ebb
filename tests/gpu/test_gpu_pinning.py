"""Arrays that are page-locked by a real driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from route_checks import import_or_skip

from pyxfer._upload.pinning import empty_pinned, pin
from pyxfer.errors import UsageError
from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
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


def test_an_array_of_empty_pinned_is_locked(gpu_engine: Engine) -> None:
    x = empty_pinned(gpu_engine, NBYTES, np.uint8)
    assert is_locked(x)
    assert is_locked(pin(gpu_engine, x[100:]))


def test_a_locked_array_arrives_unchanged(gpu_engine: Engine) -> None:
    torch: Any = import_or_skip("torch")
    x = np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8)
    on_gpu = torch.from_numpy(pin(gpu_engine, x)).to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert np.array_equal(on_gpu.cpu().numpy(), x)


def test_an_array_on_the_same_page_is_locked_or_refused(gpu_engine: Engine) -> None:
    torch: Any = import_or_skip("torch")
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


def test_a_read_only_array_can_be_locked(gpu_engine: Engine) -> None:
    x = np.zeros(NBYTES, np.uint8)
    x.flags.writeable = False
    y = pin(gpu_engine, x)
    assert not y.flags.writeable
    assert is_locked(y)
