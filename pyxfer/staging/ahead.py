"""How uploads run beside a loop's work on the device, and whose memory they may use meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyxfer.machine.engine import is_host
from pyxfer.staging.natives import inside
from pyxfer.staging.targets import Cupy, Target, Torch

if TYPE_CHECKING:
    from pyxfer.staging.dtypes import Dtype
    from pyxfer.staging.targets import Empty
    from pyxfer.staging.uploads import Upload

_PER_THREAD = 2  # CUDA's handle for a default stream of each thread, which is another one in another thread


class Ahead:
    """Of a framework whose arrays are made of pyxfer's memory: TensorFlow, JAX.

    There is nothing to be ordered. The bytes have arrived before an array is handed over, and the pool gives no block
    away that the device may still read.
    """

    def __init__(self, target: Target) -> None:
        self.target = target

    def before(self) -> None:
        """In the thread that sends, before each batch."""

    def taken(self) -> None:
        """In the thread that takes, when a batch has been handed over to it."""


class Sent:
    """A batch on its way; who takes it does so in the thread, and with the current stream, that will use it."""

    def __init__(self, upload: Upload, ahead: Ahead) -> None:
        self._upload = upload
        self._ahead = ahead

    def result(self) -> Any:
        """Wait for it, and take what has arrived."""
        made = self._upload.result()
        self._ahead.taken()
        return made


class AheadInTorch(Ahead):
    """In memory that PyTorch allocates for a stream on which nothing is ever done.

    So the copies wait for nothing: PyTorch gives a block of that stream away again when all the streams that were
    recorded with it have done what they were given before it was freed, and every tensor is recorded with the stream
    that takes it. A loop may be far ahead of its device, and its tensors would then pile up; a batch is therefore not
    sent before the device is done with the one `depth` + 2 before it.
    """

    def __init__(self, target: Torch, device: int, depth: int) -> None:
        super().__init__(_BesideTorch(target, device))
        self._torch = target.torch
        self._device = target.torch.device("cuda", device)
        self._ahead = depth + 1
        self._sent = 0
        self._marks: deque[Any] = deque()

    def before(self) -> None:
        """A mark stands behind all that was done with the batches before the one with which it was made."""
        self._sent += 1
        if self._sent > self._ahead and self._marks:
            with inside():
                self._marks.popleft().synchronize()

    def taken(self) -> None:
        """What the loop does with the batch before has been queued by now."""
        mark = self._torch.cuda.Event(blocking=True)
        mark.record(self._torch.cuda.current_stream(self._device))
        self._marks.append(mark)


class _BesideTorch(Torch):
    def __init__(self, target: Torch, device: int) -> None:
        super().__init__(target.engine, target.pool)
        self._own: Any = self.torch.cuda.Stream(self.torch.device("cuda", device))

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        with self.torch.cuda.stream(self._own):
            address, finish = super().empty(shape, dtype, device)

        def handed_over() -> Any:
            tensor = finish()
            tensor.record_stream(self.torch.cuda.current_stream(tensor.device))
            return tensor

        return address, handed_over

    def stream(self, device: int) -> int | None:
        del device
        return None


class AheadInCupy(Ahead):
    """In memory that CuPy allocates for the stream of the loop, and the copies wait for what that was given before.

    CuPy gives a block of a stream away as soon as it is freed, for what the same stream is given later. What freed it
    has queued its work by then, so a copy behind all that the stream has at its start is right. Two batches ahead it
    still runs beside the work on the batch between.
    """

    def __init__(self, target: Cupy, device: int) -> None:
        self._beside = _BesideCupy(target, device)
        super().__init__(self._beside)
        self._noted = self._beside.current(device)
        self._device = device

    def before(self) -> None:
        """All arrays of a batch are for one stream."""
        self._beside.used = self._noted

    def taken(self) -> None:
        """The next ones are for the stream that is current now."""
        self._noted = self._beside.current(self._device)


class _BesideCupy(Cupy):
    def __init__(self, target: Cupy, device: int) -> None:
        super().__init__(target.engine, target.pool)
        self.used: Any = self.current(device)

    def current(self, device: int) -> Any:
        """The legacy default stream in place of one that is another in each thread: it waits for that one."""
        with self.cupy.cuda.Device(device):
            found = self.cupy.cuda.get_current_stream()
        return self.cupy.cuda.Stream.null if int(found.ptr) == _PER_THREAD else found

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        used = self.used
        with self.cupy.cuda.Device(device), used:
            address, finish = super().empty(shape, dtype, device)
        return address, lambda: self._handed_over(finish, used, device)

    def stream(self, device: int) -> int | None:
        del device
        return int(self.used.ptr)

    def _handed_over(self, finish: Callable[[], Any], used: Any, device: int) -> Any:
        """An array of the current stream: where that has changed a copy, until which its block is in use."""
        array = finish()
        with self.cupy.cuda.Device(device):
            now = self.cupy.cuda.get_current_stream()
            if int(now.ptr) == int(used.ptr):
                return array
            moved = array.copy()
            used.wait_event(now.record())
        return moved


def ahead_of(target: Target, device: int, depth: int) -> Ahead:
    """What is right for that framework on that device."""
    if not is_host(target.engine):
        if isinstance(target, Torch):
            return AheadInTorch(target, device, depth)
        if isinstance(target, Cupy):
            return AheadInCupy(target, device)
    return Ahead(target)
