"""Routes of one's own over PyTorch that do not move what they were asked to; worker processes import this file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import pyxfer

if TYPE_CHECKING:
    from pyxfer.routes.base import Where


class Sent(pyxfer.Transfer):
    """An array of bytes to the GPU, as it is."""

    def __init__(self, place: pyxfer.Place) -> None:
        super().__init__(place)
        self.data: Any = np.zeros(place.nbytes, np.uint8)

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
    """Sends each array once."""

    sent: tuple[Any, Any] = (None, None)

    def run(self) -> None:
        if self.sent[0] is not self.data:
            super().run()
            self.sent = (self.data, self.result)
        self.result = self.sent[1]


class Halved(Sent):
    """Doubles that become floats on the host."""

    def __init__(self, place: pyxfer.Place) -> None:
        super().__init__(place)
        self.data = np.zeros(place.nbytes // 8)

    def write(self, data: Any) -> None:
        self.data = data[: self.data.size].astype(np.float64)

    def expected(self, data: Any) -> Any:
        return data[: self.data.size].astype(np.float32)

    def run(self) -> None:
        import torch

        self.result = torch.from_numpy(self.data).float().cuda()


class Doubled(Sent):
    """Bytes that become floats of two on the host."""

    def expected(self, data: Any) -> Any:
        return data.astype(np.float16)

    def run(self) -> None:
        import torch

        self.result = torch.from_numpy(self.data).half().cuda()
