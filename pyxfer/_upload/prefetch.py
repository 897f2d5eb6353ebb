"""Prefetching: a thread that draws batches and uploads them ahead of a loop."""

from __future__ import annotations

import atexit
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyxfer._document.printing import ShortRepr
from pyxfer._machine.engine import is_host
from pyxfer._upload.native_calls import AT_EXIT_S, native_call
from pyxfer._upload.targets import Cupy, Target, Torch
from pyxfer.errors import ForkedError, UsageError

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Dtype
    from pyxfer._upload.pending import Upload
    from pyxfer._upload.targets import EmptyArray


Batch = TypeVar("Batch")
Sent = TypeVar("Sent")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

# The delay before the next batch is drawn, if another one is ready: drawing and sending hold Python's lock, which the
# loop needs just then to launch its work on the batch that it has taken.
DELAY_S = 0.002

# A signal that comes just before a wait does not end it, so waits are in slices.
_SLICE_S = 0.1

_running: set[Feeder[Any, Any]] = set()


class _Failure:
    """The error of the source or of sending, in the queue in place of a batch."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _End:
    """The end of the batches, in the queue in place of a batch."""


_END = _End()


class Feeder(Generic[Batch, Sent]):
    """The thread that draws and sends batches, and the queue of those that were not taken yet."""

    def __init__(
        self,
        batches: Iterator[Batch],
        send: Callable[[Batch], Sent],
        depth: int,
        prepare: Callable[[], None],
    ) -> None:
        self.depth = depth
        self._prepare = prepare
        self._sent: SimpleQueue[Sent | _Failure | _End] = SimpleQueue()
        self._taken: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self._exhausted = False
        self._thread = threading.Thread(target=self._run, args=(batches, send), name="pyxfer-prefetch", daemon=True)
        _running.add(self)
        try:
            self._thread.start()
        except BaseException:
            _running.discard(self)
            raise

    @property
    def is_over(self) -> bool:
        """Whether `take` returns no more batches."""
        return self._stopped

    def take(self) -> Sent | _End:
        """Wait for the next batch in order; `_END` after the last one. Only one thread at a time may take."""
        if self._stopped:
            return _END
        while True:
            try:
                found = self._sent.get(timeout=_SLICE_S)
                break
            except Empty:
                continue
        if self._stopped or isinstance(found, _End):
            self._stopped = True
            return _END
        if isinstance(found, _Failure):
            self._stopped = True
            try:
                raise found.error
            finally:
                del found  # its error refers to this frame: the cycle would keep all objects of its frames
        self._taken.put(None)
        return found

    def stop(self) -> None:
        """End the batches: waiting threads are woken, waiting batches dropped, and the thread ends at its next step."""
        self._stopped = True
        self._taken.put(None)
        self._drop()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the end of the thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _run(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> None:
        try:
            try:
                self._feed(batches, send)
            except BaseException as error:  # noqa: BLE001 - raised by `take`
                self._sent.put(_Failure(error))
            if isinstance(batches, Generator):
                batches.close()  # another thread cannot close a generator that runs
        finally:
            _running.discard(self)
            if self._stopped:
                self._drop()
            else:
                self._sent.put(_END)

    def _feed(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> None:
        ahead = 0
        while True:
            if ahead == self.depth:
                self._taken.get()
                ahead -= 1
                if not (self._stopped or self._sent.empty()):
                    time.sleep(DELAY_S)
            if self._stopped:
                return
            self._sent.put(self._draw(batches, send))  # without a local name, which would keep a taken batch alive
            if self._exhausted:
                return
            ahead += 1

    def _draw(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> Sent | _End:
        self._prepare()
        batch = next(batches, _END)
        self._exhausted = isinstance(batch, _End)
        return _END if isinstance(batch, _End) or self._stopped else send(batch)

    def _drop(self) -> None:
        """Empty the queue except for the end. The thread and `stop` both call it, so the later one leaves it empty."""
        while True:
            try:
                self._sent.get_nowait()
            except Empty:
                break
        self._sent.put(_END)


def _at_exit() -> None:
    until = time.monotonic() + AT_EXIT_S
    feeders = list(_running)
    for feeder in feeders:
        feeder.stop()
    for feeder in feeders:
        feeder.join(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)


_PER_THREAD = 2  # CUDA's handle of the per-thread default stream, which means another stream in another thread


class StreamOrder:
    """Orders uploads ahead of a loop and the loop's work. TensorFlow and JAX, in pyxfer's memory, need nothing for it.

    The bytes have arrived before the loop gets an array, and the pool does not reuse a block that the device may still
    read.
    """

    def __init__(self, target: Target) -> None:
        self.target = target

    def before_send(self) -> None:
        """Called before each batch is sent, in the thread that sends."""

    def after_take(self) -> None:
        """Called when the loop gets a batch, in the loop's thread."""


