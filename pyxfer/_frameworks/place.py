"""Where a transfer is set up: its size, its device, the host memory it takes from, and a look at what arrived."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyxfer._frameworks.base import RefusedError, Transfer, Where
from pyxfer._machine.engine import is_host
from pyxfer._upload.uploader import Uploader
from pyxfer.native import HOST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, HostBuffer


# Three pieces of memory take turns: more than two sizes, so that none waits in a cache for the DMA.
SLOTS = 3


class Slots:
    """Pieces of memory of a route's own, page-locked or ordinary, which take turns."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._pieces = [make() for _ in range(SLOTS)]
        self._turns = itertools.cycle(self._pieces)

    def take(self) -> Any:
        """The one whose turn it is."""
        return next(self._turns)

    def fill(self, data: NDArray[Any]) -> None:
        """All of them, through NumPy's view of their memory."""
        for piece in self._pieces:
            np.asarray(piece)[:] = data


class ImageRow(Transfer):
    """A batch of images to the GPU, cast there, and one row of pixels read back; a framework says how."""

    def __init__(self, place: Place) -> None:
        place.check_images()
        super().__init__(place)
        self.row: Any = None
        """Where it lies says whether the work was done on the GPU; `result` is what was read back of it."""

    def arrived(self) -> NDArray[Any]:
        """The row."""
        return np.asarray(self.result)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        """The first row of pixels of the first image."""
        _, width, channels = IMAGE_SHAPE
        return data[: width * channels].astype(np.float32).reshape(width, channels)

    def release(self) -> None:
        """The row may be a view, and would keep the batch."""
        super().release()
        self.row = None


