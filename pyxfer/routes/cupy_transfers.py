"""What CuPy's routes do at one size; `cupy_routes` is the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes.base import RefusedError, Transfer, Where
from pyxfer.routes.place import IMAGE_SHAPE
from pyxfer.routes.shared_transfers import ImageRow, RingDownload, Slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place
    from pyxfer.sampling.streams import StreamLike


class CupyTransfer(Transfer):
    """Something on CuPy's current stream."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import cupy

        self.cupy: Any = cupy

    @property
    def stream(self) -> StreamLike | None:
        """The current stream's handle; 0 is the legacy default stream."""
        return int(self.cupy.cuda.get_current_stream().ptr)

    def where(self) -> Where:
        """A CuPy array lies on a GPU and nowhere else, a NumPy array nowhere there."""
        return "gpu" if isinstance(self.result, self.cupy.ndarray) else "cpu"


class Upload(CupyTransfer):
    """From host memory to the GPU; what differs is `upload`."""

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
        """The array on the GPU."""
        raise NotImplementedError

    def arrived(self) -> NDArray[Any]:
        """The array's memory."""
        return self.place.fetch(self.result.data.ptr, self.result.nbytes)


class Asarray(Upload):
    """`cupy.asarray`: one thread copies into page-locked memory of CuPy's pool, which the DMA then reads."""

    def upload(self) -> Any:
        """One copy on the host."""
        return self.cupy.asarray(self.source)


class ThroughRing(Upload):
    """`pyxfer.upload`: several threads copy it into page-locked slots, while the copy engine reads others."""

    def __init__(self, place: Place, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(place, shape)
        self._uploader = place.uploader()

    def upload(self) -> Any:
        """One copy on the host, of all threads together; the current stream waits for the last piece."""
        return self._uploader.upload(self.source, "cupy")


class FromPinned(Upload):
    """From arrays of `cupyx.empty_pinned`."""

    def __init__(self, place: Place, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(place, shape)
        self._slots = pinned_slots(place.nbytes)

    def write(self, data: NDArray[Any]) -> None:
        """To all arrays, whichever is next."""
        self._slots.fill(data)

    def refresh(self) -> None:
        """The next array."""
        self.source = self._slots.take().reshape(self.shape)


class AsarrayPinned(FromPinned):
    """`cupy.asarray` of page-locked memory; CuPy 12 and before copied it once more."""

    def upload(self) -> Any:
        """No copy on the host."""
        return self.cupy.asarray(self.source)


class Set(Upload):
    """`ndarray.set`: from ordinary memory as it is, which the driver stages."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.target = self.cupy.empty(place.nbytes, self.cupy.uint8)

    def upload(self) -> Any:
        """No copy on the host."""
        self.target.set(self.source)
        return self.target


class SetPinned(FromPinned):
    """`ndarray.set` from page-locked memory."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.target = self.cupy.empty(place.nbytes, self.cupy.uint8)

    def upload(self) -> Any:
        """No copy on the host."""
        self.target.set(self.source)
        return self.target


class ImageBatch(ImageRow, CupyTransfer):
    """A batch of images to the GPU in one of the ways above, cast there, and one row of pixels read back."""

    def __init__(self, place: Place, way: type[Upload]) -> None:
        super().__init__(place)
        self._way = way(place, (place.batch, *IMAGE_SHAPE))

    def write(self, data: NDArray[Any]) -> None:
        """As the way has it."""
        self._way.write(data)

    def refresh(self) -> None:
        """As the way has it."""
        self._way.refresh()

    def run(self) -> None:
        """Reading back waits for everything before it."""
        self.row = self._way.upload().astype(self.cupy.float32)[0, 0]
        self.result = self.row.get()

    def where(self) -> Where:
        """Where the row lay before it was read back."""
        return "gpu" if isinstance(self.row, self.cupy.ndarray) else "cpu"


class Download(CupyTransfer):
    """From the GPU to a NumPy array."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.array = self.cupy.empty(place.nbytes, self.cupy.uint8)

    def write(self, data: NDArray[Any]) -> None:
        """To the array on the GPU."""
        self.place.store(self.array.data.ptr, data)

    def arrived(self) -> NDArray[Any]:
        """The array."""
        found: NDArray[Any] = self.result
        return found


class Get(Download):
    """`ndarray.get` into new ordinary memory, which is touched for the first time on the way."""

    def run(self) -> None:
        """No copy on the host but the driver's."""
        self.result = self.array.get()


class DownloadThroughRing(RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or one that is there."""

    @property
    def on_device(self) -> Any:
        """CuPy's array."""
        return self.array


class GetPinned(Download):
    """`ndarray.get` into page-locked memory without waiting; whoever reads it has to wait for the stream."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._slots = pinned_slots(place.nbytes)
        self._target = self._slots.take()
        try:
            self.array.get(out=self._target, blocking=False)
        except TypeError as error:
            raise RefusedError(
                f"not available in CuPy {self.cupy.__version__}: ndarray.get() has no blocking=False before CuPy 13"
            ) from error

    def refresh(self) -> None:
        """The next array."""
        self._target = self._slots.take()

    def run(self) -> None:
        """No copy on the host."""
        self.result = self.array.get(out=self._target, blocking=False)


class Ingest(Transfer):
    """A copy into page-locked memory of CuPy's pool: CuPy has nothing else on the host."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import cupy
        import cupyx

        if not cupy.cuda.is_available():
            raise RefusedError("CuPy has no arrays in host memory but page-locked ones, and those need a GPU")
        self._empty_pinned = cupyx.empty_pinned
        self.source: Any = None

    def refresh(self) -> None:
        """The next piece of memory."""
        self.source = self.place.source()

    def run(self) -> None:
        """One copy."""
        self.result = self._empty_pinned(self.source.shape, self.source.dtype)
        self.result[...] = self.source

    def where(self) -> Where:
        """A NumPy array over page-locked memory."""
        return "cpu" if isinstance(self.result, np.ndarray) else "gpu"

    def arrived(self) -> NDArray[Any]:
        """The array."""
        found: NDArray[Any] = self.result
        return found


def pinned_slots(nbytes: int) -> Slots:
    """Arrays in page-locked memory of CuPy's pool."""
    import cupyx

    return Slots(lambda: cupyx.empty_pinned(nbytes, np.uint8))
