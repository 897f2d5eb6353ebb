"""Prefetching: a thread that draws batches and uploads them ahead of a loop."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyxfer._document.printing import ShortRepr
from pyxfer._machine.engine import is_host
from pyxfer._upload.native_calls import AT_EXIT_S, native_call
from pyxfer._upload.targets import Cupy, Target, Torch
from pyxfer.errors import FallbackWarning, ForkedError
from pyxfer.units import whole_of

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Dtype
    from pyxfer._upload.device_arrays import DevicePool
    from pyxfer._upload.targets import EmptyArray
    from pyxfer.native import Engine


Batch = TypeVar("Batch")
Sent = TypeVar("Sent")
Result = TypeVar("Result")

# Drawing and sending hold Python's lock, which a loop that has taken a batch needs to launch its work on it. So if
# another batch is ready, the next one is drawn when the loop asks again, or after this time.
DELAY_S = 0.0003

# A signal that comes just before a wait does not end it, so waits are in slices.
_SLICE_S = 0.1

# Each running thread, and what it draws from: the source and its iterator.
_running: dict[Feeder[Any, Any], tuple[object, object]] = {}


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class Feeder(Generic[Batch, Sent]):
    """The thread that draws and sends batches, and the queue of those that were not taken yet. None ends the queue."""

    def __init__(
        self,
        batches: Iterable[Batch],
        send: Callable[[Batch], Sent],
        depth: int,
        before_draw: Callable[[], None],
        after_send: Callable[[], None],
        at_end: Callable[[], None],
    ) -> None:
        self.depth = depth
        self._send = send
        self._before_draw = before_draw
        self._after_send = after_send
        self._at_end = at_end
        self._sent: SimpleQueue[Sent | _Failure | None] = SimpleQueue()
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._taken: SimpleQueue[None] = SimpleQueue()
        self.is_over = False
        if getattr(batches, "persistent_workers", False):  # a DataLoader whose next iterator has the same workers
            _await_stopped(batches)
        self._batches = iter(batches)
        self._thread = threading.Thread(target=self._run, name="pyxfer-prefetch", daemon=True)
        _running[self] = (batches, self._batches)
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C while the thread begins, or it cannot begin
            self.stop()
            _running.pop(self, None)
            raise

    def take(self) -> Sent | None:
        """Wait for the next batch in order; None after the last one. Only one thread at a time may take."""
        if self.is_over:
            return None
        self._asked.put(None)
        while True:
            try:
                found = self._sent.get(timeout=_SLICE_S)
                break
            except Empty:
                continue
        if self.is_over or found is None:
            self.is_over = True
            return None
        if isinstance(found, _Failure):
            self.is_over = True
            try:
                raise found.error
            finally:
                del found  # its error refers to this frame: the cycle would keep all objects of its frames
        self._taken.put(None)
        return found

    def stop(self) -> None:
        """End the batches: waiting threads are woken, waiting batches dropped, and the thread ends at its next step."""
        self.is_over = True
        self._taken.put(None)
        self._asked.put(None)
        self._drop()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread, except in itself. Returns whether it has ended."""
        if threading.current_thread() is self._thread:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        end: _Failure | None = None
        try:
            try:
                _await_stopped(self._batches)
                self._feed()
            except BaseException as error:  # noqa: BLE001 - raised by `take`
                end = _Failure(error)
            if isinstance(self._batches, Generator):
                self._batches.close()  # another thread cannot close a generator that runs
        finally:
            # Before the loop knows of the end: it may fork at once, and the child would drop an iterator that is not
            # its own, such as one of a DataLoader.
            del self._batches
            _running.pop(self, None)
            self._at_end()
            self._sent.put(end)
            del end  # its error refers to this frame
            if self.is_over:
                self._drop()

    def _feed(self) -> None:
        ahead, is_asked = 0, False
        while True:
            if ahead == self.depth:
                self._taken.get()
                ahead -= 1
                is_asked = self._is_asked_again(is_asked)
            if self.is_over:
                return
            self._before_draw()
            try:
                batch = next(self._batches)
            except StopIteration:
                return
            if self.is_over:
                return
            self._sent.put(self._send(batch))
            del batch  # the name would keep a taken batch alive
            ahead += 1
            self._after_send()

    def _is_asked_again(self, is_asked: bool) -> bool:
        """Wait until the loop asks for another batch, unless none is ready. `is_asked`: the last one was seen asked."""
        with suppress(Empty):
            if not is_asked:
                self._asked.get_nowait()  # for the batch that was taken
            if not (self.is_over or self._sent.empty()):
                self._asked.get(timeout=DELAY_S)
                return True
        return False

    def _drop(self) -> None:
        """Empty the queue except for the end. The thread and `stop` both call it, so the later one leaves it empty."""
        while True:
            try:
                self._sent.get_nowait()
            except Empty:
                break
        self._sent.put(None)


