"""Arrays mapped from files, which are refused if the file was truncated."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest

from pyxfer._upload.arrays import source_of
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.units import format_size

PAGES = 5 * mmap.ALLOCATIONGRANULARITY
CONTENTS = np.random.default_rng(0).integers(0, 256, PAGES, np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "images"
    made.write_bytes(CONTENTS.tobytes())
    return made


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("offset", [0, 1000, 3 * mmap.ALLOCATIONGRANULARITY + 5])
def test_an_array_in_a_file_is_sent(engine: Engine, path: Path, mode: str, offset: int) -> None:
    mapped = np.memmap(path, np.uint8, mode, offset=offset)  # type: ignore[call-overload]
    with Uploader("host", threads=2) as up:
        assert np.array_equal(np.from_dlpack(up.upload(mapped[::3], Target(engine))), CONTENTS[offset::3])


@pytest.mark.parametrize("offset", [0, 3 * mmap.ALLOCATIONGRANULARITY + 5])
def test_an_array_of_a_truncated_file_is_refused(path: Path, offset: int) -> None:
    with_gaps = np.memmap(path, np.uint8, "r", offset=offset)[::2].reshape(-1, 1)
    os.truncate(path, PAGES - mmap.ALLOCATIONGRANULARITY)
    left, whole = format_size(PAGES - mmap.ALLOCATIONGRANULARITY), format_size(PAGES)
    why = f"this array is mapped from a file that was cut to {left}, and needs {whole} of it: map it again"
    with pytest.raises(UsageError, match=re.escape(why)):
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
        y = up.upload(CONTENTS, Target(engine))
        with pytest.raises(UsageError, match=r"^out: this array is mapped from a file that was cut"):
            up.download(y, out)


def test_a_file_that_has_grown_or_was_deleted_is_accepted(path: Path) -> None:
    mapped = np.memmap(path, np.uint8, "r")
    os.truncate(path, 2 * PAGES)
    path.unlink()
    assert source_of(mapped).nbytes == PAGES


def test_mapped_memory_without_a_file_is_accepted() -> None:
    assert source_of(np.frombuffer(mmap.mmap(-1, PAGES), np.uint8)).nbytes == PAGES
