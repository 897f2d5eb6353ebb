"""JAX's routes between host and device, and from NumPy."""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.machines import Fact, unknown
from pyxfer._frameworks import base, orders
from pyxfer._frameworks.context import RouteContext
from pyxfer.errors import RefusedError

PINNED_HOST = "pinned_host"
# A device's own memory; None in versions without memory kinds.
OWN_MEMORY = ("device", None)
OPTIONS = "jax_pjrt_client_create_options"
UNSTAGED = {"should_stage_host_to_device_transfers": False}


class JaxTransfer(base.ArrayTransfer):
    """A transfer on JAX's hidden streams; `wait` waits until the result is ready."""

    waits = True

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import jax

        self.jax: Any = jax
        self.device = self.find_device()

    def find_device(self) -> Any:
        return find_gpu(self.jax, self.context.device)

    def wait(self) -> None:
        self.result.block_until_ready()

    def place_of(self, array: Any) -> base.Where:
        # Page-locked host memory also belongs to a GPU, as another kind of memory.
        on_gpu = all(device.platform != "cpu" for device in array.devices())
        return "gpu" if on_gpu and array.sharding.memory_kind in OWN_MEMORY else "cpu"

    def address_of(self, array: Any) -> int:
        return int(array.unsafe_buffer_pointer())


class Upload(base.HostUpload, JaxTransfer):
    """From host memory to the GPU."""


class DevicePut(Upload):
    """`jax.device_put` of pageable memory.

    A thread of XLA copies the whole array into page-locked memory before the DMA begins. From 1 GiB on it leaves this
    copy out, and the driver stages. JAX still reads the source after the call has returned.
    """

    def upload(self) -> Any:
        return self.jax.device_put(self.source, self.device)


class DevicePutPinned(DevicePut):
    """`jax.device_put` of page-locked memory, which XLA detects and does not copy."""

    kind = "pinned"


class DevicePutUnstaged(DevicePut):
    """`jax.device_put` without XLA's staging, so that the driver stages."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        if getattr(self.jax.config, OPTIONS, None) != UNSTAGED:
            raise RefusedError(f"this route needs JAX to be started with the option {next(iter(UNSTAGED))}:false")


class UploadThroughRing(base.RingUpload, Upload):
    """`pyxfer.upload`, after which JAX gets memory that already holds the bytes."""

    framework = "jax"
    waits = False


class PinnedHostToDevice(Upload):
    """From a JAX array in page-locked host memory."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._from = sharding(self.jax, self.device, PINNED_HOST)
        self._to = sharding(self.jax, self.device, OWN_MEMORY[0])

    def refresh(self) -> None:
        self.source = self.jax.device_put(self.context.source(), self._from).block_until_ready()

    def upload(self) -> Any:
        return self.jax.device_put(self.source, self._to)

    def release(self) -> None:
        super().release()
        self.source = None


class Images(base.ImageBatch, JaxTransfer):
    waits = False

    def __init__(self, context: RouteContext, sending: type[Upload]) -> None:
        super().__init__(context, sending)
        self._first_row = self.jax.jit(_first_row)

    def run(self) -> None:
        self.row = self._first_row(self.sending.upload())
        self.result = np.asarray(self.row)


class Converted(orders.Converting, Upload):
    """Images, converted by NumPy on the host and by a compiled function on the device."""

    def __init__(self, context: RouteContext, conversion: orders.Conversion) -> None:
        super().__init__(context, conversion)
        self._compiled = self.jax.jit(self._convert)

    def send(self, images: NDArray[Any]) -> Any:
        return self.jax.device_put(images, self.device)

    def on_device(self, images: Any) -> Any:
        return self._compiled(images) if any(self.conversion.does("device")) else images

    def _convert(self, images: Any) -> Any:
        permutes, casts = self.conversion.does("device")
        y = images.transpose(orders.NCHW_AXES) if permutes else images
        return y.astype(self.conversion.dtype) if casts else y


class ConvertedUpload(orders.ConvertingUpload, UploadThroughRing):
    """`pyxfer.upload` of images."""


