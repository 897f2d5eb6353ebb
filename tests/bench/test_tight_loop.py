"""The loop without pyxfer."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tight_loop

import pyxfer
from pyxfer._frameworks.place import IMAGE_BYTES
from pyxfer.errors import CudaUnavailableError


class FakeTorch:
    """Takes a millisecond per call and keeps the addresses of the arrays."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.cuda = self

    def from_numpy(self, array: Any) -> FakeTorch:
        self.given.append(array.ctypes.data)
        return self

    def to(self, _: str) -> None:
        time.sleep(0.001)

    def synchronize(self) -> None: ...


def test_the_loop_cycles_through_its_arrays_after_one_untimed_call() -> None:
    torch, arrays = FakeTorch(), [np.zeros(500_000_000 // 8, np.uint8) for _ in range(2)]
    gbps = tight_loop.loop_gbps(torch, arrays)
    calls = torch.given[1:]
    assert calls == [arrays[number % 2].ctypes.data for number in range(len(calls))]
    assert 0 < gbps < 500 / 8


def test_the_arrays_together_exceed_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def count(_: Any, arrays: list[Any]) -> float:
        counts.append(len(arrays))
        return 1.0

    monkeypatch.setattr(tight_loop, "loop_gbps", count)
    tight_loop.measure(None, 1, 10 * IMAGE_BYTES)
    assert counts == [1, 20] * tight_loop.ROUNDS


@pytest.mark.skipif(pyxfer.is_available(), reason="there is a GPU")
def test_a_gpu_is_required() -> None:
    with pytest.raises(CudaUnavailableError):
        tight_loop.main([])
