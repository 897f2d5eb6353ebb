"""The line that says how far a load is."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pyxfer
from pyxfer._files import load
from pyxfer._files.load import LoadProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(stream: io.StringIO) -> list[str]:
    return re.split(r"\r\x1b\[K|\n", stream.getvalue())[1:-1]


def test_a_line_has_bytes_rate_share_and_the_time_left() -> None:
    stream, now_s = Terminal(), 0.0
    shown = LoadProgress(4_000_000_000, 50.0, stream, lambda: now_s)
    shown.add(500_000_000)  # too soon for a line
    now_s = 0.5
    shown.add(500_000_000)
    now_s = 1.0
    shown.add(3_000_000_000)
    shown.end()
    assert lines_of(stream) == [
        "pyxfer: 1.00 of 4.00 GB, 2.00 GB/s, 4 % of the link, 1.50 s left",
        "pyxfer: 4.00 of 4.00 GB, 4.00 GB/s, 8 % of the link in 1.00 s",
    ]


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(250_000, dtype=np.float64))
    return tmp_path / "a.npy"


def test_only_a_terminal_shows_it_and_only_on_request(array: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, progress, count in ((Terminal(), True, 1), (Terminal(), False, 0), (io.StringIO(), True, 0)):
        monkeypatch.setattr(sys, "stderr", stream)
        found = pyxfer.load_tensors(array, to="numpy", progress=progress)
        assert found["a"][-1] == 249_999
        assert len(lines_of(stream)) == count
        assert ("2.00 of 2.00 MB" in stream.getvalue()) == bool(count)


def test_a_load_that_fails_ends_its_line(array: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(load, "_STREAM_WINDOW_BYTES", 500_000)

    def cut_short(_progress: LoadProgress, _nbytes: int) -> None:
        raise pyxfer.ArrayFileError("cut short")

    monkeypatch.setattr(LoadProgress, "add", cut_short)
    with pytest.raises(pyxfer.ArrayFileError):
        pyxfer.load_tensors(array, to="numpy", progress=True)
    assert lines_of(stream)[-1].startswith("pyxfer: 0.00 of 2.00 MB")


def test_a_closed_stderr_does_not_end_a_load(array: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(Terminal):
        def write(self, text: str) -> int:
            raise OSError

    monkeypatch.setattr(sys, "stderr", Closed())
    assert set(pyxfer.load_tensors(array, to="numpy", progress=True)) == {"a"}


def test_a_process_without_a_stderr_loads(array: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed, object()):
        monkeypatch.setattr(sys, "stderr", stream)
        assert set(pyxfer.load_tensors(array, to="numpy", progress=True)) == {"a"}