def find_gpu(jax: Any, index: int) -> Any:
    try:
        devices = jax.local_devices(backend="gpu")
    except (RuntimeError, AssertionError) as error:
        raise RefusedError(f"JAX sees no GPU: {base.first_line(error)}") from error
    for device in devices:
        if device.local_hardware_id == index:
            return device
    seen = ", ".join(str(device.local_hardware_id) for device in devices)
    raise RefusedError(f"JAX does not see GPU {index}, only {seen}")


def sharding(jax: Any, device: Any, kind: str) -> Any:
    try:
        return jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
    except (TypeError, ValueError) as error:
        raise RefusedError(f"not available in JAX {jax.__version__}: {device} has no memory of kind {kind}") from error


def _first_row(images: Any) -> Any:
    return images.astype(np.float32)[0, 0]


class Download(base.FromArray, JaxTransfer):
    """From the GPU to host memory.

    An array caches its host value, so every trial gets a new array. It is copied on the GPU from an array whose memory
    is written past JAX.
    """

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        zeros = np.zeros(context.nbytes, np.uint8)
        self._kept = self.jax.device_put(zeros, self.device).block_until_ready()

    def write(self, data: NDArray[Any]) -> None:
        self.context.store(self.address_of(self._kept), data)

    def refresh(self) -> None:
        self.array = self.jax.numpy.array(self._kept, copy=True).block_until_ready()
        if self.place_of(self.array) != "gpu":
            raise RefusedError("JAX keeps the source array in host memory")

    def release(self) -> None:
        super().release()
        self.array = None


class Asarray(base.IntoNumpy, Download):
    """`np.asarray`: the DMA writes into page-locked memory, from which a callback of the stream copies."""

    waits = False

    def run(self) -> None:
        self.result = np.asarray(self.array)


