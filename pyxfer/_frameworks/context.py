"""What a route gets to set up a transfer.

A `RouteContext` has the size, host memory for the sources, and raw access to device memory. All contexts of a worker
share the memory of one `HostArena`.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._document.printing import ShortRepr
from pyxfer._frameworks.base import IMAGE_BYTES, IMAGE_SHAPE, SourceKind
from pyxfer._machine.engine import is_host
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import RefusedError
from pyxfer.native import HOST
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, HostBuffer

MALLOC_HEADER = 16
ALIGNMENT = 4096
# Sources of one size rotate, so that staging does not read from a cache. More than this many would not help.
MAX_SLOTS = 32


class RouteContext(ShortRepr):
    """The argument of a route's `copy` and `image_batch`: size, device, sources, and raw access to device memory."""

    def __init__(
        self, nbytes: int, device: int, arena: HostArena, copier: Copier, engine: Engine, *, rotates: bool = True
    ) -> None:
        """Without `rotates` every source is the same memory, as in a program that sends one array again and again."""
        self._rotates = rotates
        self.nbytes = nbytes
        self.device = device
        self.batch = nbytes // IMAGE_BYTES
        self._arena = arena
        self._copier = copier
        self._engine = engine
        self._turn = 0
        self._held: NDArray[Any] | None = None

    def _summary(self) -> str:
        return f"for {format_size(self.nbytes)} on device {self.device}"

    def source(self, kind: SourceKind = "pageable") -> NDArray[np.uint8]:
        """Host memory of the size, in another place at every call. Inside `holding` it contains the held data."""
        self._turn += self._rotates
        array = self._arena.array(kind, self.nbytes, self._turn)
        if self._held is not None:
            array[:] = self._held
        return array

    def images(self, kind: SourceKind = "pageable") -> NDArray[np.uint8]:
        """A source as a batch of images, shaped (n, 256, 256, 3)."""
        self.check_images()
        return self.source(kind).reshape((self.batch, *IMAGE_SHAPE))

    def uploader(self) -> Uploader:
        """The uploader of the routes `upload` and `download`, shared by all routes and sizes."""
        return self._arena.uploader()

    def check_images(self) -> None:
        """Raise a RefusedError if the size is not a multiple of an image's."""
        if self.nbytes % IMAGE_BYTES:
            height, width, channels = IMAGE_SHAPE
            raise RefusedError(
                f"the sizes of image-batch are batches of {IMAGE_BYTES} bytes ({height} x {width} x {channels}); "
                f"{self.nbytes} bytes are not a whole number of images"
            )

    @contextlib.contextmanager
    def holding(self, data: NDArray[np.uint8]) -> Iterator[None]:
        """Inside the block every source contains these bytes."""
        self._held = data
        try:
            yield
        finally:
            self._held = None

    def scratch(self) -> NDArray[np.uint8]:
        """Memory of the size for contents to send. It is reused as `fetch` reuses its own."""
        return self._arena.contents.take(self.nbytes)

    def lent(self, array: NDArray[Any]) -> bool:
        """Whether the array is in the memory of the sources, so that nothing was copied."""
        return self._arena.holds(array)

    def fetch(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Read device memory with a raw copy, without the framework."""
        self._engine.synchronize(self.device)
        found = self._arena.landing.take(nbytes)
        self._copy("d2h", found, address)
        return found

    def store(self, address: int, data: NDArray[Any]) -> None:
        """Write device memory with a raw copy, without the framework."""
        self._engine.synchronize(self.device)
        self._copy("h2d", np.ascontiguousarray(data).reshape(-1).view(np.uint8), address)

    def _copy(self, direction: str, array: NDArray[np.uint8], address: int) -> None:
        lane = self._engine.Lane(direction, array.ctypes.data, address, array.size, array.size, 1)
        self._copier.drained(lane, 0)


# The attribute, and the argument of getrefcount.
_OWN_REFERENCES = 2


class Reused:
    """Memory for one array after the other, because the first touch of fresh pages is slow."""

    def __init__(self) -> None:
        self._whole = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """The memory of the last array if nothing refers to it any more, or else new memory."""
        if self._whole.size < nbytes + ALIGNMENT or sys.getrefcount(self._whole) > _OWN_REFERENCES:
            self._whole = np.empty(nbytes + ALIGNMENT, np.uint8)
        return _aligned(self._whole, nbytes)


class HostArena:
    """One buffer for each kind of source, and one uploader; all routes and sizes share them."""

    def __init__(self, engine: Engine, device: int, largest: int, cache_bytes: int) -> None:
        self._engine = engine
        self._device = device
        self._total = 2 * _placed(largest + MALLOC_HEADER)
        if largest >= 1 << 20:
            self._total = max(self._total, _placed(cache_bytes * 3 // 2))
        self._arrays: dict[SourceKind, NDArray[np.uint8]] = {}
        self._pinned: HostBuffer | None = None
        self._uploader: Uploader | None = None
        self.landing, self.contents = Reused(), Reused()

    def array(self, kind: SourceKind, nbytes: int, turn: int) -> NDArray[np.uint8]:
        """A slice of the buffer; slices rotate with `turn`."""
        whole = self._whole(kind)
        stride = _placed(nbytes + MALLOC_HEADER)
        slots = max(1, min(MAX_SLOTS, whole.size // stride))
        begin = turn % slots * stride + (MALLOC_HEADER if kind == "pageable" else 0)
        return whole[begin : begin + nbytes]

    def uploader(self) -> Uploader:
        """The shared uploader, whose first copy creates its threads and its ring."""
        if self._uploader is None:
            on_host = is_host(self._engine)
            self._uploader = Uploader(HOST if on_host else self._device, require_gpu=not on_host)
        return self._uploader

    def holds(self, array: NDArray[Any]) -> bool:
        return any(np.may_share_memory(array, whole) for whole in self._arrays.values())

    def _whole(self, kind: SourceKind) -> NDArray[np.uint8]:
        if kind not in self._arrays:
            nbytes = self._total + ALIGNMENT
            if kind == "pinned":
                self._pinned = self._engine.HostBuffer(nbytes, "pinned", self._device)
                array = as_array(self._pinned.address, nbytes)
            else:
                array = _aligned(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes)
            self._arrays[kind] = array
            self._engine.fill(array.ctypes.data, array.size, 1)
        return self._arrays[kind]

    def close(self) -> None:
        self._arrays.clear()
        uploader, pinned = self._uploader, self._pinned
        self._uploader = self._pinned = None
        if uploader is not None:
            uploader.close()
        if pinned is not None:
            pinned.close()


def as_array(address: int, nbytes: int) -> NDArray[np.uint8]:
    """A view of memory that must outlive it."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _aligned(whole: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    begin = -whole.ctypes.data % ALIGNMENT
    return whole[begin : begin + nbytes]


def _placed(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