class SentBatch:
    """A running upload of a batch. Call `result` in the thread, and on the stream, that will use the batch."""

    def __init__(self, upload: Upload, order: StreamOrder) -> None:
        self._upload = upload
        self._order = order

    def result(self) -> Any:
        """Wait for the upload, and return its arrays."""
        arrays = self._upload.result()
        self._order.after_take()
        return arrays


class TorchOrder(StreamOrder):
    """Batches are in memory that PyTorch allocates for a stream that is never used, so that copies wait for no work.

    PyTorch reuses a block when all streams that were recorded with it have done the work that was queued before the
    block was freed, and each tensor is recorded with the stream that takes it. A loop may be far ahead of its device,
    and tensors would then accumulate. So a batch is sent only when the device is done with the one `depth` + 2 before.
    """

    def __init__(self, target: Torch, device: int, depth: int) -> None:
        super().__init__(_UnusedTorchStream(target, device))
        self._torch = target.torch
        self._device = target.torch.device("cuda", device)
        self._max_ahead = depth + 1
        self._sent = 0
        self._events: deque[Any] = deque()

    def before_send(self) -> None:
        self._sent += 1
        if self._sent > self._max_ahead and self._events:
            with native_call():
                self._events.popleft().synchronize()

    def after_take(self) -> None:
        """Record an event behind the loop's work on the previous batch, which has been queued by now."""
        event = self._torch.cuda.Event(blocking=True)
        event.record(self._torch.cuda.current_stream(self._device))
        self._events.append(event)


class _UnusedTorchStream(Torch):
    """PyTorch's memory for a separate stream, on which no work is queued."""

    def __init__(self, target: Torch, device: int) -> None:
        super().__init__(target.engine, target.pool)
        self._own: Any = self.torch.cuda.Stream(self.torch.device("cuda", device))

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> EmptyArray:
        with self.torch.cuda.stream(self._own):
            address, finish = super().empty(shape, dtype, device)

        def recorded() -> Any:
            tensor = finish()
            tensor.record_stream(self.torch.cuda.current_stream(tensor.device))
            return tensor

        return address, recorded

    def stream(self, device: int) -> int | None:
        del device
        return None


class CupyOrder(StreamOrder):
    """Batches are in memory that CuPy allocates for the loop's stream. Copies wait for the earlier work of that stream.

    CuPy reuses a freed block at once, for later work of the same stream. The work that used the block was queued before
    it was freed, so a copy that waits for the work queued at its start is correct. With two batches ahead the copy
    still overlaps with the work on the batch between.
    """

    def __init__(self, target: Cupy, device: int) -> None:
        self._on_stream = _OnLoopStream(target, device)
        super().__init__(self._on_stream)
        self._loop_stream = self._on_stream.current(device)
        self._device = device

    def before_send(self) -> None:
        """Allocate all arrays of a batch for the same stream."""
        self._on_stream.used = self._loop_stream

    def after_take(self) -> None:
        """Allocate later batches for the stream that is current now."""
        self._loop_stream = self._on_stream.current(self._device)


