"""JAX's ways between host and device, and from NumPy."""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._document.runs import Fact, unknown
from pyxfer._frameworks.base import (
    Framework,
    RefusedError,
    Route,
    Started,
    Transfer,
    Where,
    first_line,
    importing,
    ingest_route,
    installed_version,
    ring_route,
)
from pyxfer._frameworks.place import ImageRow, RingDownload, SourceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.place import Place


PINNED_HOST = "pinned_host"
# A device's own memory; versions before memory kinds say nothing.
OWN_MEMORY = ("device", None)
OPTIONS = "jax_pjrt_client_create_options"
UNSTAGED = {"should_stage_host_to_device_transfers": False}


class JaxTransfer(Transfer):
    """Something on JAX's hidden streams; the result is there when it says so."""

    waits = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import jax

        self.jax: Any = jax
        self.device = find_gpu(jax, place.device)

    def wait(self) -> None:
        """Until the result is ready; what it was made from must not change before that."""
        self.result.block_until_ready()

    def where(self) -> Where:
        """As the array says; page-locked host memory also belongs to a GPU, as another kind of memory."""
        return place_of(self.result)


class Upload(JaxTransfer):
    """From host memory to the GPU."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.source: Any = None

    def arrived(self) -> NDArray[Any]:
        """The array's memory."""
        return self.place.fetch(self.result.unsafe_buffer_pointer(), self.result.nbytes)


class DevicePut(Upload):
    """`jax.device_put` of ordinary memory.

    A worker thread of XLA copies it into page-locked memory, whole, before the DMA begins. From 1 GiB on that copy is
    left out, and the driver stages.
    """

    kind: SourceKind = "pageable"

    def refresh(self) -> None:
        """The next piece of memory."""
        self.source = self.place.source(self.kind)

    def run(self) -> None:
        """JAX reads the source after this has returned."""
        self.result = self.jax.device_put(self.source, self.device)


class DevicePutPinned(DevicePut):
    """`jax.device_put` of page-locked memory, which XLA notices and reads as it is."""

    kind = "pinned"


class DevicePutUnstaged(DevicePut):
    """`jax.device_put` with XLA's staging left out: the driver stages."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        if getattr(self.jax.config, OPTIONS, None) != UNSTAGED:
            raise RefusedError(
                f"JAX was not started with the option {next(iter(UNSTAGED))}:false that this route needs"
            )


class UploadThroughRing(Upload):
    """`pyxfer.upload`: several threads copy it into page-locked slots, while the copy engine reads others."""

    waits = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._uploader = place.uploader()

    def refresh(self) -> None:
        """The next piece of memory."""
        self.source = self.place.source()

    def run(self) -> None:
        """One copy on the host, of all threads together; JAX gets memory in which the bytes have arrived."""
        self.result = self._uploader.upload(self.source, "jax")


class PinnedHostToDevice(Upload):
    """From an array of JAX's own in page-locked host memory."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._from = sharding(self.jax, self.device, PINNED_HOST)
        self._to = sharding(self.jax, self.device, OWN_MEMORY[0])

    def refresh(self) -> None:
        """A new array in host memory."""
        self.source = self.jax.device_put(self.place.source(), self._from).block_until_ready()

    def run(self) -> None:
        """No copy on the host."""
        self.result = self.jax.device_put(self.source, self._to)

    def release(self) -> None:
        """Of the source as well, which is made anew."""
        super().release()
        self.source = None


class ImageBatch(ImageRow, JaxTransfer):
    """A batch of images to the GPU by `jax.device_put`, cast there, and one row of pixels read back."""

    waits = False
    kind: SourceKind = "pageable"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.source: Any = None
        self._first_row = self.jax.jit(_first_row)

    def refresh(self) -> None:
        """The next piece of memory."""
        self.source = self.place.images(self.kind)

    def run(self) -> None:
        """Reading back waits for everything before it."""
        self.row = self._first_row(self.onto_gpu())
        self.result = np.asarray(self.row)

    def onto_gpu(self) -> Any:
        """The images there."""
        return self.jax.device_put(self.source, self.device)

    def where(self) -> Where:
        """Where the row lay before it was read back."""
        return place_of(self.row)


class ImageBatchPinned(ImageBatch):
    """The same from page-locked memory."""

    kind = "pinned"


