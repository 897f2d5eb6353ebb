"""User routes that do not move all bytes, or other ones. Worker processes import this file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import pyxfer

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Where


class Sent(pyxfer.Transfer):
    """Sends an array of bytes unchanged."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.data: Any = np.zeros(context.nbytes, np.uint8)

    def write(self, data: Any) -> None:
        self.data = data.copy()

    def run(self) -> None:
        import torch

        self.result = torch.from_numpy(self.data).cuda()

    def where(self) -> Where:
        return "gpu" if self.result.is_cuda else "cpu"

    def arrived(self) -> Any:
        return self.result.cpu().numpy()


class Cached(Sent):
    """Sends each array only the first time."""

    sent: tuple[Any, Any] = (None, None)

    def run(self) -> None:
        if self.sent[0] is not self.data:
            super().run()
            self.sent = (self.data, self.result)
        self.result = self.sent[1]


class Halved(Sent):
    """Converts float64 to float32 on the host, and sends that."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.data = np.zeros(context.nbytes // 8)

    def write(self, data: Any) -> None:
        self.data = data[: self.data.size].astype(np.float64)

    def expected(self, data: Any) -> Any:
        return data[: self.data.size].astype(np.float32)

    def run(self) -> None:
        import torch

        self.result = torch.from_numpy(self.data).float().cuda()


class Doubled(Sent):
    """Converts bytes to float16 on the host, and sends that."""

    def expected(self, data: Any) -> Any:
        return data.astype(np.float16)

    def run(self) -> None:
        import torch

        self.result = torch.from_numpy(self.data).half().cuda()


class Mirrored(pyxfer.Transfer):
    """Uses one TensorFlow tensor in host memory on the GPU, which keeps a copy after the first use."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.write(np.zeros(context.nbytes, np.uint8))

    def write(self, data: Any) -> None:
        import tensorflow as tf

        with tf.device("/CPU:0"):
            self.tensor = tf.identity(tf.constant(data.view(np.float32)))

    def run(self) -> None:
        import tensorflow as tf

        with tf.device("/GPU:0"):
            self.result = tf.identity(self.tensor)

    def where(self) -> Where:
        return "gpu" if "GPU" in self.result.device else "cpu"

    def arrived(self) -> Any:
        return self.result.numpy().view(np.uint8)


class Canonical(pyxfer.Transfer):
    """Sends float64 to JAX, which converts it to float32 unless jax_enable_x64 is set."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.data: Any = np.zeros(context.nbytes // 8)

    def write(self, data: Any) -> None:
        self.data = data[: self.data.size].astype(np.float64)

    def expected(self, data: Any) -> Any:
        return data[: self.data.size].astype(np.float32)

    def run(self) -> None:
        import jax

        self.result = jax.device_put(self.data)
        self.result.block_until_ready()

    def where(self) -> Where:
        return "gpu" if next(iter(self.result.devices())).platform == "gpu" else "cpu"

    def arrived(self) -> Any:
        return np.asarray(self.result)
