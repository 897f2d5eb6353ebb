"""Pools inside memory with a pattern around every block, in each kind of memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pyxfer
from pyxfer.native import Engine

GUARD = 256


class OnDevice:
    """Device memory of the host runtime as an array of NumPy, which stands for a framework's array."""

    def __init__(self, engine: Engine, nbytes: int) -> None:
        self._buffer = engine.DeviceBuffer(nbytes, 0)
        memory = (ctypes.c_uint8 * nbytes).from_address(self._buffer.address)
        memory.keep = self._buffer  # type: ignore[attr-defined]
        self.array: NDArray[Any] = np.frombuffer(memoryview(memory), np.uint8)


class Guarded:
    """A pool of rows, each of other bytes, and the pattern around it."""

    def __init__(
        self, engine: Engine, kind: str, blocks: int, block_bytes: int, *, gap: int = 0, seed: int = 0
    ) -> None:
        stride = block_bytes + gap
        nbytes = blocks * stride + 2 * GUARD
        if kind == "device":
            self.memory = OnDevice(engine, nbytes).array
        elif kind == "pinned":
            self.memory = pyxfer.empty_pinned(nbytes, np.uint8, "host")
        else:
            self.memory = np.empty(nbytes, np.uint8)
        self.memory[...] = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
        rows = self.memory[GUARD : GUARD + blocks * stride].reshape(blocks, stride)
        self.rows = rows[:, :block_bytes]
        self._before = self.memory.copy()

    def close(self) -> None:
        """Drop the memory: pytest keeps the values of fixtures longer than the check for leaks allows."""
        del self.memory, self.rows

    def require(self, source: NDArray[Any], source_indices: Any, indices: Any) -> None:
        """Every named block has arrived, and nothing else has changed."""
        expected = self._before.copy()
        own = np.lib.stride_tricks.as_strided(expected[GUARD:], self.rows.shape, self.rows.strides, writeable=True)
        own[np.asarray(indices, np.int64)] = source[np.asarray(source_indices, np.int64)]
        assert np.array_equal(self.memory, expected)
