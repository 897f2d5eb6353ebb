"""Anybody's stream as the driver's handle."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pyxfer.errors import UsageError


@runtime_checkable
class CudaStream(Protocol):
    """An object with the `__cuda_stream__` protocol, of cuda.core and whoever follows it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and the handle."""


StreamLike = object
# torch.cuda.Stream, cupy.cuda.Stream, pyxfer's own.
_HANDLE_NAMES = ("cuda_stream", "ptr", "handle")


def stream_handle(stream: StreamLike) -> int:
    """The CUstream as an integer; 0 is the legacy default stream, and a stream like any other.

    Raises:
        UsageError: the object is no stream that pyxfer knows.

    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return _checked(stream)
    if isinstance(stream, CudaStream):
        return _checked(stream.__cuda_stream__()[1])
    for name in _HANDLE_NAMES:
        handle = getattr(stream, name, None)
        if isinstance(handle, int) and not isinstance(handle, bool):
            return _checked(handle)
    raise UsageError(
        f"{type(stream).__name__} is no stream: give an integer handle, an object with __cuda_stream__, a "
        "torch.cuda.Stream or a cupy.cuda.Stream, or leave it out to drain the device around each call."
    )


def _checked(handle: int) -> int:
    if not 0 <= handle < 1 << 64:
        raise UsageError(f"{handle} is no stream handle: it is an address, or 0 for the legacy default stream.")
    return handle
