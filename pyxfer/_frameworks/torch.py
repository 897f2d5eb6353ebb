"""PyTorch's routes between host and device, and from NumPy."""

from __future__ import annotations

import itertools
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

# Four channels, so that every power of two from 4 KiB on is a whole number of pictures.
PICTURE = (4, 32, 32)
PICTURE_BYTES = 4 * 32 * 32
BATCHES = 8
SAMPLES = 8


class TorchTransfer(base.ArrayTransfer):
    """A transfer on PyTorch's current stream of the device."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import torch

        self.torch: Any = torch
        self.device = device_of(torch, context.device)

    @property
    def stream(self) -> StreamLike | None:
        return int(self.torch.cuda.current_stream(self.device).cuda_stream)

    def place_of(self, array: Any) -> base.Where:
        return "gpu" if array.device.type == "cuda" else "cpu"

    def address_of(self, array: Any) -> int:
        return int(array.data_ptr())


class Upload(base.HostUpload, TorchTransfer):
    def arrived(self) -> NDArray[Any]:
        """The tensor's elements in the order of its memory."""
        return super().arrived().view(np.dtype(str(self.result.dtype).removeprefix("torch.")))


class To(Upload):
    """`Tensor.to` of pageable memory: the driver stages it, and the call waits."""

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source).to(self.device)


class ToNonBlocking(Upload):
    """The same without waiting, though the driver has read the source when the call returns."""

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source).to(self.device, non_blocking=True)


class PinTo(Upload):
    """This thread copies into page-locked memory of PyTorch's pool first.

    The pool keeps the pinned tensor until the GPU has read it.
    """

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source).pin_memory().to(self.device, non_blocking=True)


class PinnedNonBlocking(base.SlotsUpload, Upload):
    """From tensors that were created page-locked."""

    def slots(self) -> base.Slots:
        return pinned_slots(self.torch, self.context.nbytes)

    def upload(self) -> Any:
        return self.source.to(self.device, non_blocking=True)


class UploadThroughRing(base.RingUpload, Upload):
    framework = "torch"


class Cast(Upload):
    """A copy that converts to float32."""

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        return data.astype(np.float32)


class CastBlocking(Cast):
    """A blocking copy converts on the CPU, so four bytes cross the link for each byte of the source."""

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source).to(self.device, self.torch.float32)


class CastNonBlocking(Cast):
    """A non-blocking copy converts on the GPU, so only the bytes of the source cross the link."""

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source).to(self.device, self.torch.float32, non_blocking=True)


class Noncontiguous(Upload):
    """Every second column of an array twice as large: PyTorch makes it contiguous on the CPU first."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        columns = int(np.gcd(context.nbytes, 4096))
        shape = (context.nbytes // columns, 2 * columns)
        # Two arrays take turns. They are filled, so that no trial touches a page first.
        self._wide = [np.full(shape, 1, np.uint8) for _ in range(2)]
        self._turns = itertools.cycle(self._wide)

    def write(self, data: NDArray[Any]) -> None:
        for wide in self._wide:
            wide[:, ::2] = data.reshape(len(wide), -1)

    def refresh(self) -> None:
        self.source = next(self._turns)

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source)[:, ::2].to(self.device)


class ChannelsLast(Upload):
    """Pictures, stored channel by channel on the host and pixel by pixel on the GPU, which reorders them."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context, (-1, *PICTURE))
        if context.nbytes % PICTURE_BYTES:
            raise RefusedError(
                f"it sends pictures of {PICTURE_BYTES} bytes, and {context.nbytes} bytes are not a whole number of "
                f"pictures: give multiples of {PICTURE_BYTES}"
            )

    def upload(self) -> Any:
        return self.torch.from_numpy(self.source).to(self.device, memory_format=self.torch.channels_last)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        """The channels of each pixel are adjacent in memory."""
        pixels: NDArray[Any] = data.reshape(-1, *PICTURE).transpose(0, 2, 3, 1)
        return pixels.reshape(-1)


