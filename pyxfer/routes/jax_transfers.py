"""What JAX's routes to the GPU do at one size; `jax_routes` is the table of them."""

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


class ThroughRing(Upload):
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