class ImageBatchThroughRing(ImageBatch):
    """The same by `pyxfer.upload`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._uploader = place.uploader()

    def onto_gpu(self) -> Any:
        """The images there, when this returns."""
        return self._uploader.upload(self.source, "jax")


def find_gpu(jax: Any, index: int) -> Any:
    """JAX's device of CUDA's number.

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
        RefusedError: JAX was told to do without.

    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except (RuntimeError, AssertionError) as error:
        raise RefusedError(
            f"JAX has no CPU device ({first_line(error)}): add cpu to JAX_PLATFORMS, or unset it"
        ) from error


def sharding(jax: Any, device: Any, kind: str) -> Any:
    """Where an array goes: a device and one of its kinds of memory.

    Raises:
        RefusedError: it has no memory of the kind.

    """
    try:
        return jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
    except (TypeError, ValueError) as error:
        raise RefusedError(f"not available in JAX {jax.__version__}: {device} has no memory of kind {kind}") from error


def place_of(array: Any) -> Where:
    """As the array says."""
    on_gpu = all(device.platform != "cpu" for device in array.devices())
    return "gpu" if on_gpu and array.sharding.memory_kind in OWN_MEMORY else "cpu"


def _first_row(images: Any) -> Any:
    """Traced and compiled by JAX."""
    return images.astype(np.float32)[0, 0]


class Download(JaxTransfer):
    """From the GPU to host memory.

    An array keeps the host value that was once asked for, so every trial has a new one, copied on the GPU from an
    array whose memory is written past JAX.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        zeros = np.zeros(place.nbytes, np.uint8)
        self._array = self.jax.device_put(zeros, self.device).block_until_ready()
        self._fresh: Any = None

    def write(self, data: NDArray[Any]) -> None:
        """To the array that the others are copied from."""
        self.place.store(self._array.unsafe_buffer_pointer(), data)

    def refresh(self) -> None:
        """A new array in the GPU's memory."""
        self._fresh = self.jax.numpy.array(self._array, copy=True).block_until_ready()
        if place_of(self._fresh) != "gpu":
            raise RefusedError("JAX keeps the array that is to be read in host memory")

    def release(self) -> None:
        """Of the copy as well."""
        super().release()
        self._fresh = None


class Asarray(Download):
    """`np.asarray`: by DMA into page-locked memory, and from there a copy inside a callback of the stream."""

    waits = False

    def run(self) -> None:
        """One copy on the host."""
        self.result = np.asarray(self._fresh)

    def where(self) -> Where:
        """A NumPy array."""
        return "cpu" if isinstance(self.result, np.ndarray) else place_of(self.result)

    def arrived(self) -> NDArray[Any]:
        """The array."""
        found: NDArray[Any] = self.result
        return found