def _await_stopped(drawn: object) -> None:
    """Wait for threads that were stopped while they drew from the same object."""
    for feeder, sources in list(_running.items()):
        while feeder.is_over and any(drawn is each for each in sources) and not feeder.join(_SLICE_S):
            pass


def _at_exit() -> None:
    until = time.monotonic() + AT_EXIT_S
    feeders = list(_running)
    for feeder in feeders:
        feeder.stop()
    for feeder in feeders:
        feeder.join(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)


_PER_THREAD = 2  # CUDA's handle of the per-thread default stream, which means another stream in another thread


class _TorchAhead(Torch):
    """Batches are in memory that PyTorch allocates for a stream that is never used, so that copies wait for no work.

    PyTorch reuses a block when all streams that were recorded with it have done the work that was queued before the
    block was freed, and each tensor is recorded with the stream that takes it. A loop may be far ahead of its device,
    and tensors would then accumulate. So a batch is sent only when the device is done with the one `depth` + 2 before.
    """

    def __init__(self, pool: DevicePool, depth: int) -> None:
        super().__init__(pool)
        self._unused: Any = self.torch.cuda.Stream(self.place)
        self._max_ahead = depth + 1
        self._sent = 0
        self._events: deque[Any] = deque()

    def empty(self, shape: tuple[int, ...], dtype: Dtype) -> EmptyArray:
        with self.torch.cuda.stream(self._unused):
            address, finish = super().empty(shape, dtype)

        def recorded() -> Any:
            tensor = finish()
            tensor.record_stream(self.torch.cuda.current_stream(tensor.device))
            return tensor

        return address, recorded

    def stream(self) -> int | None:
        return None

    def before_send(self) -> None:
        self._sent += 1
        if self._sent > self._max_ahead and self._events:
            with native_call():
                self._events.popleft().synchronize()

    def after_take(self) -> None:
        """Record an event behind the loop's work on the previous batch, which has been queued by now."""
        event = self.torch.cuda.Event(blocking=True)
        event.record(self.torch.cuda.current_stream(self.place))
        self._events.append(event)


class _CupyAhead(Cupy):
    """Batches are in memory that CuPy allocates for the loop's stream. Copies wait for the earlier work of that stream.

    CuPy reuses a freed block at once, for later work of the same stream. The work that used the block was queued before
    it was freed, so a copy that waits for the work queued at its start is correct. With two batches ahead the copy
    still overlaps with the work on the batch between.
    """

    def __init__(self, pool: DevicePool) -> None:
        super().__init__(pool)
        self._loop_stream = self._used = self._current()

    def _current(self) -> Any:
        """The current stream; for the per-thread default stream the legacy one, which waits for it."""
        with self.cupy.cuda.Device(self.device):
            found = self.cupy.cuda.get_current_stream()
        return self.cupy.cuda.Stream.null if int(found.ptr) == _PER_THREAD else found

    def before_send(self) -> None:
        """Allocate all arrays of a batch for the same stream."""
        self._used = self._loop_stream

    def after_take(self) -> None:
        """Allocate later batches for the stream that is current now."""
        self._loop_stream = self._current()

    def empty(self, shape: tuple[int, ...], dtype: Dtype) -> EmptyArray:
        used = self._used
        with self.cupy.cuda.Device(self.device), used:
            address, finish = super().empty(shape, dtype)

        def for_current_stream() -> Any:
            array = finish()
            with self.cupy.cuda.Device(self.device):
                now = self.cupy.cuda.get_current_stream()
                if int(now.ptr) == int(used.ptr):
                    return array
                moved = array.copy()
                used.wait_event(now.record())
            return moved

        return address, for_current_stream

    def stream(self) -> int | None:
        return int(self._used.ptr)


def target_ahead(target: Target, depth: int) -> Target:
    """The target for uploads ahead of a loop.

    TensorFlow and JAX, in pyxfer's memory, need no other: the bytes have arrived before the loop gets an array, and the
    pool does not reuse a block that the device may still read.
    """
    if not is_host(target.engine):
        if isinstance(target, Torch):
            return _TorchAhead(target.pool, depth)
        if isinstance(target, Cupy):
            return _CupyAhead(target.pool)
    return target


# TensorFlow's names of the datasets that `prefetch_to_device` and `copy_to_device` make, and that may follow them.
_COPIES_TO_DEVICE = "_CopyToDeviceDataset"
_MAY_FOLLOW = ("_PrefetchDataset", "_OptionsDataset")


