"""Arrays to a device and back through the ring: for one device, with page-locked memory of a fixed size."""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from pyxfer._machine.devices import could_be_device, find_device
from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import destination_of, source_of
from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.movers import copy_on_host, make_mover
from pyxfer._upload.natives import inside
from pyxfer._upload.pending import Started, UnderWay, Unknown, Upload
from pyxfer._upload.prefetch import Ahead, Prefetch, SentAhead, ahead_of, depth_of
from pyxfer._upload.settings import default_settings
from pyxfer._upload.targets import Target, device_source_of, target_of
from pyxfer._upload.trees import map_arrays
from pyxfer._upload.tuning import Given, settings_for
from pyxfer.errors import CleanupWarning, CudaError, DeviceTimeoutError, FallbackWarning, ForkedError, UsageError
from pyxfer.native import HOST, choose
from pyxfer.units import parse_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._upload.arrays import Dtype
    from pyxfer._upload.movers import Mover
    from pyxfer._upload.settings import RingSettings
    from pyxfer.native import Engine


_NONE = ("0", "0B")


def budget_bytes(budget: str | int) -> int:
    """Page-locked memory, at most.

    Raises:
        UsageError: it is no size.

    """
    found = _size("budget", budget) if isinstance(budget, str) else budget
    if type(found) is not int:
        raise UsageError(f"a budget is a number of bytes, such as '256MiB', and not {budget!r:.40}")
    return found


def pool_bytes(pool: str | int | None) -> int | None:
    """The device's memory that is kept for later arrays; None leaves it to the pool.

    Raises:
        UsageError: it is no size, nor none.

    """
    if isinstance(pool, str):
        return 0 if pool.replace(" ", "") in _NONE else _size("pool", pool)
    if pool is not None and (type(pool) is not int or pool < 0):
        raise UsageError(f"a pool keeps 0 bytes or more, such as '1GiB', and not {pool!r:.40}")
    return pool