class DownloadThroughRing(RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or one that is there."""

    waits = False

    @property
    def on_device(self) -> Any:
        """The new array."""
        return self._fresh


class ToPinnedHost(Download):
    """Into an array of JAX's own in page-locked host memory."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._to = sharding(self.jax, self.device, PINNED_HOST)

    def run(self) -> None:
        """No copy on the host."""
        self.result = self.jax.device_put(self._fresh, self._to)

    def arrived(self) -> NDArray[Any]:
        """NumPy sees the array's own memory."""
        return np.asarray(self.result)


class Ingest(Transfer):
    """NumPy to an array on JAX's CPU device."""

    waits = True
    kind: SourceKind = "pageable"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import jax

        self.jax: Any = jax
        self.device = find_cpu(jax)
        self.source: Any = None

    def refresh(self) -> None:
        """The next piece of memory."""
        self.source = self.place.source(self.kind)

    def wait(self) -> None:
        """Until the array is ready."""
        self.result.block_until_ready()

    def where(self) -> Where:
        """As the array says."""
        return place_of(self.result)

    def arrived(self) -> NDArray[Any]:
        """NumPy sees the array's own memory."""
        return np.asarray(self.result)


class IngestAsarray(Ingest):
    """`jnp.asarray` with the CPU as default device.

    Memory that does not begin at a multiple of 64 bytes is copied to where it does, and a compiled conversion, of uint8
    to uint8 here, then makes the array's own memory of that.
    """

    def run(self) -> None:
        """Two copies."""
        with self.jax.default_device(self.device):
            self.result = self.jax.numpy.asarray(self.source)


class IngestDevicePut(Ingest):
    """`jax.device_put` takes memory over that begins at a multiple of 64 bytes, and copies any other."""

    kind = "aligned"

    def run(self) -> None:
        """No copy."""
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
    with importing("JAX", "jax", "pip install 'jax[cuda13]', or 'jax[cuda12]'"):
        import jax
    if setting == NOSTAGE:
        _leave_staging_out(jax)
    _narrow(jax, device)
    cuda = _choose_device(jax, device)
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    settings[OPTIONS] = str(getattr(jax.config, OPTIONS, None) or "not set")
    return Started(str(jax.__version__), cuda, settings)


def _leave_staging_out(jax: Any) -> None:
    """Tell the backend, which takes it when it starts and at no other time.

    A backend that does not know the option, or not as a boolean, does not start: one that runs has taken it.
    """
    if _has_started():
        raise RefusedError("JAX has started already, and its staging can only be left out before: use a new process")
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
        raise RefusedError("not available in this JAX: it does not tell whether it has started") from error
    started: bool = xla_bridge.backends_are_initialized()
    return started


def _narrow(jax: Any, device: int | None) -> None:
    """Keep JAX from taking memory on GPUs that are not measured."""
    if _has_started():
        return
    if device is None:
        jax.config.update("jax_platforms", "cpu")
    elif "JAX_CUDA_VISIBLE_DEVICES" not in os.environ:
        with contextlib.suppress(AttributeError):  # before JAX 0.4.14
            jax.config.update("jax_cuda_visible_devices", str(device))


def _choose_device(jax: Any, device: int | None) -> Fact[str]:
    if device is None:
        return unknown("no GPU was asked for")
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


_onto_gpu = partial(Route, direction="h2d", bracket="drained")
_off_gpu = partial(Route, direction="d2h", bracket="drained")
_through_ring = partial(ring_route, returns="done", bracket="drained")

_H2D = (
    _onto_gpu(
        name="jax.device-put",
        call="jax.device_put(x)",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="queued",
        copy=DevicePut,
        image_batch=ImageBatch,
        usual=True,
    ),
    _onto_gpu(
        name="jax.device-put-pinned",
        call="jax.device_put(pinned)",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=DevicePutPinned,
        image_batch=ImageBatchPinned,
    ),
    _onto_gpu(
        name="jax.device-put-nostage",
        call="jax.device_put(x), should_stage_host_to_device_transfers:false",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="queued",
        copy=DevicePutUnstaged,
        setting=NOSTAGE,
    ),
    _onto_gpu(
        name="jax.pinned-host-to-device",
        call='jax.device_put(x_in_pinned_host, SingleDeviceSharding(gpu, memory_kind="device"))',
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=PinnedHostToDevice,
    ),
    _through_ring(
        name="jax.upload",
        call='pyxfer.upload(x, to="jax")',
        direction="h2d",
        copy=UploadThroughRing,
        image_batch=ImageBatchThroughRing,
    ),
)

_D2H = (
    _off_gpu(
        name="jax.asarray",
        call="np.asarray(x)",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="done",
        copy=Asarray,
        usual=True,
    ),
    _off_gpu(
        name="jax.to-pinned-host",
        call='jax.device_put(x, SingleDeviceSharding(gpu, memory_kind="pinned_host"))',
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ToPinnedHost,
    ),
    _through_ring(
        name="jax.download",
        call="pyxfer.download(x)",
        direction="d2h",
        copy=DownloadThroughRing,
    ),
    _through_ring(
        name="jax.download-into",
        call="pyxfer.download(x, out=array)",
        direction="d2h",
        copy=partial(DownloadThroughRing, into=True),
    ),
)

_INGEST = (
    ingest_route(
        name="jax.ingest",
        call="with jax.default_device(cpu): jnp.asarray(x)",
        memory="pageable",
        host_copies=2,
        copy=IngestAsarray,
        usual=True,
    ),
    ingest_route(
        name="jax.ingest-device-put",
        call="jax.device_put(aligned, cpu)",
        memory="pageable",
        host_copies=0,
        copy=IngestDevicePut,
    ),
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
