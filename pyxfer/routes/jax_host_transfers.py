"""What JAX's routes to host memory do at one size; `jax_routes` is the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes.base import RefusedError, Transfer, Where
from pyxfer.routes.jax_transfers import PINNED_HOST, JaxTransfer, find_cpu, place_of, sharding
from pyxfer.routes.place import SourceKind
from pyxfer.routes.shared_transfers import RingDownload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place


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


class ThroughRing(RingDownload, Download):
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
