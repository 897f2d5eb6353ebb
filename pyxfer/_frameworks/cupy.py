"""CuPy's routes between host and device, and from NumPy."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.machines import Fact, unknown
from pyxfer._frameworks import base, orders
from pyxfer._frameworks.context import RouteContext
from pyxfer._measure.bracket import StreamLike
from pyxfer.errors import RefusedError


class CupyTransfer(base.ArrayTransfer):
    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import cupy

        self.cupy: Any = cupy

    @property
    def stream(self) -> StreamLike | None:
        """Its handle; 0 is the legacy default stream."""
        return int(self.cupy.cuda.get_current_stream().ptr)

    def place_of(self, array: Any) -> base.Where:
        return "gpu" if isinstance(array, self.cupy.ndarray) else "cpu"

    def address_of(self, array: Any) -> int:
        return int(array.data.ptr)


class Upload(base.HostUpload, CupyTransfer):
    """From host memory to the GPU."""


class Asarray(Upload):
    """`cupy.asarray`: one thread copies into page-locked memory of CuPy's pool, which the DMA then reads."""

    def upload(self) -> Any:
        return self.cupy.asarray(self.source)


class UploadThroughRing(base.RingUpload, Upload):
    framework = "cupy"


class Set(Upload):
    """`ndarray.set` of pageable memory, which the driver stages."""

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context, shape)
        self.target = self.cupy.empty(context.nbytes, self.cupy.uint8)

    def upload(self) -> Any:
        self.target.set(self.source)
        return self.target


class FromPinned(base.SlotsUpload):
    """From arrays of `cupyx.empty_pinned`."""

    def slots(self) -> base.Slots:
        return pinned_slots(self.context.nbytes)


class AsarrayPinned(FromPinned, Asarray):
    """`cupy.asarray` of page-locked memory, which CuPy 12 and earlier copied on the host."""


class SetPinned(FromPinned, Set):
    """`ndarray.set` from page-locked memory."""


class Images(base.ImageBatch, CupyTransfer):
    def run(self) -> None:
        self.row = self.sending.upload().astype(self.cupy.float32)[0, 0]
        self.result = self.row.get()


class Converted(orders.Converting, Upload):
    """Images, converted by NumPy on the host and by CuPy's kernels on the device."""

    def send(self, images: NDArray[Any]) -> Any:
        return self.cupy.asarray(images)

    def on_device(self, images: Any) -> Any:
        permutes, casts = self.conversion.does("device")
        y = images.transpose(orders.NCHW_AXES) if permutes else images
        return y.astype(self.conversion.dtype, order="C") if casts else self.cupy.ascontiguousarray(y)


class ConvertedUpload(orders.ConvertingUpload, UploadThroughRing):
    """`pyxfer.upload` of images."""


class Download(base.IntoNumpy, base.FromArray, CupyTransfer):
    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self.array = self.cupy.empty(context.nbytes, self.cupy.uint8)


class Get(Download):
    """`ndarray.get` into new pageable memory, which the copy touches first."""

    def run(self) -> None:
        self.result = self.array.get()


class DownloadThroughRing(base.RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or into existing ones."""


class GetPinned(Download):
    """`ndarray.get` into page-locked memory without waiting. A reader must wait for the stream."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._slots = pinned_slots(context.nbytes)
        self._target = self._slots.take()
        try:
            self.array.get(out=self._target, blocking=False)
        except TypeError as error:
            raise RefusedError(
                f"not available in CuPy {self.cupy.__version__}: ndarray.get() has no blocking=False before CuPy 13"
            ) from error

    def refresh(self) -> None:
        self._target = self._slots.take()

    def run(self) -> None:
        self.result = self.array.get(out=self._target, blocking=False)


class Ingest(base.FromHost, base.IntoNumpy):
    """A copy into page-locked memory of CuPy's pool, the only kind of host array that CuPy has."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import cupy
        import cupyx

        if not cupy.cuda.is_available():
            raise RefusedError("the only host arrays of CuPy are page-locked ones, which need a GPU")
        self._empty_pinned = cupyx.empty_pinned

    def run(self) -> None:
        self.result = self._empty_pinned(self.source.shape, self.source.dtype)
        self.result[...] = self.source


def pinned_slots(nbytes: int) -> base.Slots:
    import cupyx

    return base.Slots(lambda: cupyx.empty_pinned(nbytes, np.uint8))


_VARIABLES = ("CUPY_GPU_MEMORY_LIMIT", "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM")


def _start(device: int | None, _setting: str) -> base.Started:
    with base.importing("CuPy", "cupy"):
        import cupy
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    return base.Started(str(cupy.__version__), _choose_device(cupy, device), settings)


def _choose_device(cupy: Any, device: int | None) -> Fact[str]:
    if device is None:
        return unknown("no GPU was requested")
    try:
        cupy.cuda.Device(device).use()
        cupy.zeros(1, cupy.uint8).get()
        version = cupy.cuda.runtime.runtimeGetVersion()
    except (RuntimeError, ImportError, OSError) as error:
        return unknown(f"CuPy cannot use GPU {device}: {base.first_line(error)}")
    return Fact(f"{version // 1000}.{version % 1000 // 10}")


_ROUTES = (
    base.through_pinned("cupy.asarray", "cupy.asarray(x)", *base.both(Images, Asarray), usual=True),
    base.from_pinned("cupy.asarray-pinned", "cupy.asarray(pinned)", *base.both(Images, AsarrayPinned)),
    base.onto_gpu("cupy.set", "array.set(x)", Set, returns="staged"),
    base.from_pinned("cupy.set-pinned", "array.set(pinned)", SetPinned),
    base.ring_upload(
        "cupy.upload", 'pyxfer.upload(x, to="cupy")', *base.both(Images, UploadThroughRing), returns="staged"
    ),
    base.off_gpu("cupy.get", "array.get()", Get, usual=True),
    base.into_pinned("cupy.get-pinned", "array.get(out=pinned, blocking=False)", GetPinned),
    base.ring_download("cupy.download", "pyxfer.download(array)", DownloadThroughRing),
    base.ring_download("cupy.download-into", "pyxfer.download(array, out=x)", partial(DownloadThroughRing, into=True)),
)
_INGEST = (
    base.ingest_route(
        "cupy.ingest",
        "cupyx.empty_pinned(x.shape, x.dtype)[...] = x",
        Ingest,
        memory="pinned",
        host_copies=1,
        usual=True,
    ),
)

_ORDERS = orders.make_orders(
    "cupy",
    "cupy",
    orders.Code(
        send="cupy.asarray({})",
        permute="cupy.ascontiguousarray({}.transpose(0, 3, 1, 2))",
        cast='{}.astype("{dtype}")',
        both='{}.transpose(0, 3, 1, 2).astype("{dtype}", order="C")',
    ),
    Converted,
    ConvertedUpload,
    dma="pinned",
    host_copies=1,
    returns="queued",
    upload_returns="staged",
)

FRAMEWORK = base.Framework(
    name="cupy",
    title="CuPy",
    owner="cupy",
    distributions=("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"),
    start=_start,
    routes=(*base.on_stream(*_ROUTES, *_ORDERS), *_INGEST),
)
