"""Correct and faulty routes to a device, over the host runtime, which records their copies."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from frameworks import own_routes

import pyxfer
from pyxfer._frameworks.base import RingDownload
from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native import load


class Stored(pyxfer.Transfer):
    """One copy of ordinary memory into memory of the device."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.buffer = load("host").DeviceBuffer(2 * context.nbytes)
        self.source = context.source("pageable")

    def refresh(self) -> None:
        self.source = self.context.source("pageable")

    def run(self) -> None:
        self.send(self.source)

    def send(self, data: Any) -> None:
        self.context.store(self.buffer.address, data)

    def where(self) -> Any:
        return "gpu"

    def arrived(self) -> Any:
        return self.context.fetch(self.buffer.address, self.context.nbytes)


class Uploaded(pyxfer.Transfer):
    """An upload through the worker's uploader."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.uploader, self.target = context.uploader(), Target(DevicePool(load("host"), 0, 0))
        self.source = context.source()

    def refresh(self) -> None:
        self.source = self.context.source()

    def run(self) -> None:
        self.result = self.uploader.upload(self.source, self.target)

    def where(self) -> Any:
        return "gpu"

    def arrived(self) -> Any:
        return self.context.fetch(self.result.address, self.context.nbytes)


class Downloaded(RingDownload):
    """A download through the worker's uploader."""

    def __init__(self, context: pyxfer.RouteContext, *, into: bool) -> None:
        super().__init__(context, into=into)
        self.array = DeviceArray(DevicePool(load("host"), 0, 0), (context.nbytes,), np.dtype(np.uint8))

    def write(self, data: Any) -> None:
        self.context.store(self.array.address, data)


class Mirrored(Stored):
    """Sends only bytes that it has not sent before, and takes long enough for every clock."""

    sent: Any = None

    def refresh(self) -> None:
        """Keep one array for all calls, as a program may do by mistake."""

    def write(self, data: Any) -> None:
        self.source = self.context.source()

    def run(self) -> None:
        time.sleep(0.002)
        if self.sent is not self.source:
            self.sent = self.source
            self.send(self.source)


class Slowly(Stored):
    """Prepares for ten milliseconds."""

    def run(self) -> None:
        time.sleep(0.010)
        super().run()


class FailingTraced(Stored):
    """Fails in its third `arrived()`, which is in its traced trial."""

    looks = 0

    def arrived(self) -> Any:
        self.looks += 1
        if self.looks > 2:
            raise RuntimeError("no more of it")
        return super().arrived()


class WrongTraced(FailingTraced):
    """Returns other contents in its traced trial."""

    def arrived(self) -> Any:
        self.looks += 1
        found = super(FailingTraced, self).arrived()
        return found if self.looks <= 2 else found ^ 1


def make_route(name: str, make: Any, **overrides: Any) -> pyxfer.Route:
    """A route from NumPy to the device."""
    words: dict[str, Any] = {"direction": "h2d", "host_copies": 0, "dma": "pageable", "bracket": "drained"}
    return own_routes.make_route(name, make, **{**words, **overrides})
