"""PyTorch's ways between host and device, and from NumPy."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from pyxfer.model import Fact, unknown
from pyxfer.routes import torch_host_transfers as home
from pyxfer.routes import torch_transfers as ways
from pyxfer.routes.base import Framework, Route, Started, first_line, ingest_route, ring_route
from pyxfer.routes.importing import importing

# The old name of the first is still read.
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")


def _start(device: int | None, setting: str) -> Started:
    """No route of PyTorch's asks for a setting."""
    del setting
    with importing("PyTorch", "torch", "pip install torch"):
        import torch
    cuda = _choose_device(torch, device)
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    settings["threads"] = str(torch.get_num_threads())
    if cuda.value is not None:
        settings["allocator"] = torch.cuda.get_allocator_backend()
    return Started(str(torch.__version__), cuda, settings)


def _choose_device(torch: Any, device: int | None) -> Fact[str]:
    """Make the device the current one, and run a kernel there, or say why that cannot be."""
    if device is None:
        return unknown("no GPU was asked for")
    if torch.version.cuda is None:
        return unknown(
            f"torch {torch.__version__} was built without CUDA: install a build with it, see "
            "https://pytorch.org/get-started/locally"
        )
    try:
        torch.cuda.set_device(device)
        torch.zeros(1, device=torch.device("cuda", device)).item()
    except (RuntimeError, AssertionError) as error:
        return unknown(f"PyTorch cannot use GPU {device}: {first_line(error)}")
    return Fact(str(torch.version.cuda))


def _images(way: type[ways.Upload]) -> partial[ways.ImageBatch]:
    return partial(ways.ImageBatch, way=way)


_onto_gpu = partial(Route, direction="h2d", bracket="stream")
_off_gpu = partial(Route, direction="d2h", bracket="stream")
_through_ring = partial(ring_route, bracket="stream")

_H2D = (
    _onto_gpu(
        name="torch.to",
        call='torch.from_numpy(x).to("cuda")',
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="done",
        copy=ways.To,
        image_batch=_images(ways.To),
        usual=True,
    ),
    _onto_gpu(
        name="torch.to-nonblocking",
        call='torch.from_numpy(x).to("cuda", non_blocking=True)',
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="staged",
        copy=ways.ToNonBlocking,
    ),
    _onto_gpu(
        name="torch.pin-to",
        call='torch.from_numpy(x).pin_memory().to("cuda", non_blocking=True)',
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="queued",
        copy=ways.PinTo,
        image_batch=_images(ways.PinTo),
    ),
    _onto_gpu(
        name="torch.pinned-nonblocking",
        call='pinned.to("cuda", non_blocking=True)',
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ways.PinnedNonBlocking,
        image_batch=_images(ways.PinnedNonBlocking),
    ),
    _onto_gpu(
        name="torch.cast-blocking",
        call='torch.from_numpy(x).to("cuda", torch.float32)',
        memory="pageable",
        host_copies=1,
        dma="pageable",
        returns="done",
        copy=ways.CastBlocking,
        image_batch=_images(ways.CastBlocking),
        inflation=4.0,
    ),
    _onto_gpu(
        name="torch.cast-nonblocking",
        call='torch.from_numpy(x).to("cuda", torch.float32, non_blocking=True)',
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="staged",
        copy=ways.CastNonBlocking,
        image_batch=_images(ways.CastNonBlocking),
    ),
    _onto_gpu(
        name="torch.noncontiguous",
        call='torch.from_numpy(wide)[:, ::2].to("cuda")',
        memory="pageable",
        host_copies=1,
        dma="pageable",
        returns="done",
        copy=ways.Noncontiguous,
    ),
    _onto_gpu(
        name="torch.channels-last",
        call='torch.from_numpy(nchw).to("cuda", memory_format=torch.channels_last)',
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="done",
        copy=ways.ChannelsLast,
    ),
    _onto_gpu(
        name="torch.loader-pinned",
        call='for x in DataLoader(samples, 8, pin_memory=True): x.to("cuda", non_blocking=True)',
        memory="pageable",
        host_copies=2,
        dma="pinned",
        returns="queued",
        copy=ways.LoaderPinned,
    ),
    _through_ring(
        name="torch.upload",
        call='pyxfer.upload(x, to="torch")',
        direction="h2d",
        returns="staged",
        copy=ways.ThroughRing,
        image_batch=_images(ways.ThroughRing),
    ),
)

_D2H = (
    _off_gpu(
        name="torch.cpu",
        call="x.cpu()",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="done",
        copy=home.Cpu,
        usual=True,
    ),
    _off_gpu(
        name="torch.copy-to-pinned",
        call="pinned.copy_(x, non_blocking=True)",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=home.CopyToPinned,
    ),
    _off_gpu(
        name="torch.to-cpu-nonblocking",
        call='x.to("cpu", non_blocking=True)',
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=home.ToCpuNonBlocking,
    ),
    _through_ring(
        name="torch.download",
        call="pyxfer.download(x)",
        direction="d2h",
        returns="done",
        copy=home.ThroughRing,
    ),
    _through_ring(
        name="torch.download-into",
        call="pyxfer.download(x, out=array)",
        direction="d2h",
        returns="done",
        copy=partial(home.ThroughRing, into=True),
    ),
)

_INGEST = (
    ingest_route(
        name="torch.ingest",
        call="torch.from_numpy(x)",
        memory="pageable",
        host_copies=0,
        copy=home.FromNumpy,
        usual=True,
    ),
    ingest_route(
        name="torch.ingest-copy",
        call="torch.tensor(x)",
        memory="pageable",
        host_copies=1,
        copy=home.IngestCopy,
    ),
)

FRAMEWORK = Framework(
    name="torch",
    title="PyTorch",
    owner="torch",
    distributions=("torch",),
    start=_start,
    routes=(*_H2D, *_D2H, *_INGEST),
)