class _OnLoopStream(Cupy):
    """CuPy's memory for the stream `used`."""

    def __init__(self, target: Cupy, device: int) -> None:
        super().__init__(target.engine, target.pool)
        self.used: Any = self.current(device)

    def current(self, device: int) -> Any:
        """The current stream; for the per-thread default stream the legacy one, which waits for it."""
        with self.cupy.cuda.Device(device):
            found = self.cupy.cuda.get_current_stream()
        return self.cupy.cuda.Stream.null if int(found.ptr) == _PER_THREAD else found

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> EmptyArray:
        used = self.used
        with self.cupy.cuda.Device(device), used:
            address, finish = super().empty(shape, dtype, device)
        return address, lambda: self._for_current_stream(finish, used, device)

    def stream(self, device: int) -> int | None:
        del device
        return int(self.used.ptr)

    def _for_current_stream(self, finish: Callable[[], Any], used: Any, device: int) -> Any:
        """The array, or a copy in memory of the current stream if that is not `used`."""
        array = finish()
        with self.cupy.cuda.Device(device):
            now = self.cupy.cuda.get_current_stream()
            if int(now.ptr) == int(used.ptr):
                return array
            moved = array.copy()
            used.wait_event(now.record())
        return moved


def order_of(target: Target, device: int, depth: int) -> StreamOrder:
    if not is_host(target.engine):
        if isinstance(target, Torch):
            return TorchOrder(target, device, depth)
        if isinstance(target, Cupy):
            return CupyOrder(target, device)
    return StreamOrder(target)


# The time that `close` waits for a source that is drawing a batch. The thread ends by itself after that.
GRACE_S = 0.7


class Sending(Protocol[Result_co]):
    """A started upload of a batch, which keeps its memory until it is done or dropped."""

    def result(self) -> Result_co:
        """Wait for the upload, and return its result."""


def depth_of(depth: object) -> int:
    """Check the number of batches to send ahead."""
    try:
        count = operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(f"depth is the number of batches to send ahead, a whole number of at least 1; got {depth!r}")
    return count


class Prefetch(ShortRepr, Generic[Batch, Result]):
    """An iterator over the results of sending batches, in order, with up to `depth` batches sent ahead.

    A thread draws the batches, each after a call of `prepare`, and calls `send`. If it raises, the error comes out in
    place of that batch and ends the iteration. The thread also closes a generator, whether it is exhausted or not.

    The iterator ends early on `close()`, on leaving `with`, or when it is dropped. Several threads may iterate: each
    result goes to one of them.

    Raises:
        UsageError: `depth` is not a whole number of at least 1.

    """

    def __init__(
        self,
        batches: Iterable[Batch],
        send: Callable[[Batch], Sending[Result]],
        depth: int = 2,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._feeder = Feeder(iter(batches), send, depth_of(depth), prepare)

    def _summary(self) -> str:
        return f"of depth {self._feeder.depth}: {'ended' if self._feeder.is_over else 'open'}"

    def __iter__(self) -> Prefetch[Batch, Result]:
        return self

    def __next__(self) -> Result:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This prefetch belongs to the parent process, and its thread does not exist in a forked child: make a "
                "new one here."
            )
        with self._turn:
            try:
                upload = self._feeder.take()
                if not isinstance(upload, _End):
                    return upload.result()
            except StopIteration as error:
                self._feeder.stop()
                raise RuntimeError("sending a batch raised StopIteration, which would end the loop silently") from error
            except BaseException:
                self._feeder.stop()
                raise
        raise StopIteration

    def close(self) -> None:
        """End early: sent batches are dropped, and the thread ends when the source returns from its current batch."""
        self._feeder.stop()
        self._feeder.join(GRACE_S)

    def __enter__(self) -> Prefetch[Batch, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        feeder = self.__dict__.get("_feeder")  # None if the source was not iterable
        if feeder is not None:
            feeder.stop()  # without a join: the destructor may run in the feeder's own thread
