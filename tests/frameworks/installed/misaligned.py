"""A route that imports unaligned memory into TensorFlow; worker processes import this file."""

from __future__ import annotations

from typing import Any

import pyxfer

# After the first calls and the verification, so that the run is timing its trials.
RUNS_ON_ALIGNED_MEMORY = 7


class Misaligned(pyxfer.Transfer):
    """An array that TensorFlow uses in place; its CPU kernels need a multiple of 64 bytes."""

    array: Any = None
    runs = 0

    def refresh(self) -> None:
        # As malloc places a large array, `pageable` starts 16 bytes after a page boundary.
        self.array = self.context.source("aligned" if self.runs < RUNS_ON_ALIGNED_MEMORY else "pageable")

    def run(self) -> None:
        import tensorflow as tf

        self.runs += 1
        tensor = tf.experimental.dlpack.from_dlpack(self.array.__dlpack__())
        with tf.device("/device:CPU:0"):
            self.result = tf.add(tensor, tensor)

    def where(self) -> Any:
        return "cpu"

    def arrived(self) -> Any:
        return self.result.numpy()

    def expected(self, data: Any) -> Any:
        return data + data
