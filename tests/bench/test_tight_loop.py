"""The bare loop: what it counts, and its table."""

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
    """Takes a millisecond a call, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.cuda = self

    def from_numpy(self, array: Any) -> FakeTorch:
        self.given.append(array.ctypes.data)
        return self

    def to(self, _: str) -> None:
        time.sleep(0.001)

    def synchronize(self) -> None: ...


def test_the_loop_takes_its_arrays_in_turn_after_one_call_that_is_not_counted() -> None:
    torch, arrays = FakeTorch(), [np.zeros(500_000_000 // 8, np.uint8) for _ in range(2)]
    gbps = tight_loop.loop_gbps(torch, arrays)
    calls = torch.given[1:]
    assert calls == [arrays[number % 2].ctypes.data for number in range(len(calls))]
    assert 0 < gbps < 500 / 8


def test_many_arrays_are_together_larger_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def count(_: Any, arrays: list[Any]) -> float:
        counts.append(len(arrays))
        return 1.0

    monkeypatch.setattr(tight_loop, "loop_gbps", count)
    tight_loop.measure(None, 1, 10 * IMAGE_BYTES)
    assert counts == [1, 20] * tight_loop.ROUNDS


@pytest.mark.skipif(pyxfer.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_time() -> None:
    with pytest.raises(CudaUnavailableError):
        tight_loop.main([])
