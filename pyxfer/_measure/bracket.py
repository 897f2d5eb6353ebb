"""The bracket: two CUDA events and the host's clock around whatever runs between them.

On a stream, the events are recorded on that stream. Without one the device is drained before and after, because an
event on a stream of ours is not ordered with a framework's hidden streams; the time is then the host's, read from the
GPU's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyxfer.errors import UsageError
from pyxfer.native import choose

if TYPE_CHECKING:
    from types import TracebackType

    from pyxfer._document.runs import Bracket as BracketWord
    from pyxfer.native import Engine


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


# Between slices of waiting Python can act on Ctrl-C.
SLICE_S = 0.2


@dataclass(frozen=True)
class Moments:
    """When the host's clock said what, in seconds of `time.perf_counter`."""

    called_s: float
    returned_s: float
    finished_s: float


class _HostTimes:
    """What the host's clock says, of a bracket of either kind."""

    _called = _returned = _finished = 0.0

    @property
    def dispatch_s(self) -> float:
        """Seconds on the host's clock from the call to its return."""
        return self._returned - self._called

    @property
    def wall_s(self) -> float:
        """Seconds on the host's clock until the work was seen to be done."""
        return self._finished - self._called

    @property
    def moments(self) -> Moments:
        """When the call began, when it returned, and when its work was seen to be done."""
        return Moments(self._called, self._returned, self._finished)


class Bracket(_HostTimes):
    """Reusable; one thread at a time."""

    def __init__(self, engine: Engine, device: int, stream: StreamLike | None = None) -> None:
        self.word: BracketWord = "drained" if stream is None else "stream"
        self._engine = engine
        self._events = engine.Bracket(device, None if stream is None else stream_handle(stream))

    def begin(self) -> None:
        """Right before the call."""
        self._events.begin()
        self._called = time.perf_counter()

    def returned(self) -> None:
        """Right after the call has returned; what it queued may still run."""
        self._returned = time.perf_counter()

    def end(self, sync: Callable[[], object] | None = None) -> None:
        """Wait for the work, with the framework's own `sync` where there is one."""
        if self.word == "drained":
            if sync is not None:
                sync()
            self._events.end()
            self._finished = time.perf_counter()
            self._wait()
        else:
            self._events.end()
            if sync is not None:
                sync()
            self._wait()
            self._finished = time.perf_counter()

    def _wait(self) -> None:
        while not self._events.ended_within(SLICE_S):
            pass

    @property
    def elapsed_s(self) -> float:
        """Seconds between the two events."""
        return self._events.elapsed_s

    @property
    def fault(self) -> str | None:
        """Why these times must not be used; None where they may."""
        if self.word != "drained":
            return None
        return self._engine.drained_fault(self.elapsed_s, self.wall_s) or None

    def close(self) -> None:
        """Release the events."""
        self._events.close()


class HostClock(_HostTimes):
    """The face of a bracket for what stays in host memory: the host's clock alone, and nothing of a device in it."""

    word: BracketWord = "host"
    fault: str | None = None

    def begin(self) -> None:
        """Right before the call."""
        self._called = time.perf_counter()

    def returned(self) -> None:
        """Right after the call has returned."""
        self._returned = self._finished = time.perf_counter()

    def end(self, sync: Callable[[], object] | None = None) -> None:
        """Wait for the work, where it has to be waited for."""
        if sync is not None:
            sync()
            self._finished = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds until the work was done."""
        return self.wall_s

    def close(self) -> None:
        """It holds nothing."""


class Timer:
    """Times a block: `with pyxfer.Timer(stream) as t: ...`, then `t.elapsed_s`, `t.wall_s`, `t.dispatch_s`.

    With a stream (an integer, an object with `__cuda_stream__`, a torch or a CuPy stream) the block is bracketed by
    events on it. Without one the device is drained before and after.
    """

    def __init__(self, stream: StreamLike | None = None, *, device: int = 0) -> None:
        self._stream = stream
        self._device = device
        self._bracket: Bracket | None = None
        self._times: tuple[float, float, float] | None = None

    def __enter__(self) -> Timer:
        if self._bracket is not None:
            raise UsageError("This timer is running already: use a second one for a block inside the block.")
        self._times = None
        bracket = Bracket(choose(self._device).engine, self._device, self._stream)
        try:
            bracket.begin()
        except BaseException:
            bracket.close()
            raise
        self._bracket = bracket
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        bracket, self._bracket = self._bracket, None
        if bracket is None:
            return
        try:
            bracket.returned()
            if kind is None:
                bracket.end()
                self._times = (bracket.elapsed_s, bracket.wall_s, bracket.dispatch_s)
        finally:
            bracket.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds between the two events."""
        return self._taken()[0]

    @property
    def wall_s(self) -> float:
        """Seconds on the host's clock over the same span."""
        return self._taken()[1]

    @property
    def dispatch_s(self) -> float:
        """Seconds that the block held the caller's thread."""
        return self._taken()[2]

    def _taken(self) -> tuple[float, float, float]:
        if self._times is None:
            raise UsageError("This timer has no times: its block has not ended, or ended by an exception.")
        return self._times
