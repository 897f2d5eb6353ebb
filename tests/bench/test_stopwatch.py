"""The stopwatch beside a driver of host memory, whose calls are C functions made by ctypes."""

# ruff: noqa: N802, N815 - the names are the driver's

from __future__ import annotations

import ctypes
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import stopwatch

KIB = 1024


class FakeDriver:
    """Copies in host memory when it is called. `lose`: a copy that it does not make, counted from 1."""

    def __init__(self, lose: int = 0) -> None:
        self.blocks: list[Any] = []
        self.made: list[tuple[int, int, int, int]] = []
        self.lose = lose
        self.cuMemcpyHtoDAsync_v2 = self.cuMemcpyDtoHAsync_v2 = stopwatch.Copy(self._copy)
        self.cuStreamSynchronize = stopwatch.Wait(lambda _: 0)

    def __getattr__(self, name: str) -> Any:
        if name in ("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuDeviceGet", "cuDriverGetVersion"):
            return lambda *_: 0
        raise AttributeError(name)

    def _copy(self, to: int, source: int, nbytes: int, stream: int) -> int:
        self.made.append((to, source, nbytes, stream))
        if len(self.made) != self.lose:
            ctypes.memmove(to, source, nbytes)
        return 0

    def cuDeviceGetName(self, name: Any, *_: object) -> int:
        name.value = b"fake"
        return 0

    def cuStreamCreate(self, stream: Any, _: int) -> int:
        stream._obj.value = 100 + len(self.blocks)
        self.blocks.append(None)
        return 0

    def cuMemAlloc_v2(self, found: Any, nbytes: Any) -> int:
        self.blocks.append(ctypes.create_string_buffer(nbytes.value))
        found._obj.value = ctypes.addressof(self.blocks[-1])
        return 0

    cuMemAllocHost_v2 = cuMemAlloc_v2

    def cuMemcpyHtoD_v2(self, to: Any, source: Any, nbytes: Any) -> int:
        ctypes.memmove(to.value, source.value, nbytes.value)
        return 0

    cuMemcpyDtoH_v2 = cuMemcpyHtoD_v2


class WithBatch(FakeDriver):
    def cuMemcpyBatchAsync(self, to: Any, source: Any, sizes: Any, count: Any, *_: object) -> int:
        for i in range(count.value):
            self._copy(to[i], source[i], sizes[i], 0)
        return 0


def run(driver: FakeDriver, path: Path) -> tuple[int, Any]:
    code = stopwatch.main(driver, ["--sizes", str(4 * KIB), "--rounds", "2", "--export-json", str(path)])
    return code, json.loads(path.read_text())


@pytest.mark.parametrize("has_compiler", [False, True])
def test_every_way_copies_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_compiler: bool) -> None:
    if not has_compiler:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    elif shutil.which("cc") is None:
        pytest.skip("there is no cc")
    code, document = run(WithBatch(), tmp_path / "it.json")
    assert code == 0
    assert document["calls"] == ("c" if has_compiler else "python")
    assert {(row["direction"], row["way"]) for row in document["rows"]} == {
        (direction, way) for direction in ("h2d", "d2h") for way in stopwatch.WAYS
    }
    assert all(row["verified"] and row["gbps"] > 0 and len(row["seconds"]) == 2 for row in document["rows"])


def test_an_older_driver_has_no_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(FakeDriver(), tmp_path / "it.json")
    assert code == 0
    assert "batch of 256" not in {row["way"] for row in document["rows"]}
    assert "batch" not in capsys.readouterr().out


def test_a_copy_that_does_not_arrive_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(WithBatch(lose=1), tmp_path / "it.json")
    assert code == 1
    assert [row["way"] for row in document["rows"] if not row["verified"]] == ["1 call"]
    assert "WRONG" in capsys.readouterr().out


def test_a_copy_over_streams_is_divided(tmp_path: Path) -> None:
    driver = FakeDriver()
    run(driver, tmp_path / "it.json")
    parts = {stream for _, _, nbytes, stream in driver.made if nbytes == KIB}
    assert len(parts) == stopwatch.STREAMS
