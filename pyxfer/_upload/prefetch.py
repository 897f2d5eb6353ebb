"""Batches that are on their way to the GPU before they are asked for."""

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

from pyxfer._machine.engine import is_host
from pyxfer._upload.natives import inside
from pyxfer._upload.targets import Cupy, Target, Torch
from pyxfer.errors import ForkedError, UsageError

if TYPE_CHECKING:
    from pyxfer._upload import targets
    from pyxfer._upload.arrays import Dtype
    from pyxfer._upload.pending import Upload


Batch = TypeVar("Batch")
Sent = TypeVar("Sent")

# While another batch is ready nobody waits for the next, and what sends it would hold Python's lock just when the loop
# launches its work on the one that it has taken.
LATER_S = 0.002

# A thread that comes back from native code while Python shuts down would be unwound through it and abort the process.
AT_EXIT_S = 0.5

_at_work: set[Feeder[Any, Any]] = set()


class Failure:
    """What the source or the sending raised, in the place of the batch that there is not."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Over:
    """Says in a batch's place that no more will come."""


OVER = Over()


class Feeder(Generic[Batch, Sent]):
    """The thread, and what it has sent and nobody has taken."""

    def __init__(
        self,
        batches: Iterator[Batch],
        send: Callable[[Batch], Sent],
        depth: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._depth = depth
        self._prepare = prepare
        self._sent: SimpleQueue[Sent | Failure | Over] = SimpleQueue()
        self._taken: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self._exhausted = False
        self._thread = threading.Thread(target=self._run, args=(batches, send), name="pyxfer-prefetch", daemon=True)
        _at_work.add(self)
        try:
            self._thread.start()
        except BaseException:
            _at_work.discard(self)
            raise

    def take(self) -> Sent | Over:
        """The next one, in order; OVER after the last. One thread at a time may take.

        Raises:
            BaseException: what was raised instead of it; there is nothing after that.

        """
        if self._stopped:
            return OVER
        found = self._sent.get()
        if self._stopped or isinstance(found, Over):
            self._stopped = True
            return OVER
        if isinstance(found, Failure):
            self._stopped = True
            try:
                raise found.error
            finally:
                del found  # it would keep itself, and everything that its frames hold
        self._taken.put(None)
        return found

    def stop(self) -> None:
        """No more: who waits is told, what was not taken is dropped, and the thread ends at its next step."""
        self._stopped = True
        self._taken.put(None)
        self._drop()

    def join(self, seconds: float) -> None:
        """Wait so long at most for the thread's end."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _run(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> None:
        try:
            try:
                self._feed(batches, send)
            except BaseException as error:  # noqa: BLE001 - handed to who takes
                self._sent.put(Failure(error))
            if isinstance(batches, Generator):
                batches.close()  # here, because another thread cannot while it runs
        finally:
            _at_work.discard(self)
            if self._stopped:
                self._drop()
            else:
                self._sent.put(OVER)

    def _feed(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> None:
        ahead = 0
        while True:
            if ahead == self._depth:
                self._taken.get()
                ahead -= 1
                if not (self._stopped or self._sent.empty()):
                    time.sleep(LATER_S)
            if self._stopped:
                return
            self._sent.put(self._draw(batches, send))  # no name here may keep it, for it may be taken at once
            if self._exhausted:
                return
            ahead += 1

    def _draw(self, batches: Iterator[Batch], send: Callable[[Batch], Sent]) -> Sent | Over:
        self._prepare()
        batch = next(batches, OVER)
        self._exhausted = isinstance(batch, Over)
        return OVER if isinstance(batch, Over) or self._stopped else send(batch)

    def _drop(self) -> None:
        """Whoever comes last, of the thread and of who stops it, leaves nothing behind but the word that it is over."""
        while True:
            try:
                self._sent.get_nowait()
            except Empty:
                break
        self._sent.put(OVER)


def _at_end() -> None:
    until = time.monotonic() + AT_EXIT_S
    left = list(_at_work)
    for each in left:
        each.stop()
    for each in left:
        each.join(max(0.0, until - time.monotonic()))


atexit.register(_at_end)


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


class SentAhead:
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

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> targets.Empty:
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

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> targets.Empty:
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


Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

# How long `close` waits for a source that is at work on its next batch; after that the thread ends by itself.
GRACE_S = 0.7


class Sending(Protocol[Result_co]):
    """What has been started; it keeps what it needs until it is done or dropped."""

    def result(self) -> Result_co:
        """Wait for it, and take what has arrived."""


def prefetch(
    batches: Iterable[Batch], send: Callable[[Batch], Sending[Result]], depth: int = 2
) -> Prefetch[Batch, Result]:
    """The results of sending each batch, in order, with up to `depth` batches on their way ahead of the one in use.

    A thread draws the batches and calls `send`. What either raises comes out where its batch would have come, and
    ends the iteration. A generator is closed by that thread, be it exhausted or not.

    Raises:
        UsageError: `depth` is not a whole number from 1 on.

    """
    return Prefetch(batches, send, depth_of(depth))


def depth_of(depth: object) -> int:
    """How many batches are sent ahead.

    Raises:
        UsageError: it is not a whole number from 1 on.

    """
    try:
        count = operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(f"depth is how many batches are sent ahead, a whole number from 1 on; got {depth!r}")
    return count


class Prefetch(Generic[Batch, Result]):
    """An iterator, which `with` or `close` ends early; to drop it does too. `prepare` is called before each is drawn.

    Several threads may take from it: they take turns, and each result goes to one of them.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        send: Callable[[Batch], Sending[Result]],
        depth: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._feeder = Feeder(iter(batches), send, depth, prepare)

    def __iter__(self) -> Prefetch[Batch, Result]:
        return self

    def __next__(self) -> Result:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This prefetch belongs to the process that this one was forked from, and its thread is not here: make "
                "one in this process."
            )
        with self._turn:
            try:
                upload = self._feeder.take()
                if not isinstance(upload, Over):
                    return upload.result()
            except StopIteration as error:
                self._feeder.stop()
                raise RuntimeError("sending a batch raised StopIteration, which would have ended the loop") from error
            except BaseException:
                self._feeder.stop()
                raise
        raise StopIteration

    def close(self) -> None:
        """End it early: what is on its way is dropped, and the thread ends as soon as the source lets it."""
        self._feeder.stop()
        self._feeder.join(GRACE_S)

    def __enter__(self) -> Prefetch[Batch, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        feeder = self.__dict__.get("_feeder")  # not there if the source could not be iterated over
        if feeder is not None:
            feeder.stop()  # and not wait: a destructor may run in any thread, that one too