class HostUpload(Transfer):
    """An array in host memory to the GPU; what differs is `upload`."""

    def __init__(self, place: Place, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(place)
        self.shape = shape
        self.source: Any = None

    def refresh(self) -> None:
        """The next piece of ordinary memory."""
        self.source = self.place.source().reshape(self.shape)

    def run(self) -> None:
        """The call of the route."""
        self.result = self.upload()

    def upload(self) -> Any:
        """The framework's array on the GPU."""
        raise NotImplementedError


class SlotsUpload(HostUpload):
    """From page-locked arrays of the framework's own, in turn."""

    def __init__(self, place: Place, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(place, shape)
        self._slots = self.slots()

    def slots(self) -> Slots:
        """The arrays."""
        raise NotImplementedError

    def write(self, data: NDArray[Any]) -> None:
        """To all arrays, whichever is next."""
        self._slots.fill(data)

    def refresh(self) -> None:
        """The next array."""
        self.source = self._slots.take().reshape(self.shape)


class RingUpload(HostUpload):
    """`pyxfer.upload`: several threads copy it into page-locked slots, while the copy engine reads others."""

    framework: str

    def __init__(self, place: Place, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(place, shape)
        self._uploader = place.uploader()

    def upload(self) -> Any:
        """One copy on the host, of all threads together; the current stream waits for the last piece."""
        return self._uploader.upload(self.source, self.framework)


class RingDownload(Transfer):
    """`pyxfer.download` of what a framework has on the GPU; several threads empty slots that the copy engine fills.

    A new array is touched for the first time on the way, by those threads. With `into` it goes into arrays that have
    been touched, three of them in turn.
    """

    def __init__(self, place: Place, *, into: bool = False) -> None:
        super().__init__(place)
        self._uploader = place.uploader()
        self._targets = Slots(lambda: np.ones(place.nbytes, np.uint8)) if into else None
        self._target: NDArray[np.uint8] | None = None

    @property
    def on_device(self) -> Any:
        """The framework's array."""
        raise NotImplementedError

    def refresh(self) -> None:
        """As the framework has it, and the next array to copy to."""
        super().refresh()
        if self._targets is not None:
            self._target = self._targets.take()

    def run(self) -> None:
        """One copy on the host, out of the slots."""
        self.result = self._uploader.download(self.on_device, self._target)

    def where(self) -> Where:
        """Where NumPy's arrays lie."""
        return "cpu" if isinstance(self.result, np.ndarray) else "gpu"

    def arrived(self) -> NDArray[Any]:
        """The array."""
        found: NDArray[Any] = self.result
        return found


# `pageable` starts where malloc puts a large array, 16 bytes behind a page; `aligned` at a multiple of 64.
SourceKind = Literal["pageable", "aligned", "pinned"]
MALLOC_HEADER = 16
ALIGNMENT = 4096
IMAGE_SHAPE = (256, 256, 3)
IMAGE_BYTES = 256 * 256 * 3
# Sources of one size rotate, so that staging is not fed from a cache; beyond this many it is out of any.
MOST_SLOTS = 32


class HostArena:
    """One buffer a kind, of which slices rotate, and one uploader: shared by every route and size."""

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
        """The slice whose turn it is."""
        whole = self._whole(kind)
        stride = _placed(nbytes + MALLOC_HEADER)
        slots = max(1, min(MOST_SLOTS, whole.size // stride))
        begin = turn % slots * stride + (MALLOC_HEADER if kind == "pageable" else 0)
        return whole[begin : begin + nbytes]

    def uploader(self) -> Uploader:
        """Its threads, and its page-locked memory, are made by the first copy that goes through it."""
        if self._uploader is None:
            on_host = is_host(self._engine)
            self._uploader = Uploader(HOST if on_host else self._device, require_gpu=not on_host)
        return self._uploader

    def holds(self, array: NDArray[Any]) -> bool:
        """Whether the array lies in one of these buffers."""
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
        """Give back what is page-locked."""
        self._arrays.clear()
        uploader, pinned = self._uploader, self._pinned
        self._uploader = self._pinned = None
        if uploader is not None:
            uploader.close()
        if pinned is not None:
            pinned.close()


class Place:
    """What a route's `copy` or `image_batch` is given."""

    def __init__(
        self, nbytes: int, device: int, arena: HostArena, copier: Copier, engine: Engine, *, rotates: bool = True
    ) -> None:
        """Without `rotates` a source is the same memory every time, as where one array is sent again and again."""
        self._rotates = rotates
        self.nbytes = nbytes
        self.device = device
        self.batch = nbytes // IMAGE_BYTES
        self._arena = arena
        self._copier = copier
        self._engine = engine
        self._turn = 0
        self._held: NDArray[Any] | None = None

    def source(self, kind: SourceKind = "pageable") -> NDArray[np.uint8]:
        """Host memory of the size; another piece of it at every call, or the data that is being checked."""
        self._turn += self._rotates
        array = self._arena.array(kind, self.nbytes, self._turn)
        if self._held is not None:
            array[:] = self._held
        return array

    def images(self, kind: SourceKind = "pageable") -> NDArray[np.uint8]:
        """The same as a batch of images, (n, 256, 256, 3)."""
        self.check_images()
        return self.source(kind).reshape((self.batch, *IMAGE_SHAPE))

    def uploader(self) -> Uploader:
        """What `pyxfer.upload` and `pyxfer.download` go through here: one for all routes and sizes."""
        return self._arena.uploader()

    def check_images(self) -> None:
        """Refuse a size that is no whole number of images.

        Raises:
            RefusedError: says which sizes are.

        """
        if self.nbytes % IMAGE_BYTES:
            height, width, channels = IMAGE_SHAPE
            raise RefusedError(
                f"the sizes of image-batch are batches of {IMAGE_BYTES} bytes ({height} x {width} x {channels}); "
                f"{self.nbytes} bytes are no whole number of images"
            )

    @contextlib.contextmanager
    def holding(self, data: NDArray[np.uint8]) -> Iterator[None]:
        """While the block lasts every source holds these bytes."""
        self._held = data
        try:
            yield
        finally:
            self._held = None

    def lent(self, array: NDArray[Any]) -> bool:
        """Whether this is memory that a source was made of, so that nothing was copied."""
        return self._arena.holds(array)

    def fetch(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Read device memory with a raw copy, past any framework."""
        self._engine.synchronize(self.device)
        found = _aligned(nbytes)
        self._copy("d2h", found, address)
        return found

    def store(self, address: int, data: NDArray[Any]) -> None:
        """Write device memory with a raw copy, past any framework."""
        self._engine.synchronize(self.device)
        self._copy("h2d", np.ascontiguousarray(data).reshape(-1).view(np.uint8), address)

    def _copy(self, direction: str, array: NDArray[np.uint8], address: int) -> None:
        lane = self._engine.Lane(direction, array.ctypes.data, address, array.size, array.size, 1)
        self._copier.drained(lane, 0)


def as_array(address: int, nbytes: int) -> NDArray[np.uint8]:
    """Memory of somebody who outlives the array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    whole = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -whole.ctypes.data % ALIGNMENT
    return whole[begin : begin + nbytes]


def _placed(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
