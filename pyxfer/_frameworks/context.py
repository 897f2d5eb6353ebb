"""What a route gets to set up a transfer, and base classes of transfers.

A `RouteContext` has the size, host memory for the sources, and raw access to device memory. All contexts of a worker
share the memory of one `HostArena`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyxfer._document.printing import ShortRepr
from pyxfer._frameworks.base import RefusedError, Transfer, Where
from pyxfer._machine.engine import is_host
from pyxfer._upload.uploader import Uploader
from pyxfer.native import HOST
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._document.runs import FrameworkName
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, HostBuffer

# --- contexts --------------------------------------------------------------------------------------------------------

IMAGE_SHAPE = (256, 256, 3)
IMAGE_BYTES = 256 * 256 * 3

SourceKind = Literal["pageable", "aligned", "pinned"]
"""`pageable` starts 16 bytes after a page boundary, as large arrays from malloc do; `aligned` at a multiple of 64."""
MALLOC_HEADER = 16
ALIGNMENT = 4096
# Sources of one size rotate, so that staging does not read from a cache. More than this many would not help.
MAX_SLOTS = 32
# More pieces than two, so that the next one is not still in a cache.
SLOTS = 3


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
        """Check that the size is a whole number of images.

        Raises:
            RefusedError: it is not.

        """
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

    def lent(self, array: NDArray[Any]) -> bool:
        """Whether the array is in the memory of the sources, so that nothing was copied."""
        return self._arena.holds(array)

    def fetch(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Read device memory with a raw copy, without the framework."""
        self._engine.synchronize(self.device)
        found = _aligned(nbytes)
        self._copy("d2h", found, address)
        return found

    def store(self, address: int, data: NDArray[Any]) -> None:
        """Write device memory with a raw copy, without the framework."""
        self._engine.synchronize(self.device)
        self._copy("h2d", np.ascontiguousarray(data).reshape(-1).view(np.uint8), address)

    def _copy(self, direction: str, array: NDArray[np.uint8], address: int) -> None:
        lane = self._engine.Lane(direction, array.ctypes.data, address, array.size, array.size, 1)
        self._copier.drained(lane, 0)


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
        """Whether the array is in one of these buffers."""
        return any(np.may_share_memory(array, whole) for whole in self._arrays.values())

    def _whole(self, kind: SourceKind) -> NDArray[np.uint8]:
        if kind not in self._arrays:
            self._arrays[kind] = self._pinned_array() if kind == "pinned" else _aligned(self._total + ALIGNMENT)
            self._engine.fill(self._arrays[kind].ctypes.data, self._arrays[kind].size, 1)
        return self._arrays[kind]

    def _pinned_array(self) -> NDArray[np.uint8]:
        nbytes = self._total + ALIGNMENT
        self._pinned = self._engine.HostBuffer(nbytes, "pinned", self._device)
        return as_array(self._pinned.address, nbytes)

    def close(self) -> None:
        """Free the page-locked memory and the uploader."""
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


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    whole = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -whole.ctypes.data % ALIGNMENT
    return whole[begin : begin + nbytes]


def _placed(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# --- base classes of transfers ---------------------------------------------------------------------------------------


class Slots:
    """Arrays of one route that take turns."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._pieces = [make() for _ in range(SLOTS)]
        self._turns = itertools.cycle(self._pieces)

    def take(self) -> Any:
        """The next array."""
        return next(self._turns)

    def fill(self, data: NDArray[Any]) -> None:
        """Write the data into all arrays."""
        for piece in self._pieces:
            np.asarray(piece)[:] = data


class ImageRow(Transfer):
    """A batch of images, sent and cast on the GPU; then one row of pixels is read back."""

    def __init__(self, context: RouteContext) -> None:
        context.check_images()
        super().__init__(context)
        self.row: Any = None
        """The row on the GPU, which shows that the cast ran there; `result` is its copy on the host."""

    def arrived(self) -> NDArray[Any]:
        return np.asarray(self.result)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        _, width, channels = IMAGE_SHAPE
        return data[: width * channels].astype(np.float32).reshape(width, channels)

    def release(self) -> None:
        super().release()
        self.row = None  # it may be a view of the batch


class HostUpload(Transfer):
    """From an array in host memory to the GPU, by the method `upload` of a subclass."""

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context)
        self.shape = shape
        self.source: Any = None

    def refresh(self) -> None:
        self.source = self.context.source().reshape(self.shape)

    def run(self) -> None:
        self.result = self.upload()

    def upload(self) -> Any:
        """The framework's array on the GPU."""
        raise NotImplementedError


class SlotsUpload(HostUpload):
    """From page-locked arrays of the framework, in turn."""

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context, shape)
        self._slots = self.slots()

    def slots(self) -> Slots:
        """The page-locked arrays."""
        raise NotImplementedError

    def write(self, data: NDArray[Any]) -> None:
        self._slots.fill(data)

    def refresh(self) -> None:
        self.source = self._slots.take().reshape(self.shape)


class RingUpload(HostUpload):
    """`pyxfer.upload`: several threads copy into page-locked slots while the copy engine reads other slots."""

    framework: FrameworkName

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context, shape)
        self._uploader = context.uploader()

    def upload(self) -> Any:
        return self._uploader.upload(self.source, self.framework)


class RingDownload(Transfer):
    """`pyxfer.download`: several threads empty page-locked slots that the copy engine fills.

    Without `into` these threads write to a new array, and touch it first. With `into` three touched arrays take turns.
    """

    def __init__(self, context: RouteContext, *, into: bool = False) -> None:
        super().__init__(context)
        self._uploader = context.uploader()
        self._targets = Slots(lambda: np.ones(context.nbytes, np.uint8)) if into else None
        self._target: NDArray[np.uint8] | None = None

    @property
    def on_device(self) -> Any:
        """The framework's array on the GPU."""
        raise NotImplementedError

    def refresh(self) -> None:
        super().refresh()
        if self._targets is not None:
            self._target = self._targets.take()

    def run(self) -> None:
        self.result = self._uploader.download(self.on_device, self._target)

    def where(self) -> Where:
        return "cpu" if isinstance(self.result, np.ndarray) else "gpu"

    def arrived(self) -> NDArray[Any]:
        found: NDArray[Any] = self.result
        return found