class LoaderPinned(Upload):
    """One epoch of a DataLoader without workers: eight batches of the size, of eight samples each.

    This thread stacks the samples of a batch (the first copy), copies the batch into page-locked memory (the second),
    and queues it. As in a training loop, only the latest batch is kept.
    """

    copies = BATCHES

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context, (SAMPLES, -1))
        if context.nbytes % SAMPLES:
            raise RefusedError(
                f"it sends batches of {SAMPLES} samples of equal size, which do not fit into {context.nbytes} bytes: "
                f"give multiples of {SAMPLES}"
            )

    def refresh(self) -> None:
        sources = [self.context.source().reshape(self.shape) for _ in range(BATCHES)]
        samples = [sample for source in sources for sample in self.torch.from_numpy(source)]
        self.source = self.torch.utils.data.DataLoader(samples, batch_size=SAMPLES, pin_memory=True, num_workers=0)

    def run(self) -> None:
        for batch in self.source:
            self.result = batch.to(self.device, non_blocking=True)


class Images(base.ImageBatch, TorchTransfer):
    def run(self) -> None:
        # Reading back waits for all work before it. `to` does nothing if the upload has cast the batch.
        self.row = self.sending.upload().to(self.torch.float32)[0, 0]
        self.result = self.row.cpu().numpy()


class Converted(orders.Converting, Upload):
    """Images, converted by NumPy on the host and by PyTorch's kernels on the device."""

    def send(self, images: NDArray[Any]) -> Any:
        return self.torch.from_numpy(images).to(self.device)

    def on_device(self, images: Any) -> Any:
        permutes, casts = self.conversion.does("device")
        y = images.permute(orders.NCHW_AXES).contiguous() if permutes else images
        return y.to(getattr(self.torch, self.conversion.dtype)) if casts else y


class ConvertedUpload(orders.ConvertingUpload, UploadThroughRing):
    """`pyxfer.upload` of images."""


def device_of(torch: Any, index: int) -> Any:
    return torch.device("cuda", index)


def pinned_slots(torch: Any, nbytes: int) -> base.Slots:
    return base.Slots(lambda: torch.empty(nbytes, dtype=torch.uint8, pin_memory=True))


class Download(base.IntoHost, base.FromArray, TorchTransfer):
    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self.array = self.torch.empty(context.nbytes, dtype=self.torch.uint8, device=self.device)


class Cpu(Download):
    """`Tensor.cpu` into new pageable memory, which the copy touches first."""

    def run(self) -> None:
        self.result = self.array.cpu()


class CopyToPinned(Download):
    """Into tensors that were created page-locked. A reader must wait for the stream."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._slots = pinned_slots(self.torch, context.nbytes)
        self._target = self._slots.take()

    def refresh(self) -> None:
        self._target = self._slots.take()

    def run(self) -> None:
        self.result = self._target.copy_(self.array, non_blocking=True)


class ToCpuNonBlocking(Download):
    """`Tensor.to("cpu", non_blocking=True)`: into page-locked memory of PyTorch's pool, without waiting.

    PyTorch does not guarantee a page-locked result, so `is_pinned()` of a first result is checked. A reader must wait
    for the stream.
    """

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        if not self.torch.empty(1, device=self.device).to("cpu", non_blocking=True).is_pinned():
            raise RefusedError(
                f"not available in PyTorch {self.torch.__version__}: there Tensor.to('cpu', non_blocking=True) returns "
                "pageable memory and waits, as torch.cpu does"
            )

    def run(self) -> None:
        self.result = self.array.to("cpu", non_blocking=True)


class DownloadThroughRing(base.RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or into existing ones."""


class Ingest(base.IntoHost, base.FromHost, TorchTransfer):
    """NumPy to a tensor in host memory, without a GPU."""


class FromNumpy(Ingest):
    """`from_numpy`, whose tensor uses the array's memory."""

    def run(self) -> None:
        self.result = self.torch.from_numpy(self.source)


class IngestCopy(Ingest):
    """`torch.tensor`, which allocates memory and copies."""

    def run(self) -> None:
        self.result = self.torch.tensor(self.source)


# PyTorch still reads the second name, an older one of the first.
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")


def _start(device: int | None, _setting: str) -> base.Started:
    with base.importing("PyTorch", "torch"):
        import torch
    cuda = _choose_device(torch, device)
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    settings["threads"] = str(torch.get_num_threads())
    if cuda.value is not None:
        settings["allocator"] = torch.cuda.get_allocator_backend()
    return base.Started(str(torch.__version__), cuda, settings)


