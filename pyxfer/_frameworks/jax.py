"""JAX's routes between host and device, and from NumPy."""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._document.machines import Fact, unknown
from pyxfer._frameworks.base import (
    Framework,
    FromHost,
    HostUpload,
    ImageBatch,
    IntoNumpy,
    RingDownload,
    RingUpload,
    Started,
    Transfer,
    Where,
    first_line,
    from_pinned,
    importing,
    ingest_route,
    installed_version,
    into_pinned,
    off_gpu,
    onto_gpu,
    ring_download,
    ring_upload,
)
from pyxfer.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.context import RouteContext


PINNED_HOST = "pinned_host"
# A device's own memory; None in versions without memory kinds.
OWN_MEMORY = ("device", None)
OPTIONS = "jax_pjrt_client_create_options"
UNSTAGED = {"should_stage_host_to_device_transfers": False}


class JaxTransfer(Transfer):
    """A transfer on JAX's hidden streams; `wait` waits until the result is ready."""

    waits = True

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import jax

        self.jax: Any = jax
        self.device = find_gpu(jax, context.device)

    def wait(self) -> None:
        self.result.block_until_ready()

    def where(self) -> Where:
        return place_of(self.result)


class Upload(HostUpload, JaxTransfer):
    """From host memory to the GPU."""

    def arrived(self) -> NDArray[Any]:
        return self.context.fetch(self.result.unsafe_buffer_pointer(), self.result.nbytes)


class DevicePut(Upload):
    """`jax.device_put` of pageable memory.

    A thread of XLA copies the whole array into page-locked memory before the DMA begins. From 1 GiB on it leaves this
    copy out, and the driver stages. JAX still reads the source after the call has returned.
    """

    def run(self) -> None:
        self.result = self.jax.device_put(self.source, self.device)

    def upload(self) -> Any:  # of a batch of images
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


class UploadThroughRing(RingUpload, Upload):
    """`pyxfer.upload`, after which JAX gets memory that already holds the bytes."""

    framework = "jax"
    waits = False

    def run(self) -> None:
        self.result = self._uploader.upload(self.source, "jax")


class PinnedHostToDevice(Upload):
    """From a JAX array in page-locked host memory."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._from = sharding(self.jax, self.device, PINNED_HOST)
        self._to = sharding(self.jax, self.device, OWN_MEMORY[0])

    def refresh(self) -> None:
        self.source = self.jax.device_put(self.context.source(), self._from).block_until_ready()

    def run(self) -> None:
        self.result = self.jax.device_put(self.source, self._to)

    def release(self) -> None:
        super().release()
        self.source = None


class Images(ImageBatch, JaxTransfer):
    """A batch of images, sent as an `Upload` does."""

    waits = False

    def __init__(self, context: RouteContext, sending: type[Upload]) -> None:
        super().__init__(context, sending)
        self._onto_gpu = self.sending.upload
        self._first_row = self.jax.jit(_first_row)

    def run(self) -> None:
        self.row = self._first_row(self._onto_gpu())
        self.result = np.asarray(self.row)

    def where(self) -> Where:
        return place_of(self.row)


def find_gpu(jax: Any, index: int) -> Any:
    """The JAX device with this CUDA index.

    Raises:
        RefusedError: JAX does not see it.

    """
    try:
        devices = jax.local_devices(backend="gpu")
    except (RuntimeError, AssertionError) as error:
        raise RefusedError(f"JAX sees no GPU: {first_line(error)}") from error
    for device in devices:
        if device.local_hardware_id == index:
            return device
    seen = ", ".join(str(device.local_hardware_id) for device in devices)
    raise RefusedError(f"JAX does not see GPU {index}, only {seen}")


def find_cpu(jax: Any) -> Any:
    """JAX's device for host memory.

    Raises:
        RefusedError: JAX has no CPU device.

    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except (RuntimeError, AssertionError) as error:
        raise RefusedError(
            f"JAX has no CPU device ({first_line(error)}): add cpu to JAX_PLATFORMS, or unset it"
        ) from error


def sharding(jax: Any, device: Any, kind: str) -> Any:
    """The sharding of an array in one kind of memory of a device.

    Raises:
        RefusedError: the device has no memory of this kind.

    """
    try:
        return jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
    except (TypeError, ValueError) as error:
        raise RefusedError(f"not available in JAX {jax.__version__}: {device} has no memory of kind {kind}") from error


def place_of(array: Any) -> Where:
    # Page-locked host memory also belongs to a GPU, as another kind of memory.
    on_gpu = all(device.platform != "cpu" for device in array.devices())
    return "gpu" if on_gpu and array.sharding.memory_kind in OWN_MEMORY else "cpu"


