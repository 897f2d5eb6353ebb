"""Tensors that a loader's workers have shared, which end in a thread of their own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from upload.feeding import SOON_S

from pyxfer._upload.prefetch import Unmapper, shared_tensors


def filled(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, 100, np.uint8)


class Tensor:
    """Stands for a tensor of PyTorch in shared memory."""

    is_cpu = True
    _base = None

    def __init__(self, array: Any) -> None:
        self.array = array
        self.nbytes = array.nbytes

    def is_shared(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array


Tensor.__module__ = "torch"
Tensor.__qualname__ = "Tensor"


class Unmapping:
    """Notes what is unmapped."""

    def __init__(self) -> None:
        self.unmapped: list[tuple[int, int]] = []

    def unmap_shared(self, address: int, nbytes: int) -> bool:
        self.unmapped.append((address, nbytes))
        return True


def test_tensors_of_workers_are_unmapped_where_nobody_keeps_them() -> None:
    noted: Any = Unmapping()
    unmapper = Unmapper(noted)
    arrays = [filled(seed) for seed in range(3)]
    tensors: list[Any] = [Tensor(array) for array in arrays]
    kept = tensors[1]
    unmapper.take_over(tensors)
    assert tensors == []
    unmapper.stop()
    for thread in threading.enumerate():
        if thread.name == "pyxfer-unmap":
            thread.join(SOON_S)
    assert sorted(noted.unmapped) == sorted((array.ctypes.data, array.nbytes) for array in (arrays[0], arrays[2]))
    assert kept.array is arrays[1]
    later: list[Any] = [Tensor(arrays[0])]
    unmapper.take_over(later)
    assert len(later) == 1


def test_only_whole_tensors_in_shared_memory_go_to_the_unmapper() -> None:
    own, view, on_gpu, private = (Tensor(filled(0)) for _ in range(4))
    view._base = own  # type: ignore[assignment]
    on_gpu.is_cpu = False
    private.is_shared = lambda: False  # type: ignore[method-assign]
    assert shared_tensors([filled(1), own, view, on_gpu, private, b"bytes"]) == [own]
