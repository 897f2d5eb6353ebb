"""What JAX's routes do at one size; `jax_routes` is the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes.base import RefusedError, Transfer, Where, first_line
from pyxfer.routes.place import SourceKind
from pyxfer.routes.shared_transfers import ImageRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place

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
        self.row = self._first_row(self.jax.device_put(self.source, self.device))
        self.result = np.asarray(self.row)

    def where(self) -> Where:
        """Where the row lay before it was read back."""
        return place_of(self.row)


class ImageBatchPinned(ImageBatch):
    """The same from page-locked memory."""

    kind = "pinned"


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