def _first_row(images: Any) -> Any:
    return images.astype(np.float32)[0, 0]


class Download(JaxTransfer):
    """From the GPU to host memory.

    An array caches its host value, so every trial gets a new array. It is copied on the GPU from an array whose memory
    is written past JAX.
    """

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        zeros = np.zeros(context.nbytes, np.uint8)
        self._array = self.jax.device_put(zeros, self.device).block_until_ready()
        self._fresh: Any = None

    def write(self, data: NDArray[Any]) -> None:
        self.context.store(self._array.unsafe_buffer_pointer(), data)

    def refresh(self) -> None:
        self._fresh = self.jax.numpy.array(self._array, copy=True).block_until_ready()
        if place_of(self._fresh) != "gpu":
            raise RefusedError("JAX keeps the source array in host memory")

    def release(self) -> None:
        super().release()
        self._fresh = None


class Asarray(IntoNumpy, Download):
    """`np.asarray`: the DMA writes into page-locked memory, from which a callback of the stream copies."""

    waits = False

    def run(self) -> None:
        self.result = np.asarray(self._fresh)


class DownloadThroughRing(RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or into existing ones."""

    waits = False

    @property
    def on_device(self) -> Any:
        return self._fresh


class ToPinnedHost(Download):
    """Into a JAX array in page-locked host memory."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._to = sharding(self.jax, self.device, PINNED_HOST)

    def run(self) -> None:
        self.result = self.jax.device_put(self._fresh, self._to)

    def arrived(self) -> NDArray[Any]:
        return np.asarray(self.result)


class Ingest(FromHost):
    """NumPy to an array on JAX's CPU device."""

    waits = True

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import jax

        self.jax: Any = jax
        self.device = find_cpu(jax)

    def wait(self) -> None:
        self.result.block_until_ready()

    def where(self) -> Where:
        return place_of(self.result)

    def arrived(self) -> NDArray[Any]:
        return np.asarray(self.result)


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
    "JAX_PLATFORMS",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB",
    "XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE",
)


def _start(device: int | None, setting: str) -> Started:
    with importing("JAX", "jax"):
        import jax
    if setting == NOSTAGE:
        _leave_staging_out(jax)
    _hide_other_devices(jax, device)
    cuda = _choose_device(jax, device)
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    settings[OPTIONS] = str(getattr(jax.config, OPTIONS, None) or "not set")
    return Started(str(jax.__version__), cuda, settings)


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
    if installed_version(_PLUGINS) is None:
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


def _images(sending: type[Upload]) -> partial[Images]:
    return partial(Images, sending=sending)


_H2D = (
    onto_gpu(
        "jax.device-put",
        "jax.device_put(x)",
        DevicePut,
        _images(DevicePut),
        host_copies=1,
        dma="pinned",
        returns="queued",
        usual=True,
    ),
    from_pinned("jax.device-put-pinned", "jax.device_put(pinned)", DevicePutPinned, _images(DevicePutPinned)),
    onto_gpu(
        "jax.device-put-nostage",
        "jax.device_put(x), should_stage_host_to_device_transfers:false",
        DevicePutUnstaged,
        returns="queued",
        setting=NOSTAGE,
    ),
    from_pinned(
        "jax.pinned-host-to-device",
        'jax.device_put(x_in_pinned_host, SingleDeviceSharding(gpu, memory_kind="device"))',
        PinnedHostToDevice,
    ),
    ring_upload("jax.upload", 'pyxfer.upload(x, to="jax")', UploadThroughRing, _images(UploadThroughRing)),
)

_D2H = (
    off_gpu("jax.asarray", "np.asarray(x)", Asarray, host_copies=1, dma="pinned", usual=True),
    into_pinned(
        "jax.to-pinned-host", 'jax.device_put(x, SingleDeviceSharding(gpu, memory_kind="pinned_host"))', ToPinnedHost
    ),
    ring_download("jax.download", "pyxfer.download(x)", DownloadThroughRing),
    ring_download("jax.download-into", "pyxfer.download(x, out=array)", partial(DownloadThroughRing, into=True)),
)

_INGEST = (
    ingest_route(
        "jax.ingest", "with jax.default_device(cpu): jnp.asarray(x)", IngestAsarray, host_copies=2, usual=True
    ),
    ingest_route("jax.ingest-device-put", "jax.device_put(aligned, cpu)", IngestDevicePut),
)

FRAMEWORK = Framework(
    name="jax",
    title="JAX",
    owner="jax",
    distributions=("jax",),
    start=_start,
    routes=(*_H2D, *_D2H, *_INGEST),
    environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"},
    gpu_distributions=_PLUGINS,
)