def _choose_device(torch: Any, device: int | None) -> Fact[str]:
    """Make the device the current one and run a kernel on it; returns the CUDA version, or why it failed."""
    if device is None:
        return unknown("no GPU was requested")
    if torch.version.cuda is None:
        return unknown(
            f"torch {torch.__version__} was built without CUDA: install a build with it, see "
            "https://pytorch.org/get-started/locally"
        )
    try:
        torch.cuda.set_device(device)
        torch.zeros(1, device=torch.device("cuda", device)).item()
    except (RuntimeError, AssertionError) as error:
        return unknown(f"PyTorch cannot use GPU {device}: {base.first_line(error)}")
    return Fact(str(torch.version.cuda))


_H2D = (
    base.onto_gpu("torch.to", 'torch.from_numpy(x).to("cuda")', *base.both(Images, To), usual=True),
    base.onto_gpu(
        "torch.to-nonblocking", 'torch.from_numpy(x).to("cuda", non_blocking=True)', ToNonBlocking, returns="staged"
    ),
    base.through_pinned(
        "torch.pin-to", 'torch.from_numpy(x).pin_memory().to("cuda", non_blocking=True)', *base.both(Images, PinTo)
    ),
    base.from_pinned(
        "torch.pinned-nonblocking", 'pinned.to("cuda", non_blocking=True)', *base.both(Images, PinnedNonBlocking)
    ),
    base.onto_gpu(
        "torch.cast-blocking",
        'torch.from_numpy(x).to("cuda", torch.float32)',
        *base.both(Images, CastBlocking),
        host_copies=1,
        inflation=4.0,
    ),
    base.onto_gpu(
        "torch.cast-nonblocking",
        'torch.from_numpy(x).to("cuda", torch.float32, non_blocking=True)',
        *base.both(Images, CastNonBlocking),
        returns="staged",
    ),
    base.onto_gpu("torch.noncontiguous", 'torch.from_numpy(wide)[:, ::2].to("cuda")', Noncontiguous, host_copies=1),
    base.onto_gpu(
        "torch.channels-last", 'torch.from_numpy(nchw).to("cuda", memory_format=torch.channels_last)', ChannelsLast
    ),
    base.through_pinned(
        "torch.loader-pinned",
        'for x in DataLoader(samples, 8, pin_memory=True): x.to("cuda", non_blocking=True)',
        LoaderPinned,
        host_copies=2,
    ),
    base.ring_upload(
        "torch.upload", 'pyxfer.upload(x, to="torch")', *base.both(Images, UploadThroughRing), returns="staged"
    ),
)

_D2H = (
    base.off_gpu("torch.cpu", "x.cpu()", Cpu, usual=True),
    base.into_pinned("torch.copy-to-pinned", "pinned.copy_(x, non_blocking=True)", CopyToPinned),
    base.into_pinned("torch.to-cpu-nonblocking", 'x.to("cpu", non_blocking=True)', ToCpuNonBlocking),
    base.ring_download("torch.download", "pyxfer.download(x)", DownloadThroughRing),
    base.ring_download("torch.download-into", "pyxfer.download(x, out=array)", partial(DownloadThroughRing, into=True)),
)

_INGEST = (
    base.ingest_route("torch.ingest", "torch.from_numpy(x)", FromNumpy, usual=True),
    base.ingest_route("torch.ingest-copy", "torch.tensor(x)", IngestCopy, host_copies=1),
)

_ORDERS = orders.make_orders(
    "torch",
    "torch",
    orders.Code(
        send='torch.from_numpy({}).to("cuda")',
        permute="{}.permute(0, 3, 1, 2).contiguous()",
        cast="{}.to(torch.{dtype})",
        both="{}.permute(0, 3, 1, 2).contiguous().to(torch.{dtype})",
    ),
    Converted,
    ConvertedUpload,
    dma="pageable",
    host_copies=0,
    returns="done",
    upload_returns="staged",
)

FRAMEWORK = base.Framework(
    name="torch",
    title="PyTorch",
    owner="torch",
    distributions=("torch",),
    start=_start,
    routes=(*base.on_stream(*_H2D, *_D2H, *_ORDERS), *_INGEST),
)