class DownloadThroughRing(base.RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or into existing ones."""

    waits = False


class ToPinnedHost(base.IntoHost, Download):
    """Into a JAX array in page-locked host memory."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._to = sharding(self.jax, self.device, PINNED_HOST)

    def run(self) -> None:
        self.result = self.jax.device_put(self.array, self._to)


class Ingest(base.IntoHost, base.FromHost, JaxTransfer):
    """NumPy to an array on JAX's CPU device."""

    def find_device(self) -> Any:
        try:
            return self.jax.local_devices(backend="cpu")[0]
        except (RuntimeError, AssertionError) as error:
            why = base.first_line(error)
            raise RefusedError(f"JAX has no CPU device ({why}): add cpu to JAX_PLATFORMS, or unset it") from error


class IngestAsarray(Ingest):
    """`jnp.asarray` with the CPU as default device.

    JAX copies memory that does not start at a multiple of 64 bytes to an aligned address, and a compiled conversion
    (here from uint8 to uint8) copies that into the array.
    """

    def run(self) -> None:
        with self.jax.default_device(self.device):
            self.result = self.jax.numpy.asarray(self.source)


class IngestDevicePut(Ingest):
    """`jax.device_put` of memory that starts at a multiple of 64 bytes, which JAX uses without a copy."""

    kind = "aligned"

    def run(self) -> None:
        self.result = self.jax.device_put(self.source, self.device)


NOSTAGE = "nostage"
_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_VARIABLES = (
    *("JAX_PLATFORMS", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    *("XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB", "XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE"),
)


def _start(device: int | None, setting: str) -> base.Started:
    with base.importing("JAX", "jax"):
        import jax
    if setting == NOSTAGE:
        _leave_staging_out(jax)
    _hide_other_devices(jax, device)
    cuda = _choose_device(jax, device)
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    settings[OPTIONS] = str(getattr(jax.config, OPTIONS, None) or "not set")
    return base.Started(str(jax.__version__), cuda, settings)


def _leave_staging_out(jax: Any) -> None:
    """Set the option that leaves XLA's staging out. The backend reads it only when it starts.

    A backend that does not support the option does not start, so a running one has accepted it.
    """
    if _has_started():
        raise RefusedError("JAX has already started, too late to turn its staging off: use a new process")
    given = getattr(jax.config, OPTIONS, None)
    if given:
        raise RefusedError(f"{OPTIONS.upper()} is set, and would be overwritten ({given}): unset it")
    try:
        jax.config.update(OPTIONS, dict(UNSTAGED))
    except (AttributeError, TypeError, ValueError) as error:
        raise RefusedError(f"not available in JAX {jax.__version__}: {error}") from error


def _has_started() -> bool:
    try:
        from jax._src import xla_bridge
    except ImportError as error:
        raise RefusedError("not available in this JAX: whether it has started is unknown") from error
    started: bool = xla_bridge.backends_are_initialized()
    return started


def _hide_other_devices(jax: Any, device: int | None) -> None:
    """Keep JAX from allocating memory on GPUs that are not measured."""
    if _has_started():
        return
    if device is None:
        jax.config.update("jax_platforms", "cpu")
    elif "JAX_CUDA_VISIBLE_DEVICES" not in os.environ:
        with contextlib.suppress(AttributeError):  # before JAX 0.4.14
            jax.config.update("jax_cuda_visible_devices", str(device))


def _choose_device(jax: Any, device: int | None) -> Fact[str]:
    if device is None:
        return unknown("no GPU was requested")
    if base.installed_version(_PLUGINS) is None:
        return unknown(f"jax {jax.__version__} is installed without its CUDA plugin: pip install 'jax[cuda13]'")
    try:
        found = find_gpu(jax, device)
    except RefusedError as error:
        return unknown(str(error))
    version = str(found.client.platform_version)
    number = re.search(r"cuda (\d+)", version)
    if number is None:
        return unknown(f"JAX's GPU backend is not CUDA's: {version}")
    return Fact(f"{int(number[1]) // 1000}.{int(number[1]) % 1000 // 10}")


_H2D = (
    base.through_pinned("jax.device-put", "jax.device_put(x)", *base.both(Images, DevicePut), usual=True),
    base.from_pinned("jax.device-put-pinned", "jax.device_put(pinned)", *base.both(Images, DevicePutPinned)),
    base.onto_gpu(
        "jax.device-put-nostage",
        "jax.device_put(x), should_stage_host_to_device_transfers:false",
        DevicePutUnstaged,
        returns="queued",
        setting=NOSTAGE,
    ),
    base.from_pinned(
        "jax.pinned-host-to-device",
        'jax.device_put(x_in_pinned_host, SingleDeviceSharding(gpu, memory_kind="device"))',
        PinnedHostToDevice,
    ),
    base.ring_upload("jax.upload", 'pyxfer.upload(x, to="jax")', *base.both(Images, UploadThroughRing)),
)

_D2H = (
    base.off_gpu("jax.asarray", "np.asarray(x)", Asarray, host_copies=1, dma="pinned", usual=True),
    base.into_pinned(
        "jax.to-pinned-host", 'jax.device_put(x, SingleDeviceSharding(gpu, memory_kind="pinned_host"))', ToPinnedHost
    ),
    base.ring_download("jax.download", "pyxfer.download(x)", DownloadThroughRing),
    base.ring_download("jax.download-into", "pyxfer.download(x, out=array)", partial(DownloadThroughRing, into=True)),
)

_INGEST = (
    base.ingest_route(
        "jax.ingest", "with jax.default_device(cpu): jnp.asarray(x)", IngestAsarray, host_copies=2, usual=True
    ),
    base.ingest_route("jax.ingest-device-put", "jax.device_put(aligned, cpu)", IngestDevicePut),
)

_ORDERS = orders.make_orders(
    "jax",
    "jax",
    orders.Code(
        send="jax.device_put({})",
        permute="jax.jit(lambda x: x.transpose(0, 3, 1, 2))({})",
        cast='jax.jit(lambda x: x.astype("{dtype}"))({})',
        both='jax.jit(lambda x: x.transpose(0, 3, 1, 2).astype("{dtype}"))({})',
    ),
    Converted,
    ConvertedUpload,
    dma="pinned",
    host_copies=1,
    returns="queued",
    upload_returns="done",
)

FRAMEWORK = base.Framework(
    name="jax",
    title="JAX",
    owner="jax",
    distributions=("jax",),
    start=_start,
    routes=(*_H2D, *_D2H, *_ORDERS, *_INGEST),
    environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"},
    gpu_distributions=_PLUGINS,
)
