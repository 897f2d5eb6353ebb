"""CuPy's ways between host and device, and from NumPy."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from pyxfer.model import Fact, unknown
from pyxfer.routes import cupy_transfers as ways
from pyxfer.routes.base import Framework, Route, Started, first_line, ingest_route, ring_route
from pyxfer.routes.importing import importing

_VARIABLES = ("CUPY_GPU_MEMORY_LIMIT", "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM")


def _start(device: int | None, setting: str) -> Started:
    """No route of CuPy's asks for a setting."""
    del setting
    with importing("CuPy", "cupy", "pip install cupy-cuda12x, or cupy-cuda13x for CUDA 13"):
        import cupy
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    return Started(str(cupy.__version__), _choose_device(cupy, device), settings)


def _choose_device(cupy: Any, device: int | None) -> Fact[str]:
    """Make the device the current one, or say why that cannot be."""
    if device is None:
        return unknown("no GPU was asked for")
    try:
        cupy.cuda.Device(device).use()
        cupy.zeros(1, cupy.uint8).get()
        version = cupy.cuda.runtime.runtimeGetVersion()
    except (RuntimeError, ImportError, OSError) as error:
        return unknown(f"CuPy cannot use GPU {device}: {first_line(error)}")
    return Fact(f"{version // 1000}.{version % 1000 // 10}")


_onto_gpu = partial(Route, direction="h2d", bracket="stream")
_off_gpu = partial(Route, direction="d2h", bracket="stream")
_through_ring = partial(ring_route, bracket="stream")

_ROUTES = (
    _onto_gpu(
        name="cupy.asarray",
        call="cupy.asarray(x)",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="queued",
        copy=ways.Asarray,
        image_batch=partial(ways.ImageBatch, way=ways.Asarray),
        usual=True,
    ),
    _onto_gpu(
        name="cupy.asarray-pinned",
        call="cupy.asarray(pinned)",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ways.AsarrayPinned,
        image_batch=partial(ways.ImageBatch, way=ways.AsarrayPinned),
    ),
    _onto_gpu(
        name="cupy.set",
        call="array.set(x)",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="staged",
        copy=ways.Set,
    ),
    _onto_gpu(
        name="cupy.set-pinned",
        call="array.set(pinned)",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ways.SetPinned,
    ),
    _through_ring(
        name="cupy.upload",
        call='pyxfer.upload(x, to="cupy")',
        direction="h2d",
        returns="staged",
        copy=ways.ThroughRing,
        image_batch=partial(ways.ImageBatch, way=ways.ThroughRing),
    ),
    _off_gpu(
        name="cupy.get",
        call="array.get()",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="done",
        copy=ways.Get,
        usual=True,
    ),
    _off_gpu(
        name="cupy.get-pinned",
        call="array.get(out=pinned, blocking=False)",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ways.GetPinned,
    ),
    _through_ring(
        name="cupy.download",
        call="pyxfer.download(array)",
        direction="d2h",
        returns="done",
        copy=ways.DownloadThroughRing,
    ),
    _through_ring(
        name="cupy.download-into",
        call="pyxfer.download(array, out=x)",
        direction="d2h",
        returns="done",
        copy=partial(ways.DownloadThroughRing, into=True),
    ),
    ingest_route(
        name="cupy.ingest",
        call="cupyx.empty_pinned(x.shape, x.dtype)[...] = x",
        memory="pinned",
        host_copies=1,
        copy=ways.Ingest,
        usual=True,
    ),
)

FRAMEWORK = Framework(
    name="cupy",
    title="CuPy",
    owner="cupy",
    distributions=("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"),
    start=_start,
    routes=_ROUTES,
)
