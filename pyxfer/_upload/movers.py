"""Two ways to move an array's bytes: through the ring, or by the driver if no ring can be made."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from pyxfer._upload.arrays import Source, array_of
from pyxfer._upload.pending import FixedTicket
from pyxfer._upload.settings import MAX_AT_ONCE_BYTES, make_ring
from pyxfer.errors import CudaMemoryError, DeviceTimeoutError, FallbackWarning, UsageError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._upload.settings import RingSettings
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Conversion, Copier, FileWindow, Pack, Ring


Result = TypeVar("Result")

# Larger downloads are faster through the ring. Two H200 machines: 256 KiB take 37 and 57 us by the driver, 64 and 120
# through the ring; 1 MiB 106 and 159, 102 and 172.
MAX_FETCHED_BYTES = 1 << 20
# JAX and TensorFlow copy larger arrays more slowly than they export them.
MAX_OWN_COPY_BYTES = 128 << 10
# JAX on an H200: 512 KiB take 134 us by the driver and 175 through the ring, 1 MiB 186 and 150. The threads of a ring
# sleep after microseconds: after 5 ms without work 1 MiB takes 460 and 630.
_MAX_WAITED_FOR_BYTES = 512 << 10
_ASLEEP_S = 0.001

CLOSING_S = 30.0
CLOSING_SLICE_S = 0.1


class Ticket(Protocol):
    """A started upload of one array."""

    def done(self) -> bool:
        """Whether it has ended, with an error or without."""

    def result(self, seconds: float) -> object:
        """Wait at most `seconds`; raise its error, or DeviceTimeoutError if it has not ended."""


def make_mover(engine: Engine, device: int, settings: RingSettings) -> Mover:
    """Make a ring. If no memory can be page-locked for it, warn and use the driver's own copies."""
    try:
        return RingMover(make_ring(engine, device, settings))
    except CudaMemoryError as error:
        mover = PlainMover(engine, device)
        warnings.warn(
            f"The {format_size(settings.pinned_bytes)} of page-locked memory for fast copies cannot be allocated, so "
            f"the driver copies, more slowly: {error}",
            FallbackWarning,
            stacklevel=2,
        )
        return mover


class RingMover:
    """Copies through the page-locked slots of a ring. Any thread may call it; calls take turns."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.pinned_bytes = ring.pinned_bytes
        self._used_s = -math.inf

    def goes_at_once(self, nbytes: int, *, waits: bool) -> bool:
        """Whether the driver's copy is faster, on a framework's own stream or, if it `waits`, on the ring's."""
        if nbytes > MAX_AT_ONCE_BYTES:
            return False
        if not waits or nbytes <= _MAX_WAITED_FOR_BYTES:
            return True
        asleep_s, self._used_s = time.monotonic() - self._used_s, time.monotonic()  # the next one soon after wakes them
        return asleep_s > _ASLEEP_S

    def alert(self, nbytes: int) -> None:
        """Wake the ring's threads, if they sleep, for an upload that has begun and still has Python to run."""
        if nbytes > MAX_AT_ONCE_BYTES and time.monotonic() - self._used_s > _ASLEEP_S:
            self.ring.alert()

    def upload(self, source: Source | NDArray[Any] | Pack, address: int, stream: int | None) -> Callable[[], None]:
        """Return when the source has been read. Later work of `stream` waits for the bytes.

        Without a stream they have arrived when the result has been called. Until then a framework can make its array.
        """
        is_small = not isinstance(source, Source) and self.goes_at_once(source.nbytes, waits=stream is None)
        if is_small and _transfer(self.ring.upload_at_once, source, address, stream):
            return self.ring.await_at_once if stream is None else _nothing
        return self._through_slots(source, address, stream)

    def _through_slots(self, source: Source | NDArray[Any] | Pack, *arguments: Any) -> Callable[[], None]:
        _transfer(self.ring.upload, source, *arguments, False)
        self._used_s = time.monotonic()
        return self.ring.await_uploads if arguments[-1] is None else _nothing

    def start(self, source: Source | Pack, address: int, stream: int | None) -> Ticket:
        """Return at once. The source and the memory at `address` must exist until the ticket is done."""
        return _transfer(self.ring.start_upload, source, address, stream)

    def upload_converted(
        self,
        source: Source | NDArray[Any],
        conversion: Conversion,
        crossed: int,
        address: int,
        stream: int | None,
    ) -> Callable[[], None]:
        """As `upload`. `crossed` is memory for what crosses, and `address` itself if no kernel reads it."""
        most_bytes = max(source.nbytes, conversion.crossing_bytes(source.nbytes))
        arguments = (conversion, crossed, address, stream)
        is_small = self.goes_at_once(most_bytes, waits=stream is None)
        if is_small and _transfer(self.ring.upload_at_once, source, *arguments):
            return self.ring.await_at_once if stream is None else _nothing
        return self._through_slots(source, *arguments)

    def start_converted(
        self, source: Source, conversion: Conversion, crossed: int, address: int, stream: int | None
    ) -> Ticket:
        return _transfer(self.ring.start_upload, source, conversion, crossed, address, stream)

    def start_read(self, window: FileWindow, stream: int | None, made: list[Ticket]) -> None:
        """The same from files. The ticket is put into `made`: Ctrl-C after a return would lose it."""
        try:
            made.extend(map(self.ring.start_read, (window,), (stream,)))
        except ValueError as error:  # the stream is being captured into a CUDA graph
            raise UsageError(str(error)) from error

    def download(self, address: int, to: Source, stream: int | None) -> None:
        is_small = to.nbytes <= MAX_FETCHED_BYTES
        if is_small and stream is not None and _transfer(self.ring.download_at_once, to, address, stream):
            return
        _transfer(self.ring.download, to, address, stream)

    def close(self) -> None:
        # In short waits, because Ctrl-C does not end a wait in native code.
        until = time.monotonic() + CLOSING_S
        while True:
            try:
                return self.ring.close(min(CLOSING_SLICE_S, max(0.0, until - time.monotonic())))
            except DeviceTimeoutError:
                if time.monotonic() >= until:
                    raise

    def cancel(self) -> None:
        """End waiting transfers at once, and the running one within a tenth of a second."""
        self.ring.cancel()

    def end(self, patience_s: float) -> bool:
        """After `cancel`: close, or leave everything to the process after `patience_s`. Returns whether it closed."""
        try:
            self.ring.close(patience_s)
        except DeviceTimeoutError:
            self.ring.abandon()  # the device may still read the slots
            return False
        return True


