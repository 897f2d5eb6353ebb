"""The bracket: two CUDA events and the host's clock around any code.

With a stream the events are recorded on it. Without one the device is drained before and after, because an event on a
separate stream is not ordered with a framework's hidden streams. The events then time what the host sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, TypeGuard

from pyxfer._document.printing import ShortRepr
from pyxfer._document.runs import Bracket as BracketWord
from pyxfer.errors import UsageError
from pyxfer.native import Engine, choose
from pyxfer.units import format_seconds

# A wait is in slices, because Python handles Ctrl-C between two of them.
SLICE_S = 0.2


class _HostTimes:
    """The host's times of a call, in seconds of `time.perf_counter`."""

    called_s = returned_s = finished_s = 0.0

    @property
    def dispatch_s(self) -> float:
        return self.returned_s - self.called_s

    @property
    def wall_s(self) -> float:
        return self.finished_s - self.called_s


class Bracket(_HostTimes):
    """Two events and the host's clock around a call: `begin`, the call, `returned`, `end`.

    It can be used again and again, by one thread at a time.
    """

    def __init__(self, engine: Engine, device: int, stream: StreamLike | None = None) -> None:
        self.word: BracketWord = "drained" if stream is None else "stream"
        self._engine = engine
        self._events = engine.Bracket(device, None if stream is None else stream_handle(stream))

    def begin(self) -> None:
        self._events.begin()
        self.called_s = time.perf_counter()

    def returned(self) -> None:
        """Call this right after the timed call has returned. Its queued work may still run."""
        self.returned_s = time.perf_counter()

    def end(self, sync: Callable[[], object] | None = None) -> None:
        """Wait for the work, also with the framework's `sync` if there is one."""
        if self.word == "drained":
            if sync is not None:
                sync()
            self._events.end()
            self.finished_s = time.perf_counter()
            self._wait()
        else:
            self._events.end()
            if sync is not None:
                sync()
            self._wait()
            self.finished_s = time.perf_counter()

    def _wait(self) -> None:
        while not self._events.ended_within(SLICE_S):
            pass

    @property
    def elapsed_s(self) -> float:
        return self._events.elapsed_s

    @property
    def fault(self) -> str | None:
        if self.word != "drained":
            return None
        return self._engine.drained_fault(self.elapsed_s, self.wall_s) or None

    def close(self) -> None:
        self._events.close()


class HostClock(_HostTimes):
    """The interface of `Bracket` without a device, for calls that stay in host memory."""

    word: BracketWord = "host"
    fault: str | None = None

    def begin(self) -> None:
        self.called_s = time.perf_counter()

    def returned(self) -> None:
        self.returned_s = self.finished_s = time.perf_counter()

    def end(self, sync: Callable[[], object] | None = None) -> None:
        if sync is not None:
            sync()
            self.finished_s = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        return self.wall_s

    def close(self) -> None:
        pass


# --- the timer of users ----------------------------------------------------------------------------------------------


class Timer(ShortRepr):
    """Times a block with CUDA events: `with pyxfer.Timer(stream) as t: ...`, then `t.elapsed_s`.

    Args:
        stream: The stream that the events are recorded on: an integer handle, an object with `__cuda_stream__`, a
            torch.cuda.Stream or a cupy.cuda.Stream. Without one the device is drained before and after the block.
        device: Index of the device.

    The times can be read after the block. Before, and after a block that raised, they raise `UsageError`.
    """

    def __init__(self, stream: StreamLike | None = None, *, device: int = 0) -> None:
        self._stream = stream
        self._device = device
        self._bracket: Bracket | None = None
        self._times: _Times | None = None

    def _summary(self) -> str:
        if self._times is not None:
            return format_seconds(self._times.elapsed_s)
        return "without a time" if self._bracket is None else "running"

    def __enter__(self) -> Timer:
        if self._bracket is not None:
            raise UsageError("This timer is already running: use another one for a block inside its block.")
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
                self._times = _Times(bracket.elapsed_s, bracket.wall_s, bracket.dispatch_s)
        finally:
            bracket.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds between the two events."""
        return self._known().elapsed_s

    @property
    def wall_s(self) -> float:
        """Seconds on the host's clock from the beginning of the block to the end of its work."""
        return self._known().wall_s

    @property
    def dispatch_s(self) -> float:
        """Seconds on the host's clock that the block itself took; its queued work may take longer."""
        return self._known().dispatch_s

    def _known(self) -> _Times:
        if self._times is None:
            raise UsageError("This timer has no times: its block has not ended, or it raised an exception.")
        return self._times


class _Times(NamedTuple):
    elapsed_s: float
    wall_s: float
    dispatch_s: float


# --- streams of other libraries --------------------------------------------------------------------------------------

StreamLike = object
"""What users give as a stream; `stream_handle` says which objects it takes."""

# Of torch.cuda.Stream, cupy.cuda.Stream and pyxfer's Stream.
_HANDLE_NAMES = ("cuda_stream", "ptr", "handle")


def stream_handle(stream: StreamLike) -> int:
    """The CUstream as an integer; 0 is the legacy default stream."""
    handle: int | None
    if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:  # of cuda.core: its version, and the handle
        handle = protocol()[1]
    else:
        handle = next(filter(_is_number, (stream, *(getattr(stream, name, None) for name in _HANDLE_NAMES))), None)
    if handle is None:
        raise UsageError(
            f"{type(stream).__name__} is not a stream: give an integer handle, an object with __cuda_stream__, a "
            "torch.cuda.Stream or a cupy.cuda.Stream, or leave it out to drain the device around each call."
        )
    if not 0 <= handle < 1 << 64:
        raise UsageError(f"{handle} is not a stream handle: give an address, or 0 for the legacy default stream.")
    return handle


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