def before_copy_to_device(batches: Any) -> Any:
    """The part of a tf.data.Dataset before it copies its batches to a device; everything else as it is."""
    part = batches
    while type(part).__name__ in _MAY_FOLLOW:
        part = getattr(part, "_input_dataset", None)
    if type(part).__name__ != _COPIES_TO_DEVICE:
        return batches
    return part._input_dataset.with_options(batches.options())


_pinning: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_of_pinning(batches: Iterable[Any], stacklevel: int) -> None:
    """Warn once of each DataLoader that page-locks its batches: its one thread copies them, more slowly than a ring."""
    torch = sys.modules.get("torch.utils.data")
    if torch is None or not isinstance(batches, torch.DataLoader) or not batches.pin_memory or batches in _pinning:
        return
    _pinning.add(batches)
    warnings.warn(
        "This DataLoader copies its batches to page-locked memory in one thread, which takes longer than prefetch "
        "takes for pageable memory: give it pin_memory=False.",
        FallbackWarning,
        stacklevel,
    )


class Unmapper:
    """A thread in which the tensors that a loader's workers have shared end.

    Unmapping a batch of 38.5 MB takes 3 to 8 ms, and the destructor of a tensor holds Python's lock for that time. So
    the thread unmaps the pages before, without the lock. It runs from the first such tensor on until `stop`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: SimpleQueue[list[Any] | None] = SimpleQueue()
        self._is_running = self._is_over = False

    def take_over(self, tensors: list[Any]) -> None:
        """Take the caller's only references: the list becomes empty."""
        if self._is_over or not tensors:
            return
        if not self._is_running:
            threading.Thread(target=self._run, name="pyxfer-unmap", daemon=True).start()
            self._is_running = True
        self._queue.put(list(tensors))
        tensors.clear()

    def stop(self) -> None:
        self._is_over = True
        self._queue.put(None)

    def _run(self) -> None:
        while (tensors := self._queue.get()) is not None:
            while tensors:
                self._end(tensors.pop())

    def _end(self, tensor: Any) -> None:
        if sys.getrefcount(tensor) > _LAST_REFERENCES:  # a kept tensor would map its pages again
            return
        with native_call() as allowed:
            if allowed:
                self._engine.unmap_shared(tensor.data_ptr(), tensor.nbytes)


def shared_tensors(arrays: Iterable[Any]) -> list[Any]:
    """Those in memory that a worker process has shared, and not views of a larger tensor."""
    return [x for x in arrays if _is_tensor(x.__class__) and x.is_cpu and x.is_shared() and x._base is None]


@cache
def _is_tensor(kind: Any) -> bool:
    return any(f"{base.__module__}.{base.__qualname__}" == "torch.Tensor" for base in kind.__mro__)


def _references() -> int:
    """What `sys.getrefcount` in `Unmapper._end` says of an object without other references."""

    def count(tensor: object) -> int:
        return sys.getrefcount(tensor)

    only = [object()]
    return count(only.pop())


_LAST_REFERENCES = _references()


# The time that `close` waits for a source that is drawing a batch. The thread ends by itself after that.
GRACE_S = 0.7


def depth_of(depth: int) -> int:
    return whole_of(depth, "depth", 1, sys.maxsize, "the number of batches to send ahead, such as 2")


class Prefetch(ShortRepr, Generic[Batch, Result]):
    """The iterator of `prefetch`: batches on the device, in order, with up to `depth` of them sent ahead.

    A thread draws the batches and calls `send`, whose result waits for the upload when it is called. If the thread
    raises, the error comes out in place of that batch and ends the iteration. The thread also closes a generator,
    whether it is exhausted or not.

    The iterator ends early on `close()`, on leaving `with`, or when it is dropped. Several threads may iterate: each
    result goes to one of them.

    Raises:
        UsageError: `depth` is not a whole number of at least 1.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        send: Callable[[Batch], Callable[[], Result]],
        depth: int = 2,
        before_draw: Callable[[], None] = lambda: None,
        after_send: Callable[[], None] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._feeder = Feeder(batches, send, depth_of(depth), before_draw, after_send, at_end)

    def _summary(self) -> str:
        return f"of depth {self._feeder.depth}: {'ended' if self._feeder.is_over else 'open'}"

    def __iter__(self) -> Prefetch[Batch, Result]:
        return self

    def __next__(self) -> Result:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This prefetch belongs to the parent process, and its thread does not exist in a forked child: start "
                'processes with the method "spawn", and make a prefetch in each.'
            )
        with self._turn:
            try:
                result = self._feeder.take()
                if result is not None:
                    return result()
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

    def __del__(self, native_call: type[native_call] = native_call) -> None:  # the module's names may be gone at exit
        feeder = self.__dict__.get("_feeder")  # None if the source was not iterable
        if feeder is not None and not native_call.exit_begun:  # at exit `_at_exit` has stopped it
            feeder.stop()  # without a join: the destructor may run in the feeder's own thread