def _nothing() -> None:
    pass


def _transfer(call: Callable[..., Result], array: Source | NDArray[Any] | Pack, *arguments: object) -> Result:
    try:
        if isinstance(array, Source):
            return call(array.address, array.itemsize, array.shape, array.strides, *arguments)
        return call(array, *arguments)
    except ValueError as error:  # the stream is being captured into a CUDA graph
        raise UsageError(str(error)) from error


class PlainMover:
    """Copies by the driver, which stages with one thread. Each copy waits for the device before and after it."""

    pinned_bytes = 0

    def __init__(self, engine: Engine, device: int) -> None:
        self._engine = engine
        self._copier: Copier = engine.Copier(device)
        self._turn = threading.Lock()

    def upload(self, source: Source | Pack, address: int, stream: int | None) -> Callable[[], None]:
        del stream
        if not isinstance(source, Source):
            raise TypeError("only a ring takes packs")
        self._copy("h2d", np.ascontiguousarray(array_of(source)), address)
        return _nothing

    def start(self, source: Source | Pack, address: int, stream: int | None) -> Ticket:
        self.upload(source, address, stream)
        return FixedTicket(is_done=True)

    def upload_converted(
        self,
        source: Source | NDArray[Any],
        conversion: Conversion,
        crossed: int,
        address: int,
        stream: int | None,
    ) -> Callable[[], None]:
        del stream, crossed
        if conversion.has_kernel or not isinstance(source, Source):
            raise TypeError("only a ring launches kernels, and takes arrays of NumPy's")
        fresh = np.empty(conversion.crossing_bytes(source.nbytes), np.uint8)
        conversion.cast(source.address, source.itemsize, source.shape, source.strides, fresh.ctypes.data)
        self._copy("h2d", fresh, address)
        return _nothing

    def start_converted(
        self, source: Source, conversion: Conversion, crossed: int, address: int, stream: int | None
    ) -> Ticket:
        self.upload_converted(source, conversion, crossed, address, stream)
        return FixedTicket(is_done=True)

    def download(self, address: int, to: Source, stream: int | None) -> None:
        del stream
        array = array_of(to)
        if array.flags.c_contiguous:
            self._copy("d2h", array, address)
            return
        fresh = np.empty(array.shape, array.dtype)
        self._copy("d2h", fresh, address)
        array[...] = fresh

    def close(self) -> None:
        with self._turn:
            self._copier.close()

    def cancel(self) -> None:
        """End the wait for the running copy; the driver completes the copy."""
        self._copier.cancel()

    def end(self, patience_s: float) -> bool:
        if not self._turn.acquire(timeout=patience_s):  # a copy is running
            return False
        self._turn.release()
        self.close()
        return True

    def _copy(self, direction: str, array: NDArray[Any], address: int) -> None:
        with self._turn:
            if array.nbytes:
                lane = self._engine.Lane(direction, array.ctypes.data, address, array.nbytes, array.nbytes, 1)
                self._copier.drained(lane, 0)


Mover = RingMover | PlainMover


def copy_on_host(address: int, to: Source) -> None:
    """Copy items in C order at `address`, which is host memory."""
    array = array_of(to)
    array[...] = array_of(to._replace(address=address, strides=np.empty(to.shape, array.dtype).strides))