def _size(name: str, text: str) -> int:
    try:
        return parse_size(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


AT_EXIT_S = 0.5
_CLOSED = "this Uploader is closed: make another one"

_open: weakref.WeakSet[Uploader] = weakref.WeakSet()


class Uploader:
    """Brings arrays to one device and back. Any thread may use it; they take turns.

    Its threads and its page-locked memory, at most `budget`, are made at the first use and stay until it is closed. Of
    the device's memory that TensorFlow's and JAX's arrays have left it keeps at most `pool` for later ones; unless that
    is given, twice the largest array so far.

    Raises:
        UsageError: there is no such device, or no ring is built like that; says what can be.
        CudaUnavailableError: a GPU is required and none is usable.

    """

    def __init__(
        self,
        device: int | str = 0,
        *,
        threads: int | None = None,
        chunk_bytes: int | None = None,
        slots: int | None = None,
        budget: str | int = "256MiB",
        pool: str | int | None = None,
        require_gpu: bool = False,
    ) -> None:
        self._given = Given(threads=threads, chunk_bytes=chunk_bytes, slots=slots)
        self._budget_bytes = budget_bytes(budget)
        self._given.applied_to(default_settings()).within(self._budget_bytes)  # says now what is wrong with them
        kept_bytes = pool_bytes(pool)
        self._engine, self._device = device_of(device, require_gpu)
        self._pool = DevicePool(self._engine, self._device, kept_bytes)
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._mover: Mover | None = None
        self._closed = False
        self._targets: dict[str, Target] = {}
        self._left = UnderWay()
        _open.add(self)

    @property
    def engine(self) -> Engine:
        """Whose device it is."""
        return self._engine

    @property
    def device(self) -> int:
        """The device, as the engine counts them."""
        return self._device

    @property
    def pinned_bytes(self) -> int:
        """The page-locked memory that it holds now."""
        return 0 if self._mover is None or self._closed else self._mover.pinned_bytes

    @overload
    def upload(self, x: Any, to: str | Target, block: Literal[True] = True) -> Any: ...
    @overload
    def upload(self, x: Any, to: str | Target, block: Literal[False]) -> Upload: ...
    @overload
    def upload(self, x: Any, to: str | Target, block: bool) -> Any: ...

    def upload(self, x: Any, to: str | Target, block: bool = True) -> Any:
        """A framework's array on the device, of the same contents; of a structure, the same with such arrays in it.

        When it returns the source may be changed or dropped, and what the framework's current stream is given later
        finds the array whole. Without `block` it returns an `Upload` at once, and the source must stay as it is until
        that is done.

        Raises:
            UsageError: the framework, or an array, is refused; says what to do.

        """
        target = self._target(to)
        with self._used() as mover:
            if block:
                return map_arrays(x, lambda each: self._bring(mover, target, each), "x")
            return self._start_all(mover, target, x, "x")

    def download(self, y: Any, out: Any = None) -> Any:
        """The contents of an array on the device, in a new NumPy array or in `out`, which is returned.

        Raises:
            UsageError: `y` is not on the device, or does not fit into `out`; says what to do.

        """
        with self._used() as mover:
            found = device_source_of(y, self._engine, self._device, self._target)
            result = _fresh(found.shape, found.dtype) if out is None else out
            to = destination_of(result, found.shape, found.dtype)
            if is_host(self._engine) and not isinstance(y, DeviceArray):
                copy_on_host(found.address, to)  # a framework computes where it likes, and not in the runtime's memory
            else:
                mover.download(found.address, to, found.stream)
        return result

    def prefetch(self, batches: Iterable[Any], to: str | Target, depth: int = 2) -> Prefetch[Any, Any]:
        """The batches as arrays on the device, in order, with up to `depth` of them on their way ahead of a loop.

        A thread draws and uploads them. What it raises comes out where its batch would have come. `close`, `with`, or
        to drop it, ends it early. At most `depth` + 2 batches are on the device, unless the loop keeps more.

        Raises:
            UsageError: the framework is refused, or `depth` is not a whole number from 1 on.

        """
        count = depth_of(depth)
        with self._used():
            ahead = ahead_of(self._target(to), self._device, count)
        return Prefetch(batches, lambda batch: self._send(ahead, batch), count, self._sweep)

    def close(self) -> None:
        """Wait for all uploads, and release all but the arrays; a second time does nothing."""
        if os.getpid() != self._pid:
            return
        with inside():
            with self._turn:
                self._closed = True
                mover = self._mover
            self._close(mover)
            self._mover = None  # where that raised, the end of the process ends it
        self._left.clear()

    def __enter__(self) -> Uploader:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:  # Ctrl-C, perhaps because the device is stuck
            self._abort()

    def __del__(self) -> None:
        if "_left" not in self.__dict__:  # refused by its constructor
            return
        try:
            if self._closed:
                self._abort()  # what an interrupted or failed close() has left
            else:
                self.close()
        except (CudaError, DeviceTimeoutError) as error:
            warnings.warn(f"An uploader was not closed whole: {error}", CleanupWarning, stacklevel=2)

    def _abort(self) -> None:
        if mover := self._cancel():
            mover.end(AT_EXIT_S)

    def _cancel(self) -> Mover | None:
        """Cancel what is under way, and take no more; the mover that is still to be ended, if there is one."""
        if os.getpid() != self._pid or self._mover is None:
            return None
        self._closed = True
        self._pool.abandon()
        self._mover.cancel()
        return self._mover

    def _close(self, mover: Mover | None) -> None:
        try:
            if mover is not None:
                mover.close()
        except DeviceTimeoutError:
            self._pool.abandon()
            raise
        except CudaError:
            with suppress(CudaError):  # of the same trouble
                self._pool.close()
            raise
        self._pool.close()

    @contextmanager
    def _used(self) -> Iterator[Mover]:
        with inside() as lasts:
            if not lasts:
                raise UsageError("Python ends, and this Uploader with it")
            self._left.sweep()
            try:
                yield self._ready()
            except RuntimeError as error:
                if self._closed and type(error) is RuntimeError:  # the ring's word, which another thread has closed
                    raise UsageError(_CLOSED) from error
                raise

    def _ready(self) -> Mover:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This Uploader belongs to the process that this one was forked from, and its threads are not here: "
                'start processes by multiprocessing.get_context("spawn"), and make one in each.'
            )
        with self._turn:
            if self._closed:
                raise UsageError(_CLOSED)
            if self._mover is None:
                self._mover = make_mover(self._engine, self._device, self._settings)
            return self._mover

    def _settings(self) -> RingSettings:
        return settings_for(self._engine, self._device, given=self._given, budget_bytes=self._budget_bytes).settings

    def _target(self, to: str | Target) -> Target:
        if isinstance(to, Target):
            return to
        found = self._targets.get(to) if isinstance(to, str) else None
        if found is None:
            found = self._targets[to] = target_of(to, self._engine, self._pool)
        return found

    def _bring(self, mover: Mover, target: Target, x: Any) -> Any:
        source = source_of(x)
        address, finish = target.empty(source.shape, source.dtype, self._device)
        try:
            stream = target.stream(self._device)
            mover.upload(source, address, stream, wait=stream is None)
            return finish()
        except BaseException:
            del finish  # or the traceback would keep the memory
            raise

    def _send(self, ahead: Ahead, batch: Any) -> SentAhead:
        # The frameworks allocate, and wait for events, in this thread: another one may be capturing a CUDA graph.
        self._engine.relax_captures_in_this_thread()
        ahead.before()
        with self._used() as mover:
            return SentAhead(self._start_all(mover, ahead.target, batch, "batch"), ahead)

    def _sweep(self) -> None:
        """Before a batch is drawn: later the loop has queued more, and the device would be without work meanwhile."""
        with inside() as lasts:
            if lasts:
                self._pool.sweep()

    def _start_all(self, mover: Mover, target: Target, x: Any, name: str) -> Upload:
        started: list[Started] = []

        def start(each: Any) -> Any:
            self._start(mover, target, each, started)
            return each

        try:
            tree = map_arrays(x, start, name)
        except BaseException:
            self._left.add(started)
            raise
        return Upload(tree, started, self._left, self)

    def _start(self, mover: Mover, target: Target, x: Any, started: list[Started]) -> None:
        source = source_of(x)
        address, finish = target.empty(source.shape, source.dtype, self._device)
        try:
            stream = target.stream(self._device)
            started.append(Started(mover.start(source, address, stream), finish, source.keep))
        except Exception:
            del finish
            raise
        except BaseException:  # Ctrl-C, which may have come when it was on its way already
            self._left.add([Started(Unknown(), finish, source.keep)])
            raise


