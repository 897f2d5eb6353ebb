"""Two ways to move an array's bytes: through the ring, or by the driver where the ring cannot be had."""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pyxfer._upload.settings import make_ring
from pyxfer.errors import CudaMemoryError, DeviceTimeoutError, FallbackWarning, UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pyxfer._upload.arrays import Source
    from pyxfer._upload.settings import RingSettings
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, Ring


CLOSING_S = 30.0
CLOSING_SLICE_S = 0.1


class Ticket(Protocol):
    """An upload that goes on by itself."""

    def done(self) -> bool:
        """Whether it has ended, well or not."""

    def result(self, seconds: float) -> object:
        """Wait so long at most; raise what it raised, or DeviceTimeoutError while it goes on."""


class Mover(Protocol):
    """For any thread; they take turns."""

    @property
    def pinned_bytes(self) -> int:
        """The page-locked memory that it holds."""

    def upload(self, source: Source, address: int, stream: int | None, *, wait: bool) -> None:
        """Return when the source has been read, with `wait` when it has arrived; later work of `stream` waits."""

    def start(self, source: Source, address: int, stream: int | None) -> Ticket:
        """Return at once; all of it has to stay until the ticket is done."""

    def download(self, address: int, to: Source, stream: int | None) -> None:
        """Return when it has been written."""

    def close(self) -> None:
        """Wait for all that was asked for."""

    def cancel(self) -> None:
        """End all transfers that were called so far."""

    def end(self, patience_s: float) -> None:
        """After `cancel`, when the process ends: close it, or leave it to the process after that time."""


def make_mover(engine: Engine, device: int, settings: Callable[[], RingSettings]) -> Mover:
    """The ring, or where no memory can be page-locked for it, with a warning, the driver's own copies."""
    chosen = settings()
    try:
        return RingMover(make_ring(engine, device, chosen))
    except CudaMemoryError as error:
        mover = PlainMover(engine, device)
        warnings.warn(
            f"The {format_size(chosen.pinned_bytes)} of page-locked memory that fast copies go through cannot be had, "
            f"so the driver makes them, more slowly: {error}",
            FallbackWarning,
            stacklevel=2,
        )
        return mover


class RingMover:
    """Through page-locked slots that several threads fill."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    @property
    def pinned_bytes(self) -> int:
        """All slots."""
        return self.ring.pinned_bytes

    def upload(self, source: Source, address: int, stream: int | None, *, wait: bool) -> None:
        """A small one is a single copy, made by the calling thread."""
        try:
            self.ring.upload(source.address, source.itemsize, source.shape, source.strides, address, stream, wait)
        except ValueError as error:  # the stream is being captured into a CUDA graph
            raise UsageError(str(error)) from error

    def start(self, source: Source, address: int, stream: int | None) -> Ticket:
        """In a thread of the ring's own."""
        try:
            return self.ring.start_upload(
                source.address, source.itemsize, source.shape, source.strides, address, stream
            )
        except ValueError as error:
            raise UsageError(str(error)) from error

    def download(self, address: int, to: Source, stream: int | None) -> None:
        """Page faults of a fresh array are spread over the threads."""
        try:
            self.ring.download(to.address, to.itemsize, to.shape, to.strides, address, stream)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def close(self) -> None:
        """In short waits, because Ctrl-C does not end one in native code."""
        until = time.monotonic() + CLOSING_S
        while True:
            try:
                return self.ring.close(min(CLOSING_SLICE_S, max(0.0, until - time.monotonic())))
            except DeviceTimeoutError:
                if time.monotonic() >= until:
                    raise

    def cancel(self) -> None:
        """Waiting transfers end at once, the one under way within a tenth of a second."""
        self.ring.cancel()

    def end(self, patience_s: float) -> None:
        """A ring that the device still reads is left as it is."""
        try:
            self.ring.close(patience_s)
        except DeviceTimeoutError:
            self.ring.abandon()


class PlainMover:
    """By the driver, which stages with one thread; the device is drained before and after."""

    pinned_bytes = 0

    def __init__(self, engine: Engine, device: int) -> None:
        self._engine = engine
        self._copier: Copier = engine.Copier(device)
        self._turn = threading.Lock()

    def upload(self, source: Source, address: int, stream: int | None, *, wait: bool) -> None:
        """It has arrived in any case."""
        del stream, wait
        array = np.ascontiguousarray(_array_of(source))
        self._copy("h2d", array, address)

    def start(self, source: Source, address: int, stream: int | None) -> Ticket:
        """It is over when this returns."""
        self.upload(source, address, stream, wait=True)
        return Done()

    def download(self, address: int, to: Source, stream: int | None) -> None:
        """By way of another array where the items do not lie together."""
        del stream
        array = _array_of(to)
        if array.flags.c_contiguous:
            self._copy("d2h", array, address)
            return
        fresh = np.empty(array.shape, array.dtype)
        self._copy("d2h", fresh, address)
        array[...] = fresh

    def close(self) -> None:
        """What is under way in another thread ends first."""
        with self._turn:
            self._copier.close()

    def cancel(self) -> None:
        """The copy under way ends in the driver; only the wait for it ends early."""
        self._copier.cancel()

    def end(self, patience_s: float) -> None:
        """A copy that goes on is left to it."""
        if self._turn.acquire(timeout=patience_s):
            self._turn.release()
            self.close()

    def _copy(self, direction: str, array: NDArray[Any], address: int) -> None:
        with self._turn:
            if array.nbytes:
                lane = self._engine.Lane(direction, array.ctypes.data, address, array.nbytes, array.nbytes, 1)
                self._copier.drained(lane, 0)


class Done:
    """The ticket of what is over."""

    def done(self) -> bool:
        """Always."""
        return True

    def result(self, seconds: float) -> None:
        """At once."""


def copy_on_host(address: int, to: Source) -> None:
    """Of items that lie in C order."""
    array = _array_of(to)
    array[...] = _array_of(replace(to, address=address, strides=np.empty(to.shape, array.dtype).strides))


class _Shown:
    """A source as NumPy asks for it."""

    def __init__(self, source: Source) -> None:
        self.keep = source.keep
        self.__array_interface__ = {
            "version": 3,
            "shape": source.shape,
            "typestr": "<u2" if isinstance(source.dtype, str) else source.dtype.str,
            "data": (source.address, source.readonly),
            "strides": source.strides,
        }


def _array_of(source: Source) -> NDArray[Any]:
    return np.asarray(_Shown(source))
