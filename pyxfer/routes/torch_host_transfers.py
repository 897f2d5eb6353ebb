"""What PyTorch's routes to host memory do at one size; `torch_routes` is the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyxfer.routes.base import RefusedError, Transfer, Where
from pyxfer.routes.shared_transfers import RingDownload
from pyxfer.routes.torch_transfers import TorchTransfer, pinned_slots, place_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place


class Download(TorchTransfer):
    """From the GPU to host memory."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.tensor = self.torch.empty(place.nbytes, dtype=self.torch.uint8, device=self.device)

    def write(self, data: NDArray[Any]) -> None:
        """To the tensor on the GPU."""
        self.place.store(self.tensor.data_ptr(), data)

    def arrived(self) -> NDArray[Any]:
        """The tensor's own memory."""
        return memory_of(self.result)


class Cpu(Download):
    """`Tensor.cpu` into new ordinary memory, which is touched for the first time on the way."""

    def run(self) -> None:
        """No copy on the host but the driver's."""
        self.result = self.tensor.cpu()


class CopyToPinned(Download):
    """Into tensors that were made page-locked; whoever reads them has to wait for the stream."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._slots = pinned_slots(self.torch, place.nbytes)
        self._target = self._slots.take()

    def refresh(self) -> None:
        """The next tensor."""
        self._target = self._slots.take()

    def run(self) -> None:
        """No copy on the host."""
        self.result = self._target.copy_(self.tensor, non_blocking=True)


class ToCpuNonBlocking(Download):
    """`Tensor.to("cpu", non_blocking=True)`: into page-locked memory of PyTorch's pool, without waiting.

    PyTorch promises no page-locked result, so one is asked for `is_pinned()` first. Reading it before the stream has
    come that far gives what was there before.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        if not self.torch.empty(1, device=self.device).to("cpu", non_blocking=True).is_pinned():
            raise RefusedError(
                f"not available in PyTorch {self.torch.__version__}: Tensor.to('cpu', non_blocking=True) gives "
                "ordinary memory there and waits, as torch.cpu does"
            )

    def run(self) -> None:
        """No copy on the host."""
        self.result = self.tensor.to("cpu", non_blocking=True)


class ThroughRing(RingDownload, Download):
    """`pyxfer.download`, into a new NumPy array or one that is there."""

    @property
    def on_device(self) -> Any:
        """The tensor."""
        return self.tensor


class Ingest(Transfer):
    """NumPy to a tensor in host memory, without a GPU."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import torch

        self.torch: Any = torch
        self.source: Any = None

    def refresh(self) -> None:
        """The next piece of memory."""
        self.source = self.place.source()

    def where(self) -> Where:
        """As the tensor says."""
        return place_of(self.result)

    def arrived(self) -> NDArray[Any]:
        """The tensor's own memory."""
        return memory_of(self.result)


class FromNumpy(Ingest):
    """`from_numpy` takes the array's memory over as it is."""

    def run(self) -> None:
        """No copy."""
        self.result = self.torch.from_numpy(self.source)


class IngestCopy(Ingest):
    """`torch.tensor` makes memory of its own."""

    def run(self) -> None:
        """One copy."""
        self.result = self.torch.tensor(self.source)


def memory_of(tensor: Any) -> NDArray[Any]:
    """A CPU tensor's memory as NumPy sees it, without a copy."""
    found: NDArray[Any] = tensor.numpy()
    return found