def device_of(device: int | str, require_gpu: bool = False, stacklevel: int = 3) -> tuple[Engine, int]:
    """The engine and its device; without a GPU host memory, of which the caller is warned.

    Raises:
        UsageError: there is no such device.
        CudaUnavailableError: a GPU is required and none is usable.

    """
    choice = choose(device, require_gpu)
    if choice.reason and not could_be_device(device):
        raise UsageError(f"{device!r:.60} is no device: give an index, a UUID, a PCI address, or 'host'")
    if choice.reason:
        said = f'{choice.reason} Arrays stay in host memory; device="host" asks for that.'
        warnings.warn(said, FallbackWarning, stacklevel)
    if device == HOST or choice.reason:
        return choice.engine, 0
    if isinstance(device, int) and 0 <= device < choice.engine.device_count():
        return choice.engine, device
    return choice.engine, find_device(choice.engine, device).index


def _fresh(shape: tuple[int, ...], dtype: Dtype) -> NDArray[Any]:
    if not isinstance(dtype, str):
        return np.empty(shape, dtype)
    try:
        found = importlib.import_module("ml_dtypes").bfloat16
    except ImportError as error:
        raise UsageError(
            "NumPy has no bfloat16 of its own: pip install ml_dtypes, or give `out`, such as torch.empty makes"
        ) from error
    return np.empty(shape, found)


def _at_exit() -> None:
    """Their devices may be stuck: all of them together have this time."""
    until = time.monotonic() + AT_EXIT_S
    movers = [mover for each in list(_open) if (mover := each._cancel()) is not None]
    for mover in movers:
        with suppress(CudaError, DeviceTimeoutError):  # the process ends, and releases what is left
            mover.end(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)
